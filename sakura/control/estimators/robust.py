"""RobustMPC's estimator."""

from collections import deque
from typing import ClassVar

from sakura.control.estimators.harmonic import SAMPLES, HarmonicEstimator
from sakura.control.estimators.interface import DEFAULT_MBPS, Sample


class RobustEstimator:
    """The harmonic mean of the last five rates, divided by 1 + the largest relative error that it made on them.

    Source: Yin et al., SIGCOMM 2015, section 4.3, where this is the lower bound that RobustMPC plans for. A quick
    sample says nothing of errors, and neither does how wrong the prior was.
    """

    of_transfers: ClassVar[bool] = True

    def __init__(self, prior_mbps: float = DEFAULT_MBPS) -> None:
        self._mean = HarmonicEstimator(prior_mbps)
        self._errors: deque[float] = deque(maxlen=SAMPLES)
        self._measured = False

    def add(self, sample: Sample) -> None:
        if self._measured and not sample.quick:
            self._errors.append(abs(self._mean.predict_mbps() - sample.rate_mbps) / sample.rate_mbps)
        self._measured = self._measured or not sample.quick
        self._mean.add(sample)

    def predict_mbps(self) -> float:
        return self._mean.predict_mbps() / (1 + max(self._errors, default=0.0))
