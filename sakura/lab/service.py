"""The lab's service: questions of many pages, answered one after the other by a thread of its own.

A page asks again until its answer is there; what nobody asks for any more is not worked on. So nothing has to be
cancelled, a newer question of a page takes the place of its older one, and a closed page leaves nothing behind.
"""

import dataclasses
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import msgspec

from sakura.cache.container import replacing
from sakura.errors import UserError
from sakura.lab.importance import ImportanceFacts
from sakura.lab.points import Measurement
from sakura.lab.settings import Setting
from sakura.settings import cache_folder
from sakura.templates import TemplateAssets, TemplateLibrary

if TYPE_CHECKING:  # torch: not needed before the lab is opened
    from sakura.lab.bench import Bench, Tried

MAX_WISHES = 48  # three a page
WANTED_S = 5.0  # a question that was not asked again for this long is nobody's any more
BUSY_CHECK_S = 0.05
MAX_BUSY_WAIT_S = 30.0  # then the lab works beside the edits
ANSWERS_KEPT = 64
FAILED = "The lab failed at this; the app's log says why. Try another setting."

log = logging.getLogger(__name__)

Kind: TypeAlias = Literal["importance", "setting", "charts"]


class Question(msgspec.Struct, frozen=True):
    """What can be answered. ``setting`` and ``request`` belong to the kind "setting"."""

    kind: Kind
    template_id: str
    setting: Setting = Setting()
    request: int = 0


@dataclasses.dataclass
class _Wish:
    """A page's question: since when, and when it was last asked."""

    question: Question
    template: TemplateAssets
    since_s: float
    asked_s: float


def shipped_bench() -> "Bench":
    """A bench with the shipped model and the user's caches."""
    from sakura.lab.bench import open_bench

    return open_bench()


