"""How far a device's clock is from this one's, from probes that go there and back."""

import collections
import dataclasses

KEPT_PROBES = 16


@dataclasses.dataclass(frozen=True)
class ClockOffset:
    """``device = here + offset_s``, known to ``uncertainty_s`` (half of the quickest probe's way)."""

    offset_s: float
    uncertainty_s: float


class OffsetEstimator:
    """Takes the quickest of the last probes, as NTP does: whatever delays a probe makes its answer worse."""

    def __init__(self) -> None:
        self._probes: collections.deque[tuple[float, float]] = collections.deque(maxlen=KEPT_PROBES)

    def add(self, sent_s: float, device_s: float, received_s: float) -> None:
        self._probes.append((received_s - sent_s, device_s - (sent_s + received_s) / 2))

    def offset(self) -> ClockOffset | None:
        if not self._probes:
            return None
        round_trip_s, offset_s = min(self._probes)
        return ClockOffset(offset_s, round_trip_s / 2)
