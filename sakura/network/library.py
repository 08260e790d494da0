"""The traces that come with the program."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from sakura.errors import UserError
from sakura.network.formats import load_trace
from sakura.network.trace import Trace, checked_trace

TRACES_FOLDER = Path(__file__).parents[2] / "data" / "traces"

TITLES = {
    "5g-walking": "5G, walking",
    "5g-driving": "5G, driving",
    "5g-static": "5G, standing still",
    "4g-5g-mix": "4G and 5G mix, driving",
    "4g-driving": "4G, driving",
    "wifi-walking": "WiFi, walking",
}
"""Titles for people, by trace id."""


def trace_ids() -> tuple[str, ...]:
    return tuple(TITLES)


def load_library_trace(trace_id: str) -> Trace:
    """The shipped trace of 600 s with this id; ``UserError`` if there is none."""
    if trace_id not in TITLES:
        raise UserError(f"There is no trace {trace_id!r}: choose one of {', '.join(TITLES)}.")
    read = load_trace(TRACES_FOLDER / f"{trace_id}.csv", trace_id)
    return replace(read, title=TITLES[trace_id], notes=("Generated to behave like measured traces of this kind.",))


def constant_trace(mbps: float) -> Trace:
    """A link that always carries ``mbps`` Mbit/s, above 0."""
    return checked_trace(
        f"constant-{mbps:g}",
        np.array([0.0, 60.0]),
        np.array([mbps]),
        title=f"Constant {mbps:g} Mbit/s",
        format="constant",
    )
