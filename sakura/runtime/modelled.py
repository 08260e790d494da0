"""Models of a link and of a device's processors behind the pipeline's own interfaces, for virtual time."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import numpy as np

from sakura.cloud.protocol import FETCH_HEADER_BYTES, PIECE_BYTES, SEGMENT_HEADER_BYTES
from sakura.cloud.source import Arrival
from sakura.network.trace import Trace
from sakura.runtime.engine import NO_KV, ShardKv, Span

# A fetch arrives in at most so many pieces, so that large caches do not mean many events, unless these were so large
# that the link would seem silent between two of them.
MAX_PIECES, MAX_PIECE_BYTES = 64, 4 * 1024 * 1024


class _ModelledArrival(Arrival):
    """An arrival of which only the sizes are known."""

    def __init__(self, fetch_id: int, segments: Sequence[int], sizes: Sequence[int], started_s: float) -> None:
        super().__init__(fetch_id, segments, sizes, [0] * len(segments), started_s)
        self._sizes = dict(zip(segments, sizes, strict=True))
        self._untaken = list(segments)
        self._reached = 0

    def grow(self, size_bytes: int, wire_bytes: int, at_s: float) -> None:
        self._arrived_bytes += size_bytes
        self.wire_bytes += wire_bytes
        self.finished_s = at_s

    def take(self) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        while self._untaken and self._reached + self._sizes[self._untaken[0]] <= self._arrived_bytes:
            segment = self._untaken.pop(0)
            self._reached += self._sizes[segment]
            found[segment] = b""
        return found


@dataclasses.dataclass
class _Asked:
    reached_s: float
    fetch_id: int
    segments: Sequence[int]
    cancelled: bool = False


class ModelledSource:
    """A cloud behind a link: requests take half a round trip, then their bytes pass the trace one after the other."""

    def __init__(self, trace: Trace, *, rtt_s: float, offset_s: float, segment_bytes: Sequence[int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._trace, self._rtt_s, self._segment_bytes = trace, rtt_s, segment_bytes
        self._trace_began_s = self._loop.time() - offset_s
        self._free_s = self._loop.time()
        self._asked: asyncio.Queue[_Asked] = asyncio.Queue()
        self._open: dict[int, _Asked] = {}
        self._news: asyncio.Queue[Arrival] = asyncio.Queue()
        self._task = asyncio.create_task(self._send())

    async def fetch(self, fetch_id: int, segments: Sequence[int]) -> None:
        self._open[fetch_id] = asked = _Asked(self._loop.time() + self._rtt_s / 2, fetch_id, list(segments))
        self._asked.put_nowait(asked)

    async def cancel(self, fetch_id: int) -> None:
        asked = self._open.pop(fetch_id, None)
        if asked:
            self._loop.call_later(self._rtt_s / 2, setattr, asked, "cancelled", True)

    async def next(self) -> Arrival:
        return await self._news.get()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _send(self) -> None:
        while True:
            asked = await self._asked.get()
            left_s = max(asked.reached_s, self._free_s)
            await _until(self._loop, left_s)
            sizes = [self._segment_bytes[segment] for segment in asked.segments]
            left_bytes, unsaid_bytes = sum(sizes), FETCH_HEADER_BYTES + SEGMENT_HEADER_BYTES * len(sizes)
            piece = max(PIECE_BYTES, min(MAX_PIECE_BYTES, -(-left_bytes // MAX_PIECES)))
            # The header is a message of its own, from which on the rate can be measured.
            left_s = self._through_s(left_s, unsaid_bytes)
            arrival = _ModelledArrival(asked.fetch_id, asked.segments, sizes, left_s + self._rtt_s / 2)
            while (left_bytes or unsaid_bytes) and not asked.cancelled:
                size = min(piece, left_bytes)
                left_s = self._through_s(left_s, size)
                await _until(self._loop, left_s)
                at_s = left_s + self._rtt_s / 2
                self._loop.call_at(at_s, self._deliver, arrival, size, size + unsaid_bytes, at_s)
                left_bytes, unsaid_bytes = left_bytes - size, 0
            self._free_s = left_s

    def _through_s(self, at_s: float, size_bytes: int) -> float:
        """When bytes that begin to leave then have left."""
        return self._trace_began_s + self._trace.end_of_transfer_s(at_s - self._trace_began_s, size_bytes)

    def _deliver(self, arrival: _ModelledArrival, size_bytes: int, wire_bytes: int, at_s: float) -> None:
        arrival.grow(size_bytes, wire_bytes, at_s)
        if arrival.complete:
            self._open.pop(arrival.fetch_id, None)
        self._news.put_nowait(arrival)


@dataclasses.dataclass(frozen=True)
class Durations:
    """How long a device at rest takes, in seconds.

    ``active_shard_s`` executes a shard with the cache, ``full_shard_s`` one without. ``read_s`` takes in segments of
    these numbers, ``rebuild_s`` rebuilds a shard from all that were read so far. ``speed_share`` is the share of its
    speed that the device has after so many seconds of work. ``concurrent`` if reading and rebuilding run beside it.
    """

    active_shard_s: float
    full_shard_s: float
    read_s: Callable[[Collection[int]], float]
    rebuild_s: Callable[[int, Collection[int]], float]
    speed_share: Callable[[float], float] = lambda at_s: 1.0
    concurrent: bool = True


class _Processor:
    """Does one piece of work after the other, each at the speed that it has when that begins."""

    def __init__(self, speed_share: Callable[[float], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._speed_share = speed_share
        self._free_s = self._loop.time()
        self._worked_s = 0.0

    async def work(self, seconds: float) -> Span:
        start = max(self._loop.time(), self._free_s)
        lasting_s = seconds / self._speed_share(self._worked_s)
        self._worked_s += lasting_s
        self._free_s = start + lasting_s
        span = Span(start, self._free_s)
        await _until(self._loop, span.end)
        return span


class ModelledRun:
    """An edit on processors that only take time. Its picture is one black pixel."""

    def __init__(self, durations: Durations) -> None:
        self._durations = durations
        self._compute = _Processor(durations.speed_share)
        self._helper = _Processor(durations.speed_share) if durations.concurrent else self._compute
        self._read: set[int] = set()

    async def read(self, segments: Mapping[int, bytes]) -> None:
        self._read.update(segments)
        await self._helper.work(self._durations.read_s(segments))

    async def reconstruct(self, shard: int, segments: Mapping[int, bytes]) -> tuple[ShardKv, Span]:
        self._read.update(segments)
        seconds = self._durations.read_s(segments) + self._durations.rebuild_s(shard, self._read)
        return NO_KV, await self._helper.work(seconds)

    def execute(self, shard: int, kv: ShardKv) -> Awaitable[Span]:
        return self._compute.work(self._durations.active_shard_s)

    def execute_locally(self, shard: int) -> Awaitable[Span]:
        return self._compute.work(self._durations.full_shard_s)

    async def picture(self) -> np.ndarray:
        return np.zeros((1, 1, 3), np.uint8)


async def _until(loop: asyncio.AbstractEventLoop, at_s: float) -> None:
    while loop.time() < at_s:
        await asyncio.sleep(at_s - loop.time())
