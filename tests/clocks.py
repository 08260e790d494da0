"""Programs that end: in virtual time, or in real time with an end to patience."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from sakura.runtime.virtual_time import run_virtually

T = TypeVar("T")


async def bounded(work: Coroutine[Any, Any, T], timeout_s: float = 20.0) -> T:
    """Raises TimeoutError where the work takes longer, in seconds of its loop."""
    async with asyncio.timeout(timeout_s):
        return await work


def run(work: Coroutine[Any, Any, T], timeout_s: float = 20.0) -> T:
    """Run in virtual time."""
    return run_virtually(bounded(work, timeout_s))
