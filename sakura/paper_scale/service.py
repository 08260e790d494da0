"""Answers for pages: one setting at paper scale, system after system, worked out by a thread of its own.

A page asks again until its answer is complete; a newer question of a page takes the place of its older one, and what
nobody asks for any more is not worked on.
"""

import dataclasses
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeGuard

from sakura.errors import UserError
from sakura.paper_scale.devices import DeviceProfile, device_profile, device_profiles
from sakura.paper_scale.models import ModelCase, model_case
from sakura.paper_scale.networks import network_trace

MACHINE_ID = "this-machine"
REQUESTS = 12
WANTED_S = 5.0  # a question that was not asked again for this long is nobody's any more
ANSWERS_KEPT = 64
MAX_PAGES = 32
MAX_RTT_MS = 2000.0
FAILED = "This could not be worked out; the app's log says why. Try another setting."

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Question:
    """What is asked: names of the declared things, and the numbers of the profile that were changed."""

    case_id: str
    workload: str
    device_id: str
    network: str
    rtt_ms: float
    changed: tuple[tuple[str, float], ...] = ()

    @property
    def case(self) -> ModelCase:
        return model_case(self.case_id, self.workload)


@dataclasses.dataclass(frozen=True)
class Line:
    """One system: means over the requests, and the least and greatest latency of them.

    ``local_share`` is of shards that were computed without the cache.
    """

    system: str
    controller: str
    latency_s: float
    least_s: float
    greatest_s: float
    received_bytes: float
    psnr_mask_db: float
    ssim_mask: float
    local_share: float


@dataclasses.dataclass
class Answer:
    """``lines`` as far as they are worked out, of ``total``; the limit and the device alone are known with the first.

    ``error`` is a sentence where it ended early.
    """

    total: int
    lines: list[Line] = dataclasses.field(default_factory=list)
    limit_s: float = 0.0
    on_device_s: float = 0.0
    error: str = ""

    @property
    def done(self) -> bool:
        return bool(self.error) or len(self.lines) == self.total


# Works out one more line of an answer.
Work: TypeAlias = Callable[[Question, DeviceProfile, Answer], None]


def checked_question(values: Mapping[str, object]) -> Question:
    """A question from what a page tells. Raises UserError on anything that cannot be worked out."""
    rtt_ms = values.get("rtt_ms")
    if not _is_number(rtt_ms) or not 0 <= rtt_ms <= MAX_RTT_MS:
        raise UserError(f"The round trip must be from 0 to {MAX_RTT_MS:g} ms.")
    changed = values.get("changed")
    if not isinstance(changed, dict) or not all(_is_number(value) for value in changed.values()):
        raise UserError("The numbers of the device must be numbers above 0.")
    names = [values.get(name) for name in ("case", "workload", "device", "network")]
    case_id, workload, device_id, network = (name if isinstance(name, str) else "" for name in names)
    model_case(case_id, workload)
    network_trace(network)
    if device_id != MACHINE_ID:
        device_profile(device_id)
    numbers = tuple(sorted((str(name), float(value)) for name, value in changed.items()))
    return Question(case_id, workload, device_id, network, float(rtt_ms), numbers)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


