"""Pictures and masks that people bring: each awkward kind, each refusal, and damage of any sort."""

import csv
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path

import inputs
import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.ndimage import binary_dilation

from sakura.errors import UserError
from sakura.pictures import (
    fit_square,
    fit_square_mask,
    from_png,
    invert,
    read_mask,
    read_picture,
    to_png,
)

ROOT = Path(__file__).resolve().parents[1]
CASES = next(
    (folder for folder in (ROOT / "shared/cases", ROOT.parent / "shared/cases") if folder.is_dir()), ROOT / "-"
)
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="the folder of shared cases is not here")
SIZE = (inputs.MASK_SIZE_PX, inputs.MASK_SIZE_PX)


def assert_quadrants(pixels: np.ndarray, tolerance: int = 12) -> None:
    """The middles of the four quarters have the colours of ``inputs.quadrants``."""
    height, width = pixels.shape[:2]
    middles = pixels[[height // 4, height // 4, height * 3 // 4, height * 3 // 4], [width // 4, width * 3 // 4] * 2]
    np.testing.assert_allclose(middles.astype(int), inputs.QUADRANTS, atol=tolerance)


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF"])
def test_accepted_formats(file_format: str) -> None:
    picture = read_picture(inputs.encoded(inputs.quadrants(), file_format), "any.name")
    assert picture.pixels.dtype == np.uint8
    assert picture.pixels.shape == (64, 96, 3)
    assert picture.notes == ()
    assert_quadrants(picture.pixels)


@pytest.mark.parametrize(
    ("orientation", "turn"),
    [
        (3, Image.Transpose.ROTATE_180),
        (5, Image.Transpose.TRANSPOSE),
        (6, Image.Transpose.ROTATE_90),
        (8, Image.Transpose.ROTATE_270),
    ],
)
def test_exif_orientation_is_applied(orientation: int, turn: Image.Transpose) -> None:
    picture = read_picture(inputs.sideways_jpeg(orientation, turn), "phone.jpg")
    assert picture.pixels.shape == (64, 96, 3)
    assert_quadrants(picture.pixels)


def test_transparency_is_flattened_on_white() -> None:
    picture = read_picture(inputs.translucent_png(), "hole.png")
    assert picture.pixels[5, 5].tolist() == [255, 255, 255]
    assert picture.pixels[5, 20].tolist() == [0, 128, 0]
    np.testing.assert_allclose(picture.pixels[5, 31], [127, 191, 127], atol=1)
    assert picture.notes == ("Transparent parts of hole.png were filled with white.",)


def test_palette_with_transparent_entries() -> None:
    pixels = read_picture(inputs.palette_png(), "palette.png").pixels
    np.testing.assert_allclose(pixels[8, [8, 24, 40]], [[255, 255, 255], [127, 255, 127], [0, 0, 255]], atol=1)


def test_one_bit_picture_of_odd_size() -> None:
    picture = read_picture(inputs.encoded(inputs.quadrants(27, 29).convert("1"), "PNG"), "fax.png")
    assert picture.pixels.shape == (29, 27, 3)
    assert set(np.unique(picture.pixels)) == {0, 255}


def test_16_bit_grey_keeps_its_look() -> None:
    pixels = read_picture(inputs.grey_16_bit_png(), "scan.png").pixels
    np.testing.assert_allclose(pixels[0, :, 1], np.linspace(0, 255, 64), atol=1)


def test_cmyk_is_not_a_negative() -> None:
    picture = read_picture(inputs.cmyk_jpeg(), "print.jpg")
    assert_quadrants(picture.pixels, tolerance=20)
    assert picture.notes == ("print.jpg was converted from CMYK to RGB.",)


def test_colour_profile_is_applied() -> None:
    picture = read_picture(inputs.profiled_png(inputs.linear_profile()), "raw.png")
    np.testing.assert_allclose(picture.pixels[0, 0], [188, 188, 188], atol=2)
    assert picture.notes == ("The colours of raw.png were converted from its own profile to sRGB.",)


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "LA", "P"])
def test_srgb_profile_changes_nothing(mode: str) -> None:
    picture = read_picture(inputs.profiled_png(inputs.srgb_profile(), mode), "usual.png")
    np.testing.assert_allclose(picture.pixels[0, 0], [128, 128, 128], atol=1)
    assert picture.notes == ()


