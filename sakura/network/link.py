"""An emulated link in an asyncio program: messages leave it at the pace of a trace, and arrive half a round trip later.

The link is a first-in-first-out bottleneck without burst credit, followed by a propagation delay that holds any number
of messages at once. All times are those of the running event loop; times of a trace are counted from the link's start.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sakura.network.trace import Trace

_MAX_LATENESS_S = 0.25
"""The bottleneck pauses when a delivery is this late: the real connection below is slower than the trace."""


Deliver = Callable[[bytes], Awaitable[None]]


@dataclass
class _Queued:
    message: bytes
    ready_s: float
    deliver: Deliver
    owner: object


class LinkClosedError(Exception):
    """The link was closed; nothing more can be sent."""


class PacedLink:
    """A downlink, of one connection or shared by several. Build it in a running event loop, ``close`` it in the end.

    ``deliver`` is awaited with each message in order, unless ``send`` was given another way. If it raises, the link
    stops, and the next ``send`` raises the same exception. ``offset_s`` is the time of the trace at which the link
    starts. ``max_queued_bytes`` bounds what waits before the bottleneck; a larger message passes alone.
    """

    def __init__(
        self,
        trace: Trace,
        *,
        rtt_s: float,
        offset_s: float,
        deliver: Deliver,
        max_queued_bytes: int = 256 * 1024,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._trace = trace
        self._rtt_s = rtt_s
        self._trace_began_s = self._loop.time() - offset_s
        self._deliver = deliver
        self._max_queued_bytes = max_queued_bytes
        self._waiting: deque[_Queued] = deque()
        self._queued_bytes = 0
        # The message on its way out: what was left of it at some time, and when all of it is through (or was).
        self._left_bytes = 0.0
        self._left_at_s = self._end_s = self._loop.time()
        self._in_flight: deque[tuple[float, _Queued]] = deque()
        self._serialiser_wake = asyncio.Event()
        self._propagator_wake = asyncio.Event()
        self._room = asyncio.Event()
        self._admission = asyncio.Lock()
        # How late the loop woke a sender after the bottleneck had made room. It counts as ready that much earlier,
        # so that a busy processor does not slow the link down.
        self._sender_lag_s = 0.0
        self._failure: Exception | None = None
        self._tasks = [
            self._loop.create_task(self._guard(self._serialise())),
            self._loop.create_task(self._guard(self._propagate())),
        ]

    @property
    def queued_bytes(self) -> int:
        """Bytes of messages that have not left the bottleneck, the present one counted in full."""
        return self._queued_bytes

    async def send(self, message: bytes, *, deliver: Deliver | None = None, owner: object = None) -> None:
        """Queue ``message`` behind those before it; waits while the queue is full.

        ``owner`` is what :meth:`drop_queued` knows it by.
        Raises ``LinkClosedError`` after ``close``, and what ``deliver`` raised after that.
        """
        # The lock keeps senders that wait in their order.
        async with self._admission:
            waited = False
            while self._failure is None and self._is_full_for(message):
                waited = True
                self._room.clear()
                await self._room.wait()
            if self._failure is not None:
                raise self._failure
            now_s = self._loop.time()
            if waited:
                self._sender_lag_s = max(0.0, now_s - self._end_s)
            elif self._queued_bytes == 0:
                self._sender_lag_s = 0.0
            self._waiting.append(_Queued(message, now_s - self._sender_lag_s, deliver or self._deliver, owner))
            self._queued_bytes += len(message)
            self._serialiser_wake.set()

    def set_trace(self, trace: Trace) -> None:
        """Go on with ``trace`` at the present time since the start, also for the message on its way out."""
        now_s = self._loop.time()
        if self._end_s > now_s:
            self._left_bytes -= self._trace.bytes_between(self._on_trace_s(self._left_at_s), self._on_trace_s(now_s))
            self._trace = trace
            self._time_rest_from(now_s)
            self._serialiser_wake.set()
        else:
            self._trace = trace

    def drop_queued(self, predicate: Callable[[object], bool]) -> int:
        """Remove messages that have not begun to leave, if ``predicate`` holds for their owner; returns their bytes."""
        kept: deque[_Queued] = deque()
        dropped_bytes = 0
        for queued in self._waiting:
            if predicate(queued.owner):
                dropped_bytes += len(queued.message)
            else:
                kept.append(queued)
        self._waiting = kept
        self._leave_queue(dropped_bytes)
        return dropped_bytes

    async def close(self) -> None:
        """Stop at once; messages that have not arrived are lost. Calling it again does nothing."""
        if self._failure is None:
            self._fail(LinkClosedError("The link is closed."))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._in_flight.clear()

    def _is_full_for(self, message: bytes) -> bool:
        return self._queued_bytes > 0 and self._queued_bytes + len(message) > self._max_queued_bytes

    def _on_trace_s(self, loop_s: float) -> float:
        return loop_s - self._trace_began_s

    def _time_rest_from(self, at_s: float) -> None:
        """Set when the rest of the present message is through, if it goes on at ``at_s``."""
        self._left_at_s = at_s
        self._end_s = self._trace_began_s + self._trace.end_of_transfer_s(self._on_trace_s(at_s), self._left_bytes)

    def _leave_queue(self, size_bytes: int) -> None:
        self._queued_bytes -= size_bytes
        self._room.set()

    def _fail(self, failure: Exception) -> None:
        self._failure = failure
        self._queued_bytes = 0
        self._waiting.clear()
        self._room.set()

    async def _guard(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as failure:
            self._fail(failure)
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()

    async def _serialise(self) -> None:
        """Pass one message after the other through the bottleneck, into the propagation delay."""
        while True:
            if not self._waiting:
                await _wait(self._serialiser_wake, float("inf"))
                continue
            if self._in_flight and self._loop.time() - self._in_flight[0][0] > _MAX_LATENESS_S:
                await _wait(self._serialiser_wake, float("inf"))
                # The pause is lost time: nothing may catch up on it faster than the trace.
                self._end_s = self._loop.time()
                continue
            queued = self._waiting.popleft()
            self._left_bytes = len(queued.message)
            self._time_rest_from(max(queued.ready_s, self._end_s))
            while self._end_s > self._loop.time():
                await _wait(self._serialiser_wake, self._end_s)
            self._in_flight.append((self._end_s + self._rtt_s / 2, queued))
            self._propagator_wake.set()
            self._leave_queue(len(queued.message))

    async def _propagate(self) -> None:
        """Deliver each message when it is due."""
        while True:
            if not self._in_flight:
                await _wait(self._propagator_wake, float("inf"))
                continue
            due_s, queued = self._in_flight[0]
            while due_s > self._loop.time():
                await _wait(self._propagator_wake, due_s)
            await queued.deliver(queued.message)
            self._in_flight.popleft()
            self._serialiser_wake.set()


async def _wait(event: asyncio.Event, until_s: float) -> None:
    """Return when ``event`` is set or at ``until_s`` of the loop's time, and clear the event."""
    try:
        async with asyncio.timeout_at(None if until_s == float("inf") else until_s):
            await event.wait()
    except TimeoutError:
        pass
    event.clear()
