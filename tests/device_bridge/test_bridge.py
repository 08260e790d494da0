"""Hub and agent over real websockets, with a device of a tiny model and a real cloud."""

import asyncio
import contextlib

import msgspec
import numpy as np
import pytest
from bridges import ENGINE, TOKEN, Bridge, Play, ignore
from websockets.asyncio.client import connect
from worlds import Relay, job_for, tiny_template, until

from device_bridge.agent import RejectedError
from device_bridge.hub import MAX_DEVICES, Hub
from device_bridge.protocol import (
    VERSION,
    Accepted,
    DeviceHello,
    EngineReport,
    Placement,
    Rejected,
    RunEvents,
    decode_from_device,
    decode_to_device,
    encode,
)
from sakura.backbone.editor import edit_on_device
from sakura.backbone.inputs import Request
from sakura.errors import UserError
from sakura.events import AnyEvent, RepresentationChosen, RunFailed, RunFinished, RunStarted, is_last
from sakura.pictures import from_png


def test_edit_over_the_bridge(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with bridge.agent():
            device = await bridge.device()
            assert (device.name, device.engine.name) == ("Test device", "torch, CPU")
            progress: list[float] = []
            prepared = await bridge.hub.prepare(device, "tiny-face", bridge.cloud_url, "sakura", progress.append)
            assert prepared.geometry.steps == 3
            assert prepared.active_step_s > 0
            assert prepared.full_step_s > 0
            events = await bridge.run(bridge.job("first"), device, ignore)
            assert isinstance(events[0], RunStarted)
            assert [is_last(event) for event in events] == [False] * (len(events) - 1) + [True]
            finished = events[-1]
            assert isinstance(finished, RunFinished)
            again = (await bridge.run(bridge.job("second"), device, ignore))[-1]
            assert isinstance(again, RunFinished)
            np.testing.assert_array_equal(from_png(again.picture_png), from_png(finished.picture_png))

    play(scenario)


def test_a_shard_that_fails_is_told_of(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("device_bridge.agent.STATUS_S", 0.05)
    moved = EngineReport("NPU", placements=[Placement(0, 2, "qnn-htp", "onnxruntime-cpu", "it failed")])
    now = [EngineReport("NPU", placements=[Placement(0, 2, "qnn-htp", "qnn-htp")])]

    async def scenario(bridge: Bridge) -> None:
        async with bridge.agent(engine=lambda: now[0]):
            device = await bridge.device()
            assert device.engine == now[0]
            now[0] = moved
            await until(lambda: device.engine == moved)

    play(scenario)


def test_this_machines_own_device_comes_first_and_names_are_plain(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        code = bridge.hub.pairing.new_code().code
        async with connect(bridge.hub.url, proxy=None) as early, connect(bridge.hub.url, proxy=None) as own:
            await early.send(encode(DeviceHello([VERSION], "\u202eenohp", ENGINE, pairing_code=code)))
            await until(lambda: len(bridge.hub.devices) == 1)
            assert bridge.hub.device(None).name == "enohp"
            await own.send(encode(DeviceHello([VERSION], "\u200b", ENGINE, TOKEN)))
            await until(lambda: len(bridge.hub.devices) == 2)
            assert [device.name for device in bridge.hub.in_order()] == ["Device", "enohp"]
            assert bridge.hub.device(None).name == "Device"

    play(scenario)


def test_each_codec_is_got_ready_by_itself(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with bridge.agent():
            device = await bridge.device()
            asked = (
                bridge.hub.prepare(device, "tiny-wear", bridge.cloud_url, codec, lambda done: None)
                for codec in ("sakura", "intq")
            )
            prepared = await asyncio.gather(*asked)
            assert [each.codec for each in prepared] == ["sakura", "intq"]
            assert prepared[0].geometry == prepared[1].geometry
            with pytest.raises(UserError, match="no codec 'zip'"):
                await bridge.hub.prepare(device, "tiny-wear", bridge.cloud_url, "zip", lambda done: None)

    play(scenario)


def test_controller_travels_with_the_job(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with bridge.agent():
            device = await bridge.device()
            events = await bridge.run(bridge.job("first", controller="deadline"), device, ignore)
            assert isinstance(events[-1], RunFinished)
            last = (await bridge.run(bridge.job("second", controller="magic"), device, ignore))[-1]
            assert isinstance(last, RunFailed)
            assert "There is no controller 'magic'" in last.reason

    play(scenario)


def test_two_ask_a_device_to_get_ready_at_once(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with bridge.agent():
            device = await bridge.device()
            asked = (
                bridge.hub.prepare(device, "tiny-hat", bridge.cloud_url, "sakura", lambda done: None) for _ in range(3)
            )
            first, *others = await asyncio.gather(*asked)
            assert all(other == first for other in others)
            with pytest.raises(UserError, match="no template 'nowhere'"):
                await bridge.hub.prepare(device, "nowhere", bridge.cloud_url, "sakura", lambda done: None)
            with pytest.raises(UserError, match="No cloud answers at"):
                await bridge.hub.prepare(device, "tiny-wear", "ws://127.0.0.1:9", "sakura", lambda done: None)

    play(scenario)


def test_wrong_token_is_rejected(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with bridge.agent("wrong") as task:
            with pytest.raises(RejectedError, match="does not know the device"):
                await task
            assert not bridge.hub.devices

    play(scenario)


def test_other_versions_and_nonsense_are_not_let_in(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        hello = DeviceHello([VERSION + 1], "New phone", ENGINE, TOKEN)
        async with connect(bridge.hub.url, proxy=None) as connection:
            await connection.send(encode(hello))
            answer = decode_to_device(await connection.recv(decode=False))
            assert isinstance(answer, Rejected)
            assert f"version {VERSION} of the bridge protocol, the device {VERSION + 1}" in answer.reason
        for nonsense in (b"", b"\xc1", encode(RunEvents("x", [RunFailed(at_s=0.0, reason="r")]))):
            async with connect(bridge.hub.url, proxy=None) as connection:
                await connection.send(nonsense)
                await connection.wait_closed()
        assert not bridge.hub.devices

    play(scenario)


def test_devices_are_bounded(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for number in range(MAX_DEVICES + 1):
                connection = await stack.enter_async_context(connect(bridge.hub.url, proxy=None))
                await connection.send(encode(DeviceHello([VERSION], f"Phone {number}", ENGINE, TOKEN)))
                answer = decode_to_device(await connection.recv(decode=False))
                assert isinstance(answer, Accepted if number < MAX_DEVICES else Rejected)
            assert len(bridge.hub.devices) == MAX_DEVICES

    play(scenario)


def test_stopped_edit_says_so_and_the_next_one_works(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with bridge.agent():
            device = await bridge.device()
            job = bridge.job("slow", await bridge.slow_link())

            async def stop_when_asked(event: AnyEvent) -> None:
                if isinstance(event, RepresentationChosen):
                    await bridge.hub.stop(device, job.run_id)

            events = await bridge.run(job, device, stop_when_asked)
            last = events[-1]
            assert isinstance(last, RunFailed)
            assert last.reason == "You stopped this edit."
            await bridge.hub.stop(device, job.run_id)  # once more does no harm
            assert isinstance((await bridge.run(bridge.job("next"), device, ignore))[-1], RunFinished)

    play(scenario)


def test_edit_of_a_device_that_leaves_ends_with_a_sentence(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with bridge.agent() as task:
            device = await bridge.device()
            job = bridge.job("slow", await bridge.slow_link())

            async def leave(event: AnyEvent) -> None:
                if isinstance(event, RepresentationChosen):
                    task.cancel()

            last = (await bridge.run(job, device, leave))[-1]
            assert isinstance(last, RunFailed)
            assert last.reason == "Test device was disconnected during this edit; connect it again, then press Edit."
        await until(lambda: not bridge.hub.devices)
        with pytest.raises(UserError, match="No device is connected"):
            bridge.hub.device(None)
        with pytest.raises(UserError, match="not connected any more"):
            bridge.hub.device("device-1")
        with pytest.raises(UserError, match="Test device is gone"):
            await bridge.run(bridge.job("late"), device, ignore)
        async with bridge.agent():
            assert isinstance((await bridge.run(bridge.job("back"), await bridge.device(), ignore))[-1], RunFinished)

    play(scenario)


def test_agent_survives_a_hub_that_goes_and_comes_back(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("websockets.client.BACKOFF_INITIAL_DELAY", 0.1)

    async def scenario(bridge: Bridge) -> None:
        async with bridge.agent() as task:
            device = await bridge.device()
            job = bridge.job("slow", await bridge.slow_link())
            running = asyncio.create_task(bridge.run(job, device, ignore))
            await until(lambda: "slow" in device.runs)
            await bridge.hub.__aexit__()
            assert isinstance((await running)[-1], RunFailed)
            async with Hub(TOKEN, port=bridge.hub.port) as hub:
                back = Bridge(hub, bridge.editor, bridge.cloud_url)
                events = await back.run(back.job("again"), await back.device(), ignore)
                assert isinstance(events[-1], RunFinished)
                assert not task.done()

    play(scenario)


def test_bad_jobs_fail_with_a_sentence(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with bridge.agent():
            device = await bridge.device()
            good = bridge.job("job")
            for changes, sentence in (
                ({"words": ["secret"]}, "cannot read the words 'secret'"),
                ({"reference_png": None}, "needs a reference picture"),
                ({"reference_png": b"no picture"}, "picture"),
                ({"template_id": "nowhere"}, "no template 'nowhere'"),
            ):
                last = (await bridge.run(msgspec.structs.replace(good, **changes), device, ignore))[-1]
                assert isinstance(last, RunFailed)
                assert sentence in last.reason
                assert "its log says why" not in last.reason
            assert isinstance((await bridge.run(good, device, ignore))[-1], RunFinished)

    play(scenario)


def test_lost_cloud_is_survived_over_the_bridge(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with bridge.agent(), Relay(bridge.cloud_url) as relay:
            device = await bridge.device()
            job = msgspec.structs.replace(bridge.job("slow", await bridge.slow_link()), cloud_url=relay.url)

            async def cut(event: AnyEvent) -> None:
                if isinstance(event, RepresentationChosen) and event.shard == 0:
                    await relay.__aexit__()

            last = (await bridge.run(job, device, cut))[-1]
            assert isinstance(last, RunFinished)
            template, wanted = tiny_template("tiny-face"), job_for(tiny_template("tiny-face"))
            request = Request(wanted.words, wanted.reference, wanted.seed)
            expected = edit_on_device(bridge.editor, template.for_editor(), request)
            np.testing.assert_array_equal(from_png(last.picture_png), expected)

    play(scenario)


def test_decoders_refuse_messages_of_the_other_direction() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_to_device(encode(DeviceHello([VERSION], "x", ENGINE, TOKEN)))
    with pytest.raises(msgspec.ValidationError):
        decode_from_device(encode(Accepted(VERSION, "x")))
