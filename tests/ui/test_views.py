"""What the browser is told about plans and runs."""

import json

import numpy as np
import pytest

from sakura.events import RunStarted
from sakura.network.library import constant_trace
from sakura.network.trace import checked_trace
from sakura.studio import EditRequest, TemplateCard
from ui.views import (
    brought_key,
    importance_levels,
    lane_units,
    request_view,
    started_view,
    template_view,
    trace_key,
    trace_view,
)


@pytest.fixture
def card() -> TemplateCard:
    mask = np.zeros((16, 16), dtype=bool)
    mask[4:8, 4:8] = True
    picture = np.full((16, 16, 3), 90, dtype=np.uint8)
    return TemplateCard("face-1", "A face", "face_swap", "face", picture, mask)


def test_trace_view_counts_from_the_offset_and_holds_each_rate() -> None:
    trace = checked_trace("steps", np.arange(0, 101, 1.0), np.arange(1, 101, 1.0))
    view = trace_view(trace, 10.0)
    assert view["times"][0] == 0.0
    assert view["rates"][0] == 11.0
    assert view["times"] == sorted(view["times"])
    assert view["keys"] == [trace_key(trace, 10.0)] != [trace_key(trace, 11.0)]
    at_5_s = view["rates"][max(i for i, time_s in enumerate(view["times"]) if time_s <= 5)]
    assert at_5_s == 16.0


def test_request_view_is_json_and_keeps_the_prompt_as_text(card: TemplateCard) -> None:
    request = EditRequest("face-1", "sakura", constant_trace(20), prompt="<b>red</b>")
    view = json.loads(json.dumps(request_view(template_view(card), request)))
    assert view["prompt"] == "<b>red</b>"
    assert view["title"] == "Face swap with SAKURA"
    assert view["template"]["edited_percent"] == pytest.approx(6.25)
    assert view["plan"] is None


def test_brought_key_tells_requests_apart_by_what_is_brought_and_spent() -> None:
    def key(**brought: object) -> str:
        return brought_key(EditRequest("face-1", "sakura", constant_trace(20), **brought))  # type: ignore[arg-type]

    dark, light = np.zeros((8, 8, 3), dtype=np.uint8), np.full((8, 8, 3), 255, dtype=np.uint8)
    assert key(reference=dark) == key(reference=dark.copy())
    keys = [key(), key(prompt="red"), key(rate_budget_bytes=1), key(reference=dark), key(reference=light)]
    assert len(set(keys)) == len(keys)


def test_started_view_takes_the_plan_of_the_run() -> None:
    started = RunStarted(
        at_s=0, run_id="r", template_id="t", system="sakura", device="Laptop CPU", steps=4, shards_per_step=3,
        full_cache_bytes=9, planned_start_s=0.1, planned_step_s=0.2, rate_budget_bytes=None,
    )  # fmt: skip
    plan = started_view(started, None)
    assert (plan["steps"], plan["shards_per_step"], plan["step_s"], plan["on_device_s"]) == (4, 3, 0.2, None)


def test_lanes_name_processors_only_where_they_are_known() -> None:
    assert lane_units("Laptop CPU") == ["CPU", "CPU", "CPU"]
    assert lane_units("Phone") == ["CPU", "GPU", "NPU"]


def test_importance_levels_leave_edited_tokens_out() -> None:
    scores = np.array([[0.0, 1.0], [np.nan, 4.0]], dtype=np.float32)
    levels = importance_levels(scores)
    assert levels[1][0] is None
    assert levels[0][0] == 0.0
    assert levels[1][1] == 1.0
