"""Races on a real studio whose cloud and device are processes of their own."""

import dataclasses
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from worlds import SHIPPED_BY_TASK

from sakura.errors import UserError
from sakura.events import SYSTEMS, RunFinished, RunStarted, StepFinished, System
from sakura.network.library import constant_trace
from sakura.race import MAX_RACES_KEPT, STOPPED, Lap, Races, RaceState, _Measurement
from sakura.studio import EditRequest, Studio, _Run

HAT = SHIPPED_BY_TASK["instruction"]
WAIT_S = 120.0


def hat_request(**changes: Any) -> EditRequest:
    request = EditRequest(HAT, "sakura", constant_trace(60), prompt="a yellow beanie")
    return dataclasses.replace(request, **changes)


def over(races: Races, race_id: str) -> RaceState:
    state = races.state(race_id)
    while not state.over:
        newer = races.state(race_id, state.version, WAIT_S)
        assert newer.version > state.version, "the race stands still"
        state = newer
    return state


@pytest.fixture
def races(running_studio: Studio) -> Races:
    return Races(running_studio)


def test_a_race_measures_each_system_in_order(races: Races, running_studio: Studio) -> None:
    state = over(races, races.start(hat_request(), SYSTEMS))
    assert [lap.system for lap in state.laps] == list(SYSTEMS)
    assert not state.error
    assert state.measuring is None
    for lap in state.laps:
        started = next(event for event in lap.events if isinstance(event, RunStarted))
        assert started.system == lap.system
        assert lap.finished
        assert lap.finished.latency_s > 0
        assert not lap.reason
        assert running_studio.run_request(lap.run_id).system == lap.system
    scores = {lap.system: lap.scores for lap in state.laps}
    assert scores["full_cache"]
    assert scores["full_cache"].mask_psnr_db == 100
    assert scores["sakura"]
    assert 25 < scores["sakura"].mask_psnr_db < 100


def test_laps_do_not_overlap(races: Races, monkeypatch: pytest.MonkeyPatch, running_studio: Studio) -> None:
    begun: list[System] = []
    start = running_studio.start

    def watched(request: EditRequest) -> str:
        assert not running_studio.busy()
        begun.append(request.system)
        return start(request)

    monkeypatch.setattr(running_studio, "start", watched)
    over(races, races.start(hat_request(), ("on_device", "sakura")))
    assert begun == ["on_device", "sakura"]


def test_the_device_gets_ready_for_all_systems_before_the_first_lap(
    races: Races, monkeypatch: pytest.MonkeyPatch, running_studio: Studio
) -> None:
    done: list[tuple[str, System]] = []
    told: list[float | None] = []
    plan, start, update = running_studio.plan, running_studio.start, _Measurement.update

    def watched_plan(template_id: str, system: System, *more: Any) -> object:
        done.append(("plan", system))
        return plan(template_id, system, *more)

    def watched_start(request: EditRequest) -> str:
        done.append(("start", request.system))
        return start(request)

    def watched_update(race: _Measurement, *lap: Lap, **more: Any) -> None:
        told.append(more.get("prepared"))
        update(race, *lap, **more)

    monkeypatch.setattr(running_studio, "plan", watched_plan)
    monkeypatch.setattr(running_studio, "start", watched_start)
    monkeypatch.setattr(_Measurement, "update", watched_update)
    over(races, races.start(hat_request(), ("on_device", "intq")))
    assert done == [("plan", "on_device"), ("plan", "intq"), ("start", "on_device"), ("start", "intq")]
    shares = [share for share in told if share is not None]
    assert shares == sorted(shares)
    assert (shares[0], max(shares) >= 0.5) == (0, True)
    assert told[len(shares) :] == [None] * 3, "no lap is measured while the device gets ready"


def test_a_system_that_cannot_be_prepared_has_its_reason(
    races: Races, monkeypatch: pytest.MonkeyPatch, running_studio: Studio
) -> None:
    plan = running_studio.plan

    def refusing(template_id: str, system: System, *more: Any) -> object:
        if system == "full_cache":
            raise UserError("The full cache cannot be built; make room for it.")
        return plan(template_id, system, *more)

    monkeypatch.setattr(running_studio, "plan", refusing)
    laps = over(races, races.start(hat_request(), ("on_device", "full_cache"))).laps
    assert [lap.reason for lap in laps] == ["", "The full cache cannot be built; make room for it."]


# To follow a run


@pytest.fixture
def quiet_studio() -> Iterator[Studio]:
    """Without a cloud or a device."""
    studio = Studio()
    yield studio
    studio.close()


def made_up_run(studio: Studio) -> _Run:
    run = _Run(secrets.token_urlsafe(4), hat_request(), None)  # type: ignore[arg-type]
    studio._runs[run.run_id] = run
    return run


def step(number: int) -> StepFinished:
    return StepFinished(at_s=number, step=number, preview_png=b"")


