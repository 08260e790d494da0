"""The pipelined runtime: reception and reconstruction of later shards overlap the execution of earlier ones.

It knows no socket and no page: it is given a source of shards, an engine and a place for events, and keeps time with
the event loop that it runs in.
"""

import asyncio
import dataclasses
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from sakura.cloud.source import Arrival, ShardDamagedError, ShardSource, SourceLostError
from sakura.codec.interface import CacheGeometry, Ladder, Rung
from sakura.control.controllers import Controller, Situation
from sakura.control.estimators import Estimator, RateMeter, Sample
from sakura.events import (
    BandwidthMeasured,
    EventSink,
    FellBack,
    Lane,
    LaneFinished,
    NetworkWait,
    RepresentationChosen,
    StepFinished,
)
from sakura.pictures import to_png
from sakura.runtime.engine import EngineRun, ShardKv, Span

log = logging.getLogger(__name__)

# Our reading: the paper says that the transfer of later shards hides behind earlier ones, not how far ahead.
LOOKAHEAD_SHARDS = 8
MIN_PATIENCE_S = 0.1
WAIT_SLICE_S = 0.02
PATIENCE_S = 60.0  # for one shard, where waiting is the point


class TooSlowError(Exception):
    """The network is too slow to wait for; the message says how long the device has waited."""


@dataclasses.dataclass
class Profile:
    """How long the device takes: one step with the cache, one step without it, one reconstruction."""

    active_step_s: float
    full_step_s: float
    reconstruct_s: float = 0.003


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A finished edit: its picture uint8 (px, px, 3), bytes of whole messages received, time waited, any fallback."""

    picture: np.ndarray
    received_bytes: int
    network_wait_s: float
    fell_back: bool


class RunClock:
    """Seconds since the run began, which is when this is made, for the event loop's time and the engine's spans."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_start, self._engine_start = self._loop.time(), time.perf_counter()

    def now(self) -> float:
        return self._loop.time() - self._loop_start

    def of_loop(self, loop_s: float) -> float:
        return loop_s - self._loop_start

    def of_engine(self, engine_s: float) -> float:
        return engine_s - self._engine_start


