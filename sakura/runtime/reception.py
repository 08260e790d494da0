"""What an edit has asked its cloud for, what has come of it, and how fast."""

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Iterable

from sakura.cloud.protocol import PIECE_BYTES
from sakura.cloud.source import Arrival, ShardDamagedError, ShardSource, SourceLostError
from sakura.codec.interface import Rung
from sakura.control.estimators import Estimator, RateMeter, Sample
from sakura.control.interface import Order, StreamState
from sakura.events import BandwidthMeasured, EventSink, LaneFinished, RepresentationChosen
from sakura.runtime.clock import RunClock, Signal

# Gives another source in the place of one that was lost, or raises a SourceLostError.
Reopen = Callable[[SourceLostError], Awaitable[ShardSource]]


async def no_other_source(error: SourceLostError) -> ShardSource:
    raise error


@dataclasses.dataclass
class _Fetch:
    """A request under way: for which shard, what of it has not come, when it was asked, and what came so far."""

    shard: int
    missing: dict[int, None]  # in the order in which they come
    asked_s: float
    started_s: float | None = None
    seen_bytes: int = 0
    arrival: Arrival | None = None
    arrival_bytes: int = 0  # seen of this arrival; a connection that broke leaves another one behind
    first_bytes: int = 0  # that came with the first look at it, at first_s: they began to flow before
    first_s: float = 0.0


