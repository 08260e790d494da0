"""Edits that stream nothing: on the device alone, and with a cache that is on the device already."""

import asyncio
from collections.abc import Sequence

from sakura.codec.interface import CacheGeometry
from sakura.events import EventSink
from sakura.runtime.clock import RunClock
from sakura.runtime.engine import EngineRun, ShardKv
from sakura.runtime.pipeline import Outcome
from sakura.runtime.telling import tell_span, tell_step


async def edit_without_cache(geometry: CacheGeometry, run: EngineRun, clock: RunClock, emit: EventSink) -> Outcome:
    """On-device generation: every token computed at every step."""

    async def one(shard: int) -> None:
        tell_span(emit, clock, "execute", shard, await run.execute_locally(shard), on_device=True)
        await tell_step(emit, clock, geometry, run, shard)

    tasks = [asyncio.create_task(one(shard)) for shard in range(geometry.shards)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return Outcome(await run.picture(), 0, 0.0, fell_back=False, local_shards=geometry.shards)


async def edit_with_resident_cache(
    geometry: CacheGeometry, run: EngineRun, shards: Sequence[ShardKv], clock: RunClock, emit: EventSink
) -> Outcome:
    """Active tokens only, with a cache that is on the device already."""

    async def one(shard: int) -> None:
        tell_span(emit, clock, "execute", shard, await run.execute(shard, shards[shard]))

    await asyncio.gather(*(one(shard) for shard in range(geometry.shards)))
    return Outcome(await run.picture(), 0, 0.0, fell_back=False)
