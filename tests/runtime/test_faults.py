"""What can go wrong during an edit, over real sockets with a tiny model: no fault hangs it, loses it or leaks tasks."""

import asyncio
import contextlib
import dataclasses
import statistics
import time
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import msgspec
import numpy as np
import pytest
from edits import GEOMETRY, LOCAL_SHARD_S, ON_DEVICE_S, SHARD_S, WatchedRun, check, continued, edit, shared_by_steps
from worlds import Relay, cloud_of, device_of, job_for, tiny_model, tiny_template, until, url_of

from sakura.backbone.editor import Editor
from sakura.cache.store import CacheStore
from sakura.cloud.protocol import (
    Fetch,
    FetchHeader,
    Piece,
    decode_from_cloud,
    decode_to_cloud,
    encode,
)
from sakura.cloud.server import CloudServer
from sakura.cloud.source import SourceLostError
from sakura.control.interface import StreamState
from sakura.events import (
    AnyEvent,
    BandwidthMeasured,
    FellBack,
    LaneFinished,
    RepresentationChosen,
    RunFinished,
)
from sakura.network.library import constant_trace
from sakura.network.trace import Trace, checked_trace
from sakura.pictures import from_png
from sakura.runtime.device import MAX_STREAMS_IN_VAIN, Device, Job, _Opened
from sakura.runtime.engine import LocalRun, ShardKv, Span
from sakura.templates import TemplateLibrary

E = TypeVar("E")
SHARDS = 6
ACTIVE_S, FULL_S = 0.03, 0.2  # a shard with the cache and without, on the slowed device
FACE = "tiny-face"


@pytest.fixture(autouse=True)
def slowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes what a shard takes known, so that a busy processor changes little."""
    execute = LocalRun._execute

    def slowly(run: LocalRun, shard: int, kv: ShardKv | None) -> Span:
        span = execute(run, shard, kv)
        time.sleep(max(0.0, (FULL_S if kv is None else ACTIVE_S) - (span.end - span.start)))
        return Span(span.start, time.monotonic())

    monkeypatch.setattr(LocalRun, "_execute", slowly)


@contextlib.asynccontextmanager
async def place(store: CacheStore, templates: TemplateLibrary) -> AsyncIterator[tuple[CloudServer, Device]]:
    """A cloud and a device that knows the template; nothing may be left running behind them."""
    before = asyncio.all_tasks()
    async with asyncio.timeout(60):
        async with cloud_of(store, templates) as cloud, device_of(store.editor) as device:
            await device.prepare(FACE, url_of(cloud))
            yield cloud, device
        await until(lambda: asyncio.all_tasks() <= before, 5)


async def linked(device: Device, cloud: CloudServer, trace: Trace, rtt_s: float = 0.0, system: str = "sakura") -> Job:
    """A job over an emulated link."""
    await (await device.connect(url_of(cloud))).emulate_link("link", trace, rtt_s, 0)
    return dataclasses.replace(job_for(tiny_template(FACE), system=system, link_id="link"), rtt_s=rtt_s)


def of(events: list[AnyEvent], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def executed(events: list[AnyEvent]) -> list[tuple[int, bool]]:
    """Shards in the order of execution, and whether each was computed without the cache."""
    return [(event.shard, event.on_device) for event in of(events, LaneFinished) if event.lane == "execute"]


def check_finished(events: list[AnyEvent]) -> RunFinished:
    """The edit is whole, and its picture is the template's outside the mask."""
    finished = events[-1]
    assert isinstance(finished, RunFinished)
    assert sum(event.received_bytes for event in of(events, LaneFinished)) == finished.received_bytes
    assert {shard for shard, _ in executed(events)} == set(range(SHARDS))
    assert executed(events)[-1][0] == SHARDS - 1
    template, picture = tiny_template(FACE), from_png(finished.picture_png)
    np.testing.assert_array_equal(picture[~template.mask], template.picture[~template.mask])
    return finished


# A link without any capacity for a while


SILENT_S = 10.0


