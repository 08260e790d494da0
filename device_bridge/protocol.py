"""Messages between the hub and its devices, over a websocket: msgpack maps with a ``kind`` field.

PROTOCOL.md beside this file describes them for implementations in other languages.
"""

from typing import Annotated, TypeAlias

import msgspec

from sakura.cloud.protocol import decode_bounded
from sakura.codec.interface import CacheGeometry
from sakura.events import AnyEvent, System

VERSION = 3
VERSIONS = [VERSION]  # that this side can speak
MAX_MESSAGE_BYTES = 8 * 1024 * 1024
# Who does not answer pings is gone within PING_INTERVAL_S + PING_TIMEOUT_S + CLOSE_TIMEOUT_S.
PING_INTERVAL_S = 1.0
PING_TIMEOUT_S = 3.0
CLOSE_TIMEOUT_S = 0.5
MAX_FRAME_EVENTS = 2048
MAX_SENTENCE = 2000

# Limits hold for what devices say: the hub does not trust them with its memory, nor with numbers that are none.
Text = Annotated[str, msgspec.Meta(max_length=400)]
Sentence = Annotated[str, msgspec.Meta(max_length=MAX_SENTENCE)]
Name = Annotated[str, msgspec.Meta(max_length=128)]  # of a run, a template or a codec
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
ClockSeconds = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class _Message(msgspec.Struct, frozen=True, tag_field="kind"):
    pass


class Placement(msgspec.Struct, frozen=True):
    """Where blocks ``first`` to ``last`` (exclusive) run: the engine requested, the one it came to, and why if not."""

    first: int
    last: int
    requested: Text
    resolved: Text
    reason: Text = ""


class EngineReport(msgspec.Struct, frozen=True):
    """What a device computes with, for people; and its speed for a step of a typical edit, 0 where not measured."""

    name: Text
    provider: Text = ""
    placements: Annotated[list[Placement], msgspec.Meta(max_length=256)] = []
    active_step_s: Seconds = 0.0
    full_step_s: Seconds = 0.0


class DeviceHello(_Message, frozen=True, tag="device_hello"):
    """The first message of a device: what it can speak, who it is, and by what it is known.

    ``token`` is what the hub gave it when it was paired; without one, ``pairing_code`` is what people read in the page.
    """

    versions: Annotated[list[int], msgspec.Meta(max_length=64)]
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    engine: EngineReport
    token: Text = ""
    pairing_code: Annotated[str, msgspec.Meta(max_length=16)] = ""


class Accepted(_Message, frozen=True, tag="accepted"):
    """The device is welcome. ``token`` is there once, after pairing; the device comes back with it."""

    version: int
    device_id: str
    token: str = ""


class Rejected(_Message, frozen=True, tag="rejected"):
    """The device is not welcome; the connection ends. ``final``: coming back in the same way would not help."""

    reason: str
    final: bool = True


class ClockProbe(_Message, frozen=True, tag="clock_probe"):
    """What time is it? ``sent_s`` is the hub's, to be given back."""

    sent_s: float


class ClockReply(_Message, frozen=True, tag="clock_reply"):
    """It is ``device_s`` on the device's monotonic clock."""

    sent_s: ClockSeconds
    device_s: ClockSeconds


class DeviceStatus(_Message, frozen=True, tag="device_status"):
    """How a device is; what it cannot tell is absent. Sent now and then, by the device's own choice."""

    temperature_c: Annotated[float, msgspec.Meta(ge=-100, le=200)] | None = None
    battery_percent: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    charging: bool | None = None
    memory_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None


class EngineChanged(_Message, frozen=True, tag="engine_changed"):
    """The device computes with something else than it said: a shard failed, and another engine runs it from now on."""

    engine: EngineReport


class Prepare(_Message, frozen=True, tag="prepare"):
    """Get ready for edits of a template with a codec (its description, warm caches, a speed measurement)."""

    template_id: str
    cloud_url: str
    codec: str


class Preparing(_Message, frozen=True, tag="preparing"):
    """The cloud is building the template's cache; ``done`` from 0 to 1."""

    template_id: Name
    codec: Name
    done: Share


class Prepared(_Message, frozen=True, tag="prepared"):
    """The device is ready for a template, and takes this long a step with and without the cache."""

    template_id: Name
    codec: Name
    geometry: CacheGeometry
    active_step_s: Seconds
    full_step_s: Seconds

    def __post_init__(self) -> None:
        """Raises ValueError (on decoding msgspec.ValidationError) on a geometry that nobody could compute with."""
        geometry = self.geometry
        if min(msgspec.structs.astuple(geometry)) < 1 or geometry.blocks % geometry.blocks_per_shard:
            raise ValueError("geometry counts from 1, and its blocks are a multiple of blocks_per_shard")


class NotPrepared(_Message, frozen=True, tag="not_prepared"):
    """The device could not get ready, with a sentence why."""

    template_id: Name
    codec: Name
    reason: Sentence


class RunJob(_Message, frozen=True, tag="run_job"):
    """Run a request. ``reference_png`` and ``words`` are the user's; they stay on the device."""

    run_id: str
    template_id: str
    cloud_url: str
    system: System
    words: list[str]
    reference_png: bytes | None
    seed: int
    rate_budget_bytes: int | None
    link_id: str | None
    rtt_s: float
    controller: str


class StopJob(_Message, frozen=True, tag="stop_job"):
    """End a run early."""

    run_id: str


class RunEvents(_Message, frozen=True, tag="run_events"):
    """What happened in a run since the last such message, in order.

    ``dropped`` counts events that were left out since then, because the hub took them too slowly.
    """

    run_id: Name
    events: Annotated[list[AnyEvent], msgspec.Meta(max_length=MAX_FRAME_EVENTS)]
    dropped: Annotated[int, msgspec.Meta(ge=0)] = 0


ToDevice: TypeAlias = Accepted | Rejected | ClockProbe | Prepare | RunJob | StopJob
FromDevice: TypeAlias = (
    DeviceHello | ClockReply | DeviceStatus | EngineChanged | Preparing | Prepared | NotPrepared | RunEvents
)

_ENCODER = msgspec.msgpack.Encoder()
_TO_DEVICE = msgspec.msgpack.Decoder(ToDevice)
_FROM_DEVICE = msgspec.msgpack.Decoder(FromDevice)


def common_version(theirs: list[int]) -> int | None:
    """The newest version that both sides speak."""
    return max(set(theirs) & set(VERSIONS), default=None)


def encode(message: ToDevice | FromDevice) -> bytes:
    return _ENCODER.encode(message)


def decode_to_device(data: bytes) -> ToDevice:
    """Raises msgspec.DecodeError on anything that is not a message for a device."""
    return decode_bounded(_TO_DEVICE, data)


def decode_from_device(data: bytes) -> FromDevice:
    """Raises msgspec.DecodeError on anything that is not a message of a device."""
    return decode_bounded(_FROM_DEVICE, data)
