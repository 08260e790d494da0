"""What the browser is told about a plan or a run: plain dictionaries made from the studio's answers."""

from typing import TypedDict

import numpy as np

from sakura.events import System
from sakura.network.trace import Trace
from sakura.portraits.tasks import Task
from sakura.studio import EditRequest, Studio, TemplateCard
from ui.markup import outline_path, picture_uri

TASK_NAMES: dict[Task, str] = {"face_swap": "Face swap", "try_on": "Try-on", "instruction": "Instruction"}
SYSTEM_NAMES: dict[System, str] = {"sakura": "SAKURA", "full_cache": "Full cache", "on_device": "On-device"}
PLANS_AHEAD = 6
"""How many times the planned length of the trace is sent, for runs that take longer than planned."""


class TemplateView(TypedDict):
    id: str
    task: Task
    picture: str
    outline: str
    edited_percent: float


class PlanView(TypedDict):
    system: System
    steps: int
    shards_per_step: int
    start_s: float
    step_s: float
    full_cache_bytes: int
    on_device_s: float | None


class TraceView(TypedDict):
    times: list[float]
    rates: list[float]


class View(TypedDict):
    """Everything that the pictures and the timeline draw before the first event arrives."""

    template: TemplateView
    plan: PlanView
    trace: TraceView
    units: list[str]
    title: str
    network: str
    prompt: str
    reference: str | None


def template_view(card: TemplateCard) -> TemplateView:
    return {
        "id": card.template_id,
        "task": card.task,
        "picture": picture_uri(card.picture),
        "outline": outline_path(card.mask),
        "edited_percent": 100 * card.edited_share,
    }


def trace_view(trace: Trace, start_s: float, length_s: float, windows: int) -> TraceView:
    """The trace from ``start_s`` on for ``windows`` times ``length_s``; times count from ``start_s``, rates hold on."""
    parts = [trace.window(start_s + index * length_s, length_s) for index in range(windows)]
    times_s = np.concatenate([times for times, _ in parts]) - start_s
    rates_mbps = np.concatenate([rates for _, rates in parts])
    return {"times": np.round(times_s, 4).tolist(), "rates": np.round(rates_mbps, 2).tolist()}


def lane_units(device_name: str) -> list[str]:
    """Which processor carries receive, reconstruct and execute, as far as the device's name tells."""
    return ["CPU", "CPU", "CPU"] if "CPU" in device_name else ["CPU", "GPU", "NPU"]


def device_name(studio: Studio, device_id: str | None) -> str:
    """The name of the device that would serve a request, empty when none is connected."""
    devices = studio.devices()
    chosen = next((card for card in devices if card.device_id == device_id), devices[0] if devices else None)
    return chosen.name if chosen else ""


def request_view(studio: Studio, card: TemplateView, request: EditRequest) -> View:
    """The view of a request, before or after it was started."""
    plan = studio.plan(request.template_id, request.system)
    length_s = plan.start_s + plan.steps * plan.step_s
    return {
        "template": card,
        "plan": {
            "system": request.system,
            "steps": plan.steps,
            "shards_per_step": plan.shards_per_step,
            "start_s": plan.start_s,
            "step_s": plan.step_s,
            "full_cache_bytes": plan.full_cache_bytes,
            "on_device_s": plan.on_device_s,
        },
        "trace": trace_view(request.trace, request.trace_offset_s, length_s, PLANS_AHEAD),
        "units": lane_units(device_name(studio, request.device_id)),
        "title": f"{TASK_NAMES[card['task']]} with {SYSTEM_NAMES[request.system]}",
        "network": request.trace.title,
        "prompt": request.prompt,
        "reference": None if request.reference is None else picture_uri(request.reference),
    }


def importance_levels(scores: np.ndarray) -> list[list[float | None]]:
    """Scores (rows, columns) as levels from 0 to 1 for a colour scale; None where the token is edited."""
    high = float(np.nanquantile(scores, 0.99)) if np.isfinite(scores).any() else 1.0
    levels = np.clip(scores / max(high, 1e-9), 0, 1)
    return [[None if np.isnan(level) else round(float(level), 3) for level in row] for row in levels]
