"""A bandwidth trace: how many megabits a second a link carries, as a function of time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sakura.errors import UserError

BYTES_PER_MEGABIT = 125_000
MAX_RATE_MBPS = 100_000.0
"""Rates above this are taken for an error of unit; the fastest mobile links measured carry a few thousand."""

MIN_DURATION_S, MAX_DURATION_S = 1e-3, 1e9

MAX_CHART_POINTS = 400

Series = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trace:
    """Piecewise-constant rate over time; it repeats when it ends.

    ``edges_s`` (n+1,) float64 begins with 0 and increases, and ``rates_mbps`` (n,) float64 holds the rate in Mbit/s
    between neighbouring edges. ``title`` is for people. ``notes`` are sentences on what was assumed or dropped in
    reading, ``format`` and ``unit`` what was read. Data from outside enter through ``checked_trace``.
    """

    name: str
    title: str
    edges_s: Series
    rates_mbps: Series
    notes: tuple[str, ...]
    format: str
    unit: str

    @cached_property
    def _cumulative_bytes(self) -> Series:
        """Bytes carried from 0 to each edge, (n+1,)."""
        piece_bytes = self.rates_mbps * np.diff(self.edges_s) * BYTES_PER_MEGABIT
        return np.concatenate([[0.0], np.cumsum(piece_bytes)])

    @property
    def duration_s(self) -> float:
        return float(self.edges_s[-1])

    @property
    def mean_mbps(self) -> float:
        """Mean over time."""
        return float(self._cumulative_bytes[-1]) / BYTES_PER_MEGABIT / self.duration_s

    @property
    def min_mbps(self) -> float:
        return float(self.rates_mbps.min())

    @property
    def max_mbps(self) -> float:
        return float(self.rates_mbps.max())

    @property
    def summary(self) -> str:
        """One line for people: what was read, how long it lasts, how much it carries."""
        return f"{self.format}, read as {self.unit}: {self.duration_s:.4g} s, mean {self.mean_mbps:.4g} Mbit/s"

    def _piece_at(self, within_s: float) -> int:
        """Index of the piece that holds at ``within_s`` of one period."""
        return min(int(np.searchsorted(self.edges_s, within_s, side="right")) - 1, len(self.rates_mbps) - 1)

    def _bytes_until(self, t_s: float) -> float:
        """Bytes carried from 0 to ``t_s`` >= 0."""
        periods, within_s = divmod(t_s, self.duration_s)
        piece = self._piece_at(within_s)
        begun = float(self.rates_mbps[piece]) * (within_s - float(self.edges_s[piece])) * BYTES_PER_MEGABIT
        return periods * float(self._cumulative_bytes[-1]) + float(self._cumulative_bytes[piece]) + begun

    def coarsened(self, max_rows: int) -> "Trace":
        """This trace in at most ``max_rows`` pieces; a longer one in pieces of equal length, with the same bytes."""
        if len(self.rates_mbps) <= max_rows:
            return self
        edges_s = np.linspace(0, self.duration_s, max_rows + 1)
        carried = np.interp(edges_s, self.edges_s, self._cumulative_bytes)
        rates_mbps = np.diff(carried) / np.diff(edges_s) / BYTES_PER_MEGABIT
        # Rounding must not lift a rate above the highest that is possible.
        return replace(self, edges_s=edges_s, rates_mbps=np.minimum(rates_mbps, self.max_mbps))

    def rate_mbps_at(self, t_s: float) -> float:
        """Rate at ``t_s``; at an edge, the rate that begins there."""
        return float(self.rates_mbps[self._piece_at(t_s % self.duration_s)])

    def bytes_between(self, start_s: float, end_s: float) -> float:
        """Bytes the link can carry from ``start_s`` >= 0 to ``end_s`` >= ``start_s``."""
        return self._bytes_until(end_s) - self._bytes_until(start_s)

    def end_of_transfer_s(self, start_s: float, size_bytes: float) -> float:
        """When ``size_bytes`` that start at ``start_s`` >= 0 are through: the inverse of ``bytes_between``.

        Infinity if the trace carries nothing.
        """
        if size_bytes <= 0:
            return start_s
        period_bytes = float(self._cumulative_bytes[-1])
        if period_bytes == 0:
            return float("inf")
        periods, rest_bytes = divmod(self._bytes_until(start_s) + size_bytes, period_bytes)
        if rest_bytes == 0:
            # The last byte leaves in the period before, not after the silence with which the next one may begin.
            periods, rest_bytes = periods - 1, period_bytes
        piece = int(np.searchsorted(self._cumulative_bytes, rest_bytes, side="left")) - 1
        missing_bytes = rest_bytes - float(self._cumulative_bytes[piece])
        within_s = float(self.edges_s[piece]) + missing_bytes / (float(self.rates_mbps[piece]) * BYTES_PER_MEGABIT)
        return max(start_s, periods * self.duration_s + within_s)

    def window(self, start_s: float, length_s: float) -> tuple[Series, Series]:
        """The rate from ``start_s`` >= 0 on for ``length_s`` > 0, for a step chart: (times_s (m,), rates_mbps (m,)).

        Each rate holds from its time to the next one, the last to the end of the window. Where the window has more
        than ``MAX_CHART_POINTS`` pieces, it is cut into that many bins of equal length, each with its mean.
        """
        end_s = start_s + length_s
        first_period, last_period = int(start_s // self.duration_s), int(end_s // self.duration_s)
        pieces = (last_period - first_period) * len(self.rates_mbps)
        pieces += self._piece_at(end_s % self.duration_s) - self._piece_at(start_s % self.duration_s)
        if pieces >= MAX_CHART_POINTS:
            bins_s = np.linspace(start_s, end_s, MAX_CHART_POINTS + 1)
            carried = np.array([self._bytes_until(float(t_s)) for t_s in bins_s])
            return bins_s[:-1], np.diff(carried) / np.diff(bins_s) / BYTES_PER_MEGABIT
        periods = np.arange(first_period, last_period + 1)
        times_s = (periods[:, None] * self.duration_s + self.edges_s[None, :-1]).ravel()
        rates_mbps = np.tile(self.rates_mbps, len(periods))
        first = int(np.searchsorted(times_s, start_s, side="right")) - 1
        last = int(np.searchsorted(times_s, end_s, side="left"))
        return np.maximum(times_s[first:last], start_s), rates_mbps[first:last]


def checked_trace(
    name: str,
    edges_s: ArrayLike,
    rates_mbps: ArrayLike,
    *,
    title: str | None = None,
    notes: tuple[str, ...] = (),
    format: str = "made up",
    unit: str = "Mbit/s",
    lines: Sequence[int] | None = None,
) -> Trace:
    """A trace of ``edges_s`` (n+1,) and ``rates_mbps`` (n,), or a ``UserError`` that says what is wrong with them.

    ``lines`` (n,) are the line numbers the rates come from, for the message. The first edge is moved to 0.
    """
    edges = np.array(edges_s, dtype=np.float64)
    rates = np.array(rates_mbps, dtype=np.float64)
    if len(edges) != len(rates) + 1:
        raise UserError(f"{name} has {len(edges)} times for {len(rates)} rates: give one time more than rates.")
    if len(rates) == 0:
        raise UserError(f"{name} holds no rates: add at least one line with a time and a rate.")

    def place(index: int) -> str:
        return f"{name}, line {lines[index]}" if lines is not None else f"{name}, rate {index + 1}"

    if (bad := np.flatnonzero(~np.isfinite(rates))).size:
        raise UserError(f"{place(bad[0])}: the rate {rates[bad[0]]:g} is not a finite number; correct the line.")
    if (bad := np.flatnonzero(rates < 0)).size:
        raise UserError(f"{place(bad[0])}: the rate {rates[bad[0]]:g} Mbit/s is negative; correct or remove the line.")
    if (bad := np.flatnonzero(rates > MAX_RATE_MBPS)).size:
        raise UserError(
            f"{place(bad[0])}: the rate {rates[bad[0]]:g} Mbit/s is not plausible (above {MAX_RATE_MBPS:,.0f}); "
            "correct the line, or check the unit."
        )
    if (bad := np.flatnonzero(~(np.isfinite(edges[1:]) & (np.diff(edges) > 0)))).size:
        raise UserError(
            f"{place(bad[0])}: the time does not go forward there ({edges[bad[0]]:g} s, then {edges[bad[0] + 1]:g} s); "
            "sort the lines by time."
        )
    if not rates.any():
        raise UserError(f"{name} never carries any data, all its rates are 0: choose a trace with some bandwidth.")
    edges -= edges[0]
    if not MIN_DURATION_S <= edges[-1] <= MAX_DURATION_S:
        raise UserError(f"{name} lasts {edges[-1]:g} s, from 1 ms to 30 years are possible: check its unit of time.")
    edges.flags.writeable = rates.flags.writeable = False
    return Trace(name, title or name, edges, rates, notes, format, unit)
