"""What a terminal is told of an edit: a line a step, what went wrong, and the final numbers."""

import pytest
from edits import GEOMETRY, edit, shared_by_steps

from sakura.events import AnyEvent, FellBack, NetworkChanged, NetworkWait, RunFinished, RunStarted
from sakura.network.library import constant_trace
from sakura.network.trace import Trace, checked_trace
from sakura.report import WORTH_TELLING_S, Teller

DROP = checked_trace("drop", [0, 0.07, 0.6, 60], [2, 0, 20])


def events_over(trace: Trace) -> list[AnyEvent]:
    """An edit as the studio has it, with its start and end."""
    told = edit(trace, offer=shared_by_steps(), controller="deadline-progressive")
    started = RunStarted(
        at_s=0, run_id="r", template_id="face", system="sakura", device="Laptop CPU", steps=GEOMETRY.steps,
        shards_per_step=GEOMETRY.shards_per_step, full_cache_bytes=9, planned_start_s=0.02, planned_step_s=0.04,
        rate_budget_bytes=None,
    )  # fmt: skip
    finished = RunFinished(
        at_s=told.end_s, picture_png=b"", latency_s=told.end_s, received_bytes=told.outcome.received_bytes,
        network_wait_s=told.outcome.network_wait_s,
    )  # fmt: skip
    return [started, *told.events, finished]


@pytest.mark.parametrize("trace", [constant_trace(2), constant_trace(100), DROP], ids=lambda trace: trace.name)
def test_an_edit_is_told_in_a_line_a_step(capsys: pytest.CaptureFixture[str], trace: Trace) -> None:
    events = events_over(trace)
    teller = Teller()
    for event in events:
        teller.tell(event)
    lines = capsys.readouterr().out.splitlines()
    fell_back = [event for event in events if isinstance(event, FellBack)]
    waits = [
        event for event in events if isinstance(event, NetworkWait) and event.at_s - event.started_s >= WORTH_TELLING_S
    ]
    assert len(lines) == 2 + GEOMETRY.steps + len(fell_back) + len(waits)
    steps = [line.split("step ")[1][:6] for line in lines if " step " in line]
    assert steps == [f"{step + 1} done" for step in range(GEOMETRY.steps)]
    assert "bytes received" in lines[-1]
    assert fell_back or trace is not DROP
    assert all(any(event.reason in line for line in lines) for event in fell_back)
    if trace is DROP:
        assert any("shards without the cache" in line for line in lines)


def test_a_switched_network_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    Teller().tell(NetworkChanged(at_s=0.25, title="WiFi, walking"))
    assert capsys.readouterr().out == "  0.250 s  the network is now WiFi, walking\n"