def test_broken_colour_profile_is_ignored_with_a_note() -> None:
    picture = read_picture(inputs.profiled_png(b"no profile at all"), "odd.png")
    assert picture.pixels[0, 0].tolist() == [128, 128, 128]
    assert picture.notes == ("The colour profile of odd.png does not fit its pixels and was ignored.",)


@pytest.mark.parametrize(
    ("file_format", "unit"), [("GIF", "frame"), ("TIFF", "page"), ("WEBP", "frame"), ("PNG", "frame")]
)
def test_first_frame_is_used(file_format: str, unit: str) -> None:
    picture = read_picture(inputs.animation(file_format), "many")
    np.testing.assert_allclose(picture.pixels[5, 5], [255, 0, 0], atol=3)
    assert picture.notes == (f"Only the first {unit} of many is used.",)


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF"])
@pytest.mark.parametrize("kept", [0.5, 0.9])
def test_cut_files_are_named(file_format: str, kept: float) -> None:
    data = inputs.noise_file(file_format)
    with pytest.raises(UserError, match=r"^cut\.bin is (incomplete or damaged|not a picture)"):
        read_picture(data[: int(len(data) * kept)], "cut.bin")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "x.png is empty"),
        (b"just some text, no picture", "not a picture that can be read; choose a JPEG, PNG"),
        (inputs.heic_file(), "HEIC picture, which is not supported; save it as JPEG"),
        (inputs.encoded(Image.new("RGB", (1, 1)), "PNG"), "1x1 pixels, too small; use at least 16"),
        (inputs.encoded(Image.new("RGB", (1000, 1)), "PNG"), "1000x1 pixels, too small"),
        (inputs.encoded(Image.new("RGB", (100, 20)), "PNG"), "100x20 pixels, longer than 4:1; crop"),
        (inputs.png_header(60_000, 60_000), "too large; use a picture of at most 40 megapixels"),
        (inputs.png_header(8_000, 5_001), "8000x5001 pixels, too large; use a picture of at most 40 megapixels"),
        (inputs.png_header(6_000, 6_000), "incomplete or damaged"),
        (inputs.encoded(Image.new("F", (32, 32)), "TIFF"), "pixels of type F"),
        (bytes(20_000_001), "20.0 MB; use a file of at most 20 MB"),
    ],
)
def test_refusals_say_what_to_do(data: bytes, words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        read_picture(data, "x.png")
    assert str(caught.value).startswith("x.png ")


@pytest.mark.parametrize(
    "data",
    [
        inputs.png_header(60_000, 60_000),
        b"GIF89a" + struct.pack("<HH", 65535, 65535) + bytes(40),
        b"BM" + struct.pack("<IIIIiiHHI", 60_054, 0, 54, 40, 60_000, 60_000, 1, 24, 0) + bytes(60_000),
    ],
)
def test_bombs_are_refused_at_once(data: bytes) -> None:
    process = psutil.Process()
    before_bytes, start_s = process.memory_info().rss, time.monotonic()
    with pytest.raises(UserError, match="bomb"):
        read_picture(data, "bomb")
    assert time.monotonic() - start_s < 1
    assert process.memory_info().rss - before_bytes < 20_000_000


def test_files_are_read_by_path(tmp_path: Path) -> None:
    path = tmp_path / "wrong.jpg"
    path.write_bytes(inputs.encoded(inputs.quadrants(), "PNG"))
    assert_quadrants(read_picture(path, path.name).pixels)
    for missing in (tmp_path / "none.png", tmp_path, Path("a\0b")):
        with pytest.raises(UserError, match="cannot be opened"):
            read_picture(missing, "none.png")


def test_names_cannot_garble_a_message() -> None:
    with pytest.raises(UserError) as caught:
        read_picture(b"", "a\u202egnp.\n" + "x" * 500)
    assert str(caught.value).startswith("agnp.xxx")
    assert len(str(caught.value)) < 200


def test_fit_square_crops_the_middle_and_says_so() -> None:
    picture = fit_square(np.asarray(inputs.quadrants()), 32)
    assert picture.pixels.shape == (32, 32, 3)
    assert_quadrants(picture.pixels)
    assert picture.notes == ("Of the 96x64 pixels, the middle 64x64 are used.",)
    enlarged = fit_square(picture.pixels, 128)
    assert enlarged.notes == ("The picture was enlarged from 32x32 to 128x128 pixels.",)
    assert fit_square(picture.pixels, 32).notes == ()


def test_fit_square_mask_crops_as_the_picture() -> None:
    image = np.asarray(inputs.quadrants())
    mask = image[..., 0] > 150
    fitted = fit_square(image, 32).pixels[..., 0] > 150
    assert (fit_square_mask(mask, 32) != fitted).mean() < 0.04


@pytest.mark.parametrize("mode", ["L", "RGB", "1", "P", "RGBA"])
def test_white_is_edited(mode: str) -> None:
    mask = read_mask(inputs.mask_png(inputs.disc(), mode), "mask.png", SIZE)
    np.testing.assert_array_equal(mask.mask, inputs.disc())
    assert mask.mask.dtype == bool
    assert mask.share == pytest.approx(inputs.disc().mean())
    assert mask.notes == ()


@pytest.mark.parametrize(
    ("paint", "alpha", "ground"),
    [
        ((255, 255, 255), 255, (255, 255, 255, 0)),
        ((255, 255, 255), 255, (0, 0, 0, 0)),
        ((0, 0, 0), 255, (0, 0, 0, 0)),
        ((255, 105, 180), 100, (0, 0, 0, 0)),
    ],
)
def test_layer_is_read_by_its_opacity(
    paint: tuple[int, int, int], alpha: int, ground: tuple[int, int, int, int]
) -> None:
    mask = read_mask(inputs.layer_png(inputs.disc(), paint, alpha, ground), "layer.png", SIZE)
    np.testing.assert_array_equal(mask.mask, inputs.disc())
    assert "painted part" in mask.notes[0]


def test_transparent_parts_of_a_two_shade_mask_are_kept() -> None:
    pixels = np.full((*inputs.disc().shape, 4), (0, 0, 0, 255), dtype=np.uint8)
    pixels[inputs.disc()] = (255, 255, 255, 255)
    pixels[:64] = (255, 255, 255, 0)
    mask = read_mask(inputs.encoded(Image.fromarray(pixels), "PNG"), "mask.png", SIZE)
    assert not mask.mask[:64].any()
    np.testing.assert_array_equal(mask.mask[64:], inputs.disc()[64:])


def test_jpeg_noise_leaves_no_stray_pixels() -> None:
    mask = read_mask(inputs.noisy_mask_jpeg(inputs.disc()), "mask.jpg", SIZE)
    assert mask.share == pytest.approx(inputs.disc().mean(), abs=0.005)
    assert not mask.mask[~binary_dilation(inputs.disc(), iterations=2)].any()


def test_specks_are_removed_with_a_note() -> None:
    drawn = inputs.disc()
    drawn[2:4, 2:4] = True
    drawn[63, 63] = False
    mask = read_mask(inputs.mask_png(drawn), "mask.png", SIZE)
    np.testing.assert_array_equal(mask.mask, inputs.disc())
    assert mask.notes == ("Specks of up to 8 pixels were removed from mask.png.",)


def test_a_mask_of_specks_alone_is_kept() -> None:
    drawn = np.zeros((128, 128), dtype=bool)
    drawn[10, 10] = True
    assert read_mask(inputs.mask_png(drawn), "dot.png", SIZE).mask.sum() == 1


def test_mask_of_the_same_shape_is_resized() -> None:
    mask = read_mask(inputs.mask_png(inputs.disc()), "mask.png", (512, 512))
    assert mask.mask.shape == (512, 512)
    assert mask.share == pytest.approx(inputs.disc().mean(), abs=0.005)
    assert mask.notes == ("mask.png is 128x128 pixels and the picture 512x512, so the mask was resized.",)


def test_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(UserError, match=r"mask\.png is 128x128 pixels and the picture 300x200; use a mask of the"):
        read_mask(inputs.mask_png(inputs.disc()), "mask.png", (300, 200))


@pytest.mark.parametrize(
    "data",
    [
        inputs.mask_png(np.zeros((128, 128), dtype=bool)),
        inputs.layer_png(np.zeros((128, 128), dtype=bool), (0, 0, 0), 0, (255, 255, 255, 0)),
    ],
)
def test_empty_mask_is_refused(data: bytes) -> None:
    with pytest.raises(UserError, match=r"mask\.png marks nothing to edit; paint"):
        read_mask(data, "mask.png", SIZE)


def test_full_mask_says_that_nothing_is_reused() -> None:
    mask = read_mask(inputs.mask_png(np.ones((128, 128), dtype=bool)), "mask.png", SIZE)
    assert mask.share == 1
    assert "nothing can be reused" in mask.notes[0]
    with pytest.raises(UserError, match="inverted mask marks nothing"):
        invert(mask)


def test_large_mask_has_a_note_and_can_be_inverted() -> None:
    mask = read_mask(inputs.mask_png(~inputs.disc()), "mask.png", SIZE)
    assert "covers 82.7% of the picture: little can be reused" in mask.notes[0]
    inverted = invert(mask)
    np.testing.assert_array_equal(inverted.mask, inputs.disc())
    assert inverted.share == pytest.approx(1 - mask.share)
    assert inverted.notes == ()


@given(seed=st.integers(0, 2**32), width=st.integers(1, 40), height=st.integers(1, 40))
@settings(max_examples=20, deadline=None)
def test_png_returns_the_pixels(seed: int, width: int, height: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    np.testing.assert_array_equal(from_png(to_png(pixels)), pixels)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (inputs.noise_file("JPEG"), "not a PNG"),
        (b"", "not a PNG"),
        (inputs.png_header(2049, 20), "2049x20 pixels; send at most 2048"),
        (inputs.png_header(60_000, 60_000), "too large"),
        (inputs.translucent_png(), "mode RGBA; send RGB"),
        (inputs.noise_file("PNG")[:3000], "incomplete or damaged"),
    ],
)
def test_only_sound_png_comes_from_the_wire(data: bytes, words: str) -> None:
    with pytest.raises(UserError, match=words):
        from_png(data)


