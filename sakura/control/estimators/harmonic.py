"""The estimator of FESTIVE and of MPC."""

from collections import deque
from statistics import harmonic_mean
from typing import ClassVar

from sakura.control.estimators.interface import DEFAULT_MBPS, Sample

SAMPLES = 5


class HarmonicEstimator:
    """The harmonic mean of the last five rates: a single fast transfer does not move it much.

    A quick sample counts as one of the five if it raises the mean, with at most double of it.
    """

    of_transfers: ClassVar[bool] = True

    def __init__(self, prior_mbps: float = DEFAULT_MBPS) -> None:
        self._prior_mbps = prior_mbps
        self._rates_mbps: deque[float] = deque(maxlen=SAMPLES)

    def add(self, sample: Sample) -> None:
        if not sample.quick:
            self._rates_mbps.append(sample.rate_mbps)
            return
        mean_mbps = self.predict_mbps()
        raised_mbps = sample.raised_mbps(mean_mbps)
        if raised_mbps > mean_mbps:
            self._rates_mbps.append(raised_mbps)

    def predict_mbps(self) -> float:
        return harmonic_mean(self._rates_mbps) if self._rates_mbps else self._prior_mbps
