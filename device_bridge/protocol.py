"""Messages between the hub and its devices, over a websocket: msgpack maps with a ``kind`` field."""

from typing import TypeAlias

import msgspec

from sakura.cloud.protocol import decode_bounded
from sakura.codec.interface import CacheGeometry
from sakura.events import AnyEvent, System

VERSION = 2
MAX_MESSAGE_BYTES = 8 * 1024 * 1024
# A device that does not answer pings is gone within PING_INTERVAL_S + PING_TIMEOUT_S.
PING_INTERVAL_S = 2.0
PING_TIMEOUT_S = 2.5


class _Message(msgspec.Struct, frozen=True, tag_field="kind"):
    pass


class DeviceHello(_Message, frozen=True, tag="device_hello"):
    """The first message of a device: its protocol version, the token it was given, its name and its engine."""

    version: int
    token: str
    name: str
    engine: str


class Accepted(_Message, frozen=True, tag="accepted"):
    """The device is welcome under this id."""

    device_id: str


class Rejected(_Message, frozen=True, tag="rejected"):
    """The device is not welcome; the connection ends."""

    reason: str


class Prepare(_Message, frozen=True, tag="prepare"):
    """Get ready for edits of a template with a codec (its description, warm caches, a speed measurement)."""

    template_id: str
    cloud_url: str
    codec: str


class Preparing(_Message, frozen=True, tag="preparing"):
    """The cloud is building the template's cache; ``done`` from 0 to 1."""

    template_id: str
    codec: str
    done: float


class Prepared(_Message, frozen=True, tag="prepared"):
    """The device is ready for a template, and takes this long a step with and without the cache."""

    template_id: str
    codec: str
    geometry: CacheGeometry
    active_step_s: float
    full_step_s: float


class NotPrepared(_Message, frozen=True, tag="not_prepared"):
    """The device could not get ready, with a sentence why."""

    template_id: str
    codec: str
    reason: str


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
    """What happened in a run since the last such message, in order."""

    run_id: str
    events: list[AnyEvent]


ToDevice: TypeAlias = Accepted | Rejected | Prepare | RunJob | StopJob
FromDevice: TypeAlias = DeviceHello | Preparing | Prepared | NotPrepared | RunEvents

_ENCODER = msgspec.msgpack.Encoder()
_TO_DEVICE = msgspec.msgpack.Decoder(ToDevice)
_FROM_DEVICE = msgspec.msgpack.Decoder(FromDevice)


def encode(message: ToDevice | FromDevice) -> bytes:
    return _ENCODER.encode(message)


def decode_to_device(data: bytes) -> ToDevice:
    """Raises msgspec.DecodeError on anything that is not a message for a device."""
    return decode_bounded(_TO_DEVICE, data)


def decode_from_device(data: bytes) -> FromDevice:
    """Raises msgspec.DecodeError on anything that is not a message of a device."""
    return decode_bounded(_FROM_DEVICE, data)