class Pipeline:
    """One edit with a streamed cache. ``ladders`` has one a shard; what one shard brought, later ones need not fetch.

    ``patient`` does not give up on a slow network (the full cache as a baseline), only on a dead one.
    """

    def __init__(
        self,
        *,
        geometry: CacheGeometry,
        ladders: Sequence[Ladder],
        segment_bytes: Sequence[int],
        source: ShardSource,
        run: EngineRun,
        controller: Controller,
        estimator: Estimator,
        profile: Profile,
        rtt_s: float,
        clock: RunClock,
        emit: EventSink,
        patient: bool = False,
    ) -> None:
        self.geometry, self.ladders, self.segment_bytes = geometry, ladders, segment_bytes
        self.source, self.run = source, run
        self.controller, self.estimator, self.profile, self.rtt_s = controller, estimator, profile, rtt_s
        self.emit, self.patient = emit, patient
        self.clock = clock
        self.shard_s = profile.active_step_s / geometry.shards_per_step
        loop = asyncio.get_running_loop()
        self._ready: list[asyncio.Future[None]] = [loop.create_future() for _ in range(geometry.shards)]
        self._kv: dict[int, ShardKv] = {}  # reconstructed, not yet handed to execution
        self._ready_s: dict[int, float] = {}
        self._requested: set[int] = set()  # segments asked for so far
        self._outstanding: dict[int, list[int]] = {}  # segments of shards that have not arrived in whole
        self._followers: dict[int, list[int]] = {}  # shards that only wait for what another shard fetches
        self._held: list[tuple[int, Mapping[int, bytes]]] = []  # shards that may need what is being fetched anew
        self._last_fetched = -1
        self._reconstructing: set[asyncio.Task[None]] = set()
        self._reconstruct_s = profile.reconstruct_s  # as the last shard took that brought something new
        self._asked_s: dict[int, float] = {}
        self._seen_bytes: dict[int, int] = {}
        self._meter = RateMeter()
        self._arriving_bytes = 0
        self._refetched: set[int] = set()
        self._measured = False
        self._submitted = self._executed = 0  # shards given to execution, and finished by it
        self._last_end = clock.now()  # of the execution that finished last
        self._progress = asyncio.Event()
        self.received_bytes = 0
        self.network_wait_s = 0.0

    async def edit(self) -> Outcome:
        """Run to the end. Raises only what the engine raises: a lost or slow network is survived on the device."""
        tasks = [asyncio.create_task(self._survive(work)) for work in (self._request(), self._receive())]
        try:
            fell_back = await self._execute()
            picture = await self.run.picture()
            return Outcome(picture, self.received_bytes, self.network_wait_s, fell_back)
        finally:
            tasks += self._reconstructing
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for future in self._ready:
                future.cancel()
            self._kv.clear()

    async def _survive(self, work: Coroutine[object, object, None]) -> None:
        """Run background work; whatever ends it early, the edit goes on without the cache."""
        try:
            await work
        except (SourceLostError, ShardDamagedError) as error:
            self._lose(error)
        except Exception as error:
            log.exception("Receiving the cache failed")
            self._lose(SourceLostError(f"Receiving the cache failed ({type(error).__name__})"))

    # Receive: choose and ask ahead of execution

    async def _request(self) -> None:
        for shard in range(self.geometry.shards):
            while shard >= self._executed + self._lookahead():
                self._progress.clear()
                await self._progress.wait()
            await self._ask(shard)

    def _lookahead(self) -> int:
        """How many shards to ask for ahead of execution: few until this run has measured its network."""
        if self._measured:
            return LOOKAHEAD_SHARDS
        return min(LOOKAHEAD_SHARDS, 2 + int(self.rtt_s / self.shard_s))

    async def _ask(self, shard: int) -> None:
        predicted = self.estimator.predict_mbps()
        situation = Situation(
            shard=shard,
            rungs=self._rungs(shard),
            slack_s=self._slack_s(shard, predicted),
            shard_s=self.shard_s,
            predicted_mbps=predicted,
            measured=self._measured,
        )
        choice = self.controller.choose(situation)
        segments = [s for s in self.ladders[shard].segments(choice.rung) if s not in self._requested]
        self._requested.update(segments)
        representation = choice.rung.representation
        self.emit(
            RepresentationChosen(
                at_s=self.clock.now(),
                shard=shard,
                rank=representation.rank,
                left_bits=representation.left_bits,
                right_bits=representation.right_bits,
                wanted_bytes=choice.rung.size_bytes,
                budget_bytes=choice.budget_bytes,
                predicted_mbps=predicted,
                reason=choice.reason,
            )
        )
        if segments:
            self._outstanding[shard] = segments
            self._last_fetched = shard
            self._asked_s[shard] = asyncio.get_running_loop().time()
            await self.source.fetch(shard, segments)
        elif self._last_fetched in self._outstanding:
            self._followers.setdefault(self._last_fetched, []).append(shard)
        else:
            self._start_reconstruction(shard, {})

    def _rungs(self, shard: int) -> list[Rung]:
        """What is on offer for a shard; sizes are of what has not been asked for yet."""
        ladder = self.ladders[shard]
        return [
            msgspec.structs.replace(rung, size_bytes=self._bytes_of(set(ladder.segments(rung)) - self._requested))
            for rung in ladder.rungs
        ]

    def _bytes_of(self, segments: Iterable[int]) -> int:
        return sum(self.segment_bytes[segment] for segment in segments)

    def _slack_s(self, shard: int, predicted_mbps: float) -> float:
        """From the link being free for this shard until execution needs it, reconstruction taken off."""
        now = self.clock.now()
        waiting_bytes = sum(map(self._bytes_of, self._outstanding.values())) - self._arriving_bytes
        link_free = now + 8e-6 * waiting_bytes / predicted_mbps
        link_free = max(link_free, now + self.rtt_s)
        start = max(now, self._last_end + (self._submitted - self._executed) * self.shard_s)
        if self._submitted == 0 and shard > 0:
            # Execution begins when the first shard is there, which nothing can hide.
            start = max(start, link_free)
        needed = start + (shard - self._submitted) * self.shard_s
        return needed - self._reconstruct_s - link_free

    async def _receive(self) -> None:
        previous_s = 0.0  # when the previous message arrived
        while True:
            arrival = await self.source.next()
            if arrival.shard not in self._outstanding:
                continue
            self._measure(arrival, previous_s)
            previous_s = arrival.finished_s
            self._arriving_bytes = 0 if arrival.complete else arrival.wire_bytes
            if arrival.complete:
                await self._take(arrival)

    async def _take(self, arrival: Arrival) -> None:
        """A shard's segments are there: rebuild it, and those that waited for the same. Damaged ones are sent anew."""
        try:
            if list(arrival.segment_ids) != self._outstanding[arrival.shard]:
                raise ShardDamagedError(f"Other segments of shard {arrival.shard} came than were asked for.")
            segments = arrival.segments()
        except ShardDamagedError as error:
            await self._fetch_again(arrival.shard, error)
            return
        del self._outstanding[arrival.shard]
        self._tell_received(arrival)
        held, self._held = self._held, []
        for waiting, brought in [(arrival.shard, segments), *held]:
            self._start_reconstruction(waiting, brought)
        for follower in self._followers.pop(arrival.shard, []):
            self._start_reconstruction(follower, {})

    async def _fetch_again(self, shard: int, error: ShardDamagedError) -> None:
        """Ask once more for what came damaged. Raises the error the second time."""
        if shard in self._refetched:
            raise error
        self._refetched.add(shard)
        self._seen_bytes.pop(shard, None)
        self._asked_s[shard] = asyncio.get_running_loop().time()
        await self.source.fetch(shard, self._outstanding[shard])

    def _start_reconstruction(self, shard: int, segments: Mapping[int, bytes]) -> None:
        """Rebuild a shard, once nothing that it may share with another one is being fetched anew."""
        if self._refetched & self._outstanding.keys():
            self._held.append((shard, segments))
            return
        task = asyncio.create_task(self._survive(self._reconstruct(shard, segments)))
        self._reconstructing.add(task)
        task.add_done_callback(self._reconstructing.discard)

    def _measure(self, arrival: Arrival, previous_s: float) -> None:
        """Tell the estimator what came since the last look; several messages may have."""
        if arrival.shard not in self._seen_bytes:
            self._seen_bytes[arrival.shard] = 0
            # The link had run dry if this shard's request can only have reached the cloud after the last bytes left.
            after_pause = self._asked_s[arrival.shard] + self.rtt_s > previous_s
            self._take_sample(arrival, self._meter.arrived(arrival.started_s, 0, after_pause=after_pause))
        size_bytes = arrival.wire_bytes - self._seen_bytes[arrival.shard]
        self._seen_bytes[arrival.shard] = arrival.wire_bytes
        self.received_bytes += size_bytes
        self._take_sample(arrival, self._meter.arrived(arrival.finished_s, size_bytes, after_pause=False))

    def _take_sample(self, arrival: Arrival, sample: Sample | None) -> None:
        if sample is None:
            return
        self.estimator.add(sample)
        self._measured = True
        self._progress.set()
        self.emit(
            BandwidthMeasured(
                at_s=self.clock.of_loop(arrival.finished_s),
                shard=arrival.shard,
                measured_mbps=sample.rate_mbps,
                predicted_mbps=self.estimator.predict_mbps(),
            )
        )

    def _tell_received(self, arrival: Arrival) -> None:
        self.emit(
            LaneFinished(
                at_s=self.clock.of_loop(arrival.finished_s),
                lane="receive",
                shard=arrival.shard,
                started_s=self.clock.of_loop(arrival.started_s),
                received_bytes=arrival.wire_bytes,
            )
        )

    async def _reconstruct(self, shard: int, segments: Mapping[int, bytes]) -> None:
        try:
            kv, span = await self.run.reconstruct(shard, segments)
        except ValueError as error:  # its checksums are right, so sending it again would not help
            raise ShardDamagedError(str(error)) from error
        if segments:
            self._reconstruct_s = span.end - span.start
        self._emit_lane("reconstruct", shard, span)
        if not self._ready[shard].done():
            self._kv[shard], self._ready_s[shard] = kv, self.clock.now()
            self._ready[shard].set_result(None)

    def _lose(self, error: Exception) -> None:
        for future in self._ready:
            if not future.done():
                future.set_exception(error)
                future.exception()  # mark as seen: execution may be over already

    # Execute: queue each shard as soon as it is there, or give up on the network

    async def _execute(self) -> bool:
        """Returns whether the device had to finish without the cache."""
        pending: list[asyncio.Task[None]] = []
        try:
            for shard in range(self.geometry.shards):
                try:
                    await self._wait_for(shard)
                except (TooSlowError, SourceLostError, ShardDamagedError) as error:
                    await asyncio.gather(*pending)
                    await self._execute_locally(shard, error)
                    return True
                self._submitted += 1
                pending.append(asyncio.create_task(self._run_shard(shard)))
            await asyncio.gather(*pending)
            return False
        finally:
            for task in pending:
                task.cancel()

    async def _wait_for(self, shard: int) -> None:
        """Until a shard is ready. Raises TooSlowError when computing the rest on the device is the better bet."""
        while True:
            done, _ = await asyncio.wait({self._ready[shard]}, timeout=WAIT_SLICE_S)
            if done:
                return self._ready[shard].result()
            standing_still = self._submitted == self._executed
            if standing_still and self._is_too_slow(shard):
                raise TooSlowError(f"The network kept the device waiting for {self._waited_s():.2f} s")

    def _waited_s(self) -> float:
        """How long execution has stood still."""
        return self.clock.now() - self._last_end

    def _is_too_slow(self, shard: int) -> bool:
        """Compare what the network still takes with what computing locally would take, as InstGenIE does for loads."""
        waited_s = self._waited_s()
        if self.patient:
            return waited_s > PATIENCE_S
        steps_left = self.geometry.steps - self.geometry.step_of(shard)
        if waited_s < max(MIN_PATIENCE_S, 2 * self.rtt_s):
            return False
        # Never lose more to waiting than the cache can still save.
        savings_s = steps_left * (self.profile.full_step_s - self.profile.active_step_s)
        if self.network_wait_s + waited_s > savings_s:
            return True
        missing = (s for s in range(shard, self.geometry.shards) if not self._ready[s].done())
        wanted: set[int] = set().union(*self._outstanding.values())
        for s in missing:
            wanted |= set(self.ladders[s].segments(self.ladders[s].rungs[0])) - self._requested
        missing_bytes = self._bytes_of(wanted)
        network_s = self.rtt_s + 8e-6 * missing_bytes / self.estimator.predict_mbps()
        return network_s > steps_left * self.profile.full_step_s

    async def _run_shard(self, shard: int) -> None:
        span = await self.run.execute(shard, self._kv.pop(shard))
        self._tell_wait(shard, self._ready_s[shard])
        self._emit_lane("execute", shard, span)
        self._executed = shard + 1
        self._last_end = self.clock.of_engine(span.end)
        self._progress.set()
        await _tell_step(self.emit, self.clock, self.geometry, self.run, shard)

    def _tell_wait(self, shard: int, until_s: float) -> None:
        """Record that execution stood still from its last end until then, if it did."""
        if until_s > self._last_end:
            self.network_wait_s += until_s - self._last_end
            self.emit(NetworkWait(at_s=until_s, shard=shard, started_s=self._last_end))

    async def _execute_locally(self, shard: int, cause: Exception) -> None:
        """Compute the step of ``shard`` anew, and all later ones, without the cache."""
        what = str(cause).rstrip(".")
        self._tell_wait(shard, self.clock.now())
        self.emit(
            FellBack(at_s=self.clock.now(), shard=shard, reason=f"{what}, so the device computes the rest itself.")
        )
        first = shard - shard % self.geometry.shards_per_step
        await execute_on_device(self.geometry, self.run, self.clock, self.emit, first)

    def _emit_lane(self, lane: Lane, shard: int, span: Span) -> None:
        _emit_span(self.emit, self.clock, lane, shard, span, on_device=False)


