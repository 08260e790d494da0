"""The setup card: which template, what the visitor brings, over which network, with which system and budget."""

import dataclasses
import html
import itertools
from typing import Any

import gradio as gr
import numpy as np

from sakura.events import System
from sakura.network.trace import BYTES_PER_MEGABIT, Trace
from sakura.studio import Studio, TemplateCard
from ui.markup import label_markup, note_markup, picture_uri, rates_svg
from ui.own_template import OwnTemplates
from ui.parts import action, examples, privacy_note, references, thumbs
from ui.views import SYSTEM_NAMES, TASK_NAMES

AUTOMATIC, CUSTOM = "automatic", "custom"
BUDGETS_KB = (25, 50, 100, 200)
DRAWN_S, DRAWN_PIECES = 60.0, 75
CHOOSE_COLUMN = "Choose a column"
BRINGS = {"face_swap": "New face", "try_on": "Garment", "instruction": "What to change"}


@dataclasses.dataclass(frozen=True)
class RequestSetup:
    """The components with which a request is put together, whatever it is for."""

    task: gr.Radio
    template: gr.HTML
    brings: gr.HTML
    reference: gr.HTML
    reference_error: gr.HTML
    prompt_group: gr.Column
    prompt: gr.Textbox
    prompt_help: gr.HTML
    examples: gr.HTML
    prompt_error: gr.HTML
    trace_label: gr.HTML
    trace: gr.Dropdown
    trace_line: gr.HTML
    action: gr.HTML
    action_error: gr.HTML
    note: gr.HTML


@dataclasses.dataclass(frozen=True)
class Setup(RequestSetup):
    """The components of the card for an edit that listeners read or write."""

    own_template: gr.HTML
    trace_file: gr.UploadButton
    trace_told: gr.HTML
    trace_error: gr.HTML
    trace_column: gr.Dropdown
    running: gr.JSON
    system: gr.Radio
    budget_label: gr.HTML
    budget: gr.Dropdown
    budget_kb: gr.Number
    budget_error: gr.HTML


def template_items(cards: list[TemplateCard], task: str) -> list[dict[str, str]]:
    """The templates of a task as pictures to choose from."""
    return [
        {"id": card.template_id, "src": picture_uri(card.picture), "alt": card.title}
        for card in cards
        if card.task == task
    ]


def reference_items(studio: Studio, template_id: str) -> list[dict[str, str]]:
    """The shipped reference pictures of a template; their ids are their numbers."""
    return [
        {"id": str(number), "src": picture_uri(pixels), "alt": f"Picture {number + 1}"}
        for number, pixels in enumerate(studio.references(template_id))
    ]


def trace_label(trace: Trace) -> str:
    """The label of the network field, with the mean rate of the chosen trace."""
    return label_markup("Network", f"mean {_shown(trace.mean_mbps)} Mbit/s")


def trace_line(trace: Trace) -> str:
    """A drawing of the first minute of a trace with its mean, and under it the range and the duration."""
    drawn_s = min(trace.duration_s, DRAWN_S)
    edges_s = np.linspace(0.0, drawn_s, DRAWN_PIECES + 1).tolist()
    carried_bytes = np.array([trace.bytes_between(a, b) for a, b in itertools.pairwise(edges_s)])
    rates_mbps = carried_bytes / (drawn_s / DRAWN_PIECES) / BYTES_PER_MEGABIT
    spread = f"{_shown(trace.min_mbps)} to {_shown(trace.max_mbps)} Mbit/s"
    whole = f"{_shown(trace.duration_s)} s"
    drawn = f"first {drawn_s:.0f} of {whole}" if trace.duration_s > DRAWN_S else whole
    words = html.escape(f"{trace.title}, {drawn}: mean {_shown(trace.mean_mbps)}, {spread}")
    return (
        f'<div class="trace-drawing" role="img" aria-label="{words}">{rates_svg(rates_mbps)}</div>'
        f'<p class="trace-facts"><span>{spread}</span><span class="drawn">{drawn}</span>'
        '<span class="switch">another one takes over at once</span></p>'
    )


def trace_told(trace: Trace) -> str:
    """What a file of the visitor's own was read as, and what was assumed in reading it."""
    return note_markup([f"{trace.summary}.", *trace.notes])


def _shown(number: float) -> str:
    """A number as people read it: whole ones from 1 on, two digits below."""
    if number >= 1 or number == 0:
        return f"{number:,.0f}"
    return f"{number:.1g}" if number < 0.1 else f"{number:.2g}"


def budget_label(system: System, choice: str) -> str:
    """The label of the budget field, which matters to one system only, with a remark on the choice."""
    remark = "automatic hides the transfer" if choice == AUTOMATIC else ""
    return label_markup("Bytes to spend", remark if system == "sakura" else "only SAKURA can choose")


def _hidden_html(value: str = "", *, elem_classes: str) -> gr.HTML:
    return gr.HTML(value, apply_default_css=False, elem_classes=elem_classes)


def template_field(cards: list[TemplateCard], card: TemplateCard) -> dict[str, Any]:
    """The choice of a task and of a template: the components ``task`` and ``template`` of a setup."""
    task = _segments([(name, key) for key, name in TASK_NAMES.items()], card.task, "Task", "tasks")
    return {
        "task": task,
        "template": thumbs("template", template_items(cards, card.task), card.template_id, "Template"),
    }


