"""Charts as the design has them: one Altair theme from its tokens, and the marks that charts share."""

import functools
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

from sakura.settings import DATA

TOKENS_FILE = DATA.parent / "ui" / "static" / "tokens.css"
FONTS = DATA / "fonts"
FONT = "Atkinson Hyperlegible Next, system-ui, sans-serif"
# What Altair makes of layers and panels.
Drawn = alt.LayerChart | alt.FacetChart | alt.HConcatChart | alt.VConcatChart | alt.ConcatChart
SMALL_PX, LABEL_PX = 12, 13
PNG_SCALE = 2
HALO_PX = 3
# Offered in this order everywhere: name in results, (name for people, colour token, shape).
SYSTEMS: dict[str, tuple[str, str, str]] = {
    "sakura": ("SAKURA", "sys-sakura", "blossom"),
    "intq": ("INTQ", "sys-intq", "square"),
    "cachegen": ("CacheGen", "sys-cachegen", "triangle"),
    "low-rank": ("Low rank", "sk-ink-2", "circle"),
    "uncompressed": ("Full cache", "sys-full", "ring"),
    "on_device": ("On-device", "sys-device", "diamond"),
}
_PETAL = (
    "M",
    (0, -1.2),
    "C",
    (-3.6, -3.4),
    (-3.9, -7.6),
    (-1.9, -10),
    "L",
    (0, -8.5),
    "L",
    (1.9, -10),
    "C",
    (3.9, -7.6),
    (3.6, -3.4),
    (0, -1.2),
    "Z",
)


@functools.cache
def colours(dark: bool = False) -> dict[str, str]:
    """The design's colours by token name without dashes in front, such as ``sk-ink``: "#RRGGBB"."""
    text = TOKENS_FILE.read_text("utf-8")
    light_part, dark_part = text.split(".dark, [data-theme", 1)
    found = dict(re.findall(r"--([\w-]+): (#[0-9A-Fa-f]{6})", light_part))
    if dark:
        found |= dict(re.findall(r"--([\w-]+): (#[0-9A-Fa-f]{6})", dark_part))
    return found


@functools.cache
def _blossom() -> str:
    parts: list[str] = []
    for petal in range(5):
        cosine, sine = math.cos(math.tau * petal / 5), math.sin(math.tau * petal / 5)
        for piece in _PETAL:
            if isinstance(piece, str):
                parts.append(piece)
            else:
                x, y = piece[0] / 10, piece[1] / 10
                parts.append(f"{x * cosine - y * sine:.3f},{x * sine + y * cosine:.3f}")
    return " ".join(parts)


def shape_path(shape: str) -> str:
    """A system's shape as Vega takes it: the name of one that it has, or an SVG path."""
    return {"blossom": _blossom(), "ring": "circle", "triangle": "triangle-up"}.get(shape, shape)


def system_label(system: str) -> str:
    return SYSTEMS[system][0]


def system_colour(system: str, dark: bool = False) -> str:
    return colours(dark)[SYSTEMS[system][1]]


def system_scales(systems: Sequence[str], dark: bool = False) -> tuple[alt.Scale, alt.Scale]:
    """Scales of colour and of shape, by the systems' names in results."""
    ordered = [system for system in SYSTEMS if system in systems]
    shapes = [shape_path(SYSTEMS[system][2]) for system in ordered]
    return (
        alt.Scale(domain=ordered, range=[system_colour(system, dark) for system in ordered]),
        alt.Scale(domain=ordered, range=shapes),
    )


def system_legend() -> alt.Legend:
    """A legend below a chart whose colours are systems, by their names for people."""
    names = json.dumps({system: name for system, (name, _, _) in SYSTEMS.items()})
    return alt.Legend(title=None, orient="bottom", labelExpr=f"{names}[datum.label]")


def themed(chart: Drawn, dark: bool = False) -> Drawn:
    """The chart in the design's fonts, lines and colours; names of y axes stand above them."""
    of = colours(dark)
    axis = {
        "labelColor": of["sk-ink-2"],
        "titleColor": of["sk-ink-2"],
        "titleFontWeight": "normal",
        "labelFontSize": SMALL_PX,
        "titleFontSize": SMALL_PX,
        "gridColor": of["sk-line"],
        "domainColor": of["sk-edge"],
        "tickColor": of["sk-edge"],
        "tickCount": 5,
        "tickSize": 4,
    }
    themed = chart.copy(deep=False)
    themed.config = alt.Config.from_dict(
        {
            "font": FONT,
            "background": of["sk-surface"],
            "padding": 16,
            "view": {"stroke": None},
            "axis": axis,
            "axisX": {"grid": False, "titleAnchor": "end", "titlePadding": 8},
            "axisY": {
                "domain": False,
                "ticks": False,
                "labelPadding": 6,
                "titleAngle": 0,
                "titleAlign": "left",
                "titleBaseline": "bottom",
                "titleX": -32,
                "titleY": -8,
            },
            "title": {
                "anchor": "start",
                "frame": "group",
                "color": of["sk-ink"],
                "fontSize": 15,
                "fontWeight": 600,
                "subtitleColor": of["sk-ink-2"],
                "subtitleFontSize": LABEL_PX,
                "subtitlePadding": 4,
                "offset": 24,
            },
            "header": {"labelColor": of["sk-ink"], "labelFontSize": LABEL_PX, "labelFontWeight": 600, "title": None},
            "text": {"fontSize": SMALL_PX},
            "line": {"strokeWidth": 2},
            "concat": {"spacing": 24},
        }
    )
    return themed


def label(
    chart: alt.Chart, text: Any, colour: Any, *, dark: bool = False, **mark: Any
) -> alt.LayerChart | alt.FacetChart:
    """Text at a chart's positions, over a halo in the colour of the surface. ``mark`` are options of a text mark.

    ``text`` and ``colour`` are channels or values of Altair.
    """
    options: dict[str, Any] = {"fontWeight": 600, "fontSize": SMALL_PX, **mark}
    surface = colours(dark)["sk-surface"]
    halo = chart.mark_text(**options, stroke=surface, strokeWidth=HALO_PX, strokeJoin="round", color=surface)
    return alt.layer(halo.encode(text=text), chart.mark_text(**options).encode(text=text, color=colour))


def line_ends(table: pd.DataFrame, x: str, by: Sequence[str]) -> pd.DataFrame:
    """The last point of each line, where its name goes."""
    return table.sort_values(x).groupby(list(by), sort=False).tail(1)


def save_chart(chart: Drawn, stem: Path) -> list[Path]:
    """Write ``stem``.svg and ``stem``.png (at twice the size). Returns both paths."""
    vl_convert.register_font_directory(str(FONTS))
    svg, png = stem.with_suffix(".svg"), stem.with_suffix(".png")
    shown = themed(chart)
    shown.save(str(svg))
    shown.save(str(png), scale_factor=PNG_SCALE)
    return [svg, png]
