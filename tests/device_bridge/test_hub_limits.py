"""What a hub does with devices that vanish, flood, lie or make no sense."""

import asyncio
import contextlib
import re
import time

import msgspec
import pytest
from bridges import ENGINE, TOKEN, Bridge, Play, Wire, ignore, phone_of
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus
from worlds import until

from device_bridge.addresses import reachable_urls
from device_bridge.hub import MAX_DEVICES, MAX_RUN_EVENTS, MAX_STRANGERS, Hub
from device_bridge.protocol import (
    MAX_MESSAGE_BYTES,
    VERSIONS,
    Accepted,
    DeviceHello,
    DeviceStatus,
    EngineReport,
    FromDevice,
    Prepare,
    Prepared,
    Preparing,
    Rejected,
    RunEvents,
    RunJob,
    encode,
)
from sakura.codec.interface import CacheGeometry
from sakura.errors import UserError
from sakura.events import AnyEvent, NetworkWait, RepresentationChosen, RunFailed, RunFinished

GONE_S = 5.0
WAIT = NetworkWait(at_s=1.0, shard=0, started_s=0.5)


def test_page_of_another_site_is_refused(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        with pytest.raises(InvalidStatus, match="403"):
            await connect(bridge.hub.url, proxy=None, origin="https://example.org")  # type: ignore[arg-type]

    play(scenario)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"", "no device_hello of the bridge protocol"),
        (b"\xc1", "no device_hello of the bridge protocol"),
        ('{"kind": "device_hello"}', "no device_hello of the bridge protocol"),
        (encode(DeviceStatus()), "must be a device_hello"),
        (encode(DeviceHello(VERSIONS, "", ENGINE, TOKEN)), r"length >= 1 - at `\$.name`"),
        (encode(DeviceHello(VERSIONS, "Phone", EngineReport("x" * 500), TOKEN)), r"at `\$.engine.name`"),
    ],
)
def test_wrong_first_message_is_answered_with_a_sentence(play: Play, first: bytes | str, reason: str) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with phone_of(bridge.hub.url) as phone:
            await phone.connection.send(first)
            rejected = await phone.hear(Rejected)
            assert rejected.final
            assert re.search(reason, rejected.reason)
            with pytest.raises(ConnectionClosed) as closed:
                await phone.hear(Accepted)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008
        assert not bridge.hub.devices

    play(scenario)


def test_hello_that_never_comes_is_not_waited_for(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("device_bridge.hub.HELLO_TIMEOUT_S", 0.1)

    async def scenario(bridge: Bridge) -> None:
        async with phone_of(bridge.hub.url) as phone:
            rejected = await phone.hear(Rejected)
            assert rejected.reason == "No device_hello came within 0.1 s; send it first."
            assert not rejected.final

    play(scenario)


def test_strangers_are_bounded(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(MAX_STRANGERS):
                await stack.enter_async_context(phone_of(bridge.hub.url))
            with pytest.raises(ConnectionClosed) as closed:
                await (await stack.enter_async_context(phone_of(bridge.hub.url))).hear(Accepted)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1013
        async with bridge.agent():
            await bridge.device()

    play(scenario)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\xc1", 1002),
        (b"\x91" * 100_000, 1002),
        ("text", 1002),
        (bytes(MAX_MESSAGE_BYTES + 1), 1009),
        (encode(RunEvents("x" * 200, [])), 1002),
        (encode(DeviceStatus(temperature_c=float("nan"))), 1002),
        (encode(DeviceStatus(battery_percent=1e9)), 1002),
        (encode(Preparing("tiny-face", "sakura", float("inf"))), 1002),
    ],
)
def test_bad_frame_ends_the_connection_and_its_run_but_nothing_else(play: Play, frame: bytes | str, code: int) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with bridge.agent(), phone_of(bridge.hub.url) as phone:
            good = await bridge.device()
            await phone.hello()
            bad_id = (await phone.hear(Accepted)).device_id
            running = asyncio.create_task(bridge.run(bridge.job("bad"), bridge.hub.device(bad_id), ignore))
            await phone.hear(RunJob)
            await phone.connection.send(frame)
            last = (await running)[-1]
            assert isinstance(last, RunFailed)
            assert last.reason == "Phone was disconnected during this edit; connect it again, then press Edit."
            with pytest.raises(ConnectionClosedError) as closed:
                await phone.hear(Accepted)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == code
            assert isinstance((await bridge.run(bridge.job("good"), good, ignore))[-1], RunFinished)
        await until(lambda: not bridge.hub.devices)

    play(scenario)


