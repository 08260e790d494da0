"""The pipelined runtime: reception and reconstruction of later shards overlap the execution of earlier ones.

It knows no socket and no page: it is given a source of segments, an engine and a place for events, and keeps time with
the event loop that it runs in, so the same code runs in real and in virtual time.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Coroutine
from typing import TypeVar

import numpy as np

from sakura.cloud.source import ShardDamagedError, ShardSource, SourceLostError
from sakura.control.estimators import Estimator
from sakura.control.interface import Controller, StreamState
from sakura.events import EventSink, FellBack, NetworkWait, ShardUsed
from sakura.runtime.clock import RunClock
from sakura.runtime.engine import EngineRun, ShardKv, Span
from sakura.runtime.reception import Reception, Reopen, no_other_source
from sakura.runtime.telling import tell_span, tell_step

log = logging.getLogger(__name__)

T = TypeVar("T")

# While one shard is executed, the next is rebuilt; a second one if rebuilding takes longer than half of executing.
LONG_RECONSTRUCTION = 0.5
READ_SEGMENTS = 8  # taken in at once while nothing has to be rebuilt
PACE_WEIGHT = 0.3  # of the latest shard in how fast the device is believed to be
WAIT_SLICE_S, WAIT_GROWTH = 0.005, 0.1
# Where waiting is the point: for a silent network, and for a stream to be opened anew.
PATIENCE_S, REOPEN_PATIENCE_S = 60.0, 5.0
# Of small requests on a long way. A cloud queues four times as many: those, as many that replace them when they are
# cancelled, and the cancelling.
MAX_OPEN_FETCHES = 64
MAX_PACE = 50.0


@dataclasses.dataclass
class Profile:
    """How long the device takes: one step with the cache, one step without it, one reconstruction."""

    active_step_s: float
    full_step_s: float
    reconstruct_s: float = 0.003


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A finished edit: its picture uint8 (px, px, 3), bytes of whole messages received, time waited.

    ``local_shards`` were computed without the cache; ``fell_back`` if not only because that was quicker than asking.
    """

    picture: np.ndarray
    received_bytes: int
    network_wait_s: float
    fell_back: bool
    local_shards: int = 0


