"""What a run's events say of it, for tables."""

from collections.abc import Sequence

from sakura.events import AnyEvent, LaneFinished, NetworkWait, ShardUsed


def compute_s(events: Sequence[AnyEvent]) -> float:
    """How long execution was busy."""
    return sum(event.at_s - event.started_s for event in _executed(events))


def first_wait_s(events: Sequence[AnyEvent]) -> float:
    """How long execution stood still for the first shard."""
    waits = (event for event in events if isinstance(event, NetworkWait) and event.shard == 0)
    return sum(event.at_s - event.started_s for event in waits)


def local_shards(events: Sequence[AnyEvent]) -> int:
    """How many executions did without the cache; those of a step that was begun anew count again."""
    return sum(event.on_device for event in _executed(events))


def _executed(events: Sequence[AnyEvent]) -> list[LaneFinished]:
    return [event for event in events if isinstance(event, LaneFinished) and event.lane == "execute"]


def mean_distortion(events: Sequence[AnyEvent]) -> float:
    """Mean over the shards as they were executed; one that was computed without the cache lost nothing."""
    used = {event.shard: event.distortion for event in events if isinstance(event, ShardUsed)}
    executed = {event.shard: event for event in _executed(events)}
    lost = sum(used.get(shard, 0.0) for shard, event in executed.items() if not event.on_device)
    return lost / max(1, len(executed))
