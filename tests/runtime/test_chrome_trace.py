"""The export for trace viewers: what their format asks for, and that it holds all that happened."""

import itertools
import json
import math
from typing import Any

import pytest
from edits import GEOMETRY, edit, shared_by_steps
from hypothesis import given, settings
from hypothesis import strategies as st

from sakura.events import (
    AnyEvent,
    FellBack,
    LaneFinished,
    NetworkChanged,
    NetworkWait,
    RunFailed,
    RunFinished,
    RunStarted,
    StepFinished,
    events_from_json,
    events_to_json,
)
from sakura.network.library import constant_trace
from sakura.network.trace import Trace, checked_trace
from sakura.runtime.chrome_trace import MEASURED, PREDICTED, RECEIVED, TRACE, TRACKS, chrome_trace

Rows = list[dict[str, Any]]
NEEDED: dict[str, set[str]] = {
    "M": {"pid", "tid", "name", "args"},
    "X": {"pid", "tid", "name", "ts", "dur", "args"},
    "C": {"pid", "name", "ts", "args"},
    "i": {"pid", "tid", "name", "ts", "s"},
}
STARTED = RunStarted(
    at_s=0, run_id="r", template_id="face", system="sakura", device="Laptop CPU", steps=GEOMETRY.steps,
    shards_per_step=GEOMETRY.shards_per_step, full_cache_bytes=9, planned_start_s=0.02, planned_step_s=0.04,
    rate_budget_bytes=None,
)  # fmt: skip
DROP = checked_trace("drop", [0, 0.07, 0.6, 60], [2, 0, 20])


def events_over(trace: Trace) -> list[AnyEvent]:
    told = edit(trace, offer=shared_by_steps(), controller="deadline-progressive")
    end_s = told.end_s
    last = RunFinished(
        at_s=end_s, picture_png=b"", latency_s=end_s, received_bytes=told.outcome.received_bytes, network_wait_s=0
    )
    return [STARTED, *told.events, last]


def rows_of(trace: dict[str, object]) -> Rows:
    rows: Rows = json.loads(json.dumps(trace, allow_nan=False))["traceEvents"]
    return rows


def check(rows: Rows) -> None:
    """What viewers rely on, by the trace event format: fields by phase, order, and slices of a track apart."""
    for row in rows:
        assert NEEDED[row["ph"]] <= row.keys(), row
        for field in ("ts", "dur"):
            assert field not in row or (math.isfinite(row[field]) and row[field] >= 0)
        if row["ph"] == "C":
            assert all(math.isfinite(value) for value in row["args"].values())
        if row["ph"] == "i":
            assert row["s"] in {"g", "p", "t"}
    timed = [row["ts"] for row in rows if row["ph"] != "M"]
    assert timed == sorted(timed)
    named = {row["tid"] for row in rows if row["name"] == "thread_name"}
    for tid in TRACKS.values():
        slices = [row for row in rows if row["ph"] == "X" and row["tid"] == tid]
        assert tid in named
        assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in itertools.pairwise(slices)), tid


def counter(rows: Rows, name: str) -> list[tuple[float, float]]:
    return [(row["ts"] / 1e6, row["args"]["value"]) for row in rows if row["ph"] == "C" and row["name"] == name]


@pytest.mark.parametrize("trace", [constant_trace(2), constant_trace(50), DROP], ids=lambda trace: trace.name)
def test_an_edit_has_a_track_a_lane_and_counters(trace: Trace) -> None:
    events = events_over(trace)
    rows = rows_of(chrome_trace(events, [(0.0, trace)]))
    check(rows)
    for lane in ("receive", "reconstruct", "execute"):
        spans = [event for event in events if isinstance(event, LaneFinished) and event.lane == lane]
        slices = [row for row in rows if row["ph"] == "X" and row["tid"] == TRACKS[lane]]
        assert [row["name"] for row in slices] == [f"shard {span.shard + 1}" for span in spans]
    waits = [row for row in rows if row["ph"] == "X" and row["tid"] == TRACKS["wait"]]
    assert len(waits) == sum(isinstance(event, NetworkWait) for event in events)
    received = counter(rows, RECEIVED)
    assert received == sorted(received)
    assert received[-1][1] == sum(event.received_bytes for event in events if isinstance(event, LaneFinished))
    assert counter(rows, MEASURED)
    assert len(counter(rows, MEASURED)) == len(counter(rows, PREDICTED))
    fell_back = [event for event in events if isinstance(event, FellBack)]
    told = [row["args"]["reason"] for row in rows if row["ph"] == "i" and "reason" in row["args"]]
    assert told == [event.reason for event in fell_back]
    assert fell_back or trace is not DROP


def test_a_switched_network_is_told_and_its_rates_follow() -> None:
    events = events_over(constant_trace(2))
    flip = NetworkChanged(at_s=0.05, title="A ramp")
    later = checked_trace("ramp", [0, 1.1, 1.15, 1.2], [1, 7, 8])
    rows = rows_of(chrome_trace([*events, flip], [(0.0, constant_trace(2)), (0.05, later)], start_s=1.0))
    check(rows)
    rates = counter(rows, TRACE)
    assert rates[:4] == [(0.0, 2), (0.05, 1), (0.1, 7), (0.15, 8)]
    assert [row["ts"] for row in rows if row["name"] == "Network: A ramp"] == [50_000]
    assert events_from_json(events_to_json([flip])) == [flip]


def test_steps_and_the_end_are_instants() -> None:
    failed = RunFailed(at_s=0.0, reason="The device was disconnected during this edit; start it again.")
    steps = [StepFinished(at_s=0.1 * step, step=step, preview_png=b"") for step in range(3)]
    rows = rows_of(chrome_trace([STARTED, *steps, failed]))
    check(rows)
    instants = [(row["name"], row["ts"]) for row in rows if row["ph"] == "i"]
    assert instants[:2] == [("Step 1 done", 0), ("Step 2 done", 100_000)]
    assert instants[-1] == ("Ended without a picture", 200_000)  # the studio has no time of the device for it


SPANS = st.tuples(st.floats(-1e-3, 2), st.floats(-1e-6, 1)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["receive", "execute"]), st.integers(0, 15), SPANS), max_size=20))
def test_slices_never_overlap_whatever_the_clocks_say(spans: list[tuple[Any, int, tuple[float, float]]]) -> None:
    events = [
        LaneFinished(at_s=end_s, lane=lane, shard=shard, started_s=start_s) for lane, shard, (start_s, end_s) in spans
    ]
    check(rows_of(chrome_trace(events)))
