"""Samples of the rate, cut from a stream of arrivals."""

from sakura.control.estimators.interface import WINDOW_S, Sample

MIN_SAMPLE_BYTES = 2_000


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