@pytest.mark.parametrize("system", ["sakura", "continued"])
@pytest.mark.parametrize("from_s", [0.0, 0.021, 0.03, 0.05, 0.09, 0.14, 0.18])
def test_silence_in_any_phase_costs_no_more_than_the_device_takes(from_s: float, system: str) -> None:
    """In virtual time: before the first byte, during the first shard, in mid-step, in the last step."""
    edges, rates = np.array([0.0, max(from_s, 1e-3), from_s + SILENT_S, 1000.0]), np.array([6.0, 0.0, 6.0])
    offer = shared_by_steps() if system == "sakura" else continued()
    told = edit(checked_trace("silent", edges, rates), offer=offer, controller="deadline-progressive", prior_mbps=6)
    check(told)
    assert told.end_s <= 1.5 * ON_DEVICE_S
    if told.outcome.local_shards:
        assert of(told.events, FellBack)
    # A download waits: it was asked to.
    waiting = edit(checked_trace("silent", edges, rates), offer=offer, controller="fixed", patient=True)
    check(waiting)
    assert not of(waiting.events, FellBack)
    assert SILENT_S < waiting.end_s < SILENT_S + 2


@pytest.mark.parametrize("phase", ["before the first byte", "in the middle"])
def test_silence_over_sockets(tiny_store: CacheStore, tiny_templates: TemplateLibrary, phase: str) -> None:
    silent = checked_trace("silent", np.array([0.0, 1000.0, 1001.0]), np.array([0.0, 1.0]))
    slow = constant_trace(0.2)

    async def main() -> None:
        async with place(tiny_store, tiny_templates) as (cloud, device):
            job = await linked(device, cloud, silent if phase == "before the first byte" else slow)
            events: list[AnyEvent] = []
            running = asyncio.create_task(device.run(job, url_of(cloud), events.append))
            await until(lambda: bool(of(events, RepresentationChosen)))
            client = await device.connect(url_of(cloud))
            if phase == "in the middle":
                await until(lambda: bool(executed(events)))
                await client.emulate_link("link", silent, 0, 0)
            await until(lambda: any(on_device for _, on_device in executed(events)))
            await client.emulate_link("link", constant_trace(50), 0, 0)
            await running
            finished = check_finished(events)
            assert of(events, FellBack)
            assert executed(events)[-1] == (SHARDS - 1, False), "the cache is used again when the network is back"
            assert finished.latency_s < 2 * SHARDS * FULL_S + 1

    asyncio.run(main())


# Connections that break


