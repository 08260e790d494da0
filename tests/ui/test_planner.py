"""Plans are made in the background and asked for until they are there."""

import threading
import time
from collections.abc import Callable
from typing import Any, cast

from sakura.errors import UserError
from sakura.events import System
from sakura.studio import Plan, Studio
from ui.planner import Planner

PLAN = Plan(steps=4, shards_per_step=4, start_s=0.0, step_s=0.1, full_cache_bytes=8, on_device_s=1.5)


class SlowStudio:
    """As much of a studio as a planner asks: a plan that takes until it is released."""

    def __init__(self, error: str = "") -> None:
        self.error = error
        self.asked = 0
        self.release = threading.Event()

    def plan(self, template_id: str, system: System, device_id: str, *, progress: Callable[[float], None]) -> Plan:
        self.asked += 1
        progress(0.4)
        self.release.wait(5)
        if self.error:
            raise UserError(self.error)
        return PLAN


def planner_of(studio: SlowStudio) -> Planner:
    return Planner(cast(Studio, cast(Any, studio)))


def test_progress_then_the_plan_made_once() -> None:
    studio = SlowStudio()
    planner = planner_of(studio)
    assert planner.ask("t", "sakura", "d") == (None, 0.4, "")
    assert planner.ask("t", "sakura", "d") == (None, 0.4, "")
    studio.release.set()
    deadline_s = time.monotonic() + 5
    while planner.ask("t", "sakura", "d")[0] is None and time.monotonic() < deadline_s:
        pass
    assert planner.ask("t", "sakura", "d")[0] == PLAN
    assert studio.asked == 1
    assert planner.on_device_s("t", "d") == 1.5


def test_a_reason_instead_of_a_plan() -> None:
    studio = SlowStudio("No device is connected; start one.")
    studio.release.set()
    plan, _, error = planner_of(studio).ask("t", "sakura", "d")
    assert plan is None
    assert error == "No device is connected; start one."
