"""The setup card of a race: what all systems are asked, and over which network."""

import gradio as gr

from sakura.network.trace import Trace
from sakura.studio import Studio, TemplateCard
from ui.markup import label_markup
from ui.parts import privacy_note
from ui.race_parts import race_action
from ui.setup import RequestSetup, brings_field, template_field, trace_field, trace_label, trace_line


def race_setup_card(
    studio: Studio, cards: list[TemplateCard], card: TemplateCard, traces: list[tuple[str, str, Trace]]
) -> RequestSetup:
    """Lay the card out, with ``card`` and the first trace chosen. Called inside ``gr.Blocks``."""
    with gr.Column(elem_classes="card setup", elem_id="setup", min_width=0):
        with gr.Column(elem_classes="fields", min_width=0):
            with gr.Column(elem_classes="field field-template", min_width=0):
                _html(label_markup("Template"))
                template = template_field(cards, card)
            brought = brings_field(studio, card)
            with gr.Column(elem_classes="field field-network", min_width=0):
                network_label = _html(trace_label(traces[0][2]))
                trace = trace_field(traces)
                network_line = _html(trace_line(traces[0][2]), "trace-line")
        action_error = _html("", "field-error action-error")
        go = race_action()
        note = privacy_note()
    return RequestSetup(
        **template,
        **brought,
        trace_label=network_label,
        trace=trace,
        trace_line=network_line,
        action=go,
        action_error=action_error,
        note=note,
    )


def _html(markup: str, elem_classes: str | None = None) -> gr.HTML:
    return gr.HTML(markup, apply_default_css=False, elem_classes=elem_classes)
