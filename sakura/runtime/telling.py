"""How the runtime tells of its work: spans of lanes, and the picture after each step."""

from sakura.codec.interface import CacheGeometry
from sakura.events import EventSink, Lane, LaneFinished, StepFinished
from sakura.pictures import to_png
from sakura.runtime.clock import RunClock
from sakura.runtime.engine import EngineRun, Span


def tell_span(emit: EventSink, clock: RunClock, lane: Lane, shard: int, span: Span, *, on_device: bool = False) -> None:
    """A stage has finished a shard; ``on_device`` where it was executed without the cache."""
    emit(
        LaneFinished(
            at_s=clock.of(span.end), lane=lane, shard=shard, started_s=clock.of(span.start), on_device=on_device
        )
    )


async def tell_step(emit: EventSink, clock: RunClock, geometry: CacheGeometry, run: EngineRun, shard: int) -> None:
    """Show the picture so far if ``shard`` ended a step; the last step's picture is the result itself."""
    step = geometry.step_of(shard)
    if (shard + 1) % geometry.shards_per_step == 0 and step + 1 < geometry.steps:
        preview = to_png(await run.picture())
        emit(StepFinished(at_s=clock.now(), step=step, preview_png=preview))
