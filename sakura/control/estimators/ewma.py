"""A moving average, as video players use it."""

from typing import ClassVar

from sakura.control.estimators.interface import DEFAULT_MBPS, Sample


class EwmaEstimator:
    """Forgets half of its past every ``half_life_s`` of transfer time, so that idle time makes nothing fade."""

    of_transfers: ClassVar[bool] = False

    def __init__(self, prior_mbps: float = DEFAULT_MBPS, half_life_s: float = 0.1) -> None:
        self.half_life_s = half_life_s
        self._average_mbps = prior_mbps
        self._weight = 0.0

    def add(self, sample: Sample) -> None:
        if sample.quick:
            self.raise_to(sample.raised_mbps(self._average_mbps))
            return
        decay = 0.5 ** (sample.duration_s / self.half_life_s)
        self._weight = self._weight * decay + 1 - decay
        # Dividing by the weight takes out the bias towards the prior.
        self._average_mbps += (1 - decay) / self._weight * (sample.rate_mbps - self._average_mbps)

    def raise_to(self, mbps: float) -> None:
        self._average_mbps = max(self._average_mbps, mbps)

    def predict_mbps(self) -> float:
        return self._average_mbps
