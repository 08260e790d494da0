"""The modelled link and processors keep the promises of those that they stand for."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sakura.cloud.protocol import FETCH_HEADER_BYTES, SEGMENT_HEADER_BYTES
from sakura.cloud.source import Arrival
from sakura.network.library import constant_trace
from sakura.network.trace import checked_trace
from sakura.runtime.engine import NO_KV
from sakura.runtime.modelled import Durations, ModelledRun, ModelledSource
from sakura.runtime.virtual_time import run_virtually

RTT_S = 0.04


def wire_bytes(sizes: Sequence[int]) -> int:
    return sum(sizes) + FETCH_HEADER_BYTES + SEGMENT_HEADER_BYTES * len(sizes)


async def complete(source: ModelledSource) -> Arrival:
    while not (arrival := await source.next()).complete:
        pass
    return arrival


def test_a_fetch_takes_a_round_trip_and_its_bytes() -> None:
    async def program() -> tuple[Arrival, float]:
        source = ModelledSource(constant_trace(8.0), rtt_s=RTT_S, offset_s=0, segment_bytes=[1_000_000, 500_000])
        await source.fetch(7, [1, 0])
        arrival = await complete(source)
        at_s = asyncio.get_running_loop().time()
        assert list(arrival.take()) == [1, 0]
        await source.close()
        return arrival, at_s

    arrival, at_s = run_virtually(program())
    size = wire_bytes([1_000_000, 500_000])
    assert arrival.fetch_id == 7
    assert arrival.wire_bytes == size
    assert at_s == pytest.approx(RTT_S + size / 1e6, abs=1e-6)


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 3_000_000), min_size=1, max_size=8), mbps=st.floats(0.5, 2000))
def test_fetches_share_the_link_one_after_the_other(sizes: list[int], mbps: float) -> None:
    async def program() -> tuple[list[int], float]:
        source = ModelledSource(constant_trace(mbps), rtt_s=RTT_S, offset_s=3, segment_bytes=sizes)
        for segment in range(len(sizes)):
            await source.fetch(segment, [segment])
        arrived = [(await complete(source)).fetch_id for _ in sizes]
        at_s = asyncio.get_running_loop().time()
        await source.close()
        return arrived, at_s

    arrived, at_s = run_virtually(program())
    assert arrived == list(range(len(sizes)))
    carried_s = 8e-6 * sum(wire_bytes([size]) for size in sizes) / mbps
    assert at_s == pytest.approx(RTT_S + carried_s, rel=1e-6, abs=1e-5)


def test_segments_come_in_while_a_fetch_is_under_way() -> None:
    async def program() -> list[tuple[list[int], float]]:
        source = ModelledSource(constant_trace(8.0), rtt_s=RTT_S, offset_s=0, segment_bytes=[400_000] * 4)
        await source.fetch(0, [0, 1, 2, 3])
        taken = []
        while True:
            arrival = await source.next()
            segments = arrival.take()
            if segments:
                taken.append((list(segments), round(asyncio.get_running_loop().time(), 2)))
            if arrival.complete:
                await source.close()
                return taken

    taken = run_virtually(program())
    assert [segment for segments, _ in taken for segment in segments] == [0, 1, 2, 3]
    assert [at_s for _, at_s in taken] == pytest.approx([0.44, 0.84, 1.24, 1.64], abs=0.04)


def test_what_is_cancelled_frees_the_link() -> None:
    async def program() -> tuple[int, float]:
        source = ModelledSource(constant_trace(8.0), rtt_s=RTT_S, offset_s=0, segment_bytes=[10_000_000, 100_000])
        await source.fetch(0, [0])
        await source.fetch(1, [1])
        await asyncio.sleep(1)
        await source.cancel(0)
        arrival = await complete(source)
        at_s = asyncio.get_running_loop().time()
        await source.close()
        return arrival.fetch_id, at_s

    fetch_id, at_s = run_virtually(program())
    assert fetch_id == 1
    assert at_s < 1.5  # ten seconds without it


def test_an_outage_is_waited_for() -> None:
    outage = checked_trace("outage", [0, 1, 6, 1000], [8.0, 0.0, 8.0])

    async def program() -> float:
        source = ModelledSource(outage, rtt_s=0.0, offset_s=0, segment_bytes=[1_500_000])
        await source.fetch(0, [0])
        await complete(source)
        await source.close()
        return asyncio.get_running_loop().time()

    assert run_virtually(program()) == pytest.approx(6.5, abs=0.01)


def durations(**changes: Any) -> Durations:
    return Durations(
        **{
            "active_shard_s": 1.0,
            "full_shard_s": 4.0,
            "read_s": lambda segments: 0.1 * len(segments),
            "rebuild_s": lambda shard, known: 0.01 * len(known),
            **changes,
        }
    )


async def execute_and_rebuild(changes: dict[str, Any]) -> list[float]:
    run = ModelledRun(durations(**changes))
    await run.read({0: b"", 1: b""})
    first, (_, second), third = await asyncio.gather(
        run.execute(0, NO_KV), run.reconstruct(1, {1: b"", 2: b""}), run.execute_locally(1)
    )
    assert (await run.picture()).dtype == np.uint8
    return [first.start, first.end, second.start, second.end, third.start, third.end]


def test_rebuilding_runs_beside_execution() -> None:
    times = run_virtually(execute_and_rebuild({}))
    assert times == pytest.approx([0.2, 1.2, 0.2, 0.43, 1.2, 5.2])


def test_rebuilding_takes_its_turn_where_it_shares_the_processor() -> None:
    times = run_virtually(execute_and_rebuild({"concurrent": False}))
    assert times == pytest.approx([0.2, 1.2, 1.2, 1.43, 1.43, 5.43])


def test_a_hot_device_is_slower() -> None:
    async def program() -> list[float]:
        run = ModelledRun(durations(speed_share=lambda at_s: 1.0 if at_s < 1.5 else 0.5))
        spans = await asyncio.gather(*(run.execute(shard, NO_KV) for shard in range(3)))
        return [span.end for span in spans]

    assert run_virtually(program()) == pytest.approx([1, 2, 4])
