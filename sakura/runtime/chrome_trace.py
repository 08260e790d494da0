"""A run's events as Chrome trace JSON, which Perfetto and chrome://tracing open: one track a lane."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from sakura.events import (
    AnyEvent,
    BandwidthMeasured,
    FellBack,
    LaneFinished,
    NetworkChanged,
    NetworkWait,
    RepresentationChosen,
    RunFailed,
    RunFinished,
    RunStarted,
    ShardUsed,
    StepFinished,
)
from sakura.network.trace import Trace

PROCESS = 1
TRACKS = {"receive": 1, "reconstruct": 2, "execute": 3, "wait": 4}
TRACK_NAMES = {
    "receive": "Receive",
    "reconstruct": "Reconstruct",
    "execute": "Execute",
    "wait": "Waiting for the network",
}
TRACE, MEASURED, PREDICTED = "Trace, Mbit/s", "Measured, Mbit/s", "Predicted, Mbit/s"
RECEIVED = "Received, bytes"

Row = dict[str, Any]


def chrome_trace(
    events: Iterable[AnyEvent], networks: Sequence[tuple[float, Trace]] = (), start_s: float = 0.0
) -> dict[str, object]:
    """The trace as a JSON-ready dictionary; times are microseconds since the run began.

    ``networks`` are those that the run went over, each with when it began to hold, ``start_s`` where on them it began;
    without them the rate of the link is left out. The rows are sorted by time, and no two slices of a track overlap.
    """
    names: list[Row] = []
    for order, (track, tid) in enumerate(TRACKS.items()):
        names.append(_metadata(tid, "thread_name", {"name": TRACK_NAMES[track]}))
        names.append(_metadata(tid, "thread_sort_index", {"sort_index": order}))
    slices: list[Row] = []
    others: list[Row] = []
    representations: dict[int, str] = {}
    received_bytes, end_s = 0, 0.0
    for event in events:
        if not isinstance(event, RunFailed):  # a run that was lost may tell so at no time of its own
            end_s = max(end_s, event.at_s)
        match event:
            case RunStarted():
                name = f"{event.system}, {event.template_id}, {event.device}"
                names.append(_metadata(0, "process_name", {"name": name}))
                others.append(_counter(RECEIVED, event.at_s, 0))
            case RepresentationChosen():
                representations.setdefault(event.shard, _words(event))
            case ShardUsed():
                representations[event.shard] = _words(event)
            case LaneFinished():
                slices.append(_slice(event.lane, event.shard, event, _details(event, representations)))
                if event.lane == "receive":
                    received_bytes += event.received_bytes
                    others.append(_counter(RECEIVED, event.at_s, received_bytes))
            case NetworkWait():
                slices.append(_slice("wait", event.shard, event, {}))
            case BandwidthMeasured():
                others.append(_counter(MEASURED, event.at_s, event.measured_mbps))
                others.append(_counter(PREDICTED, event.at_s, event.predicted_mbps))
            case StepFinished():
                others.append(_instant(f"Step {event.step + 1} done", event.at_s))
            case FellBack():
                name = "Computes while the first bytes come" if event.planned else "Falls back"
                details = {"shard": event.shard + 1, "reason": event.reason}
                others.append(_instant(name, event.at_s, details))
            case NetworkChanged():
                others.append(_instant(f"Network: {event.title}", event.at_s))
            case RunFinished():
                others.append(_instant("Picture done", event.at_s))
            case RunFailed():
                others.append(_instant("Ended without a picture", max(event.at_s, end_s), {"reason": event.reason}))
    rows = [*_apart(slices), *others, *_link_rates(networks, start_s, end_s)]
    return {"traceEvents": [*names, *sorted(rows, key=lambda row: row["ts"])], "displayTimeUnit": "ms"}


def _details(event: LaneFinished, representations: dict[int, str]) -> Row:
    """What is told of a slice besides its time: only what its lane has."""
    details: Row = {"shard": event.shard + 1}
    if event.lane == "receive":
        details.update(received_bytes=event.received_bytes, cut=event.cut)
    elif event.on_device:
        details["on_device"] = True
    elif event.shard in representations:
        details["representation"] = representations[event.shard]
    return details


def _words(event: RepresentationChosen | ShardUsed) -> str:
    if not event.rank:
        return f"{event.left_bits} bits" if event.left_bits else "as it is"
    return f"rank {event.rank}, {event.left_bits}+{event.right_bits} bits"


def _link_rates(networks: Sequence[tuple[float, Trace]], start_s: float, end_s: float) -> list[Row]:
    """The rate that the link had, at every change until ``end_s``."""
    ends_s = [*(at_s for at_s, _ in networks[1:]), end_s]
    rows: list[Row] = []
    for (from_s, trace), to_s in zip(networks, ends_s, strict=False):
        if from_s < min(to_s, end_s):
            times_s, rates_mbps = trace.window(start_s + from_s, min(to_s, end_s) - from_s)
            pairs = zip(times_s.tolist(), rates_mbps.tolist(), strict=True)
            rows.extend(_counter(TRACE, time_s - start_s, rate_mbps) for time_s, rate_mbps in pairs)
    return rows


def _apart(slices: list[Row]) -> list[Row]:
    """The slices in order of time, each from where its track is free: clocks of two processes may differ a little."""
    ordered = sorted(slices, key=lambda row: (row["tid"], row["ts"]))
    for _, track in itertools.groupby(ordered, key=lambda row: row["tid"]):
        free_us = 0
        for row in track:
            end_us = row["ts"] + row["dur"]
            row["ts"] = max(row["ts"], free_us)
            free_us = max(end_us, free_us)
            row["dur"] = free_us - row["ts"]
    return ordered


def _slice(track: str, shard: int, event: LaneFinished | NetworkWait, details: Row) -> Row:
    name = f"for shard {shard + 1}" if track == "wait" else f"shard {shard + 1}"
    start_us, end_us = _us(event.started_s), _us(event.at_s)
    place = {"pid": PROCESS, "tid": TRACKS[track], "ts": start_us, "dur": max(0, end_us - start_us)}
    return {"ph": "X", "name": name, "cat": track, **place, "args": details}


def _counter(name: str, at_s: float, value: float) -> Row:
    # A counter each: the values of one counter would be drawn on top of one another.
    return {"ph": "C", "pid": PROCESS, "tid": 0, "name": name, "ts": _us(at_s), "args": {"value": value}}


def _instant(name: str, at_s: float, details: Row | None = None) -> Row:
    place = {"pid": PROCESS, "tid": TRACKS["execute"], "ts": _us(at_s)}
    return {"ph": "i", "s": "p", "name": name, **place, "args": details or {}}


def _metadata(tid: int, name: str, details: Row) -> Row:
    return {"ph": "M", "pid": PROCESS, "tid": tid, "name": name, "args": details}


def _us(at_s: float) -> int:
    """Whole microseconds since the run began; what came before that, by another clock, counts from there."""
    return max(0, round(at_s * 1e6))