class Lab:
    """Answers pages. Its methods are called from any thread and wait up to ``timeout_s``; None is "not yet".

    Nothing is loaded before the first question. No work begins while ``busy`` says that a device is at work
    for an edit, for a bounded time. Measurements are kept as JSON in ``folder``. A context manager.
    """

    def __init__(
        self,
        library: TemplateLibrary,
        busy: Callable[[], bool] = lambda: False,
        *,
        open_bench: Callable[[], "Bench"] = shipped_bench,
        folder: Path | None = None,
    ) -> None:
        self._library, self._busy, self._open_bench = library, busy, open_bench
        self._folder = folder or cache_folder() / "lab"
        self._bench: Bench | None = None
        self._wishes: dict[tuple[str, Kind], _Wish] = {}
        self._answers: OrderedDict[Question, object] = OrderedDict()
        self._measurements: dict[str, Measurement] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._busy_since_s: float | None = None
        self._thread = threading.Thread(target=self._work, name="lab", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(5)

    @property
    def status(self) -> str:
        """Why an answer takes longer than usual, as a sentence; empty where it does not."""
        if self._busy_since_s is not None:
            return "A device is at work for an edit; the lab goes on after it."
        return "Loading the model." if self._bench is None else ""

    def importance(self, page: str, template_id: str, timeout_s: float) -> ImportanceFacts | None:
        """How important a template's tokens are. Raises UserError."""
        return cast("ImportanceFacts | None", self._ask(page, Question("importance", template_id), timeout_s))

    def try_setting(
        self, page: str, template_id: str, setting: Setting, request: int, timeout_s: float
    ) -> "Tried | None":
        """What a setting costs and does. Raises UserError."""
        question = Question("setting", template_id, setting, request)
        return cast("Tried | None", self._ask(page, question, timeout_s))

    def charts(self, page: str, template_id: str, known: int, timeout_s: float) -> Measurement | None:
        """The charts of a drawn template as far as they are measured, once that is more than ``known`` points.

        Raises UserError, also for a template without held-out requests.
        """
        template = self._template(template_id)
        if template.person is None:
            raise UserError("Charts of quality need held-out requests, which only drawn templates have.")
        question = Question("charts", template_id)

        def news() -> bool:
            found = self._measurements.get(template_id)
            return question in self._answers or (found is not None and (found.measured > known or found.complete))

        with self._changed:
            if not news():
                self._wish(page, question, template)
                self._changed.wait_for(news, timeout_s)
            self._raise_error(question)
            return self._measurements.get(template_id)

    def _template(self, template_id: str) -> TemplateAssets:
        try:
            return self._library.get(template_id)
        except UserError as error:
            raise UserError("This template is not there any more; choose another one.") from error

    def _ask(self, page: str, question: Question, timeout_s: float) -> object:
        template = self._template(question.template_id)
        with self._changed:
            if question not in self._answers:
                self._wish(page, question, template)
                self._changed.wait_for(lambda: question in self._answers, timeout_s)
            self._raise_error(question)
            return self._answers.get(question)

    def _wish(self, page: str, question: Question, template: TemplateAssets) -> None:
        key, now_s = (page, question.kind), time.monotonic()
        known = self._wishes.get(key)
        if known is not None and known.question == question:
            known.asked_s = now_s
            return
        self._drop_unwanted()
        if known is None and len(self._wishes) >= MAX_WISHES:
            raise UserError("Too many pages use the lab at once; close some of them.")
        self._wishes[key] = _Wish(question, template, now_s, now_s)
        self._changed.notify_all()

    def _drop_unwanted(self) -> None:
        oldest_s = time.monotonic() - WANTED_S
        self._wishes = {key: wish for key, wish in self._wishes.items() if wish.asked_s > oldest_s}

    def _raise_error(self, question: Question) -> None:
        """What went wrong is told once: who asks again has it tried again."""
        answer = self._answers.get(question)
        if isinstance(answer, UserError):
            del self._answers[question]
            raise UserError(str(answer))

    # The worker

    def _work(self) -> None:
        while True:
            with self._changed:
                if self._closing:
                    return
                self._drop_unwanted()
                # What somebody waits for comes before charts, which fill by themselves.
                wish = min(self._wishes.values(), key=lambda w: (w.question.kind == "charts", w.since_s), default=None)
                if wish is None:
                    self._busy_since_s = None
                    self._changed.wait()
                    continue
                if self._gives_way():
                    self._changed.wait(BUSY_CHECK_S)
                    continue
            self._answer(wish)

    def _gives_way(self) -> bool:
        """Whether to leave the processor to an edit that is running."""
        if not self._busy():
            self._busy_since_s = None
            return False
        if self._busy_since_s is None:
            self._busy_since_s = time.monotonic()
        return time.monotonic() - self._busy_since_s < MAX_BUSY_WAIT_S

    def _answer(self, wish: _Wish) -> None:
        question = wish.question
        answer: object = None
        try:
            if self._bench is None:
                self._bench = self._open_bench()
            if question.kind == "importance":
                answer = self._bench.importance(wish.template)
            elif question.kind == "setting":
                answer = self._bench.try_setting(wish.template, question.setting, question.request)
            else:
                self._measure_one(self._bench, wish.template)
        except UserError as error:
            answer = error
        except Exception:
            log.exception("The lab could not answer %s", question)
            answer = UserError(FAILED)
        with self._changed:
            if answer is not None:
                self._answers[question] = answer
                while len(self._answers) > ANSWERS_KEPT:
                    self._answers.popitem(last=False)
            measurement = self._measurements.get(question.template_id)
            if answer is not None or (measurement is not None and measurement.complete):
                self._wishes = {key: other for key, other in self._wishes.items() if other.question != question}
            wish.since_s = time.monotonic()  # the charts of another page have their turn now
            self._changed.notify_all()

    def _measure_one(self, bench: "Bench", template: TemplateAssets) -> None:
        """Plan the charts of a template, or measure one more of their points."""
        path = self._folder / f"{template.template_id}-{bench.fingerprint(template)}.json"
        measurement = self._measurements.get(template.template_id)
        if measurement is None:
            measurement = _read(path) or bench.plan(template)
        else:
            number = next((n for n, point in enumerate(measurement.points) if point.psnr_db is None), None)
            if number is None:
                return
            points = list(measurement.points)
            points[number] = bench.measure(template, points[number])
            measurement = Measurement(measurement.full_cache_bytes, points, measurement.stored)
        self._measurements[template.template_id] = measurement
        try:
            with replacing(path) as file:
                file.write(msgspec.json.encode(measurement))
        except OSError as error:
            log.warning("Measurements of the lab are not kept: %s", error)


def _read(path: Path) -> Measurement | None:
    """A kept measurement; None where there is none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Measurement)
    except (OSError, msgspec.MsgspecError):
        return None
