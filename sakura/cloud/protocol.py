"""Messages between the cloud and those that use it, over a websocket: msgpack maps with a ``kind`` field.

The cloud learns template ids, segment numbers and network settings; no message has room for a picture or a prompt.
"""

from typing import TypeAlias, TypeVar

import msgspec

from sakura.codec.interface import CacheGeometry, Ladder
from sakura.portraits.tasks import Subject

T = TypeVar("T")

VERSION = 3
PIECE_BYTES = 16 * 1024
SEGMENT_HEADER_BYTES = 11  # at most, of id, size and CRC-32 of a segment in the header of its fetch
FETCH_HEADER_BYTES = 100  # at most, of the rest of the messages that carry a fetch up to a piece
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
MAX_TRACE_ROWS = 100_000


class _Message(msgspec.Struct, frozen=True, tag_field="kind"):
    pass


class Hello(_Message, frozen=True, tag="hello"):
    """The first message of a device: the protocol that it speaks and the model that it runs (fingerprint)."""

    version: int
    model: str


class Describe(_Message, frozen=True, tag="describe"):
    """Ask what is needed before the first edit of a template with a codec; its cache is built if there is none yet."""

    template_id: str
    codec: str


class AskImportance(_Message, frozen=True, tag="ask_importance"):
    """Ask how important each reusable token of a template is."""

    template_id: str


class OpenStream(_Message, frozen=True, tag="open_stream"):
    """Begin to fetch segments of a template under a stream number that the device chose.

    ``link_id`` names an emulated link; without one, segments go out as fast as the real network takes them.
    """

    stream: int
    template_id: str
    codec: str
    link_id: str | None


class Fetch(_Message, frozen=True, tag="fetch"):
    """Ask for segments, under a number that the device chose. They are sent in the order asked."""

    stream: int
    fetch_id: int
    segments: list[int]


class Cancel(_Message, frozen=True, tag="cancel"):
    """Do not send what is left of a fetch."""

    stream: int
    fetch_id: int


class CloseStream(_Message, frozen=True, tag="close_stream"):
    """Forget a stream and whatever of it is queued."""

    stream: int


class EmulateLink(_Message, frozen=True, tag="emulate_link"):
    """Declare an emulated link, or change the one of that id at once, also while it is in use.

    ``edges_s`` (rows + 1) and ``rates_mbps`` (rows) are the trace, which repeats; ``offset_s`` is where it starts.
    """

    link_id: str
    title: str
    edges_s: list[float]
    rates_mbps: list[float]
    rtt_s: float
    offset_s: float


class Welcome(_Message, frozen=True, tag="welcome"):
    """The cloud's answer to Hello: the model that its caches are of."""

    version: int
    model: str


class Building(_Message, frozen=True, tag="building"):
    """A template's cache is being built; ``done`` is the share from 0 to 1."""

    template_id: str
    done: float


class Description(_Message, frozen=True, tag="description"):
    """A template and its cache in a codec: its options, its segments' sizes, and the representations of each shard."""

    template_id: str
    codec: str
    subject: Subject
    has_reference: bool
    picture_png: bytes
    mask_png: bytes
    model: str
    template: str
    geometry: CacheGeometry
    options: dict[str, object]
    segment_bytes: list[int]
    ladders: list[Ladder]
    ladder_of: list[int]


class Importance(_Message, frozen=True, tag="importance"):
    """Importance a captured request: little-endian float32 of shape ``shape`` = (requests, steps, blocks, tokens)."""

    template_id: str
    shape: tuple[int, int, int, int]
    scores: bytes


class FetchHeader(_Message, frozen=True, tag="fetch_header"):
    """The segments of a fetch follow as pieces: their ids, sizes and CRC-32s, in the order sent."""

    stream: int
    fetch_id: int
    segment_ids: list[int]
    segment_bytes: list[int]
    segment_crc32: list[int]


class Piece(_Message, frozen=True, tag="piece"):
    """The next bytes of a fetch's segments, which are sent back to back."""

    stream: int
    fetch_id: int
    data: bytes


class Linked(_Message, frozen=True, tag="linked"):
    """The emulated link of that id is in force."""

    link_id: str


class Refused(_Message, frozen=True, tag="refused"):
    """A request that cannot be served, with a sentence why.

    ``about`` says which: "hello", "template ID CODEC", "importance ID", "stream NUMBER", "link ID", or "" for one that
    could not be read.
    """

    about: str
    reason: str


ToCloud: TypeAlias = Hello | Describe | AskImportance | OpenStream | Fetch | Cancel | CloseStream | EmulateLink
FromCloud: TypeAlias = Welcome | Building | Description | Importance | FetchHeader | Piece | Linked | Refused

_ENCODER = msgspec.msgpack.Encoder()
_TO_CLOUD = msgspec.msgpack.Decoder(ToCloud)
_FROM_CLOUD = msgspec.msgpack.Decoder(FromCloud)


def decode_bounded(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    """Decode, and refuse what is nested too deeply like anything else that is no message."""
    try:
        return decoder.decode(data)
    except RecursionError as error:
        raise msgspec.DecodeError("nested too deeply") from error


def encode(message: ToCloud | FromCloud) -> bytes:
    return _ENCODER.encode(message)


def decode_to_cloud(data: bytes) -> ToCloud:
    """Raises msgspec.DecodeError on anything that is not a message for the cloud."""
    return decode_bounded(_TO_CLOUD, data)


def decode_from_cloud(data: bytes) -> FromCloud:
    """Raises msgspec.DecodeError on anything that is not a message of the cloud."""
    return decode_bounded(_FROM_CLOUD, data)
