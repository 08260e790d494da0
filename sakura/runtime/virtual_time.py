"""An event loop whose clock jumps to whatever comes next: programs that only wait for timers run in no time.

The pipeline, the controllers and the emulated link keep time with the loop that they run in, so the same code runs in
real time over sockets and in virtual time with modelled ones. Nothing in it may wait for threads or sockets.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


class NothingLeftError(RuntimeError):
    """Everything waits for something that cannot come any more."""


class _JumpingSelector(selectors.SelectSelector):
    """Never waits: what it should have waited is added to ``now_s``."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise NothingLeftError("The simulated run waits for something that cannot come.")
            self.now_s += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """``time()`` starts at 0 and counts simulated seconds."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


def run_virtually(program: Coroutine[object, object, T]) -> T:
    """Run a program to its end in virtual time. Raises NothingLeftError where it waits for ever."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(program)
