"""Turn the pictures and masks that people bring into upright sRGB pixels and boolean masks.

Whatever is wrong with a file ends in a UserError of one sentence that names the file; whatever was changed on the way
is told in ``notes``, sentences to show beside the picture.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError
from skimage.morphology import remove_small_holes, remove_small_objects

from sakura.errors import UserError

MAX_FILE_BYTES = 20_000_000
MAX_PIXELS = 40_000_000
MIN_SIDE_PX = 16
MAX_ASPECT = 4
MAX_WIRE_SIDE_PX = 2048
MAX_SPECK_PX = 8
LARGE_SHARE = 0.8

_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP")
_FORMATS_SHOWN = "JPEG, PNG, WebP, GIF, TIFF or BMP"
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"heif", b"mif1", b"msf1")
_GREY_MODES = ("1", "L", "LA")
_COLOR_MODES = ("P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "YCbCr", "CMYK")
# An editor's brush may be half transparent: opacity counts relative to the strongest stroke, unless that is mere haze.
_MIN_STROKE_ALPHA = 32


@dataclass(frozen=True, eq=False)
class UserPicture:
    """``pixels`` is uint8 RGB of shape (h, w, 3)."""

    pixels: np.ndarray
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class UserMask:
    """``mask`` is bool of shape (h, w), true where the picture is to be edited; ``share`` is the part that is true."""

    mask: np.ndarray
    share: float
    notes: tuple[str, ...] = ()


def read_picture(source: Path | bytes, name: str) -> UserPicture:
    """Read a picture file as its viewer shows it: upright, in sRGB, transparency on white, the first frame.

    ``name`` is what messages call the file. Raises UserError over 20 MB or 40 megapixels, under 16 px, for shapes
    longer than 4:1, and for files that are damaged or of another format.
    """
    name = _shown_name(name)
    with _named_damage(name):
        image, notes = _open(source, name)
        width, height = image.size
        if max(width, height) > MAX_ASPECT * min(width, height):
            raise UserError(
                f"{name} is {width}x{height} pixels, longer than {MAX_ASPECT}:1; crop it around what matters."
            )
        image = ImageOps.exif_transpose(image)
        return _to_rgb(image, name, notes)


def read_mask(source: Path | bytes, name: str, picture_size: tuple[int, int]) -> UserMask:
    """Read a mask for a picture of ``picture_size`` = (width, height) pixels: white, from half up, is edited.

    Where one shade alone is visible on a transparent ground, as in an editor's layer, what is painted is edited. A mask
    of another size but the same shape is resized; specks of up to 8 pixels are removed. Raises UserError like
    :func:`read_picture`, for a mask of another shape and for one that marks nothing.
    """
    name = _shown_name(name)
    with _named_damage(name):
        image, notes = _open(source, name)
        image = ImageOps.exif_transpose(image)
        levels, level_notes = _mask_levels(image, name)
    notes += level_notes
    if levels.size != picture_size:
        (width, height), (picture_width, picture_height) = levels.size, picture_size
        sizes = f"{name} is {width}x{height} pixels and the picture {picture_width}x{picture_height}"
        if abs(width * picture_height / picture_width - height) > 1:
            raise UserError(f"{sizes}; use a mask of the picture's size.")
        levels = levels.resize(picture_size, Image.Resampling.BILINEAR)
        notes.append(f"{sizes}, so the mask was resized.")
    mask = np.asarray(levels) >= 128
    cleaned = _without_specks(mask)
    if (cleaned != mask).any():
        notes.append(f"Specks of up to {MAX_SPECK_PX} pixels were removed from {name}.")
    return _to_user_mask(cleaned, name, notes)


def invert(mask: UserMask) -> UserMask:
    """Swap what is edited and what is kept. Raises UserError where nothing would be left to edit."""
    return _to_user_mask(~mask.mask, "The inverted mask", [])


def fit_square(pixels: np.ndarray, side_px: int) -> UserPicture:
    """The middle square of ``pixels``, uint8 RGB (h, w, 3), at ``side_px``; notes tell of a crop or an enlargement."""
    height, width = pixels.shape[:2]
    cropped_px = min(width, height)
    notes = []
    if width != height:
        notes.append(f"Of the {width}x{height} pixels, the middle {cropped_px}x{cropped_px} are used.")
    if cropped_px < side_px:
        notes.append(f"The picture was enlarged from {cropped_px}x{cropped_px} to {side_px}x{side_px} pixels.")
    return UserPicture(_fit(pixels, side_px, Image.Resampling.LANCZOS), tuple(notes))


def fit_square_mask(mask: np.ndarray, side_px: int) -> np.ndarray:
    """Crop and resize a mask, bool (h, w), as :func:`fit_square` does the picture that it belongs to."""
    return _fit(mask.astype(np.uint8) * 255, side_px, Image.Resampling.BILINEAR) >= 128


def to_png(pixels: np.ndarray) -> bytes:
    """Encode uint8 RGB (h, w, 3) as PNG, fast rather than small."""
    encoded = io.BytesIO()
    Image.fromarray(pixels).save(encoded, "PNG", compress_level=1)
    return encoded.getvalue()


def from_png(encoded: bytes) -> np.ndarray:
    """Decode an 8-bit RGB PNG of at most 2048 px a side to uint8 (h, w, 3). Raises UserError for anything else."""
    name = "The received picture"
    with _named_damage(name):
        try:
            image = Image.open(io.BytesIO(encoded), formats=["PNG"])
        except UnidentifiedImageError as error:
            raise UserError(f"{name} is not a PNG; send it as PNG.") from error
        if max(image.size) > MAX_WIRE_SIDE_PX:
            raise UserError(
                f"{name} is {image.width}x{image.height} pixels; send at most {MAX_WIRE_SIDE_PX} pixels a side."
            )
        if image.mode != "RGB":
            raise UserError(f"{name} is a PNG of mode {image.mode}; send RGB without transparency.")
        return np.array(image)


def _shown_name(name: str) -> str:
    """``name`` without control and direction characters, which would garble a message, and of a length that fits."""
    return "".join(character for character in name if character.isprintable())[:80] or "The file"


@contextmanager
def _named_damage(name: str) -> Iterator[None]:
    """Decoders answer damaged bytes with nearly any exception: all of them mean the same to people."""
    try:
        yield
    except UserError:
        raise
    except Image.DecompressionBombError as error:
        raise UserError(_too_large(name)) from error
    except Exception as error:
        raise UserError(f"{name} is incomplete or damaged; save it anew or send it again.") from error


def _too_large(name: str, size: tuple[int, int] | None = None) -> str:
    shown = f"{size[0]}x{size[1]} pixels, " if size else ""
    return f"{name} is {shown}too large; use a picture of at most {MAX_PIXELS // 1_000_000} megapixels."


def _read_bytes(source: Path | bytes, name: str) -> bytes:
    try:
        size_bytes = len(source) if isinstance(source, bytes) else source.stat().st_size
        if size_bytes > MAX_FILE_BYTES:
            raise UserError(
                f"{name} has {size_bytes / 1e6:.1f} MB; use a file of at most {MAX_FILE_BYTES // 1_000_000} MB."
            )
        data = source if isinstance(source, bytes) else source.read_bytes()
    except (OSError, ValueError) as error:
        raise UserError(f"{name} cannot be opened; check that the file exists and may be read.") from error
    if not data:
        raise UserError(f"{name} is empty; choose a {_FORMATS_SHOWN} file.")
    return data


def _open(source: Path | bytes, name: str) -> tuple[Image.Image, list[str]]:
    """The file's first frame, its size checked before a pixel is decoded, and notes."""
    data = _read_bytes(source, name)
    try:
        image: Image.Image = Image.open(io.BytesIO(data), formats=_FORMATS)
    except UnidentifiedImageError as error:
        if data[4:8] == b"ftyp" and data[8:12] in _HEIC_BRANDS:
            raise UserError(f"{name} is a HEIC picture, which is not supported; save it as JPEG or PNG.") from error
        raise UserError(f"{name} is not a picture that can be read; choose a {_FORMATS_SHOWN} file.") from error
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise UserError(_too_large(name, image.size))
    if min(width, height) < MIN_SIDE_PX:
        raise UserError(f"{name} is {width}x{height} pixels, too small; use at least {MIN_SIDE_PX} pixels a side.")
    if image.mode not in _GREY_MODES + _COLOR_MODES and not image.mode.startswith("I;16"):
        raise UserError(f"{name} has pixels of type {image.mode}, which is not supported; save it as 8-bit RGB.")
    notes = []
    # Phones hide depth maps and the like behind a JPEG (MPO): those are no pages of its owner's.
    if image.format != "MPO" and getattr(image, "is_animated", False):
        notes.append(f"Only the first {'page' if image.format == 'TIFF' else 'frame'} of {name} is used.")
    image.load()
    return image, notes


