"""What a figure is: rows of numbers, claims judged by them, and how both are written."""

import dataclasses
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import Drawn, save_chart
from sakura.errors import UserError
from sakura.network.trace import Trace
from sakura.templates import TemplateLibrary

Row = dict[str, object]
Progress = Callable[[float], None]

REQUESTS = 30
QUICK_REQUESTS = 1
STREAMED_REQUESTS, QUICK_STREAMED_REQUESTS = 20, 2
Scale: TypeAlias = Literal["nano", "paper"]
RTT_S: dict[Scale, float] = {"nano": 0.020, "paper": 0.040}


@dataclasses.dataclass(frozen=True)
class Scope:
    """How much is measured. ``quick`` is for a first look, within a minute; its numbers are of few requests.

    ``scale``: the nano model over real sockets, or the paper's models in virtual time. ``networks`` are traces to use
    instead of a figure's own, ``known`` rows that were measured before. These concern figures of streaming alone.
    """

    quick: bool
    scale: Scale = "nano"
    networks: tuple[Trace, ...] = ()
    known: tuple[Row, ...] = ()

    @property
    def requests(self) -> int:
        """Requests a workload."""
        return QUICK_REQUESTS if self.quick else REQUESTS

    @property
    def streamed_requests(self) -> int:
        """Requests a workload and network, where edits are streamed."""
        return QUICK_STREAMED_REQUESTS if self.quick else STREAMED_REQUESTS


@dataclasses.dataclass(frozen=True)
class Claim:
    """Something that the figure is to show; ``paper`` is what the paper states of it, if anything."""

    claim: str
    paper: str | float | None
    ours: str | float
    holds: bool


@dataclasses.dataclass(frozen=True)
class Figure:
    """``rows`` are flat and of the same fields, so that they are a table."""

    figure: str
    rows: list[Row]
    claims: list[Claim]

    def table(self) -> pd.DataFrame:
        return pd.DataFrame(self.rows)


class FigureModule(Protocol):
    """What each figure's module offers."""

    def run(self, store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure: ...

    def summary(self, figure: Figure) -> pd.DataFrame:
        """The rows at a glance, as the shell prints them."""
        ...

    def chart(self, figure: Figure) -> Drawn: ...


# By the paper's numbering.
FIGURES = {
    "fig2": "sakura.reproduce.fig2_importance",
    "fig8": "sakura.reproduce.fig8_rank_precision",
    "fig13": "sakura.reproduce.fig13_storage",
    "fig15": "sakura.reproduce.fig15_bytes_quality",
    "fig19": "sakura.reproduce.fig19_exponent",
    "ablation": "sakura.reproduce.ablation",
    "fig3": "sakura.streaming.fig3_required_ratio",
    "fig9": "sakura.streaming.fig9_timeline",
    "fig10": "sakura.streaming.fig10_latency_spread",
    "fig11": "sakura.streaming.fig11_one_trace",
    "fig12": "sakura.streaming.fig12_latency",
    "fig16": "sakura.streaming.fig16_mask_share",
    "fig17": "sakura.streaming.fig17_networks",
    "fig18": "sakura.streaming.fig18_resolution",
    "table2": "sakura.streaming.table2_quality",
    "headline": "sakura.streaming.headline",
}


def figure_module(name: str) -> FigureModule:
    """Raises UserError if there is no such figure."""
    if name not in FIGURES:
        raise UserError(f"There is no figure {name!r}; use one of {', '.join(FIGURES)}.")
    return importlib.import_module(FIGURES[name])


def as_json(figure: Figure, scope: Scope, model: str) -> str:
    """``model`` is the model's fingerprint, of which the start is kept."""
    measured = {"quick": scope.quick, "scale": scope.scale, "requests": scope.requests, "model": model[:8]}
    return json.dumps({**dataclasses.asdict(figure), "scope": measured}, indent=1) + "\n"


def rows_from(path: Path) -> tuple[Row, ...]:
    """The rows that :func:`as_json` wrote. Raises UserError on a file that holds none."""
    try:
        rows = json.loads(path.read_text())["rows"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} holds no measured rows; give a file that --json of a figure wrote.") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path} holds no measured rows; give a file that --json of a figure wrote.")
    return tuple(rows)


def make_folder(folder: Path) -> None:
    """Raises UserError where it cannot be made: better before measuring than after."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"The folder {folder} cannot be made ({error.strerror}); choose another one.") from error


def write_files(figure: Figure, folder: Path) -> list[Path]:
    """Chart as SVG and PNG, rows as CSV, in a folder that there is. Returns what was written."""
    table = folder / f"{figure.figure}.csv"
    figure.table().to_csv(table, index=False)
    return [*save_chart(figure_module(figure.figure).chart(figure), folder / figure.figure), table]
