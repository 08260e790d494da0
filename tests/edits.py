"""Edits in virtual time: made-up caches, modelled links and processors, and what every edit must fulfil."""

import asyncio
import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from clocks import run

from sakura.cloud.source import Arrival, ShardSource, SourceLostError
from sakura.codec.interface import CacheGeometry, Ladder, Representation, Rung
from sakura.control import estimator_of, new_controller
from sakura.control.estimators import new_estimator
from sakura.control.interface import Controller, StreamState
from sakura.events import AnyEvent, LaneFinished, NetworkWait, ShardUsed
from sakura.network.trace import Trace
from sakura.runtime.clock import RunClock
from sakura.runtime.engine import NO_KV, ShardKv, Span
from sakura.runtime.modelled import ModelledSource
from sakura.runtime.pipeline import Outcome, Pipeline
from sakura.runtime.reception import Reopen, no_other_source

E = TypeVar("E")
GEOMETRY = CacheGeometry(steps=4, blocks=8, blocks_per_shard=2, rows=4, columns=4)
SIZES = (5_000, 20_000, 60_000)
DISTORTIONS = (0.1, 0.05, 0.01)
RANKS = (8, 16, 32)
SHARD_S, LOCAL_SHARD_S, RTT_S = 0.01, 0.05, 0.02
ON_DEVICE_S = LOCAL_SHARD_S * GEOMETRY.shards
EPSILON_S = 1e-6


@dataclasses.dataclass(frozen=True)
class Offer:
    """A pool of segments, and which ladder serves each shard."""

    ladders: list[Ladder]
    ladder_of: list[int]
    segment_bytes: list[int]

    def bytes_of(self, segments: Sequence[int]) -> int:
        return sum(self.segment_bytes[segment] for segment in segments)


def _rungs(*, progressive: bool) -> list[Rung]:
    ranked = zip(RANKS, SIZES, DISTORTIONS, strict=True)
    return [
        Rung(Representation(rank, 4, 4), 0 if progressive else index, index + 1, size, distortion)
        for index, (rank, size, distortion) in enumerate(ranked)
    ]


def apart() -> Offer:
    """Every shard has a segment for each representation, of which none continues another."""
    rungs = _rungs(progressive=False)
    ladders = [Ladder([3 * shard, 3 * shard + 1, 3 * shard + 2], rungs) for shard in range(GEOMETRY.shards)]
    return Offer(ladders, list(range(GEOMETRY.shards)), list(SIZES) * GEOMETRY.shards)


def continued() -> Offer:
    """Every shard has segments of its own; a finer representation continues a coarser one."""
    rungs = _rungs(progressive=True)
    ladders = [Ladder([3 * shard, 3 * shard + 1, 3 * shard + 2], rungs) for shard in range(GEOMETRY.shards)]
    sizes = [SIZES[0], SIZES[1] - SIZES[0], SIZES[2] - SIZES[1]]
    return Offer(ladders, list(range(GEOMETRY.shards)), sizes * GEOMETRY.shards)


def shared_by_steps() -> Offer:
    """The same blocks share segments at all steps; a finer representation continues a coarser one."""
    rungs, columns = _rungs(progressive=True), GEOMETRY.shards_per_step
    ladders = [Ladder([3 * column, 3 * column + 1, 3 * column + 2], rungs) for column in range(columns)]
    sizes = [SIZES[0], SIZES[1] - SIZES[0], SIZES[2] - SIZES[1]]
    return Offer(ladders, [shard % columns for shard in range(GEOMETRY.shards)], sizes * columns)


class WatchedSource(ModelledSource):
    """Remembers what it was asked, and when. ``lost_s`` is when it ends, ``damaged`` what comes damaged how often."""

    def __init__(
        self,
        trace: Trace,
        segment_bytes: Sequence[int],
        *,
        rtt_s: float = RTT_S,
        lost_s: float | None = None,
        damaged: dict[int, int] | None = None,
    ) -> None:
        super().__init__(trace, rtt_s=rtt_s, offset_s=0.0, segment_bytes=segment_bytes)
        self.segment_bytes = segment_bytes
        self.began_s = asyncio.get_running_loop().time()
        self.lost_s = lost_s
        self.damaged = damaged or {}
        self.fetched: list[tuple[float, int, list[int]]] = []
        self.cancelled: list[tuple[float, int]] = []
        self._arrivals: dict[int, Arrival] = {}

    @property
    def asked(self) -> list[int]:
        """Every segment asked for, in order."""
        return [segment for _, _, segments in self.fetched for segment in segments]

    def _now(self) -> float:
        return asyncio.get_running_loop().time() - self.began_s

    def _check(self) -> None:
        if self.lost_s is not None and self._now() >= self.lost_s:
            raise SourceLostError("The line is cut.")

    async def fetch(self, fetch_id: int, segments: Sequence[int]) -> None:
        self.fetched.append((self._now(), fetch_id, list(segments)))
        self._check()
        await asyncio.sleep(0)  # a real one may have to wait for the socket, while other things are asked
        await super().fetch(fetch_id, segments)

    async def cancel(self, fetch_id: int) -> None:
        self.cancelled.append((self._now(), fetch_id))
        await super().cancel(fetch_id)

    async def next(self) -> Arrival:
        left_s = None if self.lost_s is None else max(0.0, self.lost_s - self._now())
        try:
            async with asyncio.timeout(left_s):
                arrival = await super().next()
        except TimeoutError:
            raise SourceLostError("The line is cut.") from None
        damaging: Arrival = _Damaging(arrival, self.damaged)  # type: ignore[assignment]
        return self._arrivals.setdefault(arrival.fetch_id, damaging)


