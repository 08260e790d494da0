"""Pictures, outlines and sentences as the page needs them: data addresses, path strings, escaped markup."""

import base64
import html
import io

import numpy as np
from PIL import Image
from skimage.measure import approximate_polygon, find_contours

OUTLINE_TOLERANCE_PX = 0.3
SPARKLINE_POINTS = 60


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


def sparkline_svg(rates_mbps: np.ndarray, width_px: int = 96, height_px: int = 22) -> str:
    """A small drawing of a trace, scaled from zero to its own maximum."""
    bins = np.array_split(rates_mbps, min(SPARKLINE_POINTS, len(rates_mbps)))
    means = np.array([part.mean() for part in bins])
    xs = np.linspace(1, width_px - 1, len(means))
    ys = height_px - 2 - means / max(means.max(), 1e-9) * (height_px - 4)
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys, strict=True))
    stroke = 'fill="none" stroke="currentColor" stroke-width="1.4"'
    return f'<svg width="{width_px}" height="{height_px}" aria-hidden="true"><path d="{path}" {stroke}/></svg>'


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
