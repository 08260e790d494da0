"""An event loop whose time is exact: it passes only while all tasks wait, and takes no real time."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class ClockedSelector(selectors.DefaultSelector):
    """Passes waiting time at once; ``now_s`` says how late it would be."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "every task waits for another one"
        self.now_s += timeout
        return super().select(0)


class ClockedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is exact, and passes only while all tasks wait."""

    def __init__(self) -> None:
        self._clock = ClockedSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now_s


async def bounded(work: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(20):
        await work


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run on the exact clock."""
    with asyncio.Runner(loop_factory=ClockedLoop) as runner:
        runner.run(bounded(work))
