"""Bandwidth estimators: fed with finished transfers, asked for the rate of the next one."""

import dataclasses
import math
from collections import deque
from typing import Protocol

# Shorter than this, what the clock shows is mostly the scheduler.
WINDOW_S = 0.008
RESOLUTION_S = 0.001
MIN_SAMPLE_BYTES = 2_000
# Assumed of a network that nothing is known of: little enough for a weak mobile one, enough to measure it by.
DEFAULT_MBPS = 10.0
FIRST_DISCOUNT = 0.8
QUANTILE_STEP = 0.02
GROWTH = 2.0


class Estimator(Protocol):
    """Predicts the rate of the next transfer."""

    def add(self, sample: "Sample") -> None:
        """Take in what was received."""
        ...

    def predict_mbps(self) -> float:
        """The predicted rate of the next transfer."""
        ...


@dataclasses.dataclass(frozen=True)
class Sample:
    """Bytes that the network delivered without a pause. A ``quick`` sample is too short to be more than a bound."""

    size_bytes: int
    duration_s: float

    @property
    def quick(self) -> bool:
        return self.duration_s < WINDOW_S

    @property
    def rate_mbps(self) -> float:
        return 8e-6 * self.size_bytes / max(self.duration_s, RESOLUTION_S)


class RateMeter:
    """Cuts a stream of arrivals into samples: never idle time, never less than can be timed.

    The first message after a pause only starts the clock, since it is not known when its bytes began to flow.
    """

    def __init__(self) -> None:
        self._start_s: float | None = None
        self._last_s = 0.0
        self._bytes = 0

    def arrived(self, at_s: float, size_bytes: int, *, after_pause: bool) -> Sample | None:
        """A message arrived; ``after_pause`` if the network had nothing to send before it."""
        sample = None
        if self._start_s is None or after_pause:
            if self._start_s is not None and self._bytes >= MIN_SAMPLE_BYTES:
                sample = Sample(self._bytes, self._last_s - self._start_s)
            self._start_s, self._bytes = at_s, 0
        else:
            self._bytes += size_bytes
            if at_s - self._start_s >= WINDOW_S and self._bytes >= MIN_SAMPLE_BYTES:
                sample = Sample(self._bytes, at_s - self._start_s)
                self._start_s, self._bytes = at_s, 0
        self._last_s = at_s
        return sample


class DiscountedEstimator:
    """The smaller of the last rate and a moving average, discounted by how wrong recent predictions were.

    The average forgets half of its past every ``half_life_s`` of transfer time. The discount is a low quantile of
    recent ln(actual / predicted); the quantile moves so that about ``late_share`` of samples are slower than
    predicted. A quick sample only raises the estimate, at most to double, so that small transfers neither hold it
    down nor blow it up. Our own rule.
    """

    def __init__(
        self, prior_mbps: float = DEFAULT_MBPS, half_life_s: float = 0.1, late_share: float = 0.1, memory: int = 20
    ) -> None:
        self.half_life_s, self.late_share = half_life_s, late_share
        self._errors: deque[float] = deque(maxlen=memory)
        self._quantile = late_share
        self._average = self._last = prior_mbps
        self._weight = 0.0

    def add(self, sample: Sample) -> None:
        rate = sample.rate_mbps
        if sample.quick:
            raised = min(rate, GROWTH * self._base())
            self._average, self._last = max(self._average, raised), max(self._last, raised)
            return
        if self._weight:
            late = rate < self.predict_mbps()
            self._errors.append(math.log(rate / self._base()))
            self._quantile += QUANTILE_STEP * (self.late_share - 1 if late else self.late_share)
            self._quantile = min(0.5, max(0.0, self._quantile))
        decay = 0.5 ** (sample.duration_s / self.half_life_s)
        self._weight = self._weight * decay + 1 - decay
        # Dividing by the weight takes out the bias towards the prior.
        self._average += (1 - decay) / self._weight * (rate - self._average)
        self._last = rate

    def _base(self) -> float:
        return min(self._average, self._last)

    def predict_mbps(self) -> float:
        if not self._errors:
            return self._base() * FIRST_DISCOUNT
        ordered = sorted(self._errors)
        error = ordered[min(len(ordered) - 1, int(self._quantile * len(ordered)))]
        return self._base() * min(1.0, math.exp(error))