def brings_field(studio: Studio, card: TemplateCard) -> dict[str, Any]:
    """What the visitor brings, a picture or words: the components of a setup from ``brings`` to ``prompt_error``."""
    with gr.Column(elem_classes="field field-brings", min_width=0):
        brings = gr.HTML(label_markup(BRINGS[card.task]), apply_default_css=False)
        reference = references(reference_items(studio, card.template_id), "0")
        reference_error = _hidden_html(elem_classes="field-error")
        with gr.Column(visible=False, elem_classes="prompt-group", min_width=0) as prompt_group:
            prompt = gr.Textbox(
                show_label=False,
                container=False,
                placeholder="Say what should change",
                lines=1,
                max_lines=3,
                max_length=20_000,
                elem_id="prompt",
                html_attributes=gr.InputHTMLAttributes(spellcheck=False, autocomplete="off"),
            )
            example_buttons = examples([])
            prompt_help = _hidden_html(elem_classes="prompt-help")
        prompt_error = _hidden_html(elem_classes="field-error")
    return {
        "brings": brings,
        "reference": reference,
        "reference_error": reference_error,
        "prompt_group": prompt_group,
        "prompt": prompt,
        "prompt_help": prompt_help,
        "examples": example_buttons,
        "prompt_error": prompt_error,
    }


def trace_field(traces: list[tuple[str, str, Trace]]) -> gr.Dropdown:
    """The choice of a shipped trace."""
    return gr.Dropdown(
        [(title, key) for key, title, _ in traces],
        value=traces[0][0],
        label="Network",
        show_label=False,
        container=False,
        filterable=False,
        elem_id="trace",
    )


def setup_card(
    studio: Studio, cards: list[TemplateCard], card: TemplateCard, traces: list[tuple[str, str, Trace]]
) -> Setup:
    """Lay the card out, with ``card`` and the first trace chosen. Called inside ``gr.Blocks``."""
    with gr.Column(elem_classes="card setup", elem_id="setup", min_width=0):
        with gr.Column(elem_classes="fields", min_width=0):
            with gr.Column(elem_classes="field field-template", min_width=0):
                gr.HTML(label_markup("Template"), apply_default_css=False)
                own_template = OwnTemplates(studio).component(card.task)
                template = template_field(cards, card)
            brought = brings_field(studio, card)
            with gr.Column(elem_classes="field field-network", min_width=0):
                network_label = gr.HTML(trace_label(traces[0][2]), apply_default_css=False)
                trace_file = gr.UploadButton(
                    "Use your own file", file_count="single", size="sm", elem_id="trace-file", type="filepath"
                )
                trace = trace_field(traces)
                network_line = gr.HTML(
                    trace_line(traces[0][2]),
                    js_on_load="sakura.mountNetwork(element, props, trigger, watch); // 'refuse'",
                    apply_default_css=False,
                    elem_classes="trace-line",
                    switched=None,
                )
                network_told = _hidden_html(elem_classes="trace-told")
                trace_error = _hidden_html(elem_classes="field-error")
                trace_column = gr.Dropdown(
                    [(CHOOSE_COLUMN, "")],
                    value="",
                    label="Rate column",
                    show_label=False,
                    container=False,
                    filterable=False,
                    visible=False,
                    elem_id="trace-column",
                )
                # The browser knows which edit runs; it says so with each choice of a network.
                running = gr.JSON(visible=False)
            with gr.Column(elem_classes="field field-system", min_width=0):
                gr.HTML(label_markup("System"), apply_default_css=False)
                system = _segments([(name, key) for key, name in SYSTEM_NAMES.items()], "sakura", "System", "systems")
            with gr.Column(elem_classes="field field-budget", min_width=0):
                spend_label = gr.HTML(budget_label("sakura", AUTOMATIC), apply_default_css=False)
                budget = gr.Dropdown(
                    [
                        ("Automatic", AUTOMATIC),
                        *[(f"{kilobytes} kB", str(kilobytes)) for kilobytes in BUDGETS_KB],
                        ("Another amount", CUSTOM),
                    ],
                    value=AUTOMATIC,
                    label="Bytes to spend",
                    show_label=False,
                    container=False,
                    filterable=False,
                    elem_id="budget",
                )
                budget_kb = gr.Number(
                    300,
                    label="Amount in kB",
                    visible=False,
                    elem_id="budget-kb",
                )
                budget_error = _hidden_html(elem_classes="field-error")
        action_error = _hidden_html(elem_classes="field-error action-error")
        go = action()
        note = privacy_note()
    return Setup(
        **template,
        **brought,
        own_template=own_template,
        trace_label=network_label,
        trace=trace,
        trace_line=network_line,
        trace_file=trace_file,
        trace_told=network_told,
        trace_error=trace_error,
        trace_column=trace_column,
        running=running,
        system=system,
        budget_label=spend_label,
        budget=budget,
        budget_kb=budget_kb,
        budget_error=budget_error,
        action=go,
        action_error=action_error,
        note=note,
    )


def _segments(choices: list[tuple[str, str]], value: str, label: str, elem_id: str) -> gr.Radio:
    return gr.Radio(
        choices, value=value, label=label, show_label=False, container=False, elem_id=elem_id, elem_classes="seg-radio"
    )