class Reception:
    """Orders go out, segments come in; ``unread`` holds those that no decoder has been given yet.

    ``chosen[shard]`` are the segments of the representation that was decided for a shard, ``least[shard]`` those that
    its execution waits for. ``changed`` is told of everything that happens.
    """

    def __init__(
        self,
        source: ShardSource,
        state: StreamState,
        estimator: Estimator,
        clock: RunClock,
        emit: EventSink,
        reopen: Reopen,
    ) -> None:
        self.source, self.state, self.estimator = source, state, estimator
        self._reopen = reopen
        self.clock, self.emit = clock, emit
        self.changed = Signal()
        self.least: dict[int, frozenset[int]] = {}
        self.chosen: dict[int, frozenset[int]] = {}
        self.unread: dict[int, bytes] = {}
        self.received_bytes = 0
        self.broken: SourceLostError | None = None  # until all is asked for again, of another source
        self.broken_s = 0.0  # since when
        self._fetches: dict[int, _Fetch] = {}  # in the order asked, which is the order of arrival
        self._cancelled: dict[int, _Fetch] = {}  # of which a part may still be on the wire
        self._next_id = 0
        self._refetched: set[int] = set()
        self._meter = RateMeter()
        self._last_byte_s = clock.now()

    async def order(self, order: Order) -> None:
        """Decide or refine a shard and ask for what that takes. Raises SourceLostError."""
        state, shard = self.state, order.shard
        ladder = state.ladder(shard)
        segments = state.to_request(ladder, order.rung) if order.part is None else list(order.part)
        if shard == state.decided:
            state.decided += 1
            if shard == 0:
                transfer_s = state.transfer_s(state.bytes_of(segments))
                state.first_ready_s = state.link_free_s + transfer_s + state.reconstruct_s
            self.least[shard] = frozenset(ladder.segments(order.least))
            self.chosen[shard] = frozenset(ladder.segments(order.rung))
        representation = order.rung.representation
        self.emit(
            RepresentationChosen(
                at_s=self.clock.now(),
                shard=shard,
                rank=representation.rank,
                left_bits=representation.left_bits,
                right_bits=representation.right_bits,
                wanted_bytes=state.bytes_of(segments),
                budget_bytes=order.budget_bytes,
                predicted_mbps=state.predicted_mbps,
                slack_s=state.slack_s(shard),
                reason=order.reason,
            )
        )
        if segments:
            state.requested.update(segments)
            await self._fetch(shard, segments)
        self.changed.tell()

    async def _fetch(self, shard: int, segments: Iterable[int]) -> None:
        fetch = _Fetch(shard, dict.fromkeys(segments), self.clock.now())
        if not self._fetches:
            self._last_byte_s = fetch.asked_s + self.state.rtt_s
        self._fetches[self._next_id] = fetch
        self.state.outstanding_bytes += self.state.bytes_of(fetch.missing)
        fetch_id, self._next_id = self._next_id, self._next_id + 1
        if self.broken:  # all that is open is about to be asked for again, in order
            return
        with contextlib.suppress(SourceLostError):  # reception notices too
            await self.source.fetch(fetch_id, list(fetch.missing))

    async def drop_late(self, first_shard: int) -> None:
        """Cancel requests none of whose segments serves ``first_shard`` or a later one. Raises SourceLostError."""
        state = self.state
        if not self._fetches:
            return
        useful: set[int] = set()
        for number in set(state.ladder_of[first_shard:]):
            useful.update(state.ladders[number].order)
        for fetch_id, fetch in list(self._fetches.items()):
            if useful.isdisjoint(fetch.missing):
                await self._cancel(fetch_id)

    async def give_up(self) -> None:
        """Cancel all requests."""
        for fetch_id in list(self._fetches):
            await self._cancel(fetch_id)

    async def _cancel(self, fetch_id: int) -> None:
        self._cancelled[fetch_id] = self._fetches[fetch_id]
        self._forget(fetch_id)
        with contextlib.suppress(SourceLostError):
            await self.source.cancel(fetch_id)

    def _forget(self, fetch_id: int) -> None:
        fetch = self._fetches.pop(fetch_id)
        self.state.outstanding_bytes -= self.state.bytes_of(fetch.missing)

    async def receive(self) -> None:
        """Take in what comes, for ever, and go on with a new source when one is lost, where there is another one.

        Raises SourceLostError, and ShardDamagedError on a segment damaged twice.
        """
        while True:
            try:
                await self._receive_from(self.source)
            except SourceLostError as error:
                self.broken, self.broken_s = error, self.clock.now()
                self._tell_cancelled()
                self.changed.tell()
                self.source = await self._reopen(error)
            await self._ask_again()
            self.broken = None
            self.changed.tell()

    async def _ask_again(self) -> None:
        """Ask a new source for all that is open, also for what is added or cancelled meanwhile, in the same order."""
        self._last_byte_s = self.clock.now() + self.state.rtt_s
        asked = -1
        while waiting := [fetch_id for fetch_id in self._fetches if fetch_id > asked]:
            asked = waiting[0]
            fetch = self._fetches[asked]
            fetch.asked_s = self.clock.now()
            with contextlib.suppress(SourceLostError):
                await self.source.fetch(asked, list(fetch.missing))

    async def _receive_from(self, source: ShardSource) -> None:
        previous_s = 0.0  # when the previous message arrived
        while True:
            arrival = await source.next()
            self._last_byte_s = self.clock.now()
            self._tell_cancelled(before=arrival.fetch_id)
            cancelled = self._cancelled.get(arrival.fetch_id)
            fetch = cancelled or self._fetches.get(arrival.fetch_id)
            if fetch is None:  # the last look at it saw all of it already
                continue
            self._measure(arrival, fetch, previous_s)
            previous_s = arrival.finished_s
            if cancelled:
                self.changed.tell()
                continue
            damaged = self._take(arrival, fetch)
            self.changed.tell()
            if arrival.complete:
                self._forget(arrival.fetch_id)
                if self.estimator.of_transfers:
                    duration_s = arrival.finished_s - fetch.first_s
                    self._take_sample(fetch, arrival, Sample(fetch.arrival_bytes - fetch.first_bytes, duration_s))
                self._tell(fetch, cut=False)
            if damaged:
                self._refetched.update(damaged)
                await self._fetch(fetch.shard, damaged)

    def _take(self, arrival: Arrival, fetch: _Fetch) -> list[int]:
        """Keep what has come in whole; returns what has to be asked for again."""
        known_damaged = len(arrival.damaged)
        segments = arrival.take()
        damaged = arrival.damaged[known_damaged:]
        for segment in [*segments, *damaged]:
            if segment not in fetch.missing:
                raise ShardDamagedError(f"The cloud sent segment {segment}, which was not asked for")
            del fetch.missing[segment]
            self.state.outstanding_bytes -= self.state.segment_bytes[segment]
        for segment in damaged:
            if segment in self._refetched:
                raise ShardDamagedError(f"Segment {segment} of the cache came damaged twice")
        self.unread.update(segments)
        self.state.arrived.update(segments)
        return damaged

    def _measure(self, arrival: Arrival, fetch: _Fetch, previous_s: float) -> None:
        """Tell the estimator what came since the last look; several messages may have."""
        slices = not self.estimator.of_transfers
        if fetch.started_s is None:
            fetch.started_s = self.clock.of(arrival.started_s)
        if arrival is not fetch.arrival:
            fetch.arrival, fetch.arrival_bytes = arrival, 0
            fetch.first_bytes, fetch.first_s = arrival.wire_bytes, arrival.finished_s
            # The link had run dry if this request can only have reached the cloud after the last bytes left.
            after_pause = fetch.asked_s + self.state.rtt_s > self.clock.of(previous_s)
            sample = self._meter.arrived(arrival.started_s, 0, after_pause=after_pause)
            self._take_sample(fetch, arrival, sample if slices else None)
        size_bytes = arrival.wire_bytes - fetch.arrival_bytes
        fetch.arrival_bytes = arrival.wire_bytes
        fetch.seen_bytes += size_bytes
        self.received_bytes += size_bytes
        sample = self._meter.arrived(arrival.finished_s, size_bytes, after_pause=False)
        self._take_sample(fetch, arrival, sample if slices else None)

    def _take_sample(self, fetch: _Fetch, arrival: Arrival, sample: Sample | None) -> None:
        if sample is None or sample.size_bytes == 0:
            return
        self.estimator.add(sample)
        self.state.measured = True
        self.state.predicted_mbps = self.estimator.predict_mbps()
        self.emit(
            BandwidthMeasured(
                at_s=self.clock.of(arrival.finished_s),
                shard=fetch.shard,
                measured_mbps=sample.rate_mbps,
                predicted_mbps=self.state.predicted_mbps,
            )
        )

    def finish(self) -> None:
        """Record what came of all requests that have not come in whole: the edit is over."""
        self._tell_cancelled()
        for fetch in self._fetches.values():
            self._tell(fetch, cut=True)

    def _tell_cancelled(self, before: int | None = None) -> None:
        """Record what came of cancelled requests, or of those before one of which something has come."""
        for fetch_id in [each for each in self._cancelled if before is None or each < before]:
            self._tell(self._cancelled.pop(fetch_id), cut=True)

    def _tell(self, fetch: _Fetch, *, cut: bool) -> None:
        if fetch.started_s is not None and fetch.arrival is not None:
            self.emit(
                LaneFinished(
                    at_s=self.clock.of(fetch.arrival.finished_s),
                    lane="receive",
                    shard=fetch.shard,
                    started_s=fetch.started_s,
                    received_bytes=fetch.seen_bytes,
                    cut=cut,
                )
            )

    @property
    def open_fetches(self) -> int:
        """How many requests have not come in whole."""
        return len(self._fetches)

    def is_there(self, shard: int) -> bool:
        """Whether all that a shard waits for has come."""
        least = self.least.get(shard)
        return least is not None and least <= self.state.arrived

    def rung_read(self, shard: int) -> Rung:
        """The finest representation of a shard of which everything has been read; the coarsest if none has."""
        ladder, read = self.state.ladder(shard), self.state.arrived - self.unread.keys()
        there = (rung for rung in reversed(ladder.rungs) if read.issuperset(ladder.segments(rung)))
        return next(there, ladder.rungs[0])

    def wait_s(self, shard: int) -> float:
        """How long until all that a shard waits for will have come, as far as one can tell."""
        state, now = self.state, self.clock.now()
        least = self.least.get(shard)
        if least is None:
            ladder = state.ladder(shard)
            return max(state.rtt_s, state.transfer_s(state.outstanding_bytes)) + state.transfer_s(
                state.cost_bytes(ladder, ladder.rungs[0])
            )
        wanted = set(least - state.arrived)
        ahead_bytes, first_byte_s = 0, 0.0
        for fetch in self._fetches.values():
            if not wanted:
                break
            for segment in fetch.missing:
                if not wanted:
                    break
                ahead_bytes += state.segment_bytes[segment]
                wanted.discard(segment)
            first_byte_s = max(first_byte_s, fetch.asked_s + state.rtt_s)
        return max(self.silence_s(), first_byte_s - now, 0.0) + state.transfer_s(ahead_bytes)

    def silence_s(self) -> float:
        """For how long nothing has come that was due; a network that has been silent will be so as long again."""
        if not self._fetches:
            return 0.0
        return max(0.0, self.clock.now() - self._last_byte_s - self.state.transfer_s(PIECE_BYTES))
