"""Awkward pictures and masks, made on the spot: each function returns the bytes of one file."""

import io
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageCms, ImageDraw

QUADRANTS = ((220, 30, 30), (30, 200, 30), (30, 30, 220), (230, 220, 40))
MASK_SIZE_PX = 128


def encoded(image: Image.Image, file_format: str, **options: object) -> bytes:
    """The bytes of ``image`` in ``file_format``, with Pillow's options for it."""
    stream = io.BytesIO()
    image.save(stream, file_format, **options)
    return stream.getvalue()


def quadrants(width: int = 96, height: int = 64) -> Image.Image:
    """Red, green, blue and yellow quarters, in reading order."""
    image = Image.new("RGB", (width, height), QUADRANTS[3])
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, width // 2 - 1, height // 2 - 1), fill=QUADRANTS[0])
    draw.rectangle((width // 2, 0, width, height // 2 - 1), fill=QUADRANTS[1])
    draw.rectangle((0, height // 2, width // 2 - 1, height), fill=QUADRANTS[2])
    return image


def sideways_jpeg(orientation: int, turn: Image.Transpose) -> bytes:
    """The quadrants, stored after ``turn`` and marked with the EXIF orientation that undoes it."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(quadrants().transpose(turn), "JPEG", quality=95, exif=exif)


def translucent_png() -> bytes:
    """Green, with a hidden magenta hole (alpha 0) on the left half and alpha 128 in the last column."""
    pixels = np.full((32, 32, 4), (0, 128, 0, 255), dtype=np.uint8)
    pixels[:, :16] = (255, 0, 255, 0)
    pixels[:, 31, 3] = 128
    return encoded(Image.fromarray(pixels), "PNG")


def palette_png() -> bytes:
    """A palette of red, green and blue stripes whose entries have alpha 0, 128 and 255."""
    image = Image.new("P", (48, 16))
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    for index in range(3):
        image.paste(index, (16 * index, 0, 16 * index + 16, 16))
    return encoded(image, "PNG", transparency=bytes([0, 128, 255]))


def grey_16_bit_png() -> bytes:
    """A 16-bit ramp from black to white along x."""
    row = np.linspace(0, 65535, 64).astype(np.uint16)
    return encoded(Image.fromarray(np.tile(row, (32, 1))), "PNG")


def cmyk_jpeg() -> bytes:
    """Quadrants in CMYK with inverted inks and the Adobe marker, as Pillow and Photoshop write it."""
    return encoded(quadrants().convert("CMYK"), "JPEG", quality=95)


def profiled_png(profile_bytes: bytes, mode: str = "RGB") -> bytes:
    """A mid grey, as ``mode``, with a colour profile."""
    grey = Image.new("RGB", (32, 32), (128, 128, 128))
    return encoded(grey.quantize(2) if mode == "P" else grey.convert(mode), "PNG", icc_profile=profile_bytes)


def srgb_profile() -> bytes:
    """The sRGB profile of Little CMS."""
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def linear_profile() -> bytes:
    """An RGB profile of sRGB's primaries with a linear tone curve: a stored 128 is shown as 188."""
    primaries = (
        (0.4360657, 0.2224884, 0.0139160),
        (0.3851471, 0.7168732, 0.0970764),
        (0.1430664, 0.0606079, 0.7140961),
    )

    def fixed(values: Sequence[float]) -> bytes:
        return b"".join(struct.pack(">i", round(value * 65536)) for value in values)

    tags = {b"wtpt": b"XYZ \0\0\0\0" + fixed((0.9642, 1.0, 0.8249))}
    for channel, primary in zip(b"rgb", primaries, strict=True):
        tags[bytes([channel]) + b"XYZ"] = b"XYZ \0\0\0\0" + fixed(primary)
        tags[bytes([channel]) + b"TRC"] = b"curv\0\0\0\0" + struct.pack(">I", 0)
    tags[b"desc"] = b"desc\0\0\0\0" + struct.pack(">I", 7) + b"Linear\0" + bytes(78 + 1)
    table, body = struct.pack(">I", len(tags)), b""
    start = 128 + 4 + 12 * len(tags)
    for signature, content in tags.items():
        table += signature + struct.pack(">II", start + len(body), len(content))
        body += content + bytes(-len(content) % 4)
    size = start + len(body)
    head = struct.pack(">I", size) + b"lcms" + bytes.fromhex("02100000") + b"mntrRGB XYZ " + bytes(12) + b"acsp"
    head = head.ljust(68, b"\0") + fixed((0.9642, 1.0, 0.8249))
    return head.ljust(128, b"\0") + table + body


def animation(file_format: str) -> bytes:
    """Three frames or pages: red, green, blue."""
    frames = [Image.new("RGB", (32, 24), color) for color in ("red", "green", "blue")]
    return encoded(frames[0], file_format, save_all=True, append_images=frames[1:])


def noise_file(file_format: str) -> bytes:
    """A picture that hardly compresses, so that any cut falls into its pixels."""
    pixels = np.random.default_rng(5).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    return encoded(Image.fromarray(pixels), file_format)


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and has next to no data."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(60))) + chunk(b"IEND", b"")
    )


def heic_file() -> bytes:
    """The start of a HEIC container and nothing else."""
    return struct.pack(">I", 24) + b"ftypheic" + bytes(4) + b"mif1heic" + bytes(200)


def disc() -> np.ndarray:
    """A centred disc, bool of shape (128, 128)."""
    y, x = np.mgrid[:MASK_SIZE_PX, :MASK_SIZE_PX]
    return (x - 63.5) ** 2 + (y - 63.5) ** 2 < 30**2


def mask_png(mask: np.ndarray, mode: str = "L") -> bytes:
    """``mask``, bool (h, w), in white on black."""
    return encoded(Image.fromarray(mask.astype(np.uint8) * 255).convert(mode), "PNG")


def layer_png(mask: np.ndarray, paint: tuple[int, int, int], alpha: int, ground: tuple[int, int, int, int]) -> bytes:
    """``mask`` painted with ``paint`` at opacity ``alpha`` on a layer of RGBA ``ground``."""
    pixels = np.full((*mask.shape, 4), ground, dtype=np.uint8)
    pixels[mask] = (*paint, alpha)
    return encoded(Image.fromarray(pixels), "PNG")


def noisy_mask_jpeg(mask: np.ndarray) -> bytes:
    """``mask`` with noisy levels and bright specks of 4 pixels, as a JPEG of quality 20."""
    rng = np.random.default_rng(2)
    levels = np.where(mask, 255, 0) + rng.integers(-12, 13, mask.shape)
    for top, left in ((4, 4), (10, 100), (110, 20)):
        levels[top : top + 2, left : left + 2] = 255
    return encoded(Image.fromarray(np.clip(levels, 0, 255).astype(np.uint8)), "JPEG", quality=20)
