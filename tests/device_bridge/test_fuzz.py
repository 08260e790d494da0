"""Whatever comes as a frame is a message or a msgspec.DecodeError, and costs nothing that stays."""

import asyncio
import gc
import random
import struct
from collections.abc import Iterator

import msgspec
import psutil
import pytest
from bridges import TOKEN, phone_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_transcript import LINES
from websockets.exceptions import ConnectionClosed
from worlds import until

from device_bridge.hub import Hub
from device_bridge.protocol import Accepted, DeviceStatus, Rejected, decode_from_device, decode_to_device, encode

FRAMES = sorted({line.frame for line in LINES}, key=len)
BOMBS = [
    b"\x91" * 200_000,
    b"\x81\xa1a" * 200_000,
    b"\x81\xa4kind" * 100_000,
    b"\x84\xa4kind\xaarun_events\xa6run_id\xa1r\xa7dropped\x00\xa6events" + b"\x91" * 200_000,
    b"\x82\xa4kind\xaarun_events\xa6events\xdd\xff\xff\xff\xff",
    b"\x82\xa4kind\xaarun_events\xa6run_id\xdb\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xc9\xff\xff\xff\xff\x01",
    b"\x82\xa4kind\xaarun_events\xa1x" + b"\x91" * 200_000,
]
HEAVY_FRAMES, BATCH = 100_000, 2_000
GROWTH_BYTES = 16 * 1024 * 1024


