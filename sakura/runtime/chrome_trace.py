"""A run's events as Chrome trace JSON, which Perfetto and chrome://tracing open: one track a lane."""

from collections.abc import Iterable

from sakura.events import (
    AnyEvent,
    BandwidthMeasured,
    FellBack,
    LaneFinished,
    NetworkWait,
    RepresentationChosen,
    RunStarted,
    ShardUsed,
    StepFinished,
)

PROCESS = 1
TRACKS = {"receive": 1, "reconstruct": 2, "execute": 3, "wait": 4}
TRACK_NAMES = {
    "receive": "Receive",
    "reconstruct": "Reconstruct",
    "execute": "Execute",
    "wait": "Waiting for the network",
}


def chrome_trace(events: Iterable[AnyEvent]) -> dict[str, object]:
    """The trace as a JSON-ready dictionary; times are microseconds since the run began."""
    rows: list[dict[str, object]] = [
        {"ph": "M", "pid": PROCESS, "tid": tid, "name": "thread_name", "args": {"name": TRACK_NAMES[track]}}
        for track, tid in TRACKS.items()
    ]
    representations: dict[int, str] = {}
    for event in events:
        match event:
            case RunStarted():
                name = f"{event.system}, {event.template_id}, {event.device}"
                rows.append({"ph": "M", "pid": PROCESS, "tid": 0, "name": "process_name", "args": {"name": name}})
            case RepresentationChosen():
                representations.setdefault(event.shard, _words(event))
            case ShardUsed():
                representations[event.shard] = _words(event)
            case LaneFinished():
                details = {
                    "representation": representations.get(event.shard, ""),
                    "received_bytes": event.received_bytes,
                    "on_device": event.on_device,
                    "cut": event.cut,
                }
                rows.append(_slice(event.lane, f"shard {event.shard + 1}", event.started_s, event.at_s, details))
            case NetworkWait():
                rows.append(_slice("wait", f"for shard {event.shard + 1}", event.started_s, event.at_s, {}))
            case BandwidthMeasured():
                rates = {"measured": event.measured_mbps, "predicted": event.predicted_mbps}
                rows.append(
                    {"ph": "C", "pid": PROCESS, "name": "Bandwidth, Mbit/s", "ts": event.at_s * 1e6, "args": rates}
                )
            case StepFinished():
                rows.append(_instant(f"step {event.step + 1} done", event.at_s))
            case FellBack():
                rows.append(_instant(event.reason, event.at_s))
    return {"traceEvents": rows, "displayTimeUnit": "ms"}


def _words(event: RepresentationChosen | ShardUsed) -> str:
    return f"rank {event.rank}, {event.left_bits}+{event.right_bits} bits"


def _slice(track: str, name: str, start_s: float, end_s: float, details: dict[str, object]) -> dict[str, object]:
    duration_us = max(0.0, end_s - start_s) * 1e6
    place = {"pid": PROCESS, "tid": TRACKS[track], "ts": start_s * 1e6, "dur": duration_us}
    return {"ph": "X", "name": name, **place, "args": details}


def _instant(name: str, at_s: float) -> dict[str, object]:
    return {"ph": "i", "s": "p", "pid": PROCESS, "tid": TRACKS["execute"], "name": name, "ts": at_s * 1e6}
