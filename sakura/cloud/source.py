"""Where shards come from: the device's side of a stream, as the pipeline sees it."""

import zlib
from collections.abc import Sequence
from typing import Protocol


class SourceLostError(Exception):
    """No more shards will come. The message is a sentence for people."""


class ShardDamagedError(Exception):
    """A segment does not match its checksum; the message names it."""


class Arrival:
    """The segments of one request on their way in. Times are those of the event loop."""

    def __init__(
        self,
        fetch_id: int,
        segment_ids: Sequence[int],
        segment_bytes: Sequence[int],
        segment_crc32: Sequence[int],
        started_s: float,
    ) -> None:
        self.fetch_id, self.started_s = fetch_id, started_s
        self.finished_s = started_s
        self.wire_bytes = 0
        self.damaged: list[int] = []  # segments that came with another checksum than announced
        self._announced = list(zip(segment_ids, segment_bytes, segment_crc32, strict=True))
        self._data = bytearray()
        self._arrived_bytes, self._expected = 0, sum(segment_bytes)
        self._taken = 0  # segments that have been taken, damaged ones included

    @property
    def complete(self) -> bool:
        """Whether all bytes are there."""
        return self._arrived_bytes == self._expected

    def add(self, data: bytes, at_s: float) -> None:
        """Take in the next piece. Raises ShardDamagedError on more bytes than announced."""
        self._data += data
        self._arrived_bytes += len(data)
        self.finished_s = at_s
        if self._arrived_bytes > self._expected:
            raise ShardDamagedError("The cloud sent more than it had announced.")

    def take(self) -> dict[int, bytes]:
        """The segments that have come in whole since the last call, verified; bad ones go to ``damaged``."""
        found: dict[int, bytes] = {}
        start = 0
        for segment, size, checksum in self._announced[self._taken :]:
            if start + size > len(self._data):
                break
            data = bytes(self._data[start : start + size])
            if zlib.crc32(data) == checksum:
                found[segment] = data
            else:
                self.damaged.append(segment)
            start += size
            self._taken += 1
        del self._data[:start]
        return found


class ShardSource(Protocol):
    """A stream of one template's segments. What was asked first arrives first."""

    async def fetch(self, fetch_id: int, segments: Sequence[int]) -> None:
        """Ask for segments under a number of the caller's. Raises SourceLostError."""
        ...

    async def cancel(self, fetch_id: int) -> None:
        """Do without what has not come of a request. What is on the wire already is still told, and is to be counted.

        Raises SourceLostError.
        """
        ...

    async def next(self) -> Arrival:
        """The arrival that just began, grew or completed. Raises SourceLostError when nothing more can come."""
        ...

    async def close(self) -> None: ...


class NoSource:
    """A source that has nothing, for the ``reason`` given."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def fetch(self, fetch_id: int, segments: Sequence[int]) -> None:
        raise SourceLostError(self._reason)

    async def cancel(self, fetch_id: int) -> None:
        pass

    async def next(self) -> Arrival:
        raise SourceLostError(self._reason)

    async def close(self) -> None:
        pass
