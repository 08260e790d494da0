"""What every estimator is given, and what it is asked."""

import dataclasses
from typing import ClassVar, Protocol

# Shorter than this, what the clock shows is mostly the scheduler.
WINDOW_S = 0.008
RESOLUTION_S = 0.001
# Assumed of a network that nothing is known of: little enough for a weak mobile one, enough to measure it by.
DEFAULT_MBPS = 10.0
GROWTH = 2.0


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

    def raised_mbps(self, known_mbps: float) -> float:
        """What a quick sample lets one believe of a rate: more, but at most double.

        So small transfers neither hold an estimate down nor blow it up.
        """
        return max(known_mbps, min(self.rate_mbps, GROWTH * known_mbps))


class Estimator(Protocol):
    """Predicts the rate of the next transfer.

    ``of_transfers``: its samples are whole transfers, as those of its authors; otherwise slices of the stream of at
    least ``WINDOW_S``.
    """

    of_transfers: ClassVar[bool]

    def add(self, sample: Sample) -> None:
        """Take in what was received."""
        ...

    def predict_mbps(self) -> float:
        """The predicted rate of the next transfer, above 0."""
        ...