def _read_as_mask(data: bytes, name: str) -> object:
    return read_mask(data, name, (64, 64))


def _read_from_wire(data: bytes, _: str) -> object:
    return from_png(data)


READERS: list[Callable[[bytes, str], object]] = [read_picture, _read_as_mask, _read_from_wire]
SEEDS = [inputs.noise_file(file_format) for file_format in ("PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP")] + [
    inputs.palette_png(),
    inputs.profiled_png(inputs.linear_profile()),
    inputs.sideways_jpeg(6, Image.Transpose.ROTATE_90),
]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::PIL.Image.DecompressionBombWarning")
@given(
    reader=st.sampled_from(READERS),
    seed=st.sampled_from(SEEDS),
    edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=12),
    early=st.booleans(),
    kept=st.floats(0, 1),
)
@settings(max_examples=150, deadline=None)
def test_damage_raises_nothing_but_user_errors(
    reader: Callable[[bytes, str], object], seed: bytes, edits: list[tuple[float, int]], early: bool, kept: float
) -> None:
    data = bytearray(seed)
    reach = min(len(data), 120) if early else len(data)  # Headers are where damage is most telling.
    for place, value in edits:
        data[int(place * reach)] = value
    if not edits:
        del data[int(kept * len(data)) :]
    try:
        reader(bytes(data), "fuzz")
    except UserError as error:
        assert str(error).endswith(".")