@pytest.mark.parametrize(
    "numbers", [(0, 4, 2, 8, 8), (3, 4, 0, 8, 8), (3, 4, 3, 8, 8), (-3, 4, 2, 8, 8), (3, 4, 2, 8, 0)]
)
def test_impossible_geometry_is_no_message(numbers: tuple[int, int, int, int, int]) -> None:
    said = {
        "kind": "prepared",
        "template_id": "t",
        "codec": "c",
        "geometry": dict(zip(CacheGeometry.__struct_fields__, numbers, strict=True)),
        "active_step_s": 0.1,
        "full_step_s": 0.1,
    }
    with pytest.raises(msgspec.ValidationError, match="geometry counts from 1"):
        msgspec.msgpack.decode(msgspec.msgpack.encode(said), type=FromDevice)


def test_device_that_vanishes_silently_is_gone_in_time(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with Wire(bridge.hub.port) as wire, bridge.agent(url=wire.url):
            device = await bridge.device()
            vanished_s: list[float] = []

            async def vanish(event: AnyEvent) -> None:
                if isinstance(event, RepresentationChosen) and not vanished_s:
                    wire.freeze()
                    vanished_s.append(time.monotonic())

            last = (await bridge.run(bridge.job("slow", await bridge.slow_link()), device, vanish))[-1]
            assert isinstance(last, RunFailed)
            assert "was disconnected during this edit" in last.reason
            assert time.monotonic() - vanished_s[0] < GONE_S
            assert not bridge.hub.devices
            wire.thaw()  # the agent finds its way back
            assert isinstance((await bridge.run(bridge.job("back"), await bridge.device(), ignore))[-1], RunFinished)

    play(scenario)


def test_device_that_takes_nothing_is_gone_though_pings_are_stuck(play: Play) -> None:
    """What is not taken fills the buffers, and pings wait behind it: their answers are never missed."""

    async def scenario(bridge: Bridge) -> None:
        async with phone_of(bridge.hub.url) as phone:
            await phone.hello()
            await phone.hear(Accepted)
            device = await bridge.device()
            phone.connection.transport.pause_reading()
            began_s = time.monotonic()
            big = msgspec.structs.replace(bridge.job("big"), reference_png=bytes(MAX_MESSAGE_BYTES // 2))
            jobs = [msgspec.structs.replace(big, run_id=f"big-{number}") for number in range(4)]
            outcomes = await asyncio.gather(*(bridge.run(job, device, ignore) for job in jobs), return_exceptions=True)
            for outcome in outcomes:
                assert isinstance(outcome, UserError) or isinstance(outcome[-1], RunFailed)  # type: ignore[index]
            assert time.monotonic() - began_s < GONE_S
            assert not bridge.hub.devices

    play(scenario)


def test_new_connection_of_a_device_replaces_its_half_open_one(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        tokens: list[str] = []
        code = bridge.hub.pairing.new_code().code
        async with (
            Wire(bridge.hub.port) as wire,
            bridge.agent("", url=wire.url, pairing_code=code, on_token=tokens.append),
        ):
            before = await bridge.device()
            running = asyncio.create_task(bridge.run(bridge.job("slow", await bridge.slow_link()), before, ignore))
            await until(lambda: "slow" in before.runs)
            wire.freeze()
            began_s = time.monotonic()
            async with bridge.agent(tokens[0]):
                await until(lambda: bridge.hub.devices.get(before.device_id) not in (None, before))
                assert isinstance((await running)[-1], RunFailed)
                now = await bridge.device()
                assert isinstance((await bridge.run(bridge.job("next"), now, ignore))[-1], RunFinished)
                assert time.monotonic() - began_s < GONE_S / 2
                await asyncio.sleep(1.0)  # the end of the old one does not take the new one along
                assert bridge.hub.devices == {now.device_id: now}

    play(scenario)


def test_full_hub_still_takes_a_device_that_comes_back(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        hub = bridge.hub
        async with contextlib.AsyncExitStack() as stack:
            first = await stack.enter_async_context(phone_of(hub.url))
            await first.hello("", pairing_code=hub.pairing.new_code().code)
            mine = await first.hear(Accepted)
            for _ in range(MAX_DEVICES - 1):
                phone = await stack.enter_async_context(phone_of(hub.url))
                await phone.hello()
                await phone.hear(Accepted)
            another = await stack.enter_async_context(phone_of(hub.url))
            await another.hello()
            assert not (await another.hear(Rejected)).final
            again = await stack.enter_async_context(phone_of(hub.url))
            await again.hello(mine.token)
            assert (await again.hear(Accepted)).device_id == mine.device_id
            assert len(hub.devices) == MAX_DEVICES

    play(scenario)


def test_many_at_once_are_no_more_than_fit(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with contextlib.AsyncExitStack() as stack:
            phones = [await stack.enter_async_context(phone_of(bridge.hub.url)) for _ in range(MAX_DEVICES + 8)]
            await asyncio.gather(*(phone.hello() for phone in phones))
            answers = await asyncio.gather(*(phone.hear(Accepted | Rejected) for phone in phones))
            assert sum(isinstance(answer, Accepted) for answer in answers) == len(bridge.hub.devices) == MAX_DEVICES

    play(scenario)


def test_flood_of_events_is_bounded_counted_and_ends(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with phone_of(bridge.hub.url) as phone:
            await phone.hello()
            await phone.hear(Accepted)
            device = await bridge.device()
            flood, frames = 64, 2 * MAX_RUN_EVENTS // 64
            taking = asyncio.Event()

            async def wait(event: AnyEvent) -> None:
                await taking.wait()

            running = asyncio.create_task(bridge.run(bridge.job("flood"), device, wait))
            await phone.hear(RunJob)
            for _ in range(frames):
                await phone.say(RunEvents("flood", [WAIT] * flood))
            await phone.say(RunEvents("flood", [RunFailed(at_s=2.0, reason="Enough.")], dropped=5))
            await until(lambda: "flood" in device.traffic and device.traffic["flood"].frames == frames + 1)
            taking.set()
            events = await running
            assert events[-1] == RunFailed(at_s=2.0, reason="Enough.")
            assert len(events) <= MAX_RUN_EVENTS + 1
            assert len(events) + device.traffic["flood"].dropped == frames * flood + 1 + 5

    play(scenario)


def test_runs_that_nobody_asked_for_leave_nothing(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with phone_of(bridge.hub.url) as phone:
            await phone.hello()
            await phone.hear(Accepted)
            device = await bridge.device()
            geometry = CacheGeometry(3, 4, 2, 8, 8)
            for number in range(100):
                await phone.say(RunEvents(f"made up {number}", [WAIT]))
                await phone.say(Prepared(f"made up {number}", "sakura", geometry, 0.1, 0.2))
            await phone.say(DeviceStatus(battery_percent=50.0))
            await until(lambda: device.status.battery_percent == 50.0)
            assert not device.traffic
            assert not device.runs
            assert not device.preparing

    play(scenario)


def test_asker_that_gives_up_leaves_the_others_waiting_for_the_answer(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with phone_of(bridge.hub.url) as phone:
            await phone.hello()
            await phone.hear(Accepted)
            device = await bridge.device()
            done: list[float] = []
            first, second = (
                asyncio.create_task(bridge.hub.prepare(device, "t", "ws://x", "sakura", done.append)) for _ in range(2)
            )
            await phone.hear(Prepare)
            first.cancel()
            await phone.say(Preparing("t", "sakura", 0.5))
            await until(lambda: bool(done))
            await phone.say(Prepared("t", "sakura", CacheGeometry(3, 4, 2, 8, 8), 0.1, 0.2))
            assert (await second).full_step_s == 0.2
            assert done == [0.5]

    play(scenario)


def test_unknown_fields_are_passed_over(play: Play) -> None:
    """A later version may say more."""

    async def scenario(bridge: Bridge) -> None:
        async with phone_of(bridge.hub.url) as phone:
            hello = msgspec.to_builtins(DeviceHello([*VERSIONS, 99], "Phone", ENGINE, TOKEN))
            await phone.connection.send(msgspec.msgpack.encode({**hello, "colour": "red"}))
            assert (await phone.hear(Accepted)).version == VERSIONS[-1]

    play(scenario)


def test_addresses_are_ones_that_devices_reach() -> None:
    async def scenario() -> None:
        for host in ("127.0.0.1", "0.0.0.0", "::1"):
            async with Hub(TOKEN, host=host) as hub:
                for url in [*reachable_urls(hub), hub.local_url]:
                    async with phone_of(url) as phone:
                        await phone.hello()
                        await phone.hear(Accepted)

    asyncio.run(scenario())
