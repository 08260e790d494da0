"""The clock of a run, and a way to wait until something has happened in it."""

import asyncio
import contextlib


class RunClock:
    """Seconds since the run began, which is when this is made, on the event loop's clock.

    In real time that is ``time.monotonic``, which setting the computer's clock does not change.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._start_s = self._loop.time()

    def now(self) -> float:
        return self.of(self._loop.time())

    def of(self, loop_s: float) -> float:
        """A time of the event loop as a time of the run."""
        return loop_s - self._start_s


class Signal:
    """Wakes all who wait for it. Between looking at things and waiting, nothing may be awaited."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Until the next call of :meth:`tell`, or so long at most."""
        event = self._event
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await event.wait()
