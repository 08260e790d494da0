"""What a run's events say of it, for tables."""

from collections.abc import Sequence

from sakura.events import AnyEvent, LaneFinished, ShardUsed


def mean_distortion(events: Sequence[AnyEvent]) -> float:
    """Mean over the shards as they were executed; one that was computed without the cache lost nothing."""
    used = {event.shard: event.distortion for event in events if isinstance(event, ShardUsed)}
    executed = {event.shard: event for event in events if isinstance(event, LaneFinished) and event.lane == "execute"}
    lost = sum(used.get(shard, 0.0) for shard, event in executed.items() if not event.on_device)
    return lost / max(1, len(executed))
