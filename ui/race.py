"""The Race view: one request under several systems, measured in turn and replayed together on one clock."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import gradio as gr
import numpy as np

from sakura.errors import UserError
from sakura.events import RACE_SYSTEMS, events_to_json
from sakura.network.trace import Trace
from sakura.pictures import read_picture
from sakura.race import Races, RaceState
from sakura.runtime.chrome_trace import chrome_trace
from sakura.studio import DeviceCard, EditRequest, Studio
from ui.fields import FieldError, at_field, uploaded_path
from ui.markup import error_markup
from ui.race_parts import RACE_TEMPLATE, race_timeline
from ui.race_setup import race_setup_card
from ui.race_views import Answer, race_view, runner_views, setup_key
from ui.request_form import CHOICE, OWN_PREFIX, QUIET, RequestForm, Update
from ui.setup import template_items, trace_label, trace_line

RACE_PREFIX = "race:"
POLL_S = 1.0
FIRST_NETWORK = "4G and 5G mix, driving"  # its rate changes most within the seconds that a race lasts


class RaceView(RequestForm):
    """Builds the view of one page and answers its events. Races live in the service under their id."""

    def __init__(self, studio: Studio, races: Races) -> None:
        super().__init__(studio)
        self._races = races
        self._traces = sorted(studio.traces(), key=lambda known: known[1] != FIRST_NETWORK)

    def build(self) -> None:
        """Lay out the view and wire it. Called inside a route of the page."""
        first = self._cards.all()[0]
        with gr.Row(elem_classes="page race-page", elem_id="race-page"):
            self.setup = race_setup_card(self._studio, self._cards.all(), first, self._traces)
            with gr.Column(elem_classes="main", min_width=0):
                self.race = gr.HTML(
                    html_template=RACE_TEMPLATE,
                    js_on_load="sakura.mountRace(element, props, server, watch);",
                    apply_default_css=False,
                    server_functions=self.functions(),
                    elem_id="race",
                    runners=runner_views(RACE_SYSTEMS),
                    setup=None,
                    started=None,
                )
                race_timeline()
        self._wire()

    def functions(self) -> list[Callable[..., Answer]]:
        """The functions that scripts call by name. All answer with JSON; ``error`` holds a sentence."""

        def race_state(question: list[Any]) -> Answer:
            race_id, known = question
            try:
                state = self._races.state(str(race_id), known if isinstance(known, int) else -1, POLL_S)
                return race_view(state, self._cards.view(state.request.template_id), self._device(state))
            except UserError as error:
                return {"error": str(error), "unknown": True}

        def race_stop(race_id: str) -> Answer:
            try:
                self._races.stop(str(race_id))
            except UserError as error:
                return {"error": str(error)}
            return {}

        def saved_timeline(question: list[str]) -> Answer:
            race_id, format_name = question
            try:
                laps = self._races.state(race_id).laps
            except UserError as error:
                return {"error": str(error)}
            events = [event for lap in laps if lap.system == "sakura" for event in lap.events]
            if format_name == "chrome":
                return {"name": f"sakura-{race_id}-trace.json", "text": json.dumps(chrome_trace(events))}
            return {"name": f"sakura-{race_id}-events.json", "text": events_to_json(events).decode()}

        return [race_state, race_stop, saved_timeline]

    def _device(self, state: RaceState) -> DeviceCard | None:
        """The device of a race; None where it has gone before it began, or the race is so old that nobody knows."""
        run_id = next((lap.run_id for lap in state.laps if lap.run_id), "")
        try:
            if run_id:
                return self._studio.run_device(run_id)
        except UserError:
            return None
        asked = state.request.device_id
        return next((card for card in self._studio.devices() if asked in (None, card.device_id)), None)

    def _wire(self) -> None:
        s = self.setup
        template_parts = [
            s.template, s.brings, s.reference, s.reference_error, s.prompt_group, s.prompt, s.prompt_help, s.examples,
            s.prompt_error, s.action, s.action_error, s.note,
        ]  # fmt: skip
        trace_parts = [s.trace, s.trace_label, s.trace_line, s.action_error]
        prompt_parts = [s.prompt_error, s.action]
        choices = [
            s.task.input(self._told(self._choose_task), [s.task, s.prompt], template_parts, **CHOICE),
            s.template.select(self._told(self._choose_template), [s.template, s.prompt], template_parts, **CHOICE),
            s.reference.select(lambda: "", None, s.reference_error, **CHOICE),
            s.reference.picture(self._bring_picture, None, [s.reference, s.reference_error], **CHOICE),
            s.prompt.change(self._type_prompt, [s.template, s.prompt], prompt_parts, **CHOICE),
            s.trace.input(self._told(self._choose_trace), s.trace, trace_parts, **CHOICE),
            s.action.network(self._told(self._next_trace), s.trace, trace_parts, **QUIET),
        ]
        s.reference.refuse(self._refuse_picture, None, s.reference_error, **CHOICE)
        s.examples.example(self._use_example, s.template, [s.prompt, *prompt_parts], **CHOICE)
        inputs = [s.template, s.reference, s.prompt, s.trace]
        for choice in choices:
            choice.then(self._show_setup, inputs, self.race, **CHOICE)
        errors = [s.reference_error, s.prompt_error, s.action_error]
        s.action.start(self._start, inputs, [self.race, s.action, *errors], **QUIET)
        blocks = gr.context.Context.root_block
        assert isinstance(blocks, gr.Blocks)
        blocks.load(self._restore, None, [self.race, s.task, *template_parts, *trace_parts[:3]], **QUIET)

    # Choices

    def _choose_task(self, task: str, prompt: str | None) -> Update:
        items = template_items(self._cards.all(), task)
        update = self._choose_template(items[0]["id"], prompt)
        return {**update, self.setup.template: gr.HTML(items=items, value=items[0]["id"])}

    def _choose_template(self, template_id: str, prompt: str | None) -> Update:
        examples = self._studio.prompt_examples(template_id)
        words = self._cards.card(template_id).task == "instruction"
        if not words or prompt in examples:
            return self._template_parts(template_id, prompt)
        # A race needs words that the template understands, so there are some from the start.
        return {**self._template_parts(template_id, examples[0]), self.setup.prompt: examples[0]}

    def _choose_trace(self, trace_id: str) -> Update:
        trace, s = self._trace(trace_id), self.setup
        return {s.trace_label: trace_label(trace), s.trace_line: trace_line(trace)}

    def _next_trace(self, trace_id: str) -> Update:
        keys = [key for key, _, _ in self._traces]
        following = keys[(keys.index(trace_id) + 1) % len(keys)] if trace_id in keys else keys[0]
        return {self.setup.trace: following, **self._choose_trace(following)}

    def _trace(self, trace_id: str) -> Trace:
        known = next((trace for key, _, trace in self._traces if key == trace_id), None)
        if known is None:
            raise UserError("This network trace is no longer kept; choose another one.")
        return known

    # Races

    def _request(self, template_id: str, reference: str, prompt: str, trace_id: str) -> EditRequest:
        """What the fields describe. Raises FieldError for what cannot be used."""
        with at_field("action"):
            words = self._cards.card(template_id).task == "instruction"
            trace = self._trace(trace_id)
        with at_field("prompt"):
            if words:
                self._studio.check_prompt(template_id, prompt)
        with at_field("reference"):
            pixels = None if words else self._reference(template_id, reference)
        return EditRequest(template_id, RACE_SYSTEMS[0], trace, reference=pixels, prompt=prompt if words else "")

    def _reference(self, template_id: str, choice: str) -> np.ndarray:
        """The uint8 RGB pixels of a chosen reference. Raises UserError when they are no longer kept."""
        if choice.startswith(OWN_PREFIX):
            return read_picture(uploaded_path(choice.removeprefix(OWN_PREFIX)), "Your picture").pixels
        if choice.startswith(RACE_PREFIX):
            pixels = self._races.state(choice.removeprefix(RACE_PREFIX)).request.reference
            if pixels is None:
                raise UserError("Your picture is no longer kept; choose it again.")
            return pixels
        return self._studio.references(template_id)[int(choice)]

    def _show_setup(self, *chosen: str) -> Update:
        try:
            key = setup_key(self._request(*chosen))
        except FieldError as error:
            key = error.field  # no race was made with what cannot be used
        return {self.race: gr.HTML(setup=key)}

    def _start(self, event: gr.EventData, *chosen: str) -> Update:
        s = self.setup
        errors = {"reference": s.reference_error, "prompt": s.prompt_error, "action": s.action_error}
        update: Update = dict.fromkeys(errors.values(), "")
        # A prop reaches the page only when it changes, so each answer carries a number of its own.
        update[s.action] = gr.HTML(answered=next(self._counter))
        try:
            request = dataclasses.replace(self._request(*chosen), device_id=event.device_id)
            with at_field("action"):
                race_id = self._races.start(request, RACE_SYSTEMS)
        except FieldError as error:
            return {**update, errors[error.field]: error_markup(str(error))}
        return {**update, self.race: gr.HTML(started={"race_id": race_id}, setup=setup_key(request))}

    def _restore(self, request: gr.Request) -> Update:
        """Fill the setup in with that of the race in the address, so that a reload loses nothing."""
        s, race_id = self.setup, request.query_params.get("race", "")
        try:
            asked = self._races.state(race_id).request
        except UserError:
            return {s.action_error: ""}  # the race itself says why it is not there
        card = self._cards.card(asked.template_id)
        update = {
            **self._template_parts(card.template_id, asked.prompt),
            s.task: card.task,
            s.template: gr.HTML(items=template_items(self._cards.all(), card.task), value=card.template_id),
            s.prompt: asked.prompt,
            self.race: gr.HTML(setup=setup_key(asked)),
        }
        if asked.reference is not None:
            update[s.reference] = self._restored_reference(f"{RACE_PREFIX}{race_id}", card.template_id, asked.reference)
        known = next((key for key, _, trace in self._traces if trace is asked.trace), None)
        return {**update, s.trace: known, **self._choose_trace(known)} if known else update
