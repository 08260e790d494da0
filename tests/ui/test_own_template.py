"""What the panel for a template of one's own asks the server: every answer is checked there again."""

import base64
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakura.errors import UserError
from sakura.pictures import to_png
from sakura.portraits.tasks import Subject
from sakura.studio import Studio
from ui.fields import FieldError
from ui.own_template import MAX_MARKS_LENGTH, PANEL_PX, OwnTemplates, read_marks


class Shelf:
    """As much of a studio as the panel uses: it keeps what it is given."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, Subject, np.ndarray, np.ndarray]] = []

    def add_template(self, title: str, subject: Subject, picture: np.ndarray, mask: np.ndarray) -> str:
        self.kept.append((title, subject, picture, mask))
        return f"own-{len(self.kept)}"


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def panel(shelf: Shelf) -> OwnTemplates:
    return OwnTemplates(cast(Studio, shelf))


@pytest.fixture
def uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    return tmp_path


def write(folder: Path, name: str, pixels: np.ndarray) -> str:
    path = folder / name
    path.write_bytes(to_png(pixels))
    return str(path)


def square(low: int, high: int, side_px: int = PANEL_PX) -> np.ndarray:
    """White inside [low, high) both ways, black elsewhere."""
    pixels = np.zeros((side_px, side_px, 3), dtype=np.uint8)
    pixels[low:high, low:high] = 255
    return pixels


def encoded(pixels: np.ndarray) -> str:
    return base64.b64encode(to_png(pixels)).decode()


@given(st.integers(0, 300), st.integers(40, 200))
def test_marks_arrive_as_they_were_painted(low: int, size: int) -> None:
    marks, notes = read_marks(encoded(square(low, low + size)))
    assert marks.sum() == size * size
    assert notes == []


def test_large_regions_are_told() -> None:
    assert "nothing can be reused" in read_marks(encoded(square(0, PANEL_PX)))[1][0]
    assert "little can be reused" in read_marks(encoded(square(0, 490)))[1][0]


@pytest.mark.parametrize(
    ("marks", "sentence"),
    [
        ("not base64!", "did not arrive whole"),
        (base64.b64encode(b"no picture").decode(), "not a picture"),
        ("A" * (MAX_MARKS_LENGTH + 1), "too large"),
        (encoded(square(0, 0)), "marks nothing"),
        (encoded(square(0, 1)), "too small"),
        (encoded(np.full((64, 32, 3), 255, dtype=np.uint8)), "use a mask of the picture's size"),
    ],
)
def test_marks_that_make_no_sense_are_refused(marks: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        read_marks(marks)


def test_a_picture_becomes_a_square_with_notes(panel: OwnTemplates, uploads: Path) -> None:
    path = write(uploads, "wide.png", np.zeros((300, 400, 3), dtype=np.uint8))
    answer = panel.read_picture(path, "wide.png")
    assert answer["src"].startswith("data:image/")
    assert answer["notes"] == ["Of the 400x300 pixels, the middle 300x300 are used."]


def test_a_mask_follows_its_picture_into_the_square(panel: OwnTemplates, uploads: Path) -> None:
    picture = write(uploads, "wide.png", np.zeros((300, 400, 3), dtype=np.uint8))
    mask = np.zeros((300, 400, 3), dtype=np.uint8)
    mask[:, :40] = 255
    with pytest.raises(UserError, match="inside the square"):
        panel.read_mask(write(uploads, "left.png", mask), "left.png", picture)
    mask[:, :200] = 255
    assert panel.read_mask(write(uploads, "half.png", mask), "half.png", picture)["src"].startswith("data:image/")
    other = write(uploads, "other.png", square(10, 90, 100))
    with pytest.raises(UserError, match=r"other\.png is 100x100 pixels and the picture 400x300"):
        panel.read_mask(other, "other.png", picture)


@pytest.mark.parametrize(
    ("task", "subject", "kept"),
    [("face_swap", "", "face"), ("try_on", "hat", "garment"), ("instruction", "hat", "hat")],
)
def test_the_task_tells_the_subject(
    panel: OwnTemplates, shelf: Shelf, uploads: Path, task: str, subject: str, kept: str
) -> None:
    path = write(uploads, "me.png", np.full((200, 260, 3), 90, dtype=np.uint8))
    assert panel.add(path, encoded(square(128, 384)), task, subject, "Me") == "own-1"
    [(title, about, picture, mask)] = shelf.kept
    assert (title, about, picture.shape, mask.shape) == ("Me", kept, (128, 128, 3), (128, 128))
    assert mask.mean() == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("subject", {"task": "instruction", "subject": ""}),
        ("subject", {"task": "instruction", "subject": "face"}),
        ("subject", {"task": "paint"}),
        ("picture", {"picture_path": "/etc/passwd"}),
        ("mask", {"marks": "?"}),
    ],
)
def test_what_is_wrong_is_told_at_its_field(
    panel: OwnTemplates, shelf: Shelf, uploads: Path, field: str, changes: dict[str, str]
) -> None:
    path = write(uploads, "me.png", np.full((200, 200, 3), 90, dtype=np.uint8))
    asked = {"picture_path": path, "marks": encoded(square(100, 300)), "task": "face_swap", "subject": "", "title": ""}
    with pytest.raises(FieldError) as caught:
        panel.add(**{**asked, **changes})
    assert caught.value.field == field
    assert shelf.kept == []


def test_a_picture_that_is_gone_is_asked_for_again(panel: OwnTemplates, uploads: Path) -> None:
    path = write(uploads, "me.png", np.full((200, 200, 3), 90, dtype=np.uint8))
    Path(path).unlink()
    with pytest.raises(FieldError, match="choose it again"):
        panel.add(path, encoded(square(100, 300)), "face_swap", "", "")
