"""What a figure is: rows of numbers, claims judged by them, and how both are written."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import Drawn
from sakura.errors import UserError
from sakura.network.trace import Trace
from sakura.templates import TemplateLibrary

Row = dict[str, object]
Progress = Callable[[float], None]

REQUESTS = 30
QUICK_REQUESTS = 1
STREAMED_REQUESTS, QUICK_STREAMED_REQUESTS = 20, 2
Scale: TypeAlias = Literal["nano", "paper"]


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
    """``rows`` are flat and of the same fields, so that they are a table.

    ``measured`` says how much was, where that is not the scope's requests a workload.
    """

    figure: str
    rows: list[Row]
    claims: list[Claim]
    measured: Row = dataclasses.field(default_factory=dict)

    def table(self) -> pd.DataFrame:
        return pd.DataFrame(self.rows)


class FigureModule(Protocol):
    """What each figure's module offers."""

    def run(self, store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure: ...

    def summary(self, figure: Figure) -> pd.DataFrame:
        """The rows at a glance, as the shell prints them."""
        ...

    def chart(self, figure: Figure) -> Drawn: ...


def as_json(figure: Figure, scope: Scope, model: str) -> str:
    """``model`` is the model's fingerprint, of which the start is kept."""
    written = dataclasses.asdict(figure)
    measured = written.pop("measured") or {"requests": scope.requests}
    written["scope"] = {"quick": scope.quick, "scale": scope.scale, "model": model[:8], **measured}
    return json.dumps(written, indent=1) + "\n"


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
