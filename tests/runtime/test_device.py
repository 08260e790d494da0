"""A device against a real cloud on loopback: what comes out, and what happens when something goes wrong."""

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest
from worlds import (
    SHIPPED_BY_TASK,
    Relay,
    cloud_of,
    device_of,
    job_for,
    tiny_model,
    tiny_template,
    until,
    url_of,
)

from sakura.backbone.editor import Editor, edit_on_device, edit_with_cache
from sakura.backbone.inputs import Request
from sakura.cache.store import CacheStore
from sakura.cloud.client import CloudClient
from sakura.cloud.protocol import Description, Fetch, FetchHeader, Piece, decode_from_cloud, decode_to_cloud, encode
from sakura.cloud.server import CloudServer
from sakura.errors import UserError
from sakura.events import (
    AnyEvent,
    FellBack,
    LaneFinished,
    RepresentationChosen,
    RunFinished,
    RunStarted,
    ShardUsed,
    StepFinished,
    events_from_json,
    events_to_json,
)
from sakura.metrics import psnr_db
from sakura.network.library import constant_trace
from sakura.network.trace import Trace, checked_trace
from sakura.pictures import from_png
from sakura.runtime.device import Device, Job
from sakura.systems import STREAMED
from sakura.templates import TemplateLibrary

pytestmark = pytest.mark.usefixtures("patient")
CLOSE_TO_FULL_CACHE_DB = 30.0
E = TypeVar("E")