class Pipeline:
    """One edit with a streamed cache.

    ``reopen`` gives another source where one is lost. ``patient`` does not give up on a slow network (the full cache as
    a baseline), only on a dead one.
    """

    def __init__(
        self,
        *,
        state: StreamState,
        source: ShardSource,
        run: EngineRun,
        controller: Controller,
        estimator: Estimator,
        clock: RunClock,
        emit: EventSink,
        patient: bool = False,
        reopen: Reopen = no_other_source,
    ) -> None:
        self.state, self.run, self.controller = state, run, controller
        self.clock, self.emit, self.patient = clock, emit, patient
        self.reception = Reception(source, state, estimator, clock, emit, reopen)
        self._changed = self.reception.changed
        self._lost: Exception | None = None
        self._rebuilds = True  # until rebuilding has failed
        self._ready: dict[int, tuple[ShardKv, float]] = {}  # rebuilt and since when, not yet given to execution
        self._rebuilt = 0  # shards below need no reconstruction any more
        self._executed = 0
        self._idle_since_s = clock.now()
        self._planned_s = (state.shard_s, state.local_shard_s)
        self._pace = 1.0  # how many times slower than planned the device is
        self._full_shard: int | None = None  # the last one executed, if its step has been computed in full so far
        self._failure: Exception | None = None  # of the engine
        self._local_shards = 0
        self._local_until_s: float | None = None  # when what is being computed locally will be done
        self._fell_back = False
        self._head_start = False  # whether the device computes only because nothing can have come yet
        self._network_wait_s = 0.0

    async def edit(self) -> Outcome:
        """Run to the end. Raises only what the engine raises: a lost or slow network is survived on the device."""
        work = (self._reconstruct(), self._request(), self.reception.receive())
        tasks = [asyncio.create_task(self._survive(each)) for each in work]
        self._rebuilding, *self._streaming = tasks
        try:
            await self._execute()
            picture = await self.run.picture()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._ready.clear()
        reception = self.reception
        reception.finish()
        return Outcome(picture, reception.received_bytes, self._network_wait_s, self._fell_back, self._local_shards)

    async def _survive(self, work: Coroutine[object, object, None]) -> None:
        """Run background work; whatever ends it early, the edit goes on without the cache."""
        try:
            await work
        except (SourceLostError, ShardDamagedError) as error:
            await self._lose(error)
        except Exception as error:
            log.exception("Receiving the cache failed")
            await self._lose(SourceLostError(f"Receiving the cache failed ({type(error).__name__})"))

    async def _lose(self, error: Exception) -> None:
        """Nothing more is asked for or received; what has come already is still used, where it can be."""
        self._lost = self._lost or error
        self._rebuilds = self._rebuilds and asyncio.current_task() is not self._rebuilding
        self._changed.tell()
        for task in self._streaming:
            if task is not asyncio.current_task():
                task.cancel()
        await self.reception.give_up()

    # Ask

    async def _request(self) -> None:
        over = 0  # shards that need nothing any more
        while True:
            over_now = max(self._rebuilt, self.state.begun)
            if over_now > over:
                over = over_now
                await self.reception.drop_late(over)
            self._update_state()
            has_room = self.reception.open_fetches < MAX_OPEN_FETCHES
            order = self.controller.next(self.state) if has_room else None
            if order is None:
                await self._changed.wait()
            else:
                await self.reception.order(order)

    def _update_state(self) -> None:
        state, now = self.state, self.clock.now()
        state.now_s = now
        state.decided = max(state.decided, state.begun)
        state.shard_s, state.local_shard_s = (planned * self._pace for planned in self._planned_s)
        running_s = self._idle_since_s + (state.begun - self._executed) * state.shard_s
        state.free_s = max(now, running_s if self._local_until_s is None else self._local_until_s)

    # Reconstruct: the next shard when it is due, from all that has come by then

    async def _reconstruct(self) -> None:
        state, reception = self.state, self.reception
        while (shard := max(self._rebuilt, state.begun)) < state.geometry.shards:
            ahead = 2 if state.reconstruct_s > LONG_RECONSTRUCTION * state.shard_s else 1
            if shard <= self._executed + ahead and reception.is_there(shard):
                await self._rebuild(shard)
            elif reception.unread:
                segments = {key: reception.unread.pop(key) for key in list(reception.unread)[:READ_SEGMENTS]}
                began_s = self.clock.now()
                await self._damaged_or(self.run.read(segments))
                seconds = (self.clock.now() - began_s) / max(1, state.bytes_of(segments))
                state.read_s_per_byte += (seconds - state.read_s_per_byte) / 2
            else:
                await self._changed.wait()

    async def _rebuild(self, shard: int) -> None:
        state, unread = self.state, self.reception.unread
        self._update_state()
        spare_s = state.needed_s(shard) - state.reconstruct_s - state.now_s
        # Reading takes time, too: beyond what a shard must have, only as much is read as there is time for.
        segments = {segment: unread.pop(segment) for segment in self.reception.least[shard] if segment in unread}
        left_s = spare_s
        for segment in state.ladder(shard).order:
            left_s -= state.read_s_per_byte * state.segment_bytes[segment] if segment in unread else 0.0
            if left_s < 0:
                break
            if segment in unread:
                segments[segment] = unread.pop(segment)
        self._tell_use(shard, spare_s)
        kv, span = await self._damaged_or(self.run.reconstruct(shard, segments))
        state.reconstruct_s = (state.reconstruct_s + span.end - span.start) / 2
        tell_span(self.emit, self.clock, "reconstruct", shard, span)
        self._rebuilt = shard + 1
        if shard >= state.begun:  # else the device has computed it meanwhile
            self._ready[shard] = kv, self.clock.now()
        self._changed.tell()

    async def _damaged_or(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except ValueError as error:  # checksums are right, so sending it again would not help
            raise ShardDamagedError(str(error).rstrip(".")) from error

    def _tell_use(self, shard: int, spare_s: float) -> None:
        """Record how finely a shard is rebuilt, and how long before it is needed."""
        used = self.reception.rung_read(shard)
        representation = used.representation
        self.emit(
            ShardUsed(
                at_s=self.clock.now(),
                shard=shard,
                rank=representation.rank,
                left_bits=representation.left_bits,
                right_bits=representation.right_bits,
                distortion=used.distortion,
                slack_s=spare_s,
                cut=not self.reception.chosen[shard] <= self.state.arrived,
            )
        )

    # Execute: queue each shard as soon as it is there, or compute it without the cache

    async def _execute(self) -> None:
        running: list[asyncio.Task[None]] = []
        try:
            for shard in range(self.state.geometry.shards):
                reason = await self._until_ready(shard)
                if reason is None:
                    self._head_start = False
                    self.state.begun = shard + 1
                    kv, ready_s = self._ready.pop(shard)
                    self._full_shard = None
                    running.append(asyncio.create_task(self._finish(shard, self.run.execute(shard, kv), ready_s)))
                else:
                    await asyncio.gather(*running)
                    await self._compute_locally(shard, reason)
            await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _until_ready(self, shard: int) -> str | None:
        """Until a shard can be executed with the cache, or a reason to compute it without."""
        while shard not in self._ready:
            if self._failure:
                raise self._failure
            timeout_s = None
            if self.state.begun == self._executed:
                reason = self._reason_against_waiting(shard)
                if reason is not None:
                    return reason
                timeout_s = WAIT_SLICE_S + WAIT_GROWTH * self._waited_s()
            await self._changed.wait(timeout_s)
        return self._reason_against_step(shard)

    def _waited_s(self) -> float:
        """How long execution has stood still."""
        return self.clock.now() - self._idle_since_s

    def _first_local(self, shard: int) -> int:
        """From which shard the device would compute: all of a step unless it has been computed in full so far."""
        return shard if self._full_shard == shard - 1 else shard - shard % self.state.geometry.shards_per_step

    def _reason_against_waiting(self, shard: int) -> str | None:
        """Compare what the network still takes with what computing takes, as InstGenIE does for loading its cache.

        Execution stands still. To wait as long as computing would have taken is the most that can be lost by hope.
        """
        if self.reception.is_there(shard) and self._rebuilds:
            return None
        if self._lost:
            return f"{str(self._lost).rstrip('.')}, so the device computes the rest itself."
        broken = self.reception.broken
        if broken:
            hopeful = self.reception.received_bytes > 0  # a cloud that never answered is not waited for
            if self.patient and hopeful and self.clock.now() - self.reception.broken_s < REOPEN_PATIENCE_S:
                return None
            return f"{str(broken).rstrip('.')}, so the device computes on by itself meanwhile."
        self._update_state()
        state, waited_s = self.state, self._waited_s()
        if self.patient:
            if self.reception.silence_s() < PATIENCE_S:
                return None
            return f"Nothing came for {PATIENCE_S:.0f} s, so the device computes on by itself."
        local_s = (shard - self._first_local(shard) + 1) * state.local_shard_s
        wait_s = self.reception.wait_s(shard) + state.reconstruct_s
        if wait_s + state.shard_s <= local_s and waited_s <= local_s - state.shard_s:
            return None
        return (
            f"The network would take {1000 * wait_s:.0f} ms after {1000 * waited_s:.0f} ms of waiting, the device "
            f"{1000 * local_s:.0f} ms, so the device computes on by itself."
        )

    def _reason_against_step(self, shard: int) -> str | None:
        """Whether computing the rest of a step is quicker than using the cache and being stuck in the middle of it.

        Only while the step is being computed in full, or has not begun: then computing costs nothing twice. And only
        once the network was measured: before, the estimate is of another edit or of none.
        """
        state, reception = self.state, self.reception
        per_step = state.geometry.shards_per_step
        rest = range(shard, shard - shard % per_step + per_step)
        missing = [each for each in rest if not reception.is_there(each)]
        if self.patient or not missing or not state.measured or self._first_local(shard) != shard:
            return None
        self._update_state()
        with_cache_s = 0.0
        for each in rest:
            if each in missing:
                with_cache_s = max(with_cache_s, reception.wait_s(each) + state.reconstruct_s)
            with_cache_s += state.shard_s
        alone_s = len(rest) * state.local_shard_s
        if with_cache_s <= alone_s:
            return None
        return (
            f"The rest of step {state.geometry.step_of(shard) + 1} would take {1000 * with_cache_s:.0f} ms with the "
            f"network, the device {1000 * alone_s:.0f} ms, so the device computes on by itself."
        )

    async def _compute_locally(self, shard: int, reason: str) -> None:
        """Compute a shard without the cache, and what of its step has not been computed so."""
        state, first = self.state, self._first_local(shard)
        head_start = shard == 0 or (self._head_start and self.clock.now() < state.rtt_s)
        planned = head_start and not (self._lost or self.reception.broken)
        if shard == 0 or self._full_shard != shard - 1 or planned != self._head_start:
            self.emit(FellBack(at_s=self.clock.now(), shard=first, reason=reason, planned=planned))
        self._head_start = planned
        self._fell_back = self._fell_back or not planned
        self._tell_wait(shard, self.clock.now())
        state.begun = shard + 1
        self._local_until_s = self.clock.now() + (shard - first + 1) * state.local_shard_s
        for each in range(first, shard + 1):
            self._full_shard = each
            await self._finish(each, self.run.execute_locally(each))
            self._local_shards += 1
        self._local_until_s = None

    async def _finish(self, shard: int, work: Awaitable[Span], ready_s: float | None = None) -> None:
        """Wait for an execution to end and take note of it; ``ready_s`` is when its cache was ready, if it had one."""
        try:
            span = await work
        except Exception as error:
            self._failure = error
            self._changed.tell()
            raise
        if ready_s is not None:
            self._tell_wait(shard, ready_s)
        tell_span(self.emit, self.clock, "execute", shard, span, on_device=ready_s is None)
        pace = (span.end - span.start) / self._planned_s[ready_s is None]
        self._pace += PACE_WEIGHT * (min(MAX_PACE, pace) - self._pace)
        self._executed = max(self._executed, shard + 1)
        self._idle_since_s = self.clock.of(span.end)
        self._changed.tell()
        await tell_step(self.emit, self.clock, self.state.geometry, self.run, shard)

    def _tell_wait(self, shard: int, until_s: float) -> None:
        """Record that execution stood still from its last end until then, if it did."""
        if until_s > self._idle_since_s:
            self._network_wait_s += until_s - self._idle_since_s
            self.emit(NetworkWait(at_s=until_s, shard=shard, started_s=self._idle_since_s))
