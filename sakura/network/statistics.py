"""The numbers by which traces are compared with measured ones."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LOW_RATE_MBPS = 1.0
"""Below this rate a link counts as practically down."""

LAGS_S = (1, 5, 10, 30)


@dataclass(frozen=True)
class TraceStatistics:
    """How a series of rates, one a second, behaves.

    ``autocorrelation`` belongs to ``LAGS_S``. ``drop_chance`` is the share of seconds that are followed by less than
    half of their rate. ``low_share`` and ``low_mean_s`` are the share of seconds below ``LOW_RATE_MBPS``, and the mean
    length of an unbroken run of them (0 if there is none).
    """

    mean_mbps: float
    variation: float
    p10_share: float
    autocorrelation: tuple[float, ...]
    drop_chance: float
    low_share: float
    low_mean_s: float


def trace_statistics(rates_mbps: NDArray[np.float64]) -> TraceStatistics:
    """Statistics of ``rates_mbps`` (n,), in Mbit/s at steps of 1 s; n must exceed the longest lag."""
    mean = float(rates_mbps.mean())
    centred = rates_mbps - mean
    variance = float(centred @ centred)
    low = rates_mbps < LOW_RATE_MBPS
    runs = int(np.count_nonzero(low[1:] & ~low[:-1])) + int(low[0])
    carrying = rates_mbps[:-1] > 0
    drops = rates_mbps[1:][carrying] < rates_mbps[:-1][carrying] / 2
    return TraceStatistics(
        mean_mbps=mean,
        variation=float(rates_mbps.std()) / mean,
        p10_share=float(np.percentile(rates_mbps, 10)) / mean,
        autocorrelation=tuple(float(centred[lag:] @ centred[:-lag]) / variance for lag in LAGS_S),
        drop_chance=float(drops.mean()),
        low_share=float(low.mean()),
        low_mean_s=int(low.sum()) / runs if runs else 0.0,
    )
