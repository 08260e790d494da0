"""What an agent does with hubs that are slow, full, absent or no hubs at all."""

import asyncio
import contextlib
import logging
import time
from pathlib import Path

import numpy as np
import pytest
from bridges import TOKEN, Bridge, Desk, Play, Wire, desk_of, ignore, job_of
from websockets.exceptions import ConnectionClosed
from worlds import until

from device_bridge import agent as agent_module
from device_bridge.agent import Agent, RejectedError
from device_bridge.protocol import (
    MAX_FRAME_EVENTS,
    MAX_MESSAGE_BYTES,
    VERSION,
    Accepted,
    ClockProbe,
    ClockReply,
    DeviceHello,
    DeviceStatus,
    NotPrepared,
    Prepare,
    Preparing,
    Rejected,
    RunEvents,
    StopJob,
    encode,
)
from sakura.backbone.editor import Editor
from sakura.errors import UserError
from sakura.events import AnyEvent, EventSink, NetworkWait, RunFailed, RunFinished, RunStarted, StepFinished, is_last
from sakura.runtime.device import Device, Job
from sakura.runtime.pipeline import Outcome

WELCOME = Accepted(VERSION, "device-1")
PREVIEW_BYTES = 200_000


class Talkative(Device):
    """Says a great deal of each run, without computing anything."""

    steps, waits_per_step = 100, 40
    said: list[AnyEvent]

    async def run(self, job: Job, cloud_url: str, emit: EventSink, progress: object = None) -> Outcome:
        self.said = []

        def say(event: AnyEvent) -> None:
            self.said.append(event)
            emit(event)

        say(
            RunStarted(
                at_s=0.0,
                run_id=job.run_id,
                template_id=job.template_id,
                system=job.system,
                device=self.name,
                steps=self.steps,
                shards_per_step=1,
                full_cache_bytes=1,
                planned_start_s=0.0,
                planned_step_s=0.0,
                rate_budget_bytes=None,
            )
        )
        for step in range(self.steps):
            for number in range(self.waits_per_step):
                say(NetworkWait(at_s=float(step), shard=number, started_s=0.0))
            say(StepFinished(at_s=float(step), step=step, preview_png=bytes(PREVIEW_BYTES)))
            await asyncio.sleep(0)
        say(RunFinished(at_s=1.0, picture_png=b"picture", latency_s=1.0, received_bytes=0, network_wait_s=0.0))
        return Outcome(np.zeros((1, 1, 3), np.uint8), 0, 0.0, fell_back=False)


