"""The pipeline on an exact clock, with a modelled link and engine."""

import asyncio
import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
from clocks import run

from sakura.codec.interface import CacheGeometry
from sakura.cloud.source import Arrival, SourceLostError
from sakura.codec.interface import Representation, Rung
from sakura.control.controllers import Choice, DeadlineController, Situation
from sakura.control.estimators import DiscountedEstimator
from sakura.events import AnyEvent, BandwidthMeasured, FellBack, LaneFinished, NetworkWait, RepresentationChosen
from sakura.runtime.engine import ShardKv, Span
from sakura.runtime.pipeline import Outcome, Pipeline, Profile, RunClock

GEOMETRY = CacheGeometry(steps=4, blocks=8, blocks_per_shard=2, rows=4, columns=4)
SIZES = (5_000, 20_000, 60_000)
RUNGS = [
    Rung(Representation(rank, 4, 4), size, distortion)
    for rank, size, distortion in zip((8, 16, 32), SIZES, (0.1, 0.05, 0.01), strict=True)
]
SHARD_S, FULL_STEP_S, RTT_S = 0.01, 0.2, 0.02
PIECE_BYTES = 4_000


class LoopClock(RunClock):
    """The engine's clock is the loop's."""

    def of_engine(self, engine_s: float) -> float:
        return self.of_loop(engine_s)


class ModelledSource:
    """Sends shards one after the other at ``mbps``, from half a round trip after the request on."""

    def __init__(self, mbps: float, lost_after: int | None = None) -> None:
        self.mbps, self.lost_after = mbps, lost_after
        self.loop = asyncio.get_running_loop()
        self.asked: asyncio.Queue[tuple[float, int, Representation]] = asyncio.Queue()
        self.news: asyncio.Queue[Arrival | None] = asyncio.Queue()
        self.task = asyncio.create_task(self._send())

    async def fetch(self, shard: int, representation: Representation) -> None:
        self.asked.put_nowait((self.loop.time(), shard, representation))

    async def _send(self) -> None:
        sent = 0
        while True:
            asked_s, shard, representation = await self.asked.get()
            await asyncio.sleep(max(0.0, asked_s + RTT_S - self.loop.time()))
            if sent == self.lost_after:
                self.news.put_nowait(None)
            size = next(rung.size_bytes for rung in RUNGS if rung.representation == representation)
            arrival = Arrival(shard, representation, [0], [size], [0], self.loop.time())
            self.news.put_nowait(arrival)
            for start in range(0, size, PIECE_BYTES):
                piece = bytes(min(PIECE_BYTES, size - start))
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

    async def reconstruct(
        self, shard: int, representation: Representation, segments: Mapping[int, bytes]
    ) -> tuple[ShardKv, Span]:
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

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]

    def lane(self, lane: str) -> list[LaneFinished]:
        return [event for event in self.of(LaneFinished) if event.lane == lane]


class _Unverified(Arrival):
    """Checksums are not the matter here."""

    def segments(self) -> dict[int, bytes]:
        return {0: b""}


@pytest.fixture(autouse=True)
def without_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arrival, "segments", _Unverified.segments)


def edit(
    mbps: float,
    *,
    lost_after: int | None = None,
    shard_s: float = SHARD_S,
    patient: bool = False,
    controller: object = None,
    rungs: list[list[Rung]] | None = None,
) -> Told:
    told: list[Told] = []

    async def scenario() -> None:
        source, engine, events = ModelledSource(mbps, lost_after), ModelledEngine(shard_s), list[AnyEvent]()
        pipeline = Pipeline(
            geometry=GEOMETRY,
            rungs=rungs or [RUNGS] * GEOMETRY.shards,
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
        told.append(Told(await pipeline.edit(), events, engine))
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
