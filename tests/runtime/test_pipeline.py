"""The pipeline on an exact clock, with a modelled link and engine."""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from clocks import run

from sakura.cloud.source import Arrival, SourceLostError
from sakura.codec.interface import CacheGeometry, Ladder, Representation, Rung
from sakura.control.controllers import Choice, DeadlineController, Situation
from sakura.control.estimators import DiscountedEstimator
from sakura.events import AnyEvent, BandwidthMeasured, FellBack, LaneFinished, NetworkWait, RepresentationChosen
from sakura.runtime.engine import ShardKv, Span
from sakura.runtime.pipeline import Outcome, Pipeline, Profile, RunClock

GEOMETRY = CacheGeometry(steps=4, blocks=8, blocks_per_shard=2, rows=4, columns=4)
SIZES = (5_000, 20_000, 60_000)
DISTORTIONS = (0.1, 0.05, 0.01)


def rungs_of(*, progressive: bool) -> list[Rung]:
    ranked = zip((8, 16, 32), SIZES, DISTORTIONS, strict=True)
    return [
        Rung(Representation(rank, 4, 4), 0 if progressive else index, index + 1, size, distortion)
        for index, (rank, size, distortion) in enumerate(ranked)
    ]


@dataclasses.dataclass(frozen=True)
class Offer:
    """A ladder for each shard, over one pool of segments."""

    ladders: list[Ladder]
    segment_bytes: list[int]


def apart() -> Offer:
    """Every shard has a segment for each representation."""
    rungs = rungs_of(progressive=False)
    ladders = [Ladder([3 * shard, 3 * shard + 1, 3 * shard + 2], rungs) for shard in range(GEOMETRY.shards)]
    return Offer(ladders, list(SIZES) * GEOMETRY.shards)


def shared_by_steps() -> Offer:
    """The same blocks share segments at all steps; a finer representation continues a coarser one."""
    rungs, columns = rungs_of(progressive=True), GEOMETRY.shards_per_step
    own = [Ladder([3 * column, 3 * column + 1, 3 * column + 2], rungs) for column in range(columns)]
    sizes = [SIZES[0], SIZES[1] - SIZES[0], SIZES[2] - SIZES[1]]
    return Offer([own[shard % columns] for shard in range(GEOMETRY.shards)], sizes * columns)


SHARD_S, FULL_STEP_S, RTT_S = 0.01, 0.2, 0.02
PIECE_BYTES = 4_000


class LoopClock(RunClock):
    """The engine's clock is the loop's."""

    def of_engine(self, engine_s: float) -> float:
        return self.of_loop(engine_s)


class ModelledSource:
    """Sends shards one after the other at ``mbps``, from half a round trip after the request on."""

    def __init__(self, mbps: float, segment_bytes: Sequence[int], lost_after: int | None = None) -> None:
        self.mbps, self.segment_bytes, self.lost_after = mbps, segment_bytes, lost_after
        self.loop = asyncio.get_running_loop()
        self.fetched: list[int] = []
        self.asked: asyncio.Queue[tuple[float, int, Sequence[int]]] = asyncio.Queue()
        self.news: asyncio.Queue[Arrival | None] = asyncio.Queue()
        self.task = asyncio.create_task(self._send())

    async def fetch(self, shard: int, segments: Sequence[int]) -> None:
        self.fetched += segments
        self.asked.put_nowait((self.loop.time(), shard, segments))

    async def _send(self) -> None:
        sent = 0
        while True:
            asked_s, shard, segments = await self.asked.get()
            await asyncio.sleep(max(0.0, asked_s + RTT_S - self.loop.time()))
            if sent == self.lost_after:
                self.news.put_nowait(None)
            sizes = [self.segment_bytes[segment] for segment in segments]
            arrival = Arrival(shard, segments, sizes, [0] * len(sizes), self.loop.time())
            self.news.put_nowait(arrival)
            for start in range(0, sum(sizes), PIECE_BYTES):
                piece = bytes(min(PIECE_BYTES, sum(sizes) - start))
                await asyncio.sleep(8e-6 * len(piece) / self.mbps)
                arrival.add(piece, self.loop.time())
                arrival.wire_bytes += len(piece)
                self.news.put_nowait(arrival)
            sent += 1

    async def next(self) -> Arrival:
        arrival = await self.news.get()
        if arrival is None:
            raise SourceLostError("The line is cut.")
        return arrival

    async def close(self) -> None:
        self.task.cancel()


