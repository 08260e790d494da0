"""The figures of the evaluation, by the paper's numbering, and which options each takes."""

import dataclasses
import importlib
from pathlib import Path

from sakura.charts import save_chart
from sakura.errors import UserError
from sakura.reproduce.figure import Figure, FigureModule, Scope


@dataclasses.dataclass(frozen=True)
class FigureKind:
    """Where a figure is made; ``streamed`` of edits over networks, at either scale; ``of_rows`` of headline's rows."""

    module: str
    streamed: bool = False
    of_rows: bool = False


FIGURES = {
    "fig2": FigureKind("sakura.reproduce.fig2_importance"),
    "fig3": FigureKind("sakura.streaming.fig3_required_ratio", streamed=True),
    "fig8": FigureKind("sakura.reproduce.fig8_rank_precision"),
    "fig9": FigureKind("sakura.streaming.fig9_timeline", streamed=True),
    "fig10": FigureKind("sakura.streaming.fig10_latency_spread", streamed=True, of_rows=True),
    "fig11": FigureKind("sakura.streaming.fig11_one_trace", streamed=True),
    "fig12": FigureKind("sakura.streaming.fig12_latency", streamed=True, of_rows=True),
    "fig13": FigureKind("sakura.reproduce.fig13_storage"),
    "fig15": FigureKind("sakura.reproduce.fig15_bytes_quality"),
    "fig16": FigureKind("sakura.streaming.fig16_mask_share", streamed=True, of_rows=True),
    "fig17": FigureKind("sakura.streaming.fig17_networks", streamed=True, of_rows=True),
    "fig18": FigureKind("sakura.streaming.fig18_resolution", streamed=True),
    "fig19": FigureKind("sakura.reproduce.fig19_exponent"),
    "table2": FigureKind("sakura.streaming.table2_quality", streamed=True, of_rows=True),
    "headline": FigureKind("sakura.streaming.headline", streamed=True, of_rows=True),
    "ablation": FigureKind("sakura.reproduce.ablation"),
}


def figure_module(name: str) -> FigureModule:
    """Raises UserError if there is no such figure."""
    if name not in FIGURES:
        raise UserError(f"There is no figure {name!r}; use one of {', '.join(FIGURES)}.")
    return importlib.import_module(FIGURES[name].module)


def check_scope(name: str, scope: Scope) -> None:
    """Raises UserError on options that would do nothing for a figure."""
    kind = FIGURES[name]
    if not kind.streamed and (scope.scale != "nano" or scope.networks):
        raise UserError(f"{name} streams nothing; leave out --scale and --trace.")
    if scope.known and not kind.of_rows:
        raise UserError(f"{name} is not made of the headline's rows; leave out --rows.")


def write_files(figure: Figure, folder: Path) -> list[Path]:
    """Chart as SVG and PNG, rows as CSV, in a folder that there is. Returns what was written."""
    table = folder / f"{figure.figure}.csv"
    figure.table().to_csv(table, index=False)
    return [*save_chart(figure_module(figure.figure).chart(figure), folder / figure.figure), table]