@contextlib.asynccontextmanager
async def serving(device: Device, url: str):  # type: ignore[no-untyped-def]
    task = asyncio.create_task(Agent(device, url, TOKEN).run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await device.close()


def test_hub_that_does_not_read_slows_no_edit(tiny_editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting_limit = Talkative.steps + 50
    monkeypatch.setattr(agent_module, "MAX_WAITING_EVENTS", waiting_limit)

    async def scenario() -> None:
        device = Talkative(tiny_editor, "Talkative")
        got: list[RunEvents] = []
        over = asyncio.Event()

        async def serve_device(desk: Desk) -> None:
            await desk.hear(DeviceHello)
            await desk.say(WELCOME)
            desk.connection.transport.pause_reading()
            await desk.say(job_of("run", ""))
            # The edit is over while not a byte of it has been taken: nothing of it waited for the hub.
            await until(lambda: hasattr(device, "said") and is_last(device.said[-1]))
            desk.connection.transport.resume_reading()
            while not got or not is_last(got[-1].events[-1]):
                got.append(await desk.hear(RunEvents))
            over.set()

        async with desk_of(serve_device, max_queue=1) as url, serving(device, url):
            await over.wait()
        events = [event for message in got for event in message.events]
        dropped = sum(message.dropped for message in got)
        assert dropped > 0
        assert len(events) + dropped == len(device.said)
        assert [each for each in events if not isinstance(each, NetworkWait)] == [
            each for each in device.said if not isinstance(each, NetworkWait)
        ]
        assert max(len(encode(message)) for message in got) < MAX_MESSAGE_BYTES / 2
        late = [event for message in got if message.dropped for event in message.events]
        assert len(late) <= waiting_limit

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_many_events_at_once_fit_in_frames(tiny_editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "MAX_WAITING_EVENTS", 10 * MAX_FRAME_EVENTS)
    monkeypatch.setattr(Talkative, "steps", 1)
    monkeypatch.setattr(Talkative, "waits_per_step", 3 * MAX_FRAME_EVENTS)

    async def scenario() -> None:
        device = Talkative(tiny_editor, "Talkative")
        got: list[RunEvents] = []
        over = asyncio.Event()

        async def serve_device(desk: Desk) -> None:
            await desk.hear(DeviceHello)
            await desk.say(WELCOME)
            await desk.say(job_of("run", ""))
            while not got or not is_last(got[-1].events[-1]):
                got.append(await desk.hear(RunEvents))  # the decoder refuses longer ones
            over.set()

        async with desk_of(serve_device) as url, serving(device, url):
            await over.wait()
        assert [event for message in got for event in message.events] == device.said

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_hub_that_takes_nothing_is_left(tiny_editor: Editor) -> None:
    async def scenario() -> None:
        connections: list[Desk] = []

        async def serve_device(desk: Desk) -> None:
            connections.append(desk)
            await desk.hear(DeviceHello)
            await desk.say(WELCOME)
            desk.connection.transport.pause_reading()
            await desk.say(job_of("run", ""))
            await until(lambda: len(connections) > 1)
            desk.connection.transport.abort()

        async with desk_of(serve_device, max_queue=1) as url, serving(Talkative(tiny_editor, "Talkative"), url):
            await until(lambda: len(connections) > 1)

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_full_hub_is_asked_again_in_growing_pauses(tiny_editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    first_s, most_s = 0.01, 0.08
    monkeypatch.setattr(agent_module, "FIRST_PAUSE_S", first_s)
    monkeypatch.setattr(agent_module, "MAX_PAUSE_S", most_s)

    async def scenario() -> None:
        hellos_s: list[float] = []
        welcomed = asyncio.Event()

        async def serve_device(desk: Desk) -> None:
            await desk.hear(DeviceHello)
            hellos_s.append(time.monotonic())
            if len(hellos_s) == 7:
                await desk.say(WELCOME)
                welcomed.set()
                await desk.hear(RunEvents)
            await desk.say(Rejected("Full.", final=False))

        async with desk_of(serve_device) as url, serving(Device(tiny_editor, "Phone"), url) as task:
            await welcomed.wait()
            assert not task.done()
        gaps_s = np.diff(hellos_s)
        assert (gaps_s >= [2 * first_s, 4 * first_s, most_s, most_s, most_s, most_s]).all()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_run_that_is_stopped_before_it_began_ends(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with bridge.agent():
            device = await bridge.device()
            both = asyncio.create_task(bridge.run(bridge.job("short"), device, ignore))
            await asyncio.sleep(0)  # run_job is sent, and stop_job right behind it
            await bridge.hub.stop(device, "short")
            last = (await both)[-1]
            assert isinstance(last, RunFailed)
            assert last.reason == "You stopped this edit."

    play(scenario)


def test_run_that_is_asked_for_twice_runs_once(tiny_editor: Editor) -> None:
    async def scenario() -> None:
        over = asyncio.Event()
        ends: list[AnyEvent] = []

        async def serve_device(desk: Desk) -> None:
            await desk.hear(DeviceHello)
            await desk.say(WELCOME)
            for _ in range(2):
                await desk.say(job_of("run", "ws://127.0.0.1:9"))
            await desk.say(StopJob("another"))
            await desk.connection.send(b"\xc1")  # what it cannot read, it passes over
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    while True:
                        ends.extend(event for event in (await desk.hear(RunEvents)).events if is_last(event))
            over.set()

        async with desk_of(serve_device) as url, serving(Device(tiny_editor, "Phone"), url):
            await over.wait()
        assert len(ends) == 1

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_fault_while_getting_ready_is_told(tiny_editor: Editor) -> None:
    class Broken(Device):
        async def prepare(self, template_id, cloud_url, progress=lambda done: None, codec=""):  # type: ignore[no-untyped-def]
            for done in (0.5, 1.5):
                progress(done)
            await asyncio.sleep(0.1)
            raise ZeroDivisionError

    async def scenario() -> None:
        heard: list[object] = []
        over = asyncio.Event()

        async def serve_device(desk: Desk) -> None:
            await desk.hear(DeviceHello)
            await desk.say(WELCOME)
            await desk.say(Prepare("t", "ws://x", "sakura"))
            heard.append(await desk.hear(Preparing))
            heard.append(await desk.hear(NotPrepared))
            await desk.say(ClockProbe(5.0))
            heard.append((await desk.hear(ClockReply)).sent_s)
            over.set()

        async with desk_of(serve_device) as url, serving(Broken(tiny_editor, "Broken"), url):
            await over.wait()
        assert heard == [
            Preparing("t", "sakura", 1.0),
            NotPrepared("t", "sakura", "The device failed to get ready; its log says why. Try again."),
            5.0,
        ]

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_status_is_told_at_once(tiny_editor: Editor) -> None:
    async def scenario() -> None:
        statuses: list[DeviceStatus] = []

        async def serve_device(desk: Desk) -> None:
            await desk.hear(DeviceHello)
            await desk.say(WELCOME)
            statuses.append(await desk.hear(DeviceStatus))

        async with desk_of(serve_device) as url, serving(Device(tiny_editor, "Phone"), url):
            await until(lambda: bool(statuses))
        assert (statuses[0].memory_bytes or 0) > 1_000_000

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_token_that_cannot_be_kept_is_used_all_the_same(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    def full_disk(token: str) -> None:
        raise OSError("no space left")

    async def scenario(bridge: Bridge) -> None:
        code = bridge.hub.pairing.new_code().code
        async with bridge.agent("", pairing_code=code, on_token=full_disk):
            device = await bridge.device()
            assert isinstance((await bridge.run(bridge.job("run"), device, ignore))[-1], RunFinished)

    play(scenario)
    assert "The token cannot be kept (no space left)" in caplog.text


def test_reset_connections_are_come_back_from(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with Wire(bridge.hub.port) as wire, bridge.agent(url=wire.url) as task:
            for _ in range(3):
                device = await bridge.device()
                wire.cut()
                await until(lambda gone=device: bridge.hub.devices.get(gone.device_id) is not gone)  # type: ignore[misc]
            assert isinstance((await bridge.run(bridge.job("run"), await bridge.device(), ignore))[-1], RunFinished)
            assert not task.done()

    play(scenario)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "ws://", "nonsense"])
def test_what_is_no_address_of_a_hub_is_told(tiny_editor: Editor, url: str) -> None:
    with pytest.raises(UserError, match="No hub answers at"):
        asyncio.run(Agent(Device(tiny_editor, "Phone"), url, TOKEN).run())


def test_server_that_is_no_hub_is_told(tiny_editor: Editor) -> None:
    async def scenario() -> None:
        async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(page, "127.0.0.1", 0) as server:
            url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            with pytest.raises(UserError, match=r"No hub answers at .*404"):
                await Agent(Device(tiny_editor, "Phone"), url, TOKEN).run()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_hub_that_is_not_there_yet_is_told_of_once(
    tiny_editor: Editor, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("websockets.client.BACKOFF_INITIAL_DELAY", 0.02)
    monkeypatch.setattr("websockets.client.BACKOFF_MIN_DELAY", 0.02)

    async def scenario() -> None:
        async with serving(Device(tiny_editor, "Phone"), "ws://127.0.0.1:9") as task:
            await asyncio.sleep(0.2)
            assert not task.done()

    with caplog.at_level(logging.WARNING, "device_bridge"):
        asyncio.run(asyncio.wait_for(scenario(), 30))
    assert caplog.text.count("ws://127.0.0.1:9 cannot be reached") == 1


def test_rejection_ends_the_agent_with_its_reason(tiny_editor: Editor, tmp_path: Path) -> None:
    async def scenario() -> None:
        async def serve_device(desk: Desk) -> None:
            await desk.hear(DeviceHello)
            await desk.say(Rejected("Because."))
            with contextlib.suppress(ConnectionClosed):
                await desk.hear(RunEvents)

        async with desk_of(serve_device) as url, serving(Device(tiny_editor, "Phone"), url) as task:
            with pytest.raises(RejectedError, match="Because"):
                await task

    asyncio.run(asyncio.wait_for(scenario(), 30))
