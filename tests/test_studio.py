"""The studio with its cloud and device as real processes, and what its users can do wrong."""

import asyncio
import dataclasses
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds import SHIPPED_BY_TASK

from sakura.errors import UserError
from sakura.events import (
    AnyEvent,
    FellBack,
    NetworkChanged,
    QualityMeasured,
    RepresentationChosen,
    RunFailed,
    RunFinished,
    is_last,
)
from sakura.network.library import constant_trace
from sakura.pictures import from_png
from sakura.studio import EditRequest, LocalRoles, Studio

RUN_TIMEOUT_S = 90.0
FACE = SHIPPED_BY_TASK["face_swap"]
HAT = SHIPPED_BY_TASK["instruction"]


def hat_request(**changes: Any) -> EditRequest:
    request = EditRequest(HAT, "sakura", constant_trace(60), prompt="a yellow beanie", measure=False)
    return dataclasses.replace(request, **changes)


def events_of(studio: Studio, run_id: str) -> list[AnyEvent]:
    """All events of a run, scores included."""
    events: list[AnyEvent] = []
    while True:
        new = studio.events(run_id, len(events), RUN_TIMEOUT_S)
        if not new:
            assert studio.is_over(run_id), "the run stands still"
            return events
        events.extend(new)


def wait_for(studio: Studio, run_id: str, kind: type[AnyEvent]) -> None:
    seen = 0
    while True:
        new = studio.events(run_id, seen, RUN_TIMEOUT_S)
        assert new, f"the run ended without {kind}"
        if any(isinstance(event, kind) for event in new):
            return
        seen += len(new)


def finished(events: list[AnyEvent]) -> RunFinished:
    return next(event for event in events if isinstance(event, RunFinished))


@pytest.fixture(scope="module")
def prepared(running_studio: Studio) -> Studio:
    """Ready for the hat template, so that no test times the building of its cache."""
    running_studio.plan(HAT, "sakura")
    return running_studio


def test_edit_is_scored_against_full_cache_and_truth(prepared: Studio) -> None:
    run_id = prepared.start(hat_request(measure=True))
    events = events_of(prepared, run_id)
    assert sum(is_last(event) for event in events) == 1
    scores = events[-1]
    assert isinstance(scores, QualityMeasured)
    assert scores.against_full_cache is not None
    assert scores.against_full_cache.mask_psnr_db > 25
    assert scores.against_truth is not None
    card = next(card for card in prepared.templates() if card.template_id == HAT)
    picture = from_png(finished(events).picture_png)
    np.testing.assert_array_equal(picture[~card.mask], card.picture[~card.mask])
    assert prepared.run_request(run_id).prompt == "a yellow beanie"
    assert prepared.events(run_id, len(events), 5) == []


def test_second_edit_at_once_is_refused(prepared: Studio) -> None:
    run_id = prepared.start(hat_request(system="full_cache", trace=constant_trace(1)))
    with pytest.raises(UserError, match="busy with another edit; wait until it is done, or stop it"):
        prepared.start(hat_request())
    wait_for(prepared, run_id, RepresentationChosen)
    prepared.stop(run_id)
    assert isinstance(events_of(prepared, run_id)[-1], RunFailed)
    assert finished(events_of(prepared, prepared.start(hat_request())))


def test_stopped_edit_says_so(prepared: Studio) -> None:
    run_id = prepared.start(hat_request(system="full_cache", trace=constant_trace(1)))
    wait_for(prepared, run_id, RepresentationChosen)
    prepared.stop(run_id)
    last = events_of(prepared, run_id)[-1]
    assert isinstance(last, RunFailed)
    assert last.reason == "You stopped this edit."
    assert finished(events_of(prepared, prepared.start(hat_request())))
    prepared.stop(run_id)  # once more does no harm


