"""What the page's scripts ask the server: the view of a run, its new events, files to save, importance."""

import json
from collections.abc import Callable
from typing import Any

import gradio as gr
import msgspec

from sakura.errors import UserError
from sakura.events import QualityMeasured, RunFailed, events_to_json
from sakura.runtime.chrome_trace import chrome_trace
from sakura.studio import Studio
from ui.views import TemplateView, View, importance_levels, request_view

POLL_S = 1.0


class Link:
    """Answers the browser's questions about runs. Runs live in the studio under their id, never in a page."""

    def __init__(self, studio: Studio, cards: dict[str, TemplateView]) -> None:
        self._studio = studio
        self._cards = cards

    def functions(self) -> list[Callable[..., Any]]:
        """The functions that scripts call by name. All answer with JSON; ``error`` holds a sentence."""

        def run_view(run_id: str) -> View | dict[str, str]:
            try:
                request = self._studio.run_request(run_id)
                return request_view(self._studio, self._cards[request.template_id], request)
            except UserError as error:
                return {"error": str(error)}

        def run_events(question: list[Any]) -> dict[str, Any]:
            run_id, cursor = question
            try:
                fresh = self._studio.events(run_id, cursor, POLL_S)
                complete = any(isinstance(event, QualityMeasured | RunFailed) for event in fresh)
            except UserError as error:
                fresh, complete = [RunFailed(at_s=0.0, reason=str(error))], True
            return {"events": msgspec.to_builtins(fresh), "complete": complete}

        def saved_timeline(question: list[str]) -> dict[str, str]:
            run_id, format_name = question
            events = self._studio.events(run_id, 0, 0.0)
            if format_name == "chrome":
                return {"name": f"sakura-{run_id}-trace.json", "text": json.dumps(chrome_trace(events))}
            return {"name": f"sakura-{run_id}-events.json", "text": events_to_json(events).decode()}

        def importance_map(question: list[Any]) -> dict[str, Any]:
            template_id, step, block = question
            try:
                scores = self._studio.importance(template_id)
            except UserError as error:
                return {"error": str(error)}
            steps, blocks = scores.shape[:2]
            levels = importance_levels(scores[min(step, steps - 1), min(block, blocks - 1)])
            return {"steps": steps, "blocks": blocks, "levels": levels}

        return [run_view, run_events, saved_timeline, importance_map]

    def component(self, plan: View) -> gr.HTML:
        """The invisible piece that carries the questions; prop ``plan`` is drawn while no run is in view.

        A new prop ``started`` (``{"run_id"}``) makes the page follow that run.
        """
        return gr.HTML(
            html_template="",
            js_on_load="sakura.mountLink(props, server, watch);",
            apply_default_css=False,
            server_functions=self.functions(),
            elem_id="link",
            plan=plan,
            started=None,
        )
