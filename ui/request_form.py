"""What the Edit and the Race view share: the answers to a choice of template, picture or words."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import gradio as gr
import numpy as np

from sakura.errors import UserError
from sakura.pictures import fit_square, read_picture
from sakura.studio import Studio
from ui.cards import Cards
from ui.fields import uploaded_path
from ui.markup import error_markup, label_markup, note_markup, picture_uri
from ui.parts import privacy_markup
from ui.setup import BRINGS, RequestSetup, reference_items

OWN_PREFIX = "own:"
OWN_TEMPLATE_PREFIX = "own-"
OWN_SIDE_PX = 160
QUIET: dict[str, Any] = {"show_progress": "hidden", "concurrency_limit": None, "api_visibility": "private"}
# Of several quick choices the last one counts; a press counts once.
CHOICE: dict[str, Any] = {**QUIET, "trigger_mode": "always_last"}
Update = dict[Any, Any]


def blocked_reason(task: str, prompt: str | None) -> str:
    """Why nothing can be edited yet, or nothing. A prompt field that was never shown holds None."""
    return "Say first what should change." if task == "instruction" and not (prompt or "").strip() else ""


class RequestForm:
    """A setup card in which a template and what is brought to it are chosen. Holds no state of any visitor."""

    setup: RequestSetup

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._cards = Cards(studio)
        self._counter = itertools.count(1)

    def _told(self, listener: Callable[..., Update]) -> Callable[..., Update]:
        """The listener, with what goes wrong in it told above the button."""

        @functools.wraps(listener)
        def tell(*chosen: object) -> Update:
            try:
                return {self.setup.action_error: "", **listener(*chosen)}
            except UserError as error:
                return {self.setup.action_error: error_markup(str(error))}

        return tell

    def _template_parts(self, template_id: str, prompt: str | None) -> Update:
        """What changes with the template: what the visitor brings, and its help."""
        s, task = self.setup, self._cards.card(template_id).task
        words = task == "instruction"
        return {
            s.brings: label_markup(BRINGS[task]),
            s.reference: gr.HTML(
                visible=not words, items=reference_items(self._studio, template_id), value="0", own=None
            ),
            s.reference_error: "",
            s.prompt_group: gr.Column(visible=words),
            s.prompt_help: note_markup([self._studio.prompt_help(template_id)]) if words else "",
            s.examples: gr.HTML(examples=self._studio.prompt_examples(template_id) if words else []),
            s.prompt_error: "",
            s.action: gr.HTML(blocked=blocked_reason(task, prompt)),
            s.note: privacy_markup(own_template=template_id.startswith(OWN_TEMPLATE_PREFIX)),
        }

    def _bring_picture(self, event: gr.EventData) -> Update:
        s = self.setup
        try:
            path = uploaded_path(event.path)
            picture = read_picture(path, event.name)
        except UserError as error:
            return {s.reference_error: error_markup(str(error))}
        own = {"id": f"{OWN_PREFIX}{path}", "src": _thumbnail(picture.pixels)}
        return {s.reference: gr.HTML(own=own, value=own["id"]), s.reference_error: note_markup(list(picture.notes))}

    def _refuse_picture(self, event: gr.EventData) -> str:
        return error_markup(str(event.reason))

    def _type_prompt(self, template_id: str, prompt: str) -> Update:
        blocked = blocked_reason(self._cards.card(template_id).task, prompt)
        return {self.setup.prompt_error: "", self.setup.action: gr.HTML(blocked=blocked)}

    def _use_example(self, template_id: str, event: gr.EventData) -> Update:
        words = next((words for words in self._studio.prompt_examples(template_id) if words == event.words), "")
        return {self.setup.prompt: words, **self._type_prompt(template_id, words)}

    def _restored_reference(self, own_id: str, template_id: str, pixels: np.ndarray) -> gr.HTML:
        """The references with the one of these uint8 RGB pixels chosen; ``own_id`` names it if it is not shipped."""
        items = reference_items(self._studio, template_id)
        shipped = self._studio.references(template_id)
        number = next((i for i, known in enumerate(shipped) if np.array_equal(known, pixels)), None)
        if number is not None:
            return gr.HTML(visible=True, items=items, own=None, value=str(number))
        return gr.HTML(visible=True, items=items, own={"id": own_id, "src": _thumbnail(pixels)}, value=own_id)


def _thumbnail(pixels: np.ndarray) -> str:
    """The middle square of a uint8 RGB picture, small enough to show among the references, as a data address."""
    return picture_uri(fit_square(pixels, OWN_SIDE_PX).pixels)