def test_edit_stopped_before_the_device_has_it_says_so(prepared: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()

    async def wait_for_stop(run: object) -> None:
        await asyncio.to_thread(stopped.wait, 20)

    monkeypatch.setattr(prepared, "_declare_link", wait_for_stop)
    run_id = prepared.start(hat_request())
    prepared.stop(run_id)
    stopped.set()
    last = events_of(prepared, run_id)[-1]
    assert isinstance(last, RunFailed)
    assert last.reason == "You stopped this edit."


def test_network_can_be_switched_during_an_edit(prepared: Studio) -> None:
    run_id = prepared.start(hat_request(system="full_cache", trace=constant_trace(0.5)))
    wait_for(prepared, run_id, RepresentationChosen)
    prepared.change_network(run_id, constant_trace(500))
    # At 0.5 Mbit/s it would take minutes.
    events = events_of(prepared, run_id)
    assert finished(events).latency_s < 20
    (changed,) = (event for event in events if isinstance(event, NetworkChanged))
    assert changed.title == "Constant 500 Mbit/s"
    # The studio's clock tells when, among the events that the device told.
    before = [event.at_s for event in events[: events.index(changed)]]
    assert max(before) - 0.2 <= changed.at_s <= finished(events).at_s
    assert [(at_s, trace.title) for at_s, trace in prepared.networks(run_id)] == [
        (0.0, "Constant 0.5 Mbit/s"),
        (changed.at_s, "Constant 500 Mbit/s"),
    ]


def test_a_run_that_is_over_keeps_its_network(prepared: Studio) -> None:
    run_id = prepared.start(hat_request())
    events = events_of(prepared, run_id)
    prepared.change_network(run_id, constant_trace(1))
    assert prepared.events(run_id, len(events), 0) == []
    assert len(prepared.networks(run_id)) == 1


def test_device_that_dies_ends_the_edit_and_comes_back(prepared: Studio, running_roles: LocalRoles) -> None:
    run_id = prepared.start(hat_request(system="full_cache", trace=constant_trace(1)))
    wait_for(prepared, run_id, RepresentationChosen)
    process = running_roles.device.process
    assert process is not None
    process.kill()
    last = events_of(prepared, run_id)[-1]
    assert isinstance(last, RunFailed)
    assert "was disconnected during this edit" in last.reason
    prepared.wait_for_device()
    assert finished(events_of(prepared, prepared.start(hat_request())))


def test_cloud_that_dies_is_survived_and_comes_back(prepared: Studio, running_roles: LocalRoles) -> None:
    run_id = prepared.start(hat_request(trace=constant_trace(2)))
    wait_for(prepared, run_id, RepresentationChosen)
    process = running_roles.cloud.process
    assert process is not None
    process.kill()
    events = events_of(prepared, run_id)
    assert any(isinstance(event, FellBack) for event in events)
    assert finished(events)
    running_roles.cloud.wait_ready()
    # Once the cloud listens again, edits use its cache again.
    while any(
        isinstance(event, FellBack) and not event.planned
        for event in events_of(prepared, prepared.start(hat_request()))
    ):
        pass


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"template_id": "nowhere"}, "no template 'nowhere'"),
        ({"prompt": ""}, "Write what to change"),
        ({"prompt": "a mohawk"}, "does not know “mohawk”"),
        ({"template_id": FACE}, "Choose a reference picture"),
        ({"rate_budget_bytes": 0}, "must be from 1 to"),
        ({"device_id": "device-99"}, "not connected any more"),
    ],
)
def test_requests_that_cannot_begin_are_refused(prepared: Studio, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        prepared.start(hat_request(**changes))


def test_unknown_runs_are_told(prepared: Studio) -> None:
    for ask in (prepared.is_over, prepared.run_request, prepared.networks, prepared.stop):
        with pytest.raises(UserError, match="not known any more"):
            ask("nonsense")


def test_importance_is_a_map_with_a_hole(prepared: Studio) -> None:
    scores = prepared.importance(HAT)
    assert scores.shape == (4, 8, 16, 16)
    holes = np.isnan(scores)
    assert (holes == holes[0, 0]).all()
    assert 0 < holes[0, 0].mean() < 0.5
    assert np.nanmin(scores) >= 0


@pytest.mark.parametrize(("host", "found_at"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("192.0.2.7", "192.0.2.7")])
def test_cloud_is_found_where_it_listens(host: str, found_at: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    studio = Studio()
    try:
        monkeypatch.setattr(studio.hub, "host", host)
        roles = LocalRoles(studio)
        assert roles.cloud.options["host"] == host
        monkeypatch.setattr(roles.cloud, "wait_ready", lambda: 4711)
        monkeypatch.setattr(roles.device, "wait_ready", lambda: 0)
        monkeypatch.setattr(studio, "wait_for_device", lambda: None)
        roles.wait_ready()
        assert studio.cloud_url == f"ws://{found_at}:4711"
    finally:
        studio.close()
