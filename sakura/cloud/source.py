"""Where shards come from: the device's side of a stream, as the pipeline sees it."""

import zlib
from collections.abc import Sequence
from typing import Protocol


class SourceLostError(Exception):
    """No more shards will come. The message is a sentence for people."""


class ShardDamagedError(Exception):
    """A segment does not match its checksum; the message names it."""


class Arrival:
    """A shard on its way in. ``complete`` once all bytes are there; times are those of the event loop."""

    def __init__(
        self,
        shard: int,
        segment_ids: Sequence[int],
        segment_bytes: Sequence[int],
        segment_crc32: Sequence[int],
        started_s: float,
    ) -> None:
        self.shard, self.started_s = shard, started_s
        self.finished_s = started_s
        self.wire_bytes = 0
        self._ids, self._sizes, self._checksums = segment_ids, segment_bytes, segment_crc32
        self._data = bytearray()
        self._expected = sum(segment_bytes)

    @property
    def segment_ids(self) -> Sequence[int]:
        """What is on its way, in the order sent."""
        return self._ids

    @property
    def complete(self) -> bool:
        return len(self._data) == self._expected

    def add(self, data: bytes, at_s: float) -> None:
        """Take in the next piece. Raises ShardDamagedError on more bytes than announced."""
        self._data += data
        self.finished_s = at_s
        if len(self._data) > self._expected:
            raise ShardDamagedError(f"Shard {self.shard} is longer than announced.")

    def segments(self) -> dict[int, bytes]:
        """The segments by id, each verified. Raises ShardDamagedError naming the first bad one."""
        found: dict[int, bytes] = {}
        view = memoryview(self._data)
        start = 0
        for segment, size, checksum in zip(self._ids, self._sizes, self._checksums, strict=True):
            data = bytes(view[start : start + size])
            if zlib.crc32(data) != checksum:
                raise ShardDamagedError(f"Segment {segment} of shard {self.shard} is damaged.")
            found[segment] = data
            start += size
        return found


class ShardSource(Protocol):
    """A stream of one template's shards. What was asked first arrives first."""

    async def fetch(self, shard: int, segments: Sequence[int]) -> None:
        """Ask for segments on behalf of a shard. Raises SourceLostError."""
        ...

    async def next(self) -> Arrival:
        """The arrival that just began, grew or completed. Raises SourceLostError when nothing more can come."""
        ...

    async def close(self) -> None: ...


class NoSource:
    """A source that has nothing, for the ``reason`` given."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def fetch(self, shard: int, segments: Sequence[int]) -> None:
        raise SourceLostError(self._reason)

    async def next(self) -> Arrival:
        raise SourceLostError(self._reason)

    async def close(self) -> None:
        pass
