"""Our own estimator."""

import math
from collections import deque
from typing import ClassVar

from sakura.control.estimators.ewma import EwmaEstimator
from sakura.control.estimators.interface import DEFAULT_MBPS, Sample

FIRST_DISCOUNT = 0.8
QUANTILE_STEP = 0.02


class DiscountedEstimator:
    """The smaller of the last rate and a moving average, discounted by how wrong recent predictions were.

    The average forgets half of its past every ``half_life_s`` of transfer time. The discount is a low quantile of
    recent ln(actual / predicted); the quantile moves so that about ``late_share`` of samples are slower than
    predicted. Our own rule.
    """

    of_transfers: ClassVar[bool] = False

    def __init__(
        self, prior_mbps: float = DEFAULT_MBPS, half_life_s: float = 0.1, late_share: float = 0.1, memory: int = 20
    ) -> None:
        self.late_share = late_share
        self._average = EwmaEstimator(prior_mbps, half_life_s)
        self._last_mbps = prior_mbps
        self._measured = False
        self._errors: deque[float] = deque(maxlen=memory)
        self._quantile = late_share

    def add(self, sample: Sample) -> None:
        if sample.quick:
            raised_mbps = sample.raised_mbps(self._base_mbps())
            self._average.raise_to(raised_mbps)
            self._last_mbps = max(self._last_mbps, raised_mbps)
            return
        if self._measured:
            late = sample.rate_mbps < self.predict_mbps()
            self._errors.append(math.log(sample.rate_mbps / self._base_mbps()))
            self._quantile += QUANTILE_STEP * (self.late_share - late)
            self._quantile = min(0.5, max(0.0, self._quantile))
        self._measured = True
        self._average.add(sample)
        self._last_mbps = sample.rate_mbps

    def _base_mbps(self) -> float:
        return min(self._average.predict_mbps(), self._last_mbps)

    def predict_mbps(self) -> float:
        if not self._errors:
            return self._base_mbps() * FIRST_DISCOUNT
        ordered = sorted(self._errors)
        error = ordered[min(len(ordered) - 1, int(self._quantile * len(ordered)))]
        return self._base_mbps() * min(1.0, math.exp(error))