class _Damaging:
    """An arrival some of whose segments come damaged."""

    def __init__(self, arrival: Arrival, left: dict[int, int]) -> None:
        self._arrival, self._left = arrival, left

    def __getattr__(self, name: str) -> object:
        return getattr(self._arrival, name)

    def take(self) -> dict[int, bytes]:
        found = self._arrival.take()
        for segment in list(found):
            if self._left.get(segment, 0):
                self._left[segment] -= 1
                del found[segment]
                self._arrival.damaged.append(segment)
        return found


class WatchedRun:
    """Two processors that only take time; remembers which segments it had been given when each shard was rebuilt."""

    def __init__(self, shard_s: float, rebuild_s: float) -> None:
        self.shard_s, self.rebuild_s = shard_s, rebuild_s
        self.given: list[int] = []
        self.rebuilt_from: dict[int, frozenset[int]] = {}
        self._compute, self._helper = asyncio.Lock(), asyncio.Lock()

    async def _work(self, processor: asyncio.Lock, seconds: float) -> Span:
        loop = asyncio.get_running_loop()
        async with processor:
            start = loop.time()
            await asyncio.sleep(seconds)
            return Span(start, loop.time())

    async def read(self, segments: Mapping[int, bytes]) -> None:
        self.given += segments

    async def reconstruct(self, shard: int, segments: Mapping[int, bytes]) -> tuple[ShardKv, Span]:
        self.given += segments
        self.rebuilt_from[shard] = frozenset(self.given)
        return NO_KV, await self._work(self._helper, self.rebuild_s)

    async def execute(self, shard: int, kv: ShardKv) -> Span:
        return await self._work(self._compute, self.shard_s)

    async def execute_locally(self, shard: int) -> Span:
        return await self._work(self._compute, LOCAL_SHARD_S * self.shard_s / SHARD_S)

    async def picture(self) -> np.ndarray:
        return np.zeros((1, 1, 3), np.uint8)


@dataclasses.dataclass
class Told:
    """A finished edit and all that was seen of it."""

    outcome: Outcome
    end_s: float
    events: list[AnyEvent]
    run: WatchedRun
    sources: list[WatchedSource]
    offer: Offer

    @property
    def source(self) -> WatchedSource:
        return self.sources[0]

    @property
    def executed(self) -> list[tuple[int, bool]]:
        """Shards in the order of execution, and whether each was computed without the cache."""
        return [(event.shard, event.on_device) for event in self.lane("execute")]

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def lane(self, lane: str) -> list[LaneFinished]:
        return [event for event in self.of(LaneFinished) if event.lane == lane]


NewSource = Callable[[], WatchedSource]