class ModelledEngine:
    """Executes a shard at a time, each in ``shard_s``; what it is given it keeps no longer than it must."""

    def __init__(self, shard_s: float = SHARD_S) -> None:
        self.shard_s = shard_s
        self.loop = asyncio.get_running_loop()
        self.busy = asyncio.Lock()
        self.local: list[int] = []
        self.known: dict[int, int] = {}  # how many segments there were when a shard was rebuilt
        self.segments: set[int] = set()

    async def reconstruct(self, shard: int, segments: Mapping[int, bytes]) -> tuple[ShardKv, Span]:
        self.segments.update(segments)
        self.known[shard] = len(self.segments)
        return {}, Span(self.loop.time(), self.loop.time())

    async def _work(self, seconds: float) -> Span:
        async with self.busy:
            start = self.loop.time()
            await asyncio.sleep(seconds)
            return Span(start, self.loop.time())

    async def execute(self, shard: int, kv: ShardKv) -> Span:
        return await self._work(self.shard_s)

    async def execute_locally(self, shard: int) -> Span:
        self.local.append(shard)
        return await self._work(FULL_STEP_S / GEOMETRY.shards_per_step)

    async def picture(self) -> np.ndarray:
        return np.zeros((16, 16, 3), np.uint8)


@dataclasses.dataclass
class Told:
    outcome: Outcome
    events: list[AnyEvent]
    engine: ModelledEngine
    source: ModelledSource

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]

    def lane(self, lane: str) -> list[LaneFinished]:
        return [event for event in self.of(LaneFinished) if event.lane == lane]


