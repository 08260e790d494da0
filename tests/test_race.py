"""Races on a real studio whose cloud and device are processes of their own."""

import dataclasses
from typing import Any

import pytest
from worlds import SHIPPED_BY_TASK

from sakura.errors import UserError
from sakura.events import SYSTEMS, RunFinished, RunStarted, System
from sakura.network.library import constant_trace
from sakura.race import MAX_RACES_KEPT, STOPPED, Lap, Races, RaceState
from sakura.studio import EditRequest, Studio

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
