"""What the page's scripts ask the server: plans, the view of a run, its new events, files to save, importance."""

import json
from collections.abc import Callable
from typing import Any

import gradio as gr
import msgspec

from device_bridge.hub import NO_DEVICE
from sakura.errors import UserError
from sakura.events import RunFailed, RunStarted, events_to_json
from sakura.runtime.chrome_trace import chrome_trace
from sakura.studio import Studio
from ui.cards import Cards
from ui.devices import running_words
from ui.networks import networks_view
from ui.planner import Planner
from ui.views import View, importance_levels, lane_units, plan_view, request_view, started_view

POLL_S = 1.0
GONE = "That device is not connected any more; choose another one under Devices."
Answer = dict[str, Any]


class Link:
    """Answers the browser's questions. Runs live in the studio under their id, never in a page."""

    def __init__(self, studio: Studio, cards: Cards) -> None:
        self._studio = studio
        self._cards = cards
        self._planner = Planner(studio)

    def functions(self) -> list[Callable[..., Answer]]:
        """The functions that scripts call by name. All answer with JSON; ``error`` holds a sentence."""

        def planned(question: list[Any]) -> Answer:
            template_id, system, device_id = question
            devices = self._studio.devices()
            device = next((card for card in devices if device_id in (None, card.device_id)), None)
            if device is None:
                return {"error": NO_DEVICE if device_id is None else GONE}
            plan, progress, error = self._planner.ask(template_id, system, device.device_id)
            if plan is None:
                return {"error": error} if error else {"progress": progress}
            return {
                "plan": plan_view(plan),
                "units": lane_units(device.name, device.engine.name),
                "device": running_words(device),
            }

        def run_view(run_id: str) -> Answer:
            try:
                return self._run_view(run_id)
            except UserError as error:
                return {"error": str(error)}

        def run_events(question: list[Any]) -> Answer:
            run_id, cursor = question
            try:
                fresh = self._studio.events(run_id, cursor, POLL_S)
                complete = not fresh and self._studio.is_over(run_id)
            except UserError as error:
                fresh, complete = [RunFailed(at_s=0.0, reason=str(error))], True
            return {"events": msgspec.to_builtins(fresh), "complete": complete}

        def saved_timeline(question: list[str]) -> Answer:
            run_id, format_name = question
            try:
                events = self._studio.events(run_id, 0, 0.0)
            except UserError as error:
                return {"error": str(error)}
            if format_name == "chrome":
                networks, start_s = self._studio.networks(run_id), self._studio.run_request(run_id).trace_offset_s
                trace = chrome_trace(events, networks, start_s)
                return {"name": f"sakura-{run_id}-trace.json", "text": json.dumps(trace, allow_nan=False)}
            return {"name": f"sakura-{run_id}-events.json", "text": events_to_json(events).decode()}

        def importance_map(question: list[Any]) -> Answer:
            template_id, step, block = question
            try:
                scores = self._studio.importance(template_id)
            except UserError as error:
                return {"error": str(error)}
            steps, blocks = scores.shape[:2]
            levels = importance_levels(scores[min(step, steps - 1), min(block, blocks - 1)])
            return {"steps": steps, "blocks": blocks, "levels": levels}

        return [planned, run_view, run_events, saved_timeline, importance_map]

    def _run_view(self, run_id: str) -> Answer:
        """The view of a run, with its plan once the device has begun; waits a moment for that."""
        request = self._studio.run_request(run_id)
        view = request_view(self._cards.view(request.template_id), request)
        events = self._studio.events(run_id, 0, POLL_S)
        view["trace"] = networks_view(self._studio.networks(run_id), request.trace_offset_s)
        started = next((event for event in events if isinstance(event, RunStarted)), None)
        if started is not None:
            device = self._studio.run_device(run_id)
            view["plan"] = started_view(started, self._planner.on_device_s(request.template_id, device.device_id))
            view["units"] = lane_units(device.name, device.engine.name)
            view["device"] = running_words(device)
        else:
            failed = next((event for event in events if isinstance(event, RunFailed)), None)
            if failed is not None:
                return {"error": failed.reason}
        return dict(view)

    def component(self, plan: View) -> gr.HTML:
        """The invisible piece that carries the questions; prop ``plan`` is shown while no run is in view.

        The prop ``brought`` is ``views.brought_key`` of the present setup, None while nobody has chosen anything. A
        new prop ``started`` (``{"run_id"}``) makes the page follow that run.
        """
        return gr.HTML(
            html_template="",
            js_on_load="sakura.mountLink(props, server, watch);",
            apply_default_css=False,
            server_functions=self.functions(),
            elem_id="link",
            plan=plan,
            brought=None,
            started=None,
        )
