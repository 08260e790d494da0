"""Pictures, outlines and sentences as markup."""

import base64
import io
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ui.markup import error_markup, label_markup, note_markup, outline_path, picture_uri, rates_svg


def test_picture_uri_keeps_every_pixel() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    head, data = picture_uri(pixels).split(",")
    assert head == "data:image/webp;base64"
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))), pixels)


def test_outline_encloses_the_mask() -> None:
    mask = np.zeros((20, 40), dtype=bool)
    mask[5:10, 10:30] = True
    numbers = [float(number) for number in re.findall(r"[\d.]+", outline_path(mask))]
    xs, ys = numbers[::2], numbers[1::2]
    assert (min(xs), max(xs)) == pytest.approx((25, 75), abs=2)
    assert (min(ys), max(ys)) == pytest.approx((25, 50), abs=3)


def test_outline_of_the_whole_picture_is_closed() -> None:
    path = outline_path(np.ones((8, 8), dtype=bool))
    assert path.startswith("M")
    assert path.endswith("Z")


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=300))
def test_a_drawing_of_rates_stays_inside_its_box(rates: list[float]) -> None:
    for path in re.findall(r' d="([^"]*)"', rates_svg(np.array(rates))):
        assert all(0 <= float(number) <= 100 for number in re.findall(r"[\d.]+", path))


@given(st.text())
def test_sentences_never_become_markup(sentence: str) -> None:
    for markup in (error_markup(sentence), note_markup([sentence]), label_markup(sentence, sentence)):
        text = re.sub(r"</?(div|span|button|p|i)( [^<>]*)?>", "", markup)
        assert "<" not in text


def test_no_sentence_is_no_markup() -> None:
    assert error_markup("") == ""
    assert note_markup([]) == ""
