"""The compression lab: settings at the left; importance, the edit they give, and charts at the right."""

import math
from collections.abc import Callable
from typing import Any, get_args

import gradio as gr

from sakura.errors import UserError
from sakura.lab.points import Chart, chart_csv
from sakura.lab.service import Lab
from sakura.lab.settings import RANKS, Setting, checked_request, checked_setting
from sakura.studio import Studio
from ui.cards import Cards
from ui.lab_parts import lab_markup
from ui.lab_views import Answer, charts_view, importance_view, lab_card, tried_view
from ui.views import TASK_NAMES

POLL_S = 1.0
MAX_NAME_LENGTH = 80
CHARTS: tuple[Chart, ...] = get_args(Chart)


class LabView:
    """Builds the view and answers its questions. Holds no state of any visitor: pages tell what they show."""

    def __init__(self, studio: Studio, lab: Lab) -> None:
        self._cards = Cards(studio)
        self._lab = lab

    def build(self) -> gr.HTML:
        """The view as one piece that its scripts fill. Called inside a route of the page."""
        return gr.HTML(
            html_template=lab_markup(),
            js_on_load="sakura.mountLab(element, props, server);",
            apply_default_css=False,
            server_functions=self.functions(),
            elem_id="lab",
            ranks=list(RANKS),
        )

    def functions(self) -> list[Callable[..., Answer]]:
        """The functions that scripts call by name. All answer with JSON.

        ``error`` holds a sentence. An answer that is not there yet has only ``status``: ask again.
        """

        def lab_open(address: dict[str, str]) -> Answer:
            return self.open(address)

        def lab_importance(question: list[Any]) -> Answer:
            page, template_id = question
            return self._answered(lambda: self._importance(page, template_id))

        def lab_try(question: list[Any]) -> Answer:
            page, template_id, values, request = question
            return self._answered(lambda: self._try(page, template_id, values, request))

        def lab_charts(question: list[Any]) -> Answer:
            page, template_id, known, mine = question
            return self._answered(lambda: self._charts(page, template_id, known, mine))

        def lab_csv(question: list[str]) -> Answer:
            page, template_id, chart = question
            return self._answered(lambda: self._csv(page, template_id, chart))

        return [lab_open, lab_importance, lab_try, lab_charts, lab_csv]

    def open(self, address: dict[str, str]) -> Answer:
        """The templates, and which one and which setting an address asks for; what is wrong in it is ``error``."""
        cards = self._cards.all()
        card, setting, request, error = cards[0], Setting(), 0, ""
        try:
            if "template" in address:
                card = self._cards.card(_name(address["template"]))
            values = [address.get(name, default) for name, default in zip(_NAMES, _values(Setting()), strict=True)]
            setting = checked_setting(*values)
            request = checked_request(address.get("request", 0))
        except UserError as wrong:
            error = str(wrong)
        return {
            "templates": [lab_card(known) for task in TASK_NAMES for known in cards if known.task == task],
            "template": card.template_id,
            "setting": _values(setting),
            "request": request,
            "error": error,
        }

    def _importance(self, page: object, template_id: object) -> Answer | None:
        facts = self._lab.importance(_name(page), _name(template_id), POLL_S)
        return None if facts is None else importance_view(facts)

    def _try(self, page: object, template_id: object, values: list[object], request: object) -> Answer | None:
        setting = checked_setting(*values)
        tried = self._lab.try_setting(_name(page), _name(template_id), setting, checked_request(request), POLL_S)
        return None if tried is None else tried_view(tried)

    def _charts(self, page: object, template_id: object, known: object, mine: object) -> Answer | None:
        seen = known if isinstance(known, int) else -1
        measurement = self._lab.charts(_name(page), _name(template_id), seen, POLL_S)
        return None if measurement is None else charts_view(measurement, _point(mine))

    def _csv(self, page: object, template_id: object, chart: object) -> Answer:
        if chart not in CHARTS:
            raise UserError("There is no such chart; reload the page.")
        measurement = self._lab.charts(_name(page), _name(template_id), -1, POLL_S)
        if measurement is None:
            raise UserError("Nothing is measured yet; wait for the first points.")
        return {"name": f"sakura-{template_id}-{chart}.csv", "text": chart_csv(measurement, chart)}

    def _answered(self, answer: Callable[[], Answer | None]) -> Answer:
        try:
            found = answer()
        except UserError as error:
            return {"error": str(error)}
        return {"status": self._lab.status} if found is None else found


_NAMES = ("q", "rank", "left", "right")


def _values(setting: Setting) -> list[float]:
    return [setting.q, setting.rank, setting.left_bits, setting.right_bits]


def _name(value: object) -> str:
    """A name from a page, of a bounded length. Raises UserError."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_LENGTH:
        raise UserError("This template is not there any more; choose another one.")
    return value


def _point(value: object) -> tuple[float, float] | None:
    """Bytes and dB as a page tells them; None for anything else."""
    if not isinstance(value, list) or len(value) != 2:
        return None
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in value):
        return None
    return float(value[0]), float(value[1])
