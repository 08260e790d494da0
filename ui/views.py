"""What the browser is told about a plan or a run: plain dictionaries made from the studio's answers."""

import hashlib
import itertools
from typing import TypedDict

import numpy as np

from sakura.events import RunStarted, System
from sakura.network.trace import Trace
from sakura.portraits.tasks import Task
from sakura.studio import EditRequest, Plan, TemplateCard
from ui.markup import outline_path, picture_uri

TASK_NAMES: dict[Task, str] = {"face_swap": "Face swap", "try_on": "Try-on", "instruction": "Instruction"}
SYSTEM_NAMES: dict[System, str] = {"sakura": "SAKURA", "full_cache": "Full cache", "on_device": "On-device"}
WINDOW_EDGES_S = (0, 2, 4, 8, 16, 32, 64)
"""The trace is sent in windows that double, fine where runs usually end and coarse where few get to."""


class TemplateView(TypedDict):
    id: str
    task: Task
    picture: str
    outline: str
    edited_percent: float


class PlanView(TypedDict):
    steps: int
    shards_per_step: int
    start_s: float
    step_s: float
    full_cache_bytes: int
    on_device_s: float | None


class TraceView(TypedDict):
    """Rates in Mbit/s, each from its time on, and one word for each network that they are of, equal for equal ones."""

    times: list[float]
    rates: list[float]
    keys: list[str]


class View(TypedDict):
    """Everything that is drawn before the first event arrives; ``plan``, ``units`` and ``device`` follow when known."""

    template: TemplateView
    system: System
    trace: TraceView
    title: str
    network: str
    prompt: str
    reference: str | None
    brought: str
    plan: PlanView | None
    units: list[str]
    device: str


def template_view(card: TemplateCard) -> TemplateView:
    return {
        "id": card.template_id,
        "task": card.task,
        "picture": picture_uri(card.picture),
        "outline": outline_path(card.mask),
        "edited_percent": 100 * card.edited_share,
    }


def trace_view(trace: Trace, start_s: float) -> TraceView:
    """The trace from ``start_s`` on for 64 s; times count from ``start_s``, each rate holds to the next one."""
    parts = [trace.window(start_s + a, b - a) for a, b in itertools.pairwise(WINDOW_EDGES_S)]
    times_s = np.concatenate([times for times, _ in parts]) - start_s
    rates_mbps = np.concatenate([rates for _, rates in parts])
    return {
        "times": np.round(times_s, 4).tolist(),
        "rates": np.round(rates_mbps, 2).tolist(),
        "keys": [trace_key(trace, start_s)],
    }


def trace_key(trace: Trace, start_s: float) -> str:
    """One word for what a link carries from ``start_s`` of a trace on."""
    parts = [trace.edges_s.tobytes(), trace.rates_mbps.tobytes(), str(start_s).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def lane_units(device_name: str, engine_name: str = "") -> list[str]:
    """Which processor carries receive, reconstruct and execute, as far as the names of device and engine tell."""
    on_cpu = "CPU" in device_name or "cpu" in engine_name.lower()
    return ["CPU", "CPU", "CPU"] if on_cpu else ["CPU", "GPU", "NPU"]


def brought_key(request: EditRequest) -> str:
    """One word for what is brought to an edit and spent on it: equal for requests that are alike in both."""
    pixels = b"" if request.reference is None else request.reference.tobytes()
    parts = [request.prompt.encode(), str(request.rate_budget_bytes).encode(), pixels]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def request_view(card: TemplateView, request: EditRequest) -> View:
    """The view of a request whose plan is not known yet."""
    return {
        "template": card,
        "system": request.system,
        "trace": trace_view(request.trace, request.trace_offset_s),
        "title": f"{TASK_NAMES[card['task']]} with {SYSTEM_NAMES[request.system]}",
        "network": request.trace.title,
        "prompt": request.prompt,
        "reference": None if request.reference is None else picture_uri(request.reference),
        "brought": brought_key(request),
        "plan": None,
        "units": [],
        "device": "",
    }


def plan_view(plan: Plan) -> PlanView:
    return {
        "steps": plan.steps,
        "shards_per_step": plan.shards_per_step,
        "start_s": plan.start_s,
        "step_s": plan.step_s,
        "full_cache_bytes": plan.full_cache_bytes,
        "on_device_s": plan.on_device_s,
    }


def started_view(started: RunStarted, on_device_s: float | None) -> PlanView:
    """The plan that a run began with."""
    return {
        "steps": started.steps,
        "shards_per_step": started.shards_per_step,
        "start_s": started.planned_start_s,
        "step_s": started.planned_step_s,
        "full_cache_bytes": started.full_cache_bytes,
        "on_device_s": on_device_s,
    }


def importance_levels(scores: np.ndarray) -> list[list[float | None]]:
    """Scores (rows, columns) as levels from 0 to 1 for a colour scale; None where the token is edited."""
    high = float(np.nanquantile(scores, 0.99)) if np.isfinite(scores).any() else 1.0
    levels = np.clip(scores / max(high, 1e-9), 0, 1)
    return [[None if np.isnan(level) else round(float(level), 3) for level in row] for row in levels]