@pytest.mark.filterwarnings("ignore::UserWarning")
@given(
    start=st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"II*\0", b"BM", b"RIFF"]),
    rest=st.binary(),
)
@settings(max_examples=100, deadline=None)
def test_random_bytes_raise_nothing_but_user_errors(start: bytes, rest: bytes) -> None:
    for reader in READERS:
        with pytest.raises(UserError):
            reader(start + rest, "fuzz")


def _manifest(kind: str) -> list[dict[str, str]]:
    if not CASES.is_dir():
        return []
    with (CASES / "manifest.csv").open(encoding="utf-8", newline="") as lines:
        return [row for row in csv.DictReader(lines) if row["kind"] == kind]


def _name(row: dict[str, str]) -> str:
    return row["file"]


@needs_cases
@pytest.mark.parametrize("row", _manifest("image"), ids=_name)
def test_shared_image_case(row: dict[str, str]) -> None:
    name = Path(row["file"]).name
    if row["expected_behaviour"].startswith("error"):
        with pytest.raises(UserError, match=re.escape(name)):
            read_picture(CASES / row["file"], name)
        return
    picture = read_picture(CASES / row["file"], name)
    assert picture.pixels.dtype == np.uint8
    if row["expected_behaviour"].startswith("accepted with a note"):
        assert picture.notes
        red, green, blue = picture.pixels.mean(axis=(0, 1))
        assert red > 2 * max(green, blue)


