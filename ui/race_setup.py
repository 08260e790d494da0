"""The setup card of a race: what all systems are asked, and over which network."""

import dataclasses

import gradio as gr

from sakura.network.trace import Trace
from sakura.studio import Studio, TemplateCard
from ui.markup import label_markup
from ui.parts import examples, privacy_note, references, thumbs
from ui.race_parts import race_action
from ui.setup import BRINGS, reference_items, template_items, trace_label, trace_line
from ui.views import TASK_NAMES


@dataclasses.dataclass(frozen=True)
class RaceSetup:
    """The components of the card that listeners read or write."""

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


def race_setup_card(
    studio: Studio, cards: list[TemplateCard], card: TemplateCard, traces: list[tuple[str, str, Trace]]
) -> RaceSetup:
    """Lay the card out, with ``card`` and the first trace chosen. Called inside ``gr.Blocks``."""
    with gr.Column(elem_classes="card setup", elem_id="setup", min_width=0):
        with gr.Column(elem_classes="fields", min_width=0):
            with gr.Column(elem_classes="field field-template", min_width=0):
                _html(label_markup("Template"))
                task = gr.Radio(
                    [(name, key) for key, name in TASK_NAMES.items()],
                    value=card.task,
                    label="Task",
                    show_label=False,
                    container=False,
                    elem_id="tasks",
                    elem_classes="seg-radio",
                )
                template = thumbs("template", template_items(cards, card.task), card.template_id, "Template")
            with gr.Column(elem_classes="field field-brings", min_width=0):
                brings = _html(label_markup(BRINGS[card.task]))
                reference = references(reference_items(studio, card.template_id), "0")
                reference_error = _html("", "field-error")
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
                    prompt_help = _html("", "prompt-help")
                prompt_error = _html("", "field-error")
            with gr.Column(elem_classes="field field-network", min_width=0):
                network_label = _html(trace_label(traces[0][2]))
                trace = gr.Dropdown(
                    [(title, key) for key, title, _ in traces],
                    value=traces[0][0],
                    label="Network",
                    show_label=False,
                    container=False,
                    filterable=False,
                    elem_id="trace",
                )
                network_line = _html(trace_line(traces[0][2]), "trace-line")
        action_error = _html("", "field-error action-error")
        go = race_action()
        note = privacy_note()
    return RaceSetup(
        task=task,
        template=template,
        brings=brings,
        reference=reference,
        reference_error=reference_error,
        prompt_group=prompt_group,
        prompt=prompt,
        prompt_help=prompt_help,
        examples=example_buttons,
        prompt_error=prompt_error,
        trace_label=network_label,
        trace=trace,
        trace_line=network_line,
        action=go,
        action_error=action_error,
        note=note,
    )


def _html(markup: str, elem_classes: str | None = None) -> gr.HTML:
    return gr.HTML(markup, apply_default_css=False, elem_classes=elem_classes)