@pytest.fixture
def soon_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patient edits do not wait for a cloud that does not come back."""
    monkeypatch.setattr("sakura.runtime.pipeline.REOPEN_PATIENCE_S", 0.2)


def request_of(job: Job) -> Request:
    return Request(job.words, job.reference, job.seed)


async def run(device: Device, url: str, job: Job) -> tuple[np.ndarray, list[AnyEvent]]:
    events: list[AnyEvent] = []
    outcome = await device.run(job, url, events.append)
    assert isinstance(events[-1], RunFinished)
    np.testing.assert_array_equal(from_png(events[-1].picture_png), outcome.picture)
    told_bytes = sum(event.received_bytes for event in events if isinstance(event, LaneFinished))
    assert told_bytes == events[-1].received_bytes
    return outcome.picture, events


def chosen(events: list[AnyEvent], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


# Pictures of the shipped model


@pytest.mark.parametrize("template_id", SHIPPED_BY_TASK.values())
def test_every_system_edits_inside_the_mask(
    editor: Editor, store: CacheStore, shipped: TemplateLibrary, template_id: str
) -> None:
    template = shipped.get(template_id)

    async def main() -> None:
        async with asyncio.timeout(120), cloud_of(store, shipped) as cloud, device_of(editor) as device:
            pictures = {}
            for system in ("on_device", "full_cache", "resident_cache", "sakura"):
                job = job_for(template, system=system)
                picture, events = await run(device, url_of(cloud), job)
                assert not chosen(events, FellBack)
                np.testing.assert_array_equal(picture[~template.mask], template.picture[~template.mask])
                pictures[system] = picture
                started = chosen(events, RunStarted)[0]
                assert (started.system, started.template_id) == (system, template_id)
                if system != "resident_cache":  # a measure, not something that people watch
                    assert [event.step for event in chosen(events, StepFinished)] == list(range(editor.steps - 1))
            np.testing.assert_array_equal(pictures["resident_cache"], pictures["full_cache"])
            request = request_of(job)
            np.testing.assert_array_equal(pictures["on_device"], edit_on_device(editor, template.for_editor(), request))
            _, arrays = store.arrays(template)
            in_process = edit_with_cache(editor, template.for_editor(), request, arrays.kv).astype(int)
            assert np.abs(pictures["full_cache"] - in_process).max() <= 1
            close_db = psnr_db(pictures["sakura"][template.mask], pictures["full_cache"][template.mask])
            assert close_db > CLOSE_TO_FULL_CACHE_DB

    asyncio.run(main())


def test_lanes_do_not_overlap_and_reception_hides_behind_execution(
    editor: Editor, store: CacheStore, shipped: TemplateLibrary
) -> None:
    template = shipped.get(SHIPPED_BY_TASK["face_swap"])

    async def main() -> list[AnyEvent]:
        async with asyncio.timeout(60), cloud_of(store, shipped) as cloud, device_of(editor) as device:
            job = job_for(template, link_id="link")
            await device.prepare(job.template_id, url_of(cloud))
            client = await device.connect(url_of(cloud))
            await client.emulate_link("link", constant_trace(60), 0, 0)
            return (await run(device, url_of(cloud), job))[1]

    events = asyncio.run(main())
    assert not chosen(events, FellBack)
    spans: dict[str, list[tuple[float, float]]] = {"receive": [], "reconstruct": [], "execute": []}
    for event in chosen(events, LaneFinished):
        assert event.started_s <= event.at_s
        spans[event.lane].append((event.started_s, event.at_s))
    assert len(spans["execute"]) == len(spans["reconstruct"]) == len(chosen(events, ShardUsed)) == 16
    for lane in spans.values():
        ordered = sorted(lane)
        assert all(end <= start + 1e-4 for (_, end), (start, _) in itertools.pairwise(ordered))
    overlap_s = sum(
        max(0.0, min(a_end, b_end) - max(a_start, b_start))
        for a_start, a_end in spans["receive"]
        for b_start, b_end in spans["execute"]
    )
    assert overlap_s > 0
    finished = chosen(events, RunFinished)[0]
    assert finished.received_bytes == sum(event.received_bytes for event in chosen(events, LaneFinished))
    assert events_from_json(events_to_json(events)) == events


# Failures, with a tiny model


@contextlib.asynccontextmanager
async def tiny_device(store: CacheStore, templates: TemplateLibrary) -> AsyncIterator[tuple[CloudServer, Device]]:
    async with asyncio.timeout(60), cloud_of(store, templates) as cloud, device_of(store.editor) as device:
        yield cloud, device


async def with_link(device: Device, url: str, job: Job, trace: Trace) -> Job:
    """The same job over an emulated link, on a device that has prepared for it."""
    await device.prepare(job.template_id, url)
    await (await device.connect(url)).emulate_link("link", trace, 0, 0)
    return dataclasses.replace(job, link_id="link")


TAMPERED: dict[str, tuple[dict[str, object], str]] = {
    "model": ({"model": "other"}, "another model"),
    "template": ({"template": "other"}, "not of template 'tiny-face' as it is now"),
    "steps": ({"steps": 4}, "shape that this device's model cannot use"),
    "blocks": ({"blocks": 8}, "shape that this device's model cannot use"),
    "rows": ({"rows": 5}, "shape that this device's model cannot use"),
    "columns": ({"columns": 64}, "shape that this device's model cannot use"),
    "options": ({"options": {"q": "high"}}, "does not offer the sakura cache of 'tiny-face'"),
    "shards": ({"ladder_of": [0]}, "does not offer the sakura cache of 'tiny-face'"),
}


@pytest.mark.parametrize("kind", TAMPERED)
def test_cache_of_something_else_is_refused(
    tiny_store: CacheStore, tiny_templates: TemplateLibrary, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    changes, sentence = TAMPERED[kind]
    describe = CloudClient.describe

    async def tampered(
        client: CloudClient, template_id: str, codec: str, progress: Callable[[float], None]
    ) -> Description:
        description = await describe(client, template_id, codec, progress)
        if kind in ("model", "template", "options", "shards"):
            return msgspec.structs.replace(description, **changes)
        return msgspec.structs.replace(description, geometry=msgspec.structs.replace(description.geometry, **changes))

    monkeypatch.setattr(CloudClient, "describe", tampered)

    async def main() -> None:
        async with tiny_device(tiny_store, tiny_templates) as (cloud, device):
            with pytest.raises(UserError, match=sentence):
                await device.prepare("tiny-face", url_of(cloud))

    asyncio.run(main())


def test_device_of_another_model_is_refused(tiny_store: CacheStore, tiny_templates: TemplateLibrary) -> None:
    async def main() -> None:
        other = Editor(tiny_model(1), "other")
        async with cloud_of(tiny_store, tiny_templates) as cloud, device_of(other) as device:
            with pytest.raises(UserError, match="another model"):
                await device.prepare("tiny-face", url_of(cloud))

    asyncio.run(main())


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("system", ["sakura", "full_cache"])
def test_damage_on_the_wire_is_fetched_again_once(
    tiny_store: CacheStore, tiny_templates: TemplateLibrary, times: int, system: str
) -> None:
    job = job_for(tiny_template("tiny-face"), system=system)
    left, first, hit = times, None, set[tuple[int, int]]()

    def damage(data: bytes) -> bytes:
        """Change the first byte of the segment that comes first, each time that it comes."""
        nonlocal left, first
        message = decode_from_cloud(data)
        if isinstance(message, FetchHeader):
            first = message.segment_ids[0] if first is None else first
            if message.segment_ids[0] == first:
                hit.add((message.stream, message.fetch_id))
        if not (isinstance(message, Piece) and (message.stream, message.fetch_id) in hit and left):
            return data
        hit.discard((message.stream, message.fetch_id))
        left -= 1
        return encode(msgspec.structs.replace(message, data=bytes([message.data[0] ^ 1]) + message.data[1:]))

    async def main() -> None:
        async with tiny_device(tiny_store, tiny_templates) as (cloud, device), Relay(url_of(cloud)) as relay:
            relay.alter = damage
            picture, events = await run(device, relay.url, job)
            assert left == 0
            asked = [decode_to_cloud(data) for data in relay.sent[0]]
            segments = [segment for message in asked if isinstance(message, Fetch) for segment in message.segments]
            assert {segment: segments.count(segment) for segment in segments if segments.count(segment) > 1} == {
                first: 2
            }
            fallbacks = chosen(events, FellBack)
            if times == 1:
                assert not fallbacks
                relay.alter = lambda data: data
                undamaged, _ = await run(device, relay.url, job)
                # SAKURA's representations follow the moment's rate, so its pictures may differ a little.
                levels = 0 if system == "full_cache" else 12
                np.testing.assert_allclose(picture.astype(int), undamaged, atol=levels)
            else:
                assert fallbacks[0].shard == 0
                assert not fallbacks[0].planned
                assert fallbacks[0].reason == (
                    f"Segment {first} of the cache came damaged twice, so the device computes the rest itself."
                )
                execution = next(event for event in chosen(events, LaneFinished) if event.lane == "execute")
                assert (execution.shard, execution.on_device) == (0, True)

    asyncio.run(main())


def assert_on_device(editor: Editor, job: Job, picture: np.ndarray) -> None:
    template = tiny_template(job.template_id)
    np.testing.assert_array_equal(picture, edit_on_device(editor, template.for_editor(), request_of(job)))


@pytest.mark.parametrize("system", ["sakura", "full_cache"])
@pytest.mark.usefixtures("soon_impatient")
def test_cloud_that_dies_before_the_first_shard_is_survived(
    tiny_store: CacheStore, tiny_templates: TemplateLibrary, system: str
) -> None:
    job = job_for(tiny_template("tiny-wear"), system=system)

    async def main() -> None:
        async with tiny_device(tiny_store, tiny_templates) as (cloud, device):
            slow = await with_link(device, url_of(cloud), job, constant_trace(0.01))
            events: list[AnyEvent] = []
            running = asyncio.create_task(device.run(slow, url_of(cloud), events.append))
            await until(lambda: bool(chosen(events, RepresentationChosen)))
            await cloud.__aexit__()
            picture = (await running).picture
            assert [event.shard for event in chosen(events, FellBack)] == [0]
            assert "connection to the cloud was lost" in chosen(events, FellBack)[0].reason
            assert_on_device(tiny_store.editor, job, picture)

    asyncio.run(main())


@pytest.mark.usefixtures("soon_impatient")
def test_cloud_that_dies_in_the_middle_is_survived(tiny_store: CacheStore, tiny_templates: TemplateLibrary) -> None:
    job = job_for(tiny_template("tiny-wear"), system="full_cache")
    template = tiny_template("tiny-wear")

    async def main() -> None:
        async with tiny_device(tiny_store, tiny_templates) as (cloud, device):
            slow = await with_link(device, url_of(cloud), job, constant_trace(0.4))
            events: list[AnyEvent] = []
            running = asyncio.create_task(device.run(slow, url_of(cloud), events.append))
            await until(lambda: sum(event.lane == "execute" for event in chosen(events, LaneFinished)) >= 3)
            await cloud.__aexit__()
            picture = (await running).picture
            fallback = chosen(events, FellBack)[0]
            assert fallback.shard >= 2
            assert fallback.reason == (
                "The connection to the cloud was lost, so the device computes on by itself meanwhile."
            )
            executed = [
                (event.shard, event.on_device) for event in chosen(events, LaneFinished) if event.lane == "execute"
            ]
            first = fallback.shard - fallback.shard % 2
            assert executed[-(6 - first) :] == [(shard, True) for shard in range(first, 6)]
            np.testing.assert_array_equal(picture[~template.mask], template.picture[~template.mask])
            assert isinstance(events[-1], RunFinished)

    asyncio.run(main())


@pytest.mark.usefixtures("soon_impatient")
def test_prepared_device_edits_without_a_cloud(tiny_store: CacheStore, tiny_templates: TemplateLibrary) -> None:
    job = job_for(tiny_template("tiny-hat"))

    async def main() -> None:
        async with tiny_device(tiny_store, tiny_templates) as (cloud, device):
            await device.prepare(job.template_id, url_of(cloud))
            await cloud.__aexit__()
            for system in ("sakura", "on_device"):
                picture, events = await run(device, url_of(cloud), dataclasses.replace(job, system=system))
                assert len(chosen(events, FellBack)) == (system == "sakura")
                assert_on_device(tiny_store.editor, job, picture)
        async with device_of(tiny_store.editor) as unprepared:
            with pytest.raises(UserError, match="No cloud answers at"):
                await unprepared.run(job, url_of(cloud), lambda event: None)

    asyncio.run(main())


def test_dead_link_is_given_up(
    tiny_store: CacheStore, tiny_templates: TemplateLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sakura.runtime.device.STREAMED", STREAMED)
    job = job_for(tiny_template("tiny-face"))
    dead = checked_trace("dead", np.array([0.0, 1000.0, 1001.0]), np.array([0.0, 1.0]))

    async def main() -> None:
        async with tiny_device(tiny_store, tiny_templates) as (cloud, device):
            picture, events = await run(device, url_of(cloud), await with_link(device, url_of(cloud), job, dead))
            fallbacks = chosen(events, FellBack)
            assert [(event.shard, event.planned) for event in fallbacks] == [(0, True), (1, False)]
            assert all(event.reason.startswith("The network would take ") for event in fallbacks)
            assert_on_device(tiny_store.editor, job, picture)
            finished = chosen(events, RunFinished)[0]
            assert 0 <= finished.network_wait_s < finished.latency_s < 5
            waiting = {system: dataclasses.replace(each, patient=True) for system, each in STREAMED.items()}
            monkeypatch.setattr("sakura.runtime.device.STREAMED", waiting)
            # The next run over a good link is not spoiled by what was queued on the dead one.
            good = await with_link(device, url_of(cloud), job, constant_trace(100))
            await (await device.connect(url_of(cloud))).emulate_link("good", constant_trace(100), 0, 0)
            _, events = await run(device, url_of(cloud), dataclasses.replace(good, link_id="good"))
            assert not chosen(events, FellBack)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("system", "controller"),
    [("intq", ""), ("cachegen", ""), ("sakura", "robust-mpc"), ("sakura", "deadline"), ("full_cache", "fixed:-1")],
)
def test_systems_and_controllers_edit_alike(
    tiny_store: CacheStore, tiny_templates: TemplateLibrary, system: str, controller: str
) -> None:
    template = tiny_template("tiny-face")
    job = dataclasses.replace(job_for(template, system=system), controller=controller)

    async def main() -> None:
        async with tiny_device(tiny_store, tiny_templates) as (cloud, device):
            picture, events = await run(device, url_of(cloud), job)
            assert not chosen(events, FellBack)
            assert [event.shard for event in chosen(events, ShardUsed)] == list(range(6))
            np.testing.assert_array_equal(picture[~template.mask], template.picture[~template.mask])
            exact, _ = await run(device, url_of(cloud), job_for(template, system="full_cache"))
            assert psnr_db(picture[template.mask], exact[template.mask]) > 20
            with pytest.raises(UserError, match="There is no controller 'magic'"):
                await device.run(dataclasses.replace(job, controller="magic"), url_of(cloud), lambda event: None)
            _, events = await run(device, url_of(cloud), job)  # which left nothing behind
            assert not chosen(events, FellBack)

    asyncio.run(main())


def test_cancelled_run_leaves_the_device_usable(tiny_store: CacheStore, tiny_templates: TemplateLibrary) -> None:
    job = job_for(tiny_template("tiny-face"), system="full_cache")

    async def main() -> None:
        async with tiny_device(tiny_store, tiny_templates) as (cloud, device):
            slow = await with_link(device, url_of(cloud), job, constant_trace(0.05))
            events: list[AnyEvent] = []
            running = asyncio.create_task(device.run(slow, url_of(cloud), events.append))
            await until(lambda: bool(chosen(events, RepresentationChosen)))
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            _, events = await run(device, url_of(cloud), job)
            assert not chosen(events, FellBack)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"reference": None}, "needs a reference picture of 16 x 16 px"),
        ({"reference": np.zeros((8, 8, 3), np.uint8)}, "needs a reference picture of 16 x 16 px"),
        ({"words": ("secret",)}, "cannot read the words 'secret'"),
        ({"words": ("swap",) * 7}, "cannot read the words"),
        ({"template_id": "nowhere"}, "no template 'nowhere'"),
    ],
)
def test_requests_that_cannot_be_run_are_refused(
    tiny_store: CacheStore, tiny_templates: TemplateLibrary, changes: dict[str, Any], sentence: str
) -> None:
    job = dataclasses.replace(job_for(tiny_template("tiny-face")), **changes)

    async def main() -> None:
        async with tiny_device(tiny_store, tiny_templates) as (cloud, device):
            events: list[AnyEvent] = []
            with pytest.raises(UserError, match=sentence):
                await device.run(job, url_of(cloud), events.append)
            assert not events

    asyncio.run(main())


def test_bytes_to_spend_are_kept(editor: Editor, store: CacheStore, shipped: TemplateLibrary) -> None:
    template = shipped.get(SHIPPED_BY_TASK["face_swap"])

    async def main() -> None:
        async with asyncio.timeout(60), cloud_of(store, shipped) as cloud, device_of(editor) as device:
            wanted: list[int] = []
            for budget_bytes in (50_000, 100_000, 150_000):
                job = dataclasses.replace(job_for(template), rate_budget_bytes=budget_bytes)
                _, events = await run(device, url_of(cloud), job)
                wanted.append(sum(event.wanted_bytes for event in chosen(events, RepresentationChosen)))
                (finished,) = chosen(events, RunFinished)
                assert 0.75 * budget_bytes < wanted[-1] < finished.received_bytes <= budget_bytes
            assert wanted == sorted(wanted)

    asyncio.run(main())