def _to_8_bit(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image


def _to_rgb(image: Image.Image, name: str, notes: list[str]) -> UserPicture:
    profile = image.info.get("icc_profile")
    image = _to_8_bit(image)
    alpha = None
    plain_mode = "L" if image.mode in _GREY_MODES else "RGB"
    if image.has_transparency_data:
        image = image.convert("RGBA")
        alpha = image.getchannel("A")
        image = image.convert(plain_mode)
    elif image.mode == "CMYK":
        notes.append(f"{name} was converted from CMYK to RGB.")
    else:
        image = image.convert(plain_mode)
    if profile:
        image, profile_notes = _apply_profile(image, profile, name)
        notes += profile_notes
    image = image.convert("RGB")
    if alpha and alpha.getextrema() != (255, 255):
        white = Image.new("RGB", image.size, "white")
        white.paste(image, mask=alpha)
        image = white
        notes.append(f"Transparent parts of {name} were filled with white.")
    return UserPicture(np.array(image), tuple(notes))


def _apply_profile(image: Image.Image, profile_bytes: bytes, name: str) -> tuple[Image.Image, list[str]]:
    """sRGB pixels of an L, RGB or CMYK image that has an ICC profile; unchanged where the profile does not fit it."""
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(profile_bytes))
        if image.mode == "L" and profile.profile.xcolor_space == "RGB ":
            image = image.convert("RGB")
        converted = ImageCms.profileToProfile(image, profile, ImageCms.createProfile("sRGB"), outputMode="RGB")
        is_srgb = "sRGB" in ImageCms.getProfileDescription(profile)
    except (ImageCms.PyCMSError, OSError):
        return image, [f"The colour profile of {name} does not fit its pixels and was ignored."]
    if converted is None or is_srgb:
        return converted or image, []
    return converted, [f"The colours of {name} were converted from its own profile to sRGB."]


