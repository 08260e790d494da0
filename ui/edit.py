"""The Edit view: the setup card beside pictures and timeline, and what happens when something is chosen or pressed."""

import dataclasses
from pathlib import Path
from typing import Any, TypedDict

import gradio as gr
import numpy as np

from sakura.errors import UserError
from sakura.events import System
from sakura.network.formats import ColumnNeededError, load_trace
from sakura.network.trace import Trace
from sakura.pictures import read_picture
from sakura.studio import EditRequest, Studio
from ui.fields import FieldError, at_field, uploaded_path
from ui.link import Link
from ui.markup import error_markup, note_markup
from ui.networks import networks_view
from ui.parts import pictures
from ui.request_form import CHOICE, OWN_PREFIX, QUIET, RequestForm, Update
from ui.setup import (
    AUTOMATIC,
    BUDGETS_KB,
    CHOOSE_COLUMN,
    CUSTOM,
    Setup,
    budget_label,
    setup_card,
    template_items,
    trace_label,
    trace_line,
    trace_told,
)
from ui.timeline import timeline
from ui.views import View, brought_key, request_view

RUN_PREFIX = "run:"
MAX_BUDGET_KB = 100_000
OwnTraces = dict[str, Trace]
# The choice of a network carries which edit runs in the browser, if one does.
WITH_RUNNING = "(...chosen) => [...chosen.slice(0, {inputs}), sakura.runningEdit()]"


def budget_bytes(choice: str, amount_kb: float | None) -> int | None:
    """The rate budget of a choice, None for automatic. Raises UserError for an amount that makes no sense."""
    if choice == AUTOMATIC:
        return None
    if choice != CUSTOM:
        return int(choice) * 1000
    if amount_kb is None or not 1 <= amount_kb <= MAX_BUDGET_KB:
        raise UserError(f"The amount must be between 1 and {MAX_BUDGET_KB:,} kB; write another number.")
    return round(amount_kb * 1000)


def written_kb(amount: str) -> float:
    """An amount in kB as an address writes it. Raises UserError for one that makes no sense."""
    try:
        amount_kb = float(amount)
    except ValueError:
        amount_kb = 0.0
    budget_bytes(CUSTOM, amount_kb)
    return amount_kb


class Running(TypedDict):
    """The edit that runs in the browser."""

    run_id: str