def edit(
    trace: Trace,
    *,
    offer: Offer | None = None,
    controller: str | Controller = "deadline",
    rtt_s: float = RTT_S,
    shard_s: float = SHARD_S,
    rebuild_s: float = 0.001,
    patient: bool = False,
    lost_s: float | None = None,
    damaged: dict[int, int] | None = None,
    again: Callable[[WatchedSource], Awaitable[WatchedSource]] | None = None,
    new_run: Callable[[float, float], WatchedRun] = WatchedRun,
    prior_mbps: float = 10.0,
) -> Told:
    """Run an edit whose device is planned for SHARD_S; ``again`` makes another source from one that was lost."""
    offer = offer or apart()
    if isinstance(controller, str):
        estimator = new_estimator(estimator_of(controller), prior_mbps)
        controller = new_controller(controller)
    else:
        estimator = new_estimator("discounted", prior_mbps)

    async def scenario() -> Told:
        sources = [WatchedSource(trace, offer.segment_bytes, rtt_s=rtt_s, lost_s=lost_s, damaged=damaged)]
        engine = new_run(shard_s, rebuild_s)
        events: list[AnyEvent] = []
        before = asyncio.all_tasks()

        async def reopen(error: SourceLostError) -> ShardSource:
            if again is None:
                return await no_other_source(error)
            sources.append(await again(sources[-1]))
            return sources[-1]

        chosen: Reopen = reopen
        clock = RunClock()
        pipeline = Pipeline(
            state=StreamState(
                geometry=GEOMETRY,
                ladders=offer.ladders,
                ladder_of=offer.ladder_of,
                segment_bytes=offer.segment_bytes,
                shard_s=SHARD_S,
                local_shard_s=LOCAL_SHARD_S,
                reconstruct_s=rebuild_s,
                rtt_s=rtt_s,
                predicted_mbps=estimator.predict_mbps(),
            ),
            source=sources[0],
            run=engine,
            controller=controller,
            estimator=estimator,
            clock=clock,
            emit=events.append,
            patient=patient,
            reopen=chosen,
        )
        outcome = await pipeline.edit()
        told = Told(outcome, clock.now(), events, engine, sources, offer)
        assert asyncio.all_tasks() - before <= {source._task for source in sources[1:]}, "tasks are left behind"
        for source in sources:
            await source.close()
        assert not pipeline._ready, "executed shards are not kept"
        return told

    return run(scenario(), 600)


def check(told: Told) -> None:
    """What holds for every edit, whatever its network."""
    _check_order(told)
    for lane in ("receive", "reconstruct", "execute"):
        spans = sorted((event.started_s, event.at_s) for event in told.lane(lane))
        assert all(start <= end for start, end in spans)
        assert all(end <= start + EPSILON_S for (_, end), (start, _) in itertools.pairwise(spans)), lane
    _check_waits(told)
    _check_bytes(told)
    _check_use(told)


def _check_order(told: Told) -> None:
    """Every shard once and in order, apart from what of a step is computed anew."""
    following = 0
    redone: int | None = None
    for shard, on_device in told.executed:
        if redone is None and shard != following:
            assert on_device
            assert shard == following - following % GEOMETRY.shards_per_step, "a step is computed anew from its start"
            redone = shard
        if redone is None:
            following = shard + 1
        else:
            assert (shard, on_device) == (redone, True)
            redone += 1
            if redone > following:
                following, redone = redone, None
    assert (following, redone) == (GEOMETRY.shards, None)
    assert told.outcome.local_shards == sum(on_device for _, on_device in told.executed)


def _check_waits(told: Told) -> None:
    """Waits are what execution stood still."""
    spans, waits = told.lane("execute"), told.of(NetworkWait)
    for wait in waits:
        assert wait.started_s < wait.at_s
        assert not any(
            span.started_s < wait.at_s - EPSILON_S and wait.started_s < span.at_s - EPSILON_S for span in spans
        )
    worked_s = sum(span.at_s - span.started_s for span in spans)
    np.testing.assert_allclose(told.outcome.network_wait_s, spans[-1].at_s - worked_s, atol=1e-5)
    np.testing.assert_allclose(sum(wait.at_s - wait.started_s for wait in waits), told.outcome.network_wait_s)
    assert told.end_s <= spans[-1].at_s + EPSILON_S


def _check_bytes(told: Told) -> None:
    """Segments are asked for once, and what came is counted."""
    first = told.sources[0]
    if len(told.sources) == 1 and not first.damaged:
        assert len(set(first.asked)) == len(first.asked), "no segment is asked for twice"
    finished = sum(event.received_bytes for event in told.lane("receive"))
    assert finished <= told.outcome.received_bytes
    assert len(set(told.run.given)) == len(told.run.given), "no segment is read twice"
    assert told.offer.bytes_of(told.run.given) <= told.outcome.received_bytes


def _check_use(told: Told) -> None:
    """What is said of each shard that was rebuilt is what it was rebuilt from, and no worse than its least."""
    used = {event.shard: event for event in told.of(ShardUsed)}
    assert len(used) == len(told.of(ShardUsed)), "a shard is rebuilt once"
    rebuilt = {event.shard: event.at_s for event in told.lane("reconstruct")}
    cached = {event.shard: event.started_s for event in told.lane("execute") if not event.on_device}
    assert cached.keys() <= rebuilt.keys() <= used.keys()
    for shard, started_s in cached.items():
        assert rebuilt[shard] <= started_s + EPSILON_S
    for shard, event in used.items():
        ladder = told.offer.ladders[told.offer.ladder_of[shard]]
        whole = [rung for rung in ladder.rungs if told.run.rebuilt_from[shard].issuperset(ladder.segments(rung))]
        assert whole, "a shard is not rebuilt before its smallest representation is there"
        assert (event.rank, event.distortion) == (whole[-1].representation.rank, whole[-1].distortion)