def _emit_span(emit: EventSink, clock: RunClock, lane: Lane, shard: int, span: Span, *, on_device: bool) -> None:
    emit(
        LaneFinished(
            at_s=clock.of_engine(span.end),
            lane=lane,
            shard=shard,
            started_s=clock.of_engine(span.start),
            on_device=on_device,
        )
    )


async def _tell_step(emit: EventSink, clock: RunClock, geometry: CacheGeometry, run: EngineRun, shard: int) -> None:
    """Show the picture so far if ``shard`` ended a step; the last step's picture is the result itself."""
    step = geometry.step_of(shard)
    if (shard + 1) % geometry.shards_per_step == 0 and step + 1 < geometry.steps:
        preview = to_png(await run.picture())
        emit(StepFinished(at_s=clock.now(), step=step, preview_png=preview))


async def execute_on_device(
    geometry: CacheGeometry, run: EngineRun, clock: RunClock, emit: EventSink, first_shard: int = 0
) -> None:
    """Compute all shards from ``first_shard`` on without a cache; ``first_shard`` must begin a step."""

    async def one(shard: int) -> None:
        _emit_span(emit, clock, "execute", shard, await run.execute_locally(shard), on_device=True)
        await _tell_step(emit, clock, geometry, run, shard)

    tasks = [asyncio.create_task(one(shard)) for shard in range(first_shard, geometry.shards)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def edit_without_cache(geometry: CacheGeometry, run: EngineRun, clock: RunClock, emit: EventSink) -> Outcome:
    """On-device generation: every token computed at every step."""
    await execute_on_device(geometry, run, clock, emit)
    return Outcome(await run.picture(), 0, 0.0, fell_back=False)


async def edit_with_resident_cache(
    geometry: CacheGeometry, run: EngineRun, shards: Sequence[ShardKv], clock: RunClock, emit: EventSink
) -> Outcome:
    """Active tokens only, with a cache that is on the device already."""

    async def one(shard: int) -> None:
        _emit_span(emit, clock, "execute", shard, await run.execute(shard, shards[shard]), on_device=False)

    await asyncio.gather(*(one(shard) for shard in range(geometry.shards)))
    return Outcome(await run.picture(), 0, 0.0, fell_back=False)