@needs_cases
@pytest.mark.parametrize("number", [3, 5, 6])
def test_shared_orientation_case(number: int) -> None:
    pixels = read_picture(CASES / f"images/exif_orientation_{number}.jpg", "x").pixels.astype(int)
    assert pixels.shape == (320, 240, 3)
    red, green, blue, yellow = (pixels[y, x] for y, x in ((20, 20), (20, 220), (300, 20), (300, 220)))
    assert red[0] - max(red[1:]) > 60
    assert green[1] - max(green[0], green[2]) > 60
    assert blue[2] - max(blue[:2]) > 60
    assert min(yellow[:2]) - yellow[2] > 60


@needs_cases
def test_shared_colour_cases() -> None:
    patches = read_picture(CASES / "images/icc_wide_gamut_p3.jpg", "x").pixels[180, [50, 160, 270]]
    np.testing.assert_allclose(patches.astype(int), [[251, 25, 28], [0, 205, 72], [47, 91, 229]], atol=6)
    for name in ("cmyk_adobe_inverted.jpg", "rgb16_240x160.png"):
        sky = read_picture(CASES / "images" / name, name).pixels[5, 10].astype(int)
        assert sky[2] > sky[0]
    hole = read_picture(CASES / "images/rgba_hole_magenta_below.png", "x").pixels.astype(int)
    assert not ((hole[..., 0] > 200) & (hole[..., 2] > 200) & (hole[..., 1] < 150)).any()


@needs_cases
@pytest.mark.parametrize("row", _manifest("mask"), ids=_name)
def test_shared_mask_case(row: dict[str, str]) -> None:
    mask = read_mask(CASES / row["file"], Path(row["file"]).name, (512, 512))
    share = re.search(r"([\d.]+) %", row["expected_behaviour"])
    if share:
        assert mask.share * 100 == pytest.approx(float(share[1]), abs=0.5)
    assert bool(mask.notes) == (mask.share > 0.8 or "alpha_only" in row["file"])
    if "jpeg_noise" in row["file"]:
        sound = read_mask(CASES / "masks/ok_mask_512.png", "x", (512, 512)).mask
        assert not mask.mask[~binary_dilation(sound, np.ones((3, 3)), iterations=2)].any()
