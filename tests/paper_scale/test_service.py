"""Pages get their lines as they are worked out, take turns, and leave nothing behind."""

import threading
from typing import Any

import pytest

from sakura.errors import UserError
from sakura.paper_scale import service
from sakura.paper_scale.devices import DeviceProfile
from sakura.paper_scale.service import FAILED, LINES, MACHINE_ID, Answer, Line, Question, Scales, checked_question

VALUES: dict[str, Any] = {
    "case": "klein-1024", "workload": "MB", "device": "8-elite", "network": "wifi", "rtt_ms": 40, "changed": {},
}  # fmt: skip
LINE = Line("sakura", "", 1.0, 1.0, 1.0, 10.0, 40.0, 0.9, 0.0)


def question(**changes: Any) -> Question:
    return checked_question({**VALUES, **changes})


def test_questions_are_checked() -> None:
    assert question(changed={"npu_tflops": 9}) == Question(
        "klein-1024", "MB", "8-elite", "wifi", 40.0, (("npu_tflops", 9.0),)
    )
    for changes, sentence in (
        ({"rtt_ms": -1}, "round trip must be from 0 to 2000 ms"),
        ({"rtt_ms": float("nan")}, "round trip"),
        ({"changed": None}, "numbers of the device"),
        ({"case": 3}, "There is no model case ''"),
        ({"network": "6g"}, "There is no network '6g'"),
        ({"device": "x"}, "There is no device profile 'x'"),
    ):
        with pytest.raises(UserError, match=sentence):
            question(**changes)


def counting(order: list[Question]) -> service.Work:
    def work(asked: Question, profile: DeviceProfile, answer: Answer) -> None:
        order.append(asked)
        answer.lines.append(LINE)

    return work


def test_lines_come_one_after_the_other() -> None:
    scales, asked = Scales(counting([])), question()
    known = -1
    answers: list[Answer] = []
    while not answers or not answers[-1].done:
        answers.append(scales.ask("page", asked, known, 5))
        known = len(answers[-1].lines)
    assert len(answers[-1].lines) == len(LINES)
    assert scales.ask("other", asked, -1, 5).done, "what is known is answered at once"


def test_a_newer_question_takes_the_place_of_the_older_one() -> None:
    begun, go_on = threading.Event(), threading.Event()
    order: list[Question] = []

    def work(asked: Question, profile: DeviceProfile, answer: Answer) -> None:
        begun.set()
        assert go_on.wait(10)
        order.append(asked)
        answer.lines.append(LINE)

    scales, old, new = Scales(work), question(), question(rtt_ms=80)
    scales.ask("page", old, -1, 0)
    assert begun.wait(10)
    scales.ask("page", new, -1, 0)
    go_on.set()
    while not scales.ask("page", new, len(LINES) - 1, 5).done:
        pass
    assert order == [old, *[new] * len(LINES)]


def test_the_profile_is_the_changed_one() -> None:
    seen: list[float] = []

    def work(asked: Question, profile: DeviceProfile, answer: Answer) -> None:
        seen.append(profile.npu_tflops.value)
        answer.lines.append(LINE)

    Scales(work).ask("page", question(changed={"npu_tflops": 9}), 0, 5)
    assert seen[0] == 9
    with pytest.raises(UserError, match=r"must be a number from 0\.000001 to 1,000,000"):
        Scales(work).ask("page", question(changed={"npu_tflops": -9}), -1, 0)


@pytest.mark.parametrize(("raised", "told"), [(UserError("No."), "No."), (RuntimeError("bug"), FAILED)])
def test_what_goes_wrong_is_told(raised: Exception, told: str) -> None:
    def work(asked: Question, profile: DeviceProfile, answer: Answer) -> None:
        raise raised

    answer = Scales(work).ask("page", question(), 0, 5)
    assert (answer.error, answer.done) == (told, True)


def test_what_nobody_asks_for_any_more_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "WANTED_S", -1.0)
    order: list[Question] = []
    scales = Scales(counting(order))
    assert scales.ask("page", question(), -1, 0.2).lines == []
    assert order == []


def test_real_lines() -> None:
    answer, profile = Answer(total=len(LINES)), Scales().profile("8-elite-gen-5")
    asked = question(device="8-elite-gen-5", case="klein-512")
    while not answer.done:
        service.next_line(asked, profile, answer)
    assert [(line.system, line.controller) for line in answer.lines] == list(LINES)
    sakura, alone = answer.lines[0], answer.lines[4]
    assert answer.limit_s < sakura.latency_s < alone.latency_s == answer.on_device_s
    assert sakura.least_s <= sakura.latency_s <= sakura.greatest_s
    assert (alone.local_share, alone.received_bytes) == (1, 0)


def test_this_machine_is_measured_once() -> None:
    scales = Scales()
    assert scales.profile(MACHINE_ID) is scales.profile(MACHINE_ID)
    assert scales.profile(MACHINE_ID, (("npu_tflops", 1.5),)).npu_tflops.value == 1.5
