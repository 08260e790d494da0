"""Pictures, outlines and sentences as the page needs them: data addresses, path strings, escaped markup."""

import base64
import html
import io

import numpy as np
from PIL import Image
from skimage.measure import approximate_polygon, find_contours

OUTLINE_TOLERANCE_PX = 0.3


def picture_uri(pixels: np.ndarray) -> str:
    """A uint8 (height, width, 3) picture as a lossless data address that an ``<img>`` can show."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "webp", lossless=True)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def outline_path(mask: np.ndarray) -> str:
    """The border of a bool (height, width) mask as an SVG path in a view box of 100 by 100."""
    height, width = mask.shape
    scale = np.array([100 / height, 100 / width])
    parts = []
    for contour in find_contours(np.pad(mask.astype(float), 1), 0.5):
        points = (approximate_polygon(contour, OUTLINE_TOLERANCE_PX) - 0.5) * scale
        parts.append("M" + "L".join(f"{x:.2f} {y:.2f}" for y, x in points) + "Z")
    return "".join(parts)


def rates_svg(rates_mbps: np.ndarray) -> str:
    """Rates (n,) of equally long times as an area that fills its box, from zero to their maximum; dashed: the mean."""
    top_mbps = max(float(rates_mbps.max()), 1e-9)
    heights = 100 - 96 * rates_mbps / top_mbps
    lengths = np.linspace(0, 100, len(rates_mbps) + 1)[1:]
    path = f"M0 {heights[0]:.1f}" + "".join(f"V{y:.1f}H{x:.1f}" for x, y in zip(lengths, heights, strict=True))
    mean = 100 - 96 * float(rates_mbps.mean()) / top_mbps
    return (
        '<svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="area" d="{path}V100H0Z"/><path class="line" d="{path}"/>'
        f'<path class="mean" d="M0 {mean:.1f}H100"/></svg>'
    )


def error_markup(sentence: str) -> str:
    """A sentence at the field it belongs to, with a button that closes it; empty for no sentence."""
    if not sentence:
        return ""
    return (
        f'<div class="error" role="alert"><span>{html.escape(sentence)}</span>'
        '<button type="button" class="btn small" data-close>Close</button></div>'
    )


def note_markup(sentences: list[str]) -> str:
    """Small remarks under a field; empty for none."""
    return "".join(f'<p class="remark">{html.escape(sentence)}</p>' for sentence in sentences)


def label_markup(name: str, remark: str = "") -> str:
    """The label row of a field: its name, and a remark at the right."""
    return f'<div class="lab">{html.escape(name)}<i>{html.escape(remark)}</i></div>'