def _mask_levels(image: Image.Image, name: str) -> tuple[Image.Image, list[str]]:
    """8-bit grey levels of a mask, bright where it is to be edited, and notes."""
    image = _to_8_bit(image)
    if not image.has_transparency_data:
        return image.convert("L"), []
    image = image.convert("RGBA")
    alpha = np.asarray(image.getchannel("A")).astype(np.int32)
    alpha = np.minimum(255, alpha * 255 // max(alpha.max(), _MIN_STROKE_ALPHA))
    grey = np.asarray(image.convert("RGB").convert("L"))
    is_visible = alpha >= 128
    if is_visible.all():
        return Image.fromarray(grey), []
    is_white = grey[is_visible] >= 128
    if is_white.all() or not is_white.any():
        notes = [f"{name} has one shade on a transparent ground; its painted part is taken as the edited region."]
        return Image.fromarray(alpha.astype(np.uint8)), notes
    return Image.fromarray(np.minimum(grey, alpha).astype(np.uint8)), []


def _without_specks(mask: np.ndarray) -> np.ndarray:
    """``mask`` without islands and holes of a few pixels, as lossy files leave; kept whole if it has nothing else."""
    cleaned = remove_small_holes(remove_small_objects(mask, max_size=MAX_SPECK_PX), max_size=MAX_SPECK_PX)
    return cleaned if cleaned.any() else mask


def _to_user_mask(mask: np.ndarray, name: str, notes: list[str]) -> UserMask:
    share = float(mask.mean())
    if share == 0:
        raise UserError(f"{name} marks nothing to edit; paint the region to edit in white.")
    if share == 1:
        notes.append(
            f"{name} covers the whole picture: nothing can be reused of it, so the device computes nearly all itself."
        )
    elif share > LARGE_SHARE:
        notes.append(
            f"{name} covers {share:.1%} of the picture: little can be reused, so the edit takes nearly as long as "
            "without a cache; invert the mask if black was meant."
        )
    return UserMask(mask, share, tuple(notes))


def _fit(pixels: np.ndarray, side_px: int, resampling: Image.Resampling) -> np.ndarray:
    height, width = pixels.shape[:2]
    cropped_px = min(width, height)
    top, left = (height - cropped_px) // 2, (width - cropped_px) // 2
    square = Image.fromarray(np.ascontiguousarray(pixels[top : top + cropped_px, left : left + cropped_px]))
    return np.array(square.resize((side_px, side_px), resampling))
