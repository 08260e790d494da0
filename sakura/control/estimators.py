"""Bandwidth estimators: fed with finished transfers, asked for the rate of the next one."""

import math
from collections import deque
from typing import Protocol

MIN_SAMPLE_BYTES = 4_000
MIN_SAMPLE_S = 0.0002


# Assumed of a network that nothing is known of: little enough for a weak mobile one, enough to measure it by.
DEFAULT_MBPS = 10.0
FIRST_DISCOUNT = 0.8
QUANTILE_STEP = 0.02


class Estimator(Protocol):
    """Predicts the rate of the next transfer."""

    def add(self, size_bytes: int, duration_s: float) -> float | None:
        """Take a transfer in; returns its measured rate, or None for one too small to say anything."""
        ...

    def predict_mbps(self) -> float:
        """The predicted rate of the next transfer."""
        ...


class DiscountedEstimator:
    """The smaller of the last rate and a moving average, discounted by how wrong recent predictions were.

    The average forgets half of its past every ``half_life_s`` of transfer time. The discount is a low quantile of
    recent ln(actual / predicted); the quantile moves so that about ``late_share`` of transfers are slower than
    predicted. Our own rule.
    """

    def __init__(
        self, prior_mbps: float = DEFAULT_MBPS, half_life_s: float = 1.0, late_share: float = 0.1, memory: int = 20
    ) -> None:
        self.half_life_s, self.late_share = half_life_s, late_share
        self._errors: deque[float] = deque(maxlen=memory)
        self._quantile = late_share
        self._average = self._last = prior_mbps
        self._weight = 0.0

    def add(self, size_bytes: int, duration_s: float) -> float | None:
        if size_bytes < MIN_SAMPLE_BYTES or duration_s < MIN_SAMPLE_S:
            return None
        rate = 8e-6 * size_bytes / duration_s
        if self._weight:
            late = rate < self.predict_mbps()
            self._errors.append(math.log(rate / self._base()))
            self._quantile += QUANTILE_STEP * (self.late_share - 1 if late else self.late_share)
            self._quantile = min(0.5, max(0.0, self._quantile))
        decay = 0.5 ** (duration_s / self.half_life_s)
        self._weight = self._weight * decay + 1 - decay
        # Dividing by the weight takes out the bias towards the prior.
        self._average += (1 - decay) / self._weight * (rate - self._average)
        self._last = rate
        return rate

    def _base(self) -> float:
        return min(self._average, self._last)

    def predict_mbps(self) -> float:
        if not self._errors:
            return self._base() * FIRST_DISCOUNT
        ordered = sorted(self._errors)
        error = ordered[min(len(ordered) - 1, int(self._quantile * len(ordered)))]
        return self._base() * min(1.0, math.exp(error))
