"""What the browser is told about a race: plain dictionaries made from its state."""

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from sakura.events import LaneFinished, QualityMeasured, RunStarted, StepFinished, System
from sakura.race import Lap, RaceState
from sakura.studio import DeviceCard, EditRequest
from ui.devices import running_words, shown
from ui.views import SYSTEM_NAMES, TemplateView, View, brought_key, lane_units, request_view, started_view

Answer = dict[str, Any]
RACE_NAMES: dict[str, str] = {
    "sakura": "SAKURA",
    "intq": "INTQ",
    "cachegen": "CacheGen",
    "full_cache": "Full cache",
    "on_device": "On-device",
}


def setup_key(request: EditRequest) -> str:
    """One word for what a race is about: equal for requests that are alike in all but their system."""
    times_s, rates_mbps = request.trace.window(0.0, min(request.trace.duration_s, 60.0))
    network = hashlib.sha256(times_s.tobytes() + rates_mbps.tobytes()).hexdigest()
    return f"{request.template_id}.{network}.{brought_key(request)}"


def runner_views(systems: Sequence[System]) -> list[dict[str, str]]:
    """The systems of a race as its rows name them."""
    return [{"system": system, "name": RACE_NAMES[system]} for system in systems]


def race_view(state: RaceState, card: TemplateView, device: DeviceCard | None) -> Answer:
    """A race that is being measured, or with all that it takes to replay it once that is over; on ``device``."""
    answer: Answer = {
        "race_id": state.race_id,
        "version": state.version,
        "runners": runner_views(state.systems),
        "measured": [lap.system for lap in state.laps],
        "measuring": state.measuring,
        "prepared": state.prepared,
        "error": state.error,
        "over": state.over,
        "setup": setup_key(state.request),
        "network": state.request.trace.title,
        "device": shown(device.name) if device else "",
        "picture": card["picture"],
    }
    if state.over:
        answer["laps"] = [lap_view(lap) for lap in state.laps]
        answer["timeline"] = timeline_view(state, card, device)
    return answer


def lap_view(lap: Lap) -> Answer:
    """A lap as its row plays it.

    Times are in seconds from the start of the run; ``stretches`` are the executed shards of ``total``, each an equal
    part of the work, and ``alone`` of them were computed without the cache although the system uses one.
    """
    started = next((event for event in lap.events if isinstance(event, RunStarted)), None)
    executed = [event for event in lap.events if isinstance(event, LaneFinished) and event.lane == "execute"]
    total = started.steps * started.shards_per_step if started else 0
    pictures = [
        {"at_s": event.at_s, "src": _png_uri(event.preview_png)}
        for event in lap.events
        if isinstance(event, StepFinished)
    ]
    finished, scores = lap.finished, lap.scores
    if finished:
        pictures.append({"at_s": finished.latency_s, "src": _png_uri(finished.picture_png)})
    return {
        "system": lap.system,
        "run_id": lap.run_id if lap.system in SYSTEM_NAMES else "",
        "reason": lap.reason,
        "total": total,
        "alone": 0 if lap.system == "on_device" else sum(event.on_device for event in executed),
        "stretches": [[event.started_s, event.at_s] for event in executed],
        "pictures": pictures,
        "ended_s": max((event.at_s for event in lap.events if not isinstance(event, LaneFinished)), default=0.0)
        if finished is None
        else finished.latency_s,
        "latency_s": finished.latency_s if finished else None,
        "received_bytes": finished.received_bytes if finished else None,
        "psnr_db": scores.mask_psnr_db if scores else None,
        "ssim": scores.mask_ssim if scores else None,
    }


def timeline_view(state: RaceState, card: TemplateView, device: DeviceCard | None) -> Answer | None:
    """The run of SAKURA as the timeline draws it; None where there is none that began."""
    for lap in state.laps:
        started = next((event for event in lap.events if isinstance(event, RunStarted)), None)
        if lap.system == "sakura" and started:
            view: View = request_view(card, state.request)
            view["plan"] = started_view(started, None)
            view["units"] = lane_units(started.device, device.engine.name if device else "")
            view["device"] = running_words(device) if device else shown(started.device)
            return {"view": view, "events": _drawn(lap)}
    return None


def _drawn(lap: Lap) -> list[Answer]:
    """The events that a timeline draws; the pictures of a lap are told once, in its row."""
    events: list[Answer] = msgspec.to_builtins([e for e in lap.events if not isinstance(e, QualityMeasured)])
    return [{name: value for name, value in event.items() if not name.endswith("_png")} for event in events]


def _png_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