def test_all_events_of_a_run_are_followed_whenever_they_come(
    quiet_studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sakura.studio.FOLLOW_S", 1e-4)  # so that most waits end with nothing
    for pause_s in (0.0, 1e-4, 1e-3):
        for _ in range(20):
            run = made_up_run(quiet_studio)

            def play(run: _Run = run, pause_s: float = pause_s) -> None:
                for number in range(5):
                    time.sleep(pause_s)
                    run.append(step(number))
                run.finish()

            thread = threading.Thread(target=play)
            thread.start()
            batches = list(quiet_studio.follow(run.run_id, 10))
            thread.join()
            assert all(batches)
            assert [event for batch in batches for event in batch] == [step(number) for number in range(5)]


def test_a_run_that_takes_too_long_is_stopped(quiet_studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[str] = []
    monkeypatch.setattr(quiet_studio, "stop", stopped.append)
    run = made_up_run(quiet_studio)
    run.append(step(0))
    following = quiet_studio.follow(run.run_id, 0.05)
    assert next(following) == [step(0)]
    with pytest.raises(UserError, match=r"took longer than 0\.05 s and was stopped"):
        next(following)
    assert stopped == [run.run_id]
    with pytest.raises(UserError, match="not known any more"):
        next(quiet_studio.follow("nowhere", 1))


def test_a_lap_that_takes_too_long_has_its_reason(
    races: Races, monkeypatch: pytest.MonkeyPatch, running_studio: Studio
) -> None:
    running_studio.plan(HAT, "full_cache")
    monkeypatch.setattr("sakura.race.LAP_TIMEOUT_S", 0.5)
    (lap,) = over(races, races.start(hat_request(trace=constant_trace(0.1)), ("full_cache",))).laps
    assert "took longer than 0.5 s" in lap.reason
    assert not lap.finished


def test_a_system_that_fails_has_its_reason_and_the_race_goes_on(
    races: Races, monkeypatch: pytest.MonkeyPatch, running_studio: Studio
) -> None:
    start = running_studio.start

    def refusing(request: EditRequest) -> str:
        if request.system == "full_cache":
            raise UserError("The full cache is not there; build it again.")
        return start(request)

    monkeypatch.setattr(running_studio, "start", refusing)
    laps = over(races, races.start(hat_request(), SYSTEMS)).laps
    assert [lap.reason for lap in laps] == ["", "The full cache is not there; build it again.", ""]


def test_a_stopped_race_keeps_what_is_measured(races: Races) -> None:
    race_id = races.start(hat_request(trace=constant_trace(1)), ("on_device", "full_cache", "sakura"))
    state = races.state(race_id)
    while state.measuring != "full_cache":
        state = races.state(race_id, state.version, WAIT_S)
    races.stop(race_id)
    laps = over(races, race_id).laps
    assert laps[0].finished
    assert [lap.reason for lap in laps[1:]] == [STOPPED, STOPPED]
    races.stop(race_id)  # once more does no harm


def test_a_second_race_at_once_is_refused(races: Races) -> None:
    race_id = races.start(hat_request(), ("sakura",))
    with pytest.raises(UserError, match="busy with another race; wait until it is measured, or stop it"):
        races.start(hat_request(), ("sakura",))
    assert over(races, race_id).laps[0].finished


def test_a_device_that_is_busy_is_told(races: Races, running_studio: Studio) -> None:
    run_id = running_studio.start(hat_request(system="full_cache", trace=constant_trace(1), measure=False))
    state = over(races, races.start(hat_request(), SYSTEMS))
    running_studio.stop(run_id)
    assert "is busy with another edit; wait until it is done, or stop it." in state.error
    assert state.laps == ()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [({"prompt": "a mohawk"}, "does not know “mohawk”"), ({"template_id": "nowhere"}, "no template 'nowhere'")],
)
def test_a_request_that_no_system_can_do_is_told(races: Races, changes: dict[str, Any], sentence: str) -> None:
    assert sentence in over(races, races.start(hat_request(**changes), SYSTEMS)).error


@pytest.mark.parametrize("systems", [(), ("sakura", "sakura")])
def test_systems_are_named_once(races: Races, systems: tuple[System, ...]) -> None:
    with pytest.raises(UserError, match="each system of the race once"):
        races.start(hat_request(), systems)


def test_old_races_are_forgotten(races: Races) -> None:
    first, *later = [self_ending(races) for _ in range(MAX_RACES_KEPT + 1)]
    with pytest.raises(UserError, match="not known any more"):
        races.state(first)
    assert all(races.state(race_id).over for race_id in later)


def self_ending(races: Races) -> str:
    """A race that ends at once."""
    race_id = races.start(hat_request(template_id="nowhere"), ("sakura",))
    over(races, race_id)
    return race_id


def test_a_lap_without_events_has_neither_picture_nor_scores() -> None:
    lap = Lap("sakura", reason=STOPPED)
    assert lap.finished is None
    assert lap.scores is None
    assert not any(isinstance(event, RunFinished) for event in lap.events)