def test_reset_in_the_middle_of_a_segment_goes_on_at_it(
    tiny_store: CacheStore, tiny_templates: TemplateLibrary
) -> None:
    job = job_for(tiny_template(FACE), system="full_cache")
    torn: list[int] = []
    segments_of: dict[int, list[int]] = {}

    def tear(data: bytes) -> bytes:
        """Half of segment 3, and then nothing."""
        message = decode_from_cloud(data)
        if isinstance(message, FetchHeader):
            segments_of[message.fetch_id] = message.segment_ids
        if isinstance(message, Piece) and segments_of[message.fetch_id] == [3] and not torn:
            return encode(msgspec.structs.replace(message, data=message.data[: len(message.data) // 2]))
        return data

    def breaks_after(data: bytes) -> bool:
        message = decode_from_cloud(data)
        if not (isinstance(message, Piece) and segments_of[message.fetch_id] == [3]) or torn:
            return False
        torn.append(3)
        return True

    async def main() -> None:
        async with place(tiny_store, tiny_templates) as (cloud, device), Relay(url_of(cloud)) as relay:
            await device.prepare(FACE, relay.url, codec="uncompressed")
            events: list[AnyEvent] = []
            expected = (await device.run(job, relay.url, events.append)).picture
            assert not of(events, FellBack)
            relay.alter, relay.breaks_after = tear, breaks_after
            before, connections = len(relay.sent[0]), len(relay.sent)
            events = []
            picture = (await device.run(job, relay.url, events.append)).picture
            check_finished(events)
            assert torn
            asked = [
                [message.segments for data in record if isinstance(message := decode_to_cloud(data), Fetch)]
                for record in (relay.sent[0][before:], *relay.sent[connections:])
            ]
            # Segments 0 to 2 had come in whole, those from 3 on had not; each is asked for again once.
            assert asked == [[[shard] for shard in range(SHARDS)], [[3], [4], [5]]]
            assert not of(events, FellBack)
            np.testing.assert_array_equal(picture, expected)

    asyncio.run(main())


def test_connection_that_breaks_again_and_again_is_given_up(
    tiny_store: CacheStore, tiny_templates: TemplateLibrary
) -> None:
    async def main() -> None:
        async with place(tiny_store, tiny_templates) as (cloud, device), Relay(url_of(cloud)) as relay:
            await device.prepare(FACE, relay.url)
            relay.breaks_after = lambda data: isinstance(decode_from_cloud(data), FetchHeader)
            events: list[AnyEvent] = []
            await device.run(job_for(tiny_template(FACE)), relay.url, events.append)
            check_finished(events)
            assert executed(events) == [(shard, True) for shard in range(SHARDS)]
            assert "The connection to the cloud was lost" in of(events, FellBack)[0].reason
            assert len(relay.sent) <= 1 + 6

    asyncio.run(main())


def test_only_streams_in_a_row_that_bring_nothing_are_counted(
    tiny_store: CacheStore, tiny_templates: TemplateLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sakura.runtime.device.FIRST_PAUSE_S", 0.001)

    async def main() -> None:
        async with place(tiny_store, tiny_templates) as (cloud, device):
            offer = (await device.prepare(FACE, url_of(cloud))).offers["sakura"]
            state = StreamState(
                offer.geometry, offer.ladders, offer.ladder_of, offer.segment_bytes, SHARD_S, LOCAL_SHARD_S, 0, 0, 1
            )
            opened = _Opened(device, job_for(tiny_template(FACE)), "sakura", url_of(cloud), state)
            lost = SourceLostError("The line is cut.")
            for segment in range(2 * MAX_STREAMS_IN_VAIN):
                state.arrived.add(segment)
                await opened.again(lost)
            for _ in range(MAX_STREAMS_IN_VAIN - 1):
                await opened.again(lost)
            with pytest.raises(SourceLostError, match="The line is cut"):
                await opened.again(lost)

    asyncio.run(main())


def test_cloud_that_is_started_again_serves_the_rest(tiny_store: CacheStore, tiny_templates: TemplateLibrary) -> None:
    async def main() -> None:
        async with place(tiny_store, tiny_templates) as (cloud, device):
            events: list[AnyEvent] = []
            # Of a link that is nearly dead nothing comes before the cloud goes.
            job = await linked(device, cloud, constant_trace(0.001))
            running = asyncio.create_task(device.run(job, url_of(cloud), events.append))
            await until(lambda: bool(of(events, RepresentationChosen)))
            await cloud.__aexit__()
            await asyncio.sleep(FULL_S)
            async with CloudServer(tiny_store, tiny_templates, port=cloud.port) as again:
                helper = await device.connect(url_of(again))
                await helper.emulate_link("link", constant_trace(50), 0, 0)
                await running
                check_finished(events)
                assert executed(events)[0] == (0, True)
                assert executed(events)[-1] == (SHARDS - 1, False)
                await device.close()

    asyncio.run(main())


# Slow ones


def test_round_trip_of_300_ms_is_used_for_computing(tiny_store: CacheStore, tiny_templates: TemplateLibrary) -> None:
    async def main() -> None:
        async with place(tiny_store, tiny_templates) as (cloud, device):
            job = await linked(device, cloud, constant_trace(50), rtt_s=0.3)
            events: list[AnyEvent] = []
            outcome = await device.run(job, url_of(cloud), events.append)
            finished = check_finished(events)
            assert [event.planned for event in of(events, FellBack)][:1] == [True]
            assert executed(events)[0] == (0, True)
            assert executed(events)[-1] == (SHARDS - 1, False)
            assert 1 <= outcome.local_shards <= 3
            assert finished.latency_s < 0.7 * SHARDS * FULL_S

    asyncio.run(main())


@pytest.mark.parametrize("system", ["sakura", "intq", "cachegen"])
def test_link_of_64_kb_a_second_is_no_slower_than_the_device(
    tiny_store: CacheStore, tiny_templates: TemplateLibrary, system: str
) -> None:
    async def main() -> None:
        async with place(tiny_store, tiny_templates) as (cloud, device):
            job = await linked(device, cloud, constant_trace(0.512), rtt_s=0.05, system=system)
            events: list[AnyEvent] = []
            await device.run(job, url_of(cloud), events.append)
            finished = check_finished(events)
            assert finished.latency_s < 1.3 * SHARDS * FULL_S
            assert finished.received_bytes < 64_000 * (finished.latency_s + 0.5)

    asyncio.run(main())


def test_device_that_becomes_ten_times_slower_goes_on_with_the_cache() -> None:
    """In virtual time; from a moment on, everything that the device does takes ten times as long."""

    class Throttled(WatchedRun):
        async def _work(self, processor: asyncio.Lock, seconds: float) -> Span:
            hot = asyncio.get_running_loop().time() > 0.08
            return await super()._work(processor, seconds * (10 if hot else 1))

    told = edit(constant_trace(10), offer=shared_by_steps(), controller="deadline-progressive", new_run=Throttled)
    check(told)
    assert told.outcome.local_shards == 0
    assert told.end_s < 0.1 + GEOMETRY.shards * 10 * SHARD_S + 10 * LOCAL_SHARD_S


# Several devices, and clocks


def test_four_devices_on_one_link_get_a_quarter_each(
    tiny_store: CacheStore, tiny_templates: TemplateLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    mbps, rtt_s = 0.6, 0.02
    # Most of a tiny cache would fit into the queue before the link, for whoever asks first.
    monkeypatch.setattr("sakura.cloud.server.LINK_QUEUE_BYTES", 1024)

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            cloud, first = await stack.enter_async_context(place(tiny_store, tiny_templates))
            devices = [first]
            for editor in [Editor(tiny_model(), "tiny") for _ in range(3)]:
                device = await stack.enter_async_context(device_of(editor))
                devices.append(device)
            job = await linked(first, cloud, constant_trace(mbps), rtt_s, system="full_cache")
            for device in devices:
                await device.prepare(FACE, url_of(cloud), codec="uncompressed")
            told: list[list[AnyEvent]] = [[] for _ in devices]
            await asyncio.gather(
                *(device.run(job, url_of(cloud), events.append) for device, events in zip(devices, told, strict=True))
            )
            ends = [check_finished(events) for events in told]
            assert not any(of(events, FellBack) for events in told)
            together_s = 8e-6 * sum(end.received_bytes for end in ends) / mbps
            for end, events in zip(ends, told, strict=True):
                # The one that asks first has the link to itself until the others ask.
                assert 0.5 * together_s < end.latency_s < together_s + SHARDS * ACTIVE_S + 2
                rates = [event.measured_mbps for event in of(events, BandwidthMeasured)]
                assert statistics.median(rates) == pytest.approx(mbps / 4, rel=0.35)

    asyncio.run(main())


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_setting_the_clock_changes_nothing(
    tiny_store: CacheStore, tiny_templates: TemplateLibrary, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    async def main() -> None:
        async with place(tiny_store, tiny_templates) as (cloud, device):
            job = await linked(device, cloud, constant_trace(0.5), rtt_s=0.02, system="full_cache")
            events: list[AnyEvent] = []
            expected = (await device.run(job, url_of(cloud), events.append)).picture
            usual = check_finished(events)
            events = []
            running = asyncio.create_task(device.run(job, url_of(cloud), events.append))
            await until(lambda: bool(executed(events)))
            now = time.time
            monkeypatch.setattr(time, "time", lambda: now() + jump_s)
            picture = (await running).picture
            finished = check_finished(events)
            np.testing.assert_array_equal(picture, expected)
            assert not of(events, FellBack)
            assert 0.5 * usual.latency_s < finished.latency_s < 2 * usual.latency_s + 1
            times = [event.at_s for event in events]
            assert min(times) >= 0
            assert max(times) == finished.at_s

    asyncio.run(main())


def test_stopped_edits_leave_nothing_behind(tiny_store: CacheStore, tiny_templates: TemplateLibrary) -> None:
    """At whatever moment an edit is stopped, also while its stream is being opened anew."""

    async def main() -> None:
        async with place(tiny_store, tiny_templates) as (cloud, device), Relay(url_of(cloud)) as relay:
            await device.prepare(FACE, relay.url)
            before = asyncio.all_tasks()
            moments: list[Callable[[list[AnyEvent]], bool]] = [
                lambda events: True,
                lambda events: bool(of(events, RepresentationChosen)),
                lambda events: bool(executed(events)),
                lambda events: bool(of(events, FellBack)),
            ]
            for number, moment in enumerate(moments):
                relay.breaks_after = lambda data: isinstance(decode_from_cloud(data), FetchHeader) and number == 3  # noqa: B023
                events: list[AnyEvent] = []
                running = asyncio.create_task(device.run(job_for(tiny_template(FACE)), relay.url, events.append))
                await until(lambda: moment(events))  # noqa: B023
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
            relay.breaks_after = lambda data: False
            events = []
            await device.run(job_for(tiny_template(FACE)), relay.url, events.append)
            check_finished(events)
            names = {task.get_coro().__qualname__ for task in asyncio.all_tasks() - before}  # type: ignore[union-attr]
            assert not {name for name in names if "Pipeline" in name or "Reception" in name}

    asyncio.run(main())
