"""The recorded conversation is one of this version, byte by byte, and both sides understand the other's half of it."""

import asyncio
import hashlib
import itertools
import json
from pathlib import Path

import msgspec
import pytest
from bridges import ENGINE, TOKEN, Bridge, Desk, Play, desk_of, phone_of
from record_transcript import TRANSCRIPT, record

from device_bridge.agent import Agent, RejectedError
from device_bridge.hub import Hub
from device_bridge.pairing import PairedDevice, Pairing
from device_bridge.protocol import (
    Accepted,
    ClockProbe,
    DeviceHello,
    FromDevice,
    NotPrepared,
    Prepare,
    Prepared,
    Rejected,
    RunEvents,
    RunJob,
    StopJob,
    ToDevice,
    decode_from_device,
    decode_to_device,
    encode,
)
from sakura.errors import UserError
from sakura.events import AnyEvent, RunFailed, RunFinished, is_last
from sakura.runtime.device import Device

MAX_TRANSCRIPT_BYTES = 200_000


class Line(msgspec.Struct, frozen=True):
    connection: int
    sender: str = msgspec.field(name="from")
    frame: bytes = b""
    message: msgspec.Raw = msgspec.Raw()

    def decoded(self) -> FromDevice | ToDevice:
        return decode_from_device(self.frame) if self.sender == "device" else decode_to_device(self.frame)


LINES = [msgspec.json.decode(line, type=Line) for line in TRANSCRIPT.read_text().splitlines()]


def connection(number: int) -> list[Line]:
    return [line for line in LINES if line.connection == number]


def test_transcript_is_small_and_says_every_kind() -> None:
    assert TRANSCRIPT.stat().st_size < MAX_TRANSCRIPT_BYTES
    said = {type(line.decoded()).__name__ for line in LINES}
    assert said == {each.__name__ for union in (FromDevice, ToDevice) for each in union.__args__}


@pytest.mark.parametrize("line", LINES, ids=lambda line: str(LINES.index(line)))
def test_frame_is_its_message_and_the_message_its_frame(line: Line) -> None:
    message = line.decoded()
    assert json.loads(msgspec.json.encode(message)) == json.loads(bytes(line.message))
    assert encode(message) == line.frame


def test_devices_half_is_understood_by_a_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device says what was recorded, at the hub's word."""
    first_hello, second_hello = (connection(number)[0].decoded() for number in range(2))
    assert isinstance(first_hello, DeviceHello)
    assert isinstance(second_hello, DeviceHello)
    code = iter(first_hello.pairing_code)
    monkeypatch.setattr("device_bridge.pairing.secrets.choice", lambda alphabet: next(code))
    paired = PairedDevice("recorded", "Phone", hashlib.sha256(second_hello.token.encode()).hexdigest(), 0.0)
    path = tmp_path / "devices.json"
    path.write_bytes(msgspec.json.encode([paired]))

    async def play_device(hub: Hub, lines: list[Line]) -> None:
        async with phone_of(hub.url) as phone:
            for line in lines:
                message = line.decoded()
                if line.sender == "device":
                    await phone.connection.send(line.frame)
                elif not isinstance(message, ClockProbe | StopJob):
                    heard = await phone.hear(type(message))
                    if isinstance(message, Prepare | RunJob):
                        assert heard == message

    async def scenario() -> None:
        async with Hub(TOKEN, pairing=Pairing(path)) as hub:
            assert hub.pairing.new_code().code == first_hello.pairing_code
            await play_device(hub, connection(0))
            assert len(hub.pairing.paired()) == 2

            lines = connection(1)
            playing = asyncio.create_task(play_device(hub, lines))
            while "recorded" not in hub.devices:
                await asyncio.sleep(0)
            device = hub.device("recorded")
            assert (device.name, device.engine) == (second_hello.name, second_hello.engine)
            recorded = [line.decoded() for line in lines]
            for message, answer in zip(
                (each for each in recorded if isinstance(each, Prepare)),
                (each for each in recorded if isinstance(each, Prepared | NotPrepared)),
                strict=True,
            ):
                asking = hub.prepare(device, message.template_id, message.cloud_url, message.codec, lambda done: None)
                if isinstance(answer, Prepared):
                    assert await asking == answer
                else:
                    with pytest.raises(UserError) as refused:
                        await asking
                    assert str(refused.value) == answer.reason
            for job in (each for each in recorded if isinstance(each, RunJob)):
                told = [each for each in recorded if isinstance(each, RunEvents) and each.run_id == job.run_id]
                assert [event async for event in hub.run(device, job)] == [
                    event for each in told for event in each.events
                ]
                assert device.traffic[job.run_id].frames == len(told)
            assert device.status.memory_bytes is not None
            await hub.revoke("recorded")
            await playing

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_hubs_half_is_understood_by_an_agent(play: Play) -> None:
    """A hub says what was recorded, at the device's word; the address of the cloud alone is another one."""

    async def scenario(bridge: Bridge) -> None:
        numbers = itertools.count()
        ended: list[AnyEvent] = []

        async def play_hub(desk: Desk) -> None:
            for line in connection(next(numbers)):
                message = line.decoded()
                if line.sender == "hub":
                    if isinstance(message, Prepare | RunJob):
                        message = msgspec.structs.replace(message, cloud_url=bridge.cloud_url)
                        if isinstance(message, RunJob) and message.link_id:
                            message = msgspec.structs.replace(message, link_id=await bridge.slow_link())
                        await desk.say(message)
                    else:
                        await desk.connection.send(line.frame)
                elif isinstance(message, DeviceHello):
                    hello = await desk.hear(DeviceHello)
                    assert (hello.token, hello.pairing_code) == (message.token, message.pairing_code)
                elif isinstance(message, Prepared | NotPrepared):
                    answer = await desk.hear(type(message))
                    assert (answer.template_id, answer.codec) == (message.template_id, message.codec)
                    if isinstance(message, Prepared):
                        assert answer.geometry == message.geometry
                elif isinstance(message, RunEvents) and is_last(message.events[-1]):
                    while not is_last(last := (await desk.hear(RunEvents)).events[-1]):
                        pass
                    ended.append(last)

        hello, accepted = (line.decoded() for line in connection(0)[:2])
        assert isinstance(hello, DeviceHello)
        assert isinstance(accepted, Accepted)
        tokens: list[str] = []
        async with desk_of(play_hub) as url:
            device = Device(bridge.editor, "Phone")
            agent = Agent(device, url, pairing_code=hello.pairing_code, on_token=tokens.append, engine=lambda: ENGINE)
            rejected = LINES[-1].decoded()
            assert isinstance(rejected, Rejected)
            with pytest.raises(RejectedError) as refused:
                await agent.run()
            await device.close()
        assert str(refused.value) == rejected.reason
        assert tokens == [accepted.token]
        finished, stopped = ended
        assert isinstance(finished, RunFinished)
        assert isinstance(stopped, RunFailed)
        assert stopped.reason == "You stopped this edit."

    play(scenario)


def test_transcript_can_be_recorded_anew(tmp_path: Path, home: Path) -> None:
    lines = asyncio.run(asyncio.wait_for(record(tmp_path), 30))

    def outline(each: list[Line]) -> list[tuple[int, str, str]]:
        """Who said what, without what comes at times of its own."""
        told = [(line.connection, line.sender, type(line.decoded()).__name__) for line in each]
        free = ("ClockProbe", "ClockReply", "DeviceStatus", "EngineChanged", "Preparing", "RunEvents")
        return [each for each in told if each[2] not in free]

    assert outline([msgspec.json.decode(line, type=Line) for line in lines]) == outline(LINES)