def check(frame: bytes) -> bool:
    """Decode a frame both ways; whether it was a message. Anything but msgspec.DecodeError comes through."""
    understood = False
    for decode in (decode_from_device, decode_to_device):
        try:
            message = decode(frame)
        except msgspec.DecodeError:
            continue
        assert encode(decode(encode(message))) == encode(message)  # numbers may be NaN
        understood = True
    return understood


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A frame of the recorded conversation with some bytes changed, cut out, doubled or put in."""
    data = bytearray(draw(st.sampled_from(FRAMES)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 3)):
            case 0:
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case 1:
                del data[at : at + draw(st.integers(1, 40))]
            case 2:
                data[at:at] = data[at : at + draw(st.integers(1, 40))]
            case _:
                data[at:at] = draw(st.binary(min_size=1, max_size=9))
    return bytes(data)


@st.composite
def wrong_fields(draw: st.DrawFn) -> bytes:
    """A message with something else in one of its fields."""
    said = msgspec.msgpack.decode(draw(st.sampled_from(FRAMES)))
    said[draw(st.sampled_from(sorted(said)))] = draw(json_like)
    return msgspec.msgpack.encode(said)


@st.composite
def long_prefixes(draw: st.DrawFn) -> bytes:
    """A header that promises far more than follows, in the place of some field."""
    said = sorted(msgspec.msgpack.decode(draw(st.sampled_from(FRAMES))))
    head = draw(st.sampled_from([b"\xdd", b"\xdf", b"\xc6", b"\xdb", b"\xc9"]))
    size = struct.pack(">I", draw(st.integers(2**16, 2**32 - 1)))
    field = draw(st.sampled_from(said)).encode()
    kind = draw(st.sampled_from([b"run_events", b"run_job", b"device_hello", b"accepted", b"prepared"]))
    text = bytes([0xA0 | len(kind)]) + kind
    return b"\x82\xa4kind" + text + bytes([0xA0 | len(field)]) + field + head + size + draw(st.binary(max_size=20))


@settings(max_examples=900)
@given(mutated())
def test_mutated_frames(frame: bytes) -> None:
    check(frame)


@settings(max_examples=700)
@given(st.binary(max_size=300))
@example(b"")
def test_random_bytes(frame: bytes) -> None:
    check(frame)


@settings(max_examples=400)
@given(wrong_fields())
def test_wrong_fields(frame: bytes) -> None:
    check(frame)


@settings(max_examples=300)
@given(long_prefixes())
def test_long_prefixes(frame: bytes) -> None:
    assert not check(frame)


@pytest.mark.parametrize("frame", BOMBS, ids=lambda frame: f"{frame[:3].hex()}-{len(frame)}")
def test_nesting_and_promises(frame: bytes) -> None:
    assert not check(frame)


@settings(max_examples=200)
@given(st.lists(st.integers(0, 255), max_size=8), st.integers(1, 4000))
def test_nesting_of_any_depth(tail: list[int], depth: int) -> None:
    for level in (b"\x91", b"\x81\xa1a", b"\x82\xa4kind\xaarun_events\xa6events\x91"):
        check(level * depth + bytes(tail))


def stream(seed: int) -> Iterator[bytes]:
    """Frames for ever, as in the tests above, but quicker made."""
    rng = random.Random(seed)
    while True:
        choice = rng.random()
        data = bytearray(rng.choice(FRAMES))
        if choice < 0.1:
            yield rng.randbytes(rng.randrange(400))
            continue
        if choice < 0.101:
            yield rng.choice(BOMBS)
            continue
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data) + 1)
            match rng.randrange(4):
                case 0:
                    data[at : at + 1] = rng.randbytes(1)
                case 1:
                    del data[at : at + rng.randrange(1, 40)]
                case 2:
                    data[at:at] = data[at : at + rng.randrange(1, 40)]
                case _:
                    data[at:at] = rng.choice([b"\xdd\xff\xff\xff\xff", b"\xc6\x7f\xff\xff\xff", b"\x91" * 50, b"\xc1"])
        yield bytes(data)


async def bombard(hub: Hub, frames: Iterator[bytes], count: int) -> None:
    """Have a hub read frames, as a first message or as one of a device; it puts out who says what is no message."""
    said = 0
    while said < count:
        async with phone_of(hub.url) as phone:
            try:
                if said % 4:
                    await phone.hello(TOKEN)
                    await phone.hear(Accepted)
                while said < count:
                    frame = next(frames)
                    said += 1
                    await phone.connection.send(frame)
                    if not is_from_device(frame):
                        await phone.connection.wait_closed()
            except ConnectionClosed:
                pass


def is_from_device(frame: bytes) -> bool:
    try:
        decode_from_device(frame)
    except msgspec.DecodeError:
        return False
    return True


def play_bombardment(count: int, seed: int = 1) -> None:
    async def scenario() -> None:
        failures: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        async with Hub(TOKEN) as hub, phone_of(hub.url) as bystander:
            await bystander.hello(TOKEN, name="Bystander")
            mine = (await bystander.hear(Accepted)).device_id
            listening = asyncio.create_task(bystander.hear(Rejected))  # takes the probes meanwhile
            await bombard(hub, stream(seed), count)
            await until(lambda: list(hub.devices) == [mine])
            await bystander.say(DeviceStatus(battery_percent=77.0))
            await until(lambda: hub.devices[mine].status.battery_percent == 77.0)
            assert not listening.done()
            listening.cancel()
        assert not failures

    asyncio.run(scenario())


def test_live_hub_outlives_what_is_no_message(caplog: pytest.LogCaptureFixture) -> None:
    play_bombardment(300)
    assert "handler failed" not in caplog.text


def rss_bytes() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


@pytest.mark.heavy
def test_hundred_thousand_frames_raise_nothing_else_and_leave_nothing() -> None:
    frames = stream(2)
    for _ in range(BATCH):
        check(next(frames))
    before_bytes = rss_bytes()
    understood = sum(check(next(frames)) for _ in range(HEAVY_FRAMES))
    grown_bytes = rss_bytes() - before_bytes
    print(f"{understood} of {HEAVY_FRAMES} frames were messages; memory grew by {grown_bytes / 2**20:.1f} MiB")  # noqa: T201
    assert grown_bytes < GROWTH_BYTES


@pytest.mark.heavy
@pytest.mark.timeout(1200)
def test_live_hub_outlives_a_hundred_thousand_frames(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("ERROR")  # a warning a frame is kept by the fixture, not by the hub
    play_bombardment(BATCH)
    before_bytes = rss_bytes()
    play_bombardment(HEAVY_FRAMES, 3)
    grown_bytes = rss_bytes() - before_bytes
    print(f"{HEAVY_FRAMES} frames to a live hub; memory grew by {grown_bytes / 2**20:.1f} MiB")  # noqa: T201
    assert grown_bytes < GROWTH_BYTES
    assert "handler failed" not in caplog.text