@pytest.fixture(autouse=True)
def without_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checksums are not the matter here."""
    monkeypatch.setattr(Arrival, "segments", lambda arrival: dict.fromkeys(arrival._ids, b""))


def edit(
    mbps: float,
    *,
    lost_after: int | None = None,
    shard_s: float = SHARD_S,
    patient: bool = False,
    controller: object = None,
    offer: Offer | None = None,
) -> Told:
    offer = offer or apart()
    told: list[Told] = []

    async def scenario() -> None:
        source = ModelledSource(mbps, offer.segment_bytes, lost_after)
        engine, events = ModelledEngine(shard_s), list[AnyEvent]()
        pipeline = Pipeline(
            geometry=GEOMETRY,
            ladders=offer.ladders,
            segment_bytes=offer.segment_bytes,
            source=source,
            run=engine,
            controller=controller or DeadlineController(),  # type: ignore[arg-type]
            estimator=DiscountedEstimator(),
            profile=Profile(SHARD_S * GEOMETRY.shards_per_step, FULL_STEP_S, 0.0),
            rtt_s=RTT_S,
            clock=LoopClock(),
            emit=events.append,
            patient=patient,
        )
        told.append(Told(await pipeline.edit(), events, engine, source))
        await source.close()
        assert not pipeline._kv, "executed shards are not kept"

    run(scenario())
    return told[0]


def test_fast_network_is_hidden_behind_execution() -> None:
    told = edit(200)
    assert not told.outcome.fell_back
    end = told.lane("execute")[-1].at_s
    # One round trip and the first shard cannot be hidden; nothing else may be left to see.
    assert end <= RTT_S + 8e-6 * SIZES[0] / 200 + GEOMETRY.shards * SHARD_S + 1e-6
    assert told.of(RepresentationChosen)[-1].rank == 32


def test_waits_are_what_execution_stood_still() -> None:
    told = edit(5)
    blocks, waits = told.lane("execute"), told.of(NetworkWait)
    for wait in waits:
        assert wait.started_s < wait.at_s
        assert not any(b.started_s < wait.at_s - 1e-9 and wait.started_s < b.at_s - 1e-9 for b in blocks)
    still_s = blocks[-1].at_s - sum(block.at_s - block.started_s for block in blocks)
    assert told.outcome.network_wait_s == pytest.approx(still_s, abs=1e-6)
    assert sum(wait.at_s - wait.started_s for wait in waits) == pytest.approx(told.outcome.network_wait_s)


def test_slow_engine_is_not_blamed_on_the_network() -> None:
    told = edit(200, shard_s=3 * SHARD_S)
    assert told.outcome.network_wait_s == pytest.approx(RTT_S + 8e-6 * SIZES[0] / 200, abs=1e-6)


def test_slow_network_is_given_the_smallest_representation() -> None:
    assert {event.rank for event in edit(3).of(RepresentationChosen)} == {8}


def test_rate_is_measured_within_ten_percent() -> None:
    rates = [event.measured_mbps for event in edit(30).of(BandwidthMeasured)]
    assert rates
    assert rates[-1] == pytest.approx(30, rel=0.1)


def test_lost_network_is_finished_on_the_device() -> None:
    told = edit(50, lost_after=3)
    assert told.outcome.fell_back
    assert told.of(FellBack)[0].reason == "The line is cut, so the device computes the rest itself."
    assert told.engine.local == list(range(told.engine.local[0], GEOMETRY.shards))
    assert told.engine.local[0] % GEOMETRY.shards_per_step == 0


def test_never_waits_longer_than_the_cache_can_save() -> None:
    told = edit(0.05)
    assert told.outcome.fell_back
    savings_s = GEOMETRY.steps * (FULL_STEP_S - SHARD_S * GEOMETRY.shards_per_step)
    assert told.outcome.network_wait_s <= savings_s + 0.05


def test_patient_run_waits_for_a_slow_network() -> None:
    assert not edit(0.5, patient=True).outcome.fell_back


def test_received_bytes_count_what_was_cut_off_too() -> None:
    told = edit(0.055)
    assert told.outcome.fell_back
    whole = sum(event.received_bytes for event in told.lane("receive"))
    assert whole < told.outcome.received_bytes < whole + SIZES[0]


@pytest.mark.parametrize("mbps", [3, 20, 200])
def test_what_one_step_brought_serves_the_next_ones(mbps: float) -> None:
    told = edit(mbps, offer=shared_by_steps())
    assert not told.outcome.fell_back
    assert len(told.lane("execute")) == len(told.lane("reconstruct")) == GEOMETRY.shards
    assert len(set(told.source.fetched)) == len(told.source.fetched), "no segment is fetched twice"
    assert told.outcome.received_bytes == sum(shared_by_steps().segment_bytes[s] for s in told.source.fetched)
    ranks = [event.rank for event in told.of(RepresentationChosen)]
    for column in range(GEOMETRY.shards_per_step):
        chosen = ranks[column :: GEOMETRY.shards_per_step]
        assert chosen == sorted(chosen), "a later step is never coarser than an earlier one"
    if mbps == 20:
        assert ranks[-1] == 32


def test_a_shard_that_fetches_nothing_waits_for_what_others_fetch() -> None:
    """All shards need the same segments, which the first one asks for."""
    rungs = rungs_of(progressive=True)[:1]
    offer = Offer([Ladder([0], rungs)] * GEOMETRY.shards, [SIZES[0]])
    told = edit(1, offer=offer)
    assert told.source.fetched == [0]
    arrived_s = told.lane("receive")[0].at_s
    assert all(event.started_s >= arrived_s for event in told.lane("reconstruct"))
    assert len(told.lane("execute")) == GEOMETRY.shards
    assert [event.wanted_bytes for event in told.of(RepresentationChosen)][1:] == [0] * (GEOMETRY.shards - 1)


def test_lost_network_takes_the_shards_that_wait_with_it() -> None:
    told = edit(1, offer=shared_by_steps(), lost_after=1)
    assert told.outcome.fell_back
    assert told.of(FellBack)[0].reason.startswith("The line is cut")


class FailingController:
    def choose(self, situation: Situation) -> Choice:
        if situation.shard == 2:
            raise RuntimeError("a mistake of ours")
        return Choice(situation.rungs[0], 0, "")


@pytest.mark.parametrize("patient", [False, True])
def test_mistake_in_the_background_ends_in_a_sentence(patient: bool) -> None:
    told = edit(50, controller=FailingController(), patient=patient)
    assert told.outcome.fell_back
    assert "RuntimeError" in told.of(FellBack)[0].reason