class Scales:
    """Keeps what was worked out, for all pages."""

    def __init__(self, work: Work | None = None) -> None:
        self._work = work or next_line
        self._news = threading.Condition()
        self._wishes: OrderedDict[str, tuple[Question, float]] = OrderedDict()  # by page: what, and when asked last
        self._answers: OrderedDict[Question, Answer] = OrderedDict()
        self._machine: DeviceProfile | None = None
        self._measuring = threading.Lock()
        self._thread: threading.Thread | None = None

    def profile(self, device_id: str, changed: tuple[tuple[str, float], ...] = ()) -> DeviceProfile:
        """A profile with some of its numbers changed; this machine is measured once. Raises UserError."""
        profile = self._this_machine() if device_id == MACHINE_ID else device_profile(device_id)
        for name, value in changed:
            profile = profile.changed(name, value)
        return profile

    @property
    def declared(self) -> dict[str, DeviceProfile]:
        return device_profiles()

    def _this_machine(self) -> DeviceProfile:
        with self._measuring:
            if self._machine is None:
                from sakura.paper_scale.this_machine import measure_this_machine  # loads torch

                self._machine = measure_this_machine()
            return self._machine

    def ask(self, page: str, question: Question, known: int, timeout_s: float) -> Answer:
        """What is worked out of a question: once there is more than ``known`` lines, or after ``timeout_s``.

        Raises UserError where a number of the device cannot be.
        """
        self.profile(question.device_id, question.changed)
        with self._news:
            self._wishes[page] = question, time.monotonic()
            self._wishes.move_to_end(page)
            while len(self._wishes) > MAX_PAGES:
                self._wishes.popitem(last=False)
            answer = self._answer(question)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="paper scale", daemon=True)
                self._thread.start()
            self._news.notify_all()
            self._news.wait_for(lambda: answer.done or len(answer.lines) > known, timeout_s)
            return dataclasses.replace(answer, lines=list(answer.lines))

    def _answer(self, question: Question) -> Answer:
        if question not in self._answers:
            self._answers[question] = Answer(total=len(LINES))
            while len(self._answers) > ANSWERS_KEPT:
                self._answers.popitem(last=False)
        self._answers.move_to_end(question)
        return self._answers[question]

    def _run(self) -> None:
        while True:
            with self._news:
                while (question := self._next_question()) is None:
                    self._news.wait()
                answer = self._answer(question)
            # Worked out on a copy: pages read the answer meanwhile.
            more = dataclasses.replace(answer, lines=list(answer.lines))
            try:
                self._work(question, self.profile(question.device_id, question.changed), more)
            except UserError as error:
                more.error = str(error)
            except Exception:
                log.exception("%s could not be worked out", question)
                more.error = FAILED
            with self._news:
                answer.lines, answer.error = more.lines, more.error
                answer.limit_s, answer.on_device_s = more.limit_s, more.on_device_s
                self._news.notify_all()

    def _next_question(self) -> Question | None:
        """The question that is wanted and has the fewest lines, so that pages take turns."""
        now_s = time.monotonic()
        for page, (_, asked_s) in list(self._wishes.items()):
            if now_s - asked_s > WANTED_S:
                del self._wishes[page]
        open_ = [question for question, _ in self._wishes.values() if not self._answer(question).done]
        return min(open_, key=lambda question: len(self._answer(question).lines), default=None)


LINES = (
    ("sakura", ""),
    ("cachegen", ""),
    ("cachegen", "fixed:-1"),
    ("intq", ""),
    ("on_device", ""),
    ("full_cache", ""),
)


def next_line(question: Question, profile: DeviceProfile, answer: Answer) -> None:
    """Work out one more line of an answer."""
    from sakura.paper_scale.sweep import Setting  # loads torch, with the pipeline

    system, controller = LINES[len(answer.lines)]
    case = question.case
    setting = Setting(
        case,
        profile,
        question.workload,
        question.network,
        network_trace(question.network),
        1e-3 * question.rtt_ms,
        REQUESTS,
    )
    rows = setting.rows(system, controller)

    def mean(field: str) -> float:
        return math.fsum(row[field] for row in rows) / len(rows)

    latencies_s = [row["latency_s"] for row in rows]
    answer.limit_s, answer.on_device_s = mean("limit_s"), mean("on_device_s")
    answer.lines.append(
        Line(
            system,
            controller,
            mean("latency_s"),
            min(latencies_s),
            max(latencies_s),
            mean("received_bytes"),
            mean("psnr_mask_db"),
            mean("ssim_mask"),
            mean("local_shards") / case.geometry.shards,
        )
    )