class EditView(RequestForm):
    """Builds the Edit view of one page and answers its events. Holds no state of any visitor."""

    setup: Setup

    def __init__(self, studio: Studio) -> None:
        super().__init__(studio)
        self._traces = studio.traces()
        self._link = Link(studio, self._cards)

    def build(self) -> None:
        """Lay out the view and wire it. Called inside ``gr.Blocks``."""
        first = self._cards.all()[0]
        _, _, trace = self._traces[0]
        with gr.Row(elem_classes="page", elem_id="edit-page"):
            self.setup = setup_card(self._studio, self._cards.all(), first, self._traces)
            self._built_items = template_items(self._cards.all(), first.task)
            with gr.Column(elem_classes="main", min_width=0):
                pictures()
                timeline()
        self.link = self._link.component(self._plan(first.template_id, "sakura", trace))
        self.own_traces = gr.State({})
        self.asked_file = gr.State("")
        self._wire()

    def _wire(self) -> None:
        s = self.setup
        chosen = [s.template, s.system, s.trace, self.own_traces]
        template_parts = [
            s.template, s.brings, s.reference, s.reference_error, s.prompt_group, s.prompt, s.prompt_help, s.examples,
            s.prompt_error, s.own_template, s.action, s.action_error, s.note,
        ]  # fmt: skip
        choices = [
            s.task.input(self._told(self._choose_task), [s.task, s.prompt], template_parts, **CHOICE),
            s.template.select(self._told(self._choose_template), [s.template, s.prompt], template_parts, **CHOICE),
            s.own_template.added(self._told(self._added_template), s.prompt, [s.task, *template_parts], **CHOICE),
        ]
        s.reference.refuse(self._refuse_picture, None, [s.reference_error], **CHOICE)
        brings = [
            s.reference.select(lambda: "", None, s.reference_error, **CHOICE),
            s.reference.picture(self._bring_picture, None, [s.reference, s.reference_error], **CHOICE),
            s.prompt.change(self._type_prompt, [s.template, s.prompt], [s.prompt_error, s.action], **CHOICE),
        ]
        s.examples.example(self._use_example, [s.template], [s.prompt, s.prompt_error, s.action], **CHOICE)
        trace_parts = [
            s.trace_label, s.trace_line, s.trace_told, s.trace_error, s.trace_column, s.action_error,
        ]  # fmt: skip
        s.trace_line.refuse(self._refuse_trace, None, [s.trace_error], **CHOICE)
        system_parts = [s.budget, s.budget_label, s.budget_error, s.action_error]
        choices += [
            s.trace.input(
                self._told(self._choose_trace),
                [s.trace, self.own_traces, s.running],
                trace_parts,
                js=WITH_RUNNING.format(inputs=2),
                **CHOICE,
            ),
            s.trace_file.upload(
                self._told(self._bring_trace),
                [s.trace_file, self.own_traces, s.running],
                [s.trace, self.own_traces, self.asked_file, *trace_parts],
                js=WITH_RUNNING.format(inputs=2),
                **CHOICE,
            ),
            s.trace_column.input(
                self._told(self._choose_column),
                [s.trace_column, self.asked_file, self.own_traces, s.running],
                [s.trace, self.own_traces, *trace_parts],
                js=WITH_RUNNING.format(inputs=3),
                **CHOICE,
            ),
            s.system.input(self._told(self._system_parts), [s.system, s.budget], system_parts, **CHOICE),
        ]
        # Only when the answer to a choice has arrived is it known what is chosen in all, however quick the visitor is.
        for choice in choices:
            choice.then(self._show_plan, chosen, self.link, **CHOICE)
        budget_parts = [s.budget_kb, s.budget_label, s.budget_error]
        brings += [
            s.budget.input(self._choose_budget, [s.system, s.budget], budget_parts, **CHOICE),
            s.budget_kb.input(lambda: "", None, s.budget_error, **CHOICE),
        ]
        errors = [s.reference_error, s.prompt_error, s.trace_error, s.budget_error, s.action_error]
        inputs = [s.template, s.reference, s.prompt, s.trace, self.own_traces, s.system, s.budget, s.budget_kb]
        for choice in [*choices, *brings]:
            choice.then(self._show_brought, inputs, self.link, **CHOICE)
        s.action.edit(self._edit, inputs, [self.link, s.action, *errors], **QUIET)
        s.action.stop(self._stop, None, [s.action_error], **QUIET)
        restored = [self.link, s.task, *template_parts, s.trace, self.own_traces, *trace_parts[:5], s.system, s.budget]
        restored += [s.budget_label, s.budget_error, s.budget_kb, s.action_error]
        blocks = gr.context.Context.root_block
        assert isinstance(blocks, gr.Blocks)
        blocks.load(self._restore, None, restored, **QUIET)

    def _plan(self, template_id: str, system: System, trace: Trace) -> View:
        request = EditRequest(template_id=template_id, system=system, trace=trace)
        return request_view(self._cards.view(template_id), request)

    def _trace(self, trace_id: str, own: OwnTraces) -> Trace:
        if trace_id in own:
            return own[trace_id]
        known = next((trace for key, _, trace in self._traces if key == trace_id), None)
        if known is None:
            raise UserError("This network trace is no longer kept; choose another one.")
        return known

    def _show_plan(self, template_id: str, system: System, trace_id: str, own: OwnTraces) -> Update:
        try:
            return {self.link: gr.HTML(plan=self._plan(template_id, system, self._trace(trace_id, own)))}
        except UserError:
            return {self.link: gr.skip()}  # the choice itself has said why

    def _choose_task(self, task: str, prompt: str | None) -> Update:
        items = template_items(self._cards.all(), task)
        update = self._choose_template(items[0]["id"], prompt)
        update[self.setup.template] = gr.HTML(items=items, value=items[0]["id"])
        return update

    def _choose_template(self, template_id: str, prompt: str | None) -> Update:
        card = self._cards.card(template_id)
        examples = {words for other in self._cards.all() for words in self._studio.prompt_examples(other.template_id)}
        # An example of another template means nothing here; what somebody wrote is theirs.
        foreign = prompt in examples - set(self._studio.prompt_examples(template_id))
        if card.task == "instruction" and foreign:
            prompt = ""
        update = self._template_parts(template_id, prompt)
        return {**update, self.setup.prompt: prompt or ""} if foreign else update

    def _added_template(self, prompt: str | None, event: gr.EventData) -> Update:
        """Choose a template that was just added, with its task should another have been chosen meanwhile."""
        template_id, cards = event.id, self._cards.all()
        update = self._choose_template(template_id, prompt)
        task = self._cards.card(template_id).task
        items = template_items(cards, task)
        return {**update, self.setup.task: task, self.setup.template: gr.HTML(items=items, value=template_id)}

    def _template_parts(self, template_id: str, prompt: str | None) -> Update:
        task = self._cards.card(template_id).task
        return {**super()._template_parts(template_id, prompt), self.setup.own_template: gr.HTML(task=task)}

    def _choose_trace(self, trace_id: str, own: OwnTraces, running: Running | None) -> Update:
        return self._chosen_trace(self._trace(trace_id, own), running)

    def _chosen_trace(self, trace: Trace, running: Running | None) -> Update:
        """What changes with the network; it takes over at once in an edit that runs."""
        update = self._trace_parts(trace)
        if running is not None:
            try:
                switched = self._switch(running, trace)
            except UserError as error:
                update[self.setup.trace_error] = error_markup(str(error))
            else:
                update[self.setup.trace_line] = gr.HTML(trace_line(trace), switched=switched)
        return update

    def _switch(self, running: Running, trace: Trace) -> dict[str, Any]:
        """Let an edit that runs go on over another network; returns what the page draws. Raises UserError."""
        run_id = running["run_id"]
        self._studio.change_network(run_id, trace)
        start_s = self._studio.run_request(run_id).trace_offset_s
        return {"run_id": run_id, "trace": networks_view(self._studio.networks(run_id), start_s)}

    def _trace_parts(self, trace: Trace) -> Update:
        own = not any(trace is shipped for _, _, shipped in self._traces)
        return {
            self.setup.trace_label: trace_label(trace),
            self.setup.trace_line: trace_line(trace),
            self.setup.trace_told: trace_told(trace) if own else "",
            self.setup.trace_error: "",
            self.setup.trace_column: gr.Dropdown(visible=False),
        }

    def _bring_trace(self, path: str, own: OwnTraces, running: Running | None) -> Update:
        s, name = self.setup, Path(path).name
        try:
            trace = load_trace(Path(path), name)
        except ColumnNeededError as error:
            # The trace chosen before stays until one of the columns is chosen.
            choices = [(CHOOSE_COLUMN, ""), *((column, column) for column in error.choices)]
            return {
                self.asked_file: path,
                s.trace_error: note_markup([f"{name} has {len(error.choices)} rates; choose the one to use."]),
                s.trace_column: gr.Dropdown(choices=choices, value="", visible=True),
            }
        except UserError as error:
            return {s.trace_error: error_markup(str(error)), s.trace_column: gr.Dropdown(visible=False)}
        return self._brought_trace(f"{OWN_PREFIX}{name}", trace, own, running)

    def _brought_trace(self, key: str, trace: Trace, own: OwnTraces, running: Running | None) -> Update:
        own = {**own, key: trace}
        return {
            self.setup.trace: gr.Dropdown(choices=self._trace_choices(own), value=key),
            self.own_traces: own,
            **self._chosen_trace(trace, running),
        }

    def _choose_column(self, column: str, path: str, own: OwnTraces, running: Running | None) -> Update:
        """Read the file that asked with this column; the question stays open for another one."""
        if not column:
            return {}
        s, name = self.setup, Path(path).name
        try:
            trace = dataclasses.replace(load_trace(Path(path), name, column=column), title=f"{name}, {column}")
        except UserError as error:
            return {s.trace_error: error_markup(str(error))}
        update = self._brought_trace(f"{OWN_PREFIX}{name}:{column}", trace, own, running)
        return {**update, s.trace_column: gr.skip()}

    def _refuse_trace(self, event: gr.EventData) -> str:
        return error_markup(str(event.reason))

    def _trace_choices(self, own: OwnTraces) -> list[tuple[str, str]]:
        shipped = [(title, key) for key, title, _ in self._traces]
        return [*shipped, *((trace.title, key) for key, trace in own.items())]

    def _system_parts(self, system: System, budget: str) -> Update:
        return {
            self.setup.budget: gr.Dropdown(interactive=system == "sakura"),
            self.setup.budget_label: budget_label(system, budget),
            self.setup.budget_error: "",
        }

    def _choose_budget(self, system: System, budget: str) -> Update:
        s = self.setup
        return {
            s.budget_kb: gr.Number(visible=budget == CUSTOM),
            s.budget_label: budget_label(system, budget),
            s.budget_error: "",
        }

    def _show_brought(self, *chosen: Any) -> Update:
        try:
            brought = brought_key(self._request(*chosen))
        except FieldError as error:
            brought = error.field  # no edit was made with what cannot be used
        return {self.link: gr.HTML(brought=brought)}

    def _request(
        self,
        template_id: str,
        reference: str,
        prompt: str,
        trace_id: str,
        own: OwnTraces,
        system: System,
        budget: str,
        budget_kb: float | None,
    ) -> EditRequest:
        """The edit that the fields describe. Raises FieldError for what cannot be used."""
        with at_field("action"):
            words = self._cards.card(template_id).task == "instruction"
        with at_field("prompt"):
            if words:
                self._studio.check_prompt(template_id, prompt)
        with at_field("reference"):
            pixels = None if words else self._reference(template_id, reference)
        with at_field("trace"):
            trace = self._trace(trace_id, own)
        with at_field("budget"):
            rate_budget = budget_bytes(budget, budget_kb) if system == "sakura" else None
        return EditRequest(
            template_id=template_id, system=system, trace=trace, reference=pixels,
            prompt=prompt if words else "", rate_budget_bytes=rate_budget,
        )  # fmt: skip

    def _edit(self, event: gr.EventData, *chosen: Any) -> Update:
        s = self.setup
        errors = {
            "reference": s.reference_error, "prompt": s.prompt_error, "trace": s.trace_error,
            "budget": s.budget_error, "action": s.action_error,
        }  # fmt: skip
        update: Update = dict.fromkeys(errors.values(), "")
        # A prop reaches the page only when it changes, so each answer carries a number of its own.
        update[s.action] = gr.HTML(answered=next(self._counter))
        try:
            request = dataclasses.replace(self._request(*chosen), device_id=event.device_id)
            with at_field("action"):
                run_id = self._studio.start(request)
        except FieldError as error:
            update[errors[error.field]] = error_markup(str(error))
            return update
        update[self.link] = gr.HTML(started={"run_id": run_id})
        return update

    def _reference(self, template_id: str, choice: str) -> np.ndarray:
        """The uint8 RGB pixels of a chosen reference. Raises UserError when they are no longer kept."""
        if choice.startswith(OWN_PREFIX):
            path = uploaded_path(choice.removeprefix(OWN_PREFIX))
            return read_picture(path, "Your picture").pixels
        if choice.startswith(RUN_PREFIX):
            pixels = self._studio.run_request(choice.removeprefix(RUN_PREFIX)).reference
            if pixels is None:
                raise UserError("Your picture is no longer kept; choose it again.")
            return pixels
        return self._studio.references(template_id)[int(choice)]

    def _stop(self, event: gr.EventData) -> str:
        try:
            self._studio.stop(event.run_id)
        except UserError as error:
            return error_markup(str(error))
        return ""

    def _restore(self, request: gr.Request) -> Update:
        """Fill the setup in with that of the run in the address, so that a reload loses nothing.

        Without a run, with the template and the bytes to spend that the address asks for, else as shipped.
        """
        s = self.setup
        run_id = request.query_params.get("run", "")
        try:
            run = self._studio.run_request(run_id) if run_id else None
        except UserError:
            run = None
        asked = request.query_params
        if run is None and ("template" in asked or "budget_kb" in asked):
            try:
                return self._asked(asked.get("template"), asked.get("budget_kb"))
            except UserError as error:
                return {s.action_error: error_markup(str(error))}
        if run is None:
            # Only what is new since the page was built is told: an early choice of the visitor must stay.
            shown = self._cards.all()
            items = template_items(shown, shown[0].task)
            return {s.template: gr.HTML(items=items) if items != self._built_items else gr.skip()}
        card = self._cards.card(run.template_id)
        _, trace = self._studio.networks(run_id)[-1]
        known = next((key for key, _, shipped in self._traces if shipped is trace), None)
        own: OwnTraces = {} if known else {f"{OWN_PREFIX}{trace.name}": trace}
        update = self._template_parts(run.template_id, run.prompt)
        update[self.link] = gr.HTML(plan=self._plan(run.template_id, run.system, trace))
        update[s.task] = card.task
        update[s.prompt] = run.prompt
        update[s.template] = gr.HTML(items=template_items(self._cards.all(), card.task), value=run.template_id)
        if run.reference is not None:
            update[s.reference] = self._restored_reference(f"{RUN_PREFIX}{run_id}", run.template_id, run.reference)
        kilobytes = None if run.rate_budget_bytes is None else run.rate_budget_bytes / 1000
        listed = kilobytes in BUDGETS_KB
        budget = AUTOMATIC if kilobytes is None else str(int(kilobytes)) if listed else CUSTOM
        return {
            **update,
            **self._trace_parts(trace),
            **self._system_parts(run.system, budget),
            s.trace: gr.Dropdown(choices=self._trace_choices(own), value=known or next(iter(own))),
            self.own_traces: own,
            s.system: run.system,
            s.budget: gr.Dropdown(value=budget, interactive=run.system == "sakura"),
            s.budget_kb: gr.Number(value=kilobytes or 75, visible=budget == CUSTOM),
        }

    def _asked(self, template_id: str | None, budget_kb: str | None) -> Update:
        """A setup with SAKURA for a template, and with so many kB to spend. Raises UserError."""
        s = self.setup
        card = self._cards.card(template_id) if template_id else self._cards.all()[0]
        amount_kb = None if budget_kb is None else written_kb(budget_kb)
        items = template_items(self._cards.all(), card.task)
        update = {
            **self._template_parts(card.template_id, ""),
            self.link: gr.HTML(plan=self._plan(card.template_id, "sakura", self._traces[0][2])),
            s.task: card.task,
            s.template: gr.HTML(items=items, value=card.template_id),
        }
        if amount_kb is not None:
            update[s.budget] = gr.Dropdown(value=CUSTOM, interactive=True)
            update[s.budget_kb] = gr.Number(value=amount_kb, visible=True)
            update[s.budget_label] = budget_label("sakura", CUSTOM)
        return update
