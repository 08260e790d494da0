"""Virtual time passes only while everything waits, and takes no real time."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakura.runtime.virtual_time import NothingLeftError, run_virtually


def test_hours_pass_at_once() -> None:
    async def program() -> float:
        await asyncio.sleep(36_000)
        return asyncio.get_running_loop().time()

    began_s = time.perf_counter()
    assert run_virtually(program()) == 36_000
    assert time.perf_counter() - began_s < 5


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=20))
def test_sleepers_wake_in_order_and_exactly(delays_s: list[float]) -> None:
    async def program() -> list[tuple[float, float]]:
        loop = asyncio.get_running_loop()
        woken: list[tuple[float, float]] = []

        async def sleep(delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            woken.append((delay_s, loop.time()))

        await asyncio.gather(*(sleep(delay_s) for delay_s in delays_s))
        return woken

    woken = run_virtually(program())
    assert [delay_s for delay_s, _ in woken] == sorted(delays_s)
    for delay_s, at_s in woken:
        # The loop wakes what is due within the clock's resolution together.
        assert at_s == pytest.approx(delay_s, abs=1e-6)


def test_work_between_waits_takes_no_time() -> None:
    async def program() -> float:
        sum(range(100_000))
        await asyncio.sleep(0)
        return asyncio.get_running_loop().time()

    assert run_virtually(program()) == 0


def test_waiting_for_ever_is_an_error() -> None:
    async def program() -> None:
        await asyncio.Event().wait()

    with pytest.raises(NothingLeftError, match="waits for something that cannot come"):
        run_virtually(program())


def test_what_a_program_raises_comes_through() -> None:
    async def program() -> None:
        async with asyncio.timeout(3):
            await asyncio.sleep(10)

    with pytest.raises(TimeoutError):
        run_virtually(program())
