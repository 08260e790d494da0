"""The systems that are compared: how each may be encoded best, and how each is streamed."""

import dataclasses
from collections.abc import Mapping

from sakura.codec import new_codec
from sakura.codec.interface import Codec
from sakura.events import System

EQUAL_BINS = {"thirds": (1.0, 1.0, 1.0), "unit": "matrix"}
WITHOUT_DELTAS = {"thirds": (1.0, 1.0, 1.0), "deltas": False}
# Options by name, the usually strongest first. A baseline is compared by whichever does best at the bytes in question.
OPTIONS: dict[str, dict[str, Mapping[str, object]]] = {
    "sakura": {"as shipped": {}},
    "intq": {"keys before RoPE": {}, "keys after RoPE": {"keys": "after_rope"}},
    "cachegen": {
        "equal bins": EQUAL_BINS,
        "bins by thirds and channel": {},
        "without deltas": WITHOUT_DELTAS,
        "raster order": {"order": "raster"},
        "keys after RoPE": {"keys": "after_rope"},
    },
    "low-rank": {"keys before RoPE": {}, "keys after RoPE": {"keys": "after_rope"}},
    "uncompressed": {"as captured": {}},
}


def strongest(system: str) -> Mapping[str, object]:
    """The options that usually serve a system best."""
    return next(iter(OPTIONS[system].values()))


@dataclasses.dataclass(frozen=True)
class Streamed:
    """How a system streams a cache: with which codec, chosen by which controller of ``sakura.control``.

    ``patient``: it waits for the network however slow that is, as a download would.
    """

    codec: str
    controller: str
    patient: bool = False


STREAMED: dict[System, Streamed] = {
    "sakura": Streamed("sakura", "deadline-progressive"),
    "intq": Streamed("intq", "choose-before-send"),
    "cachegen": Streamed("cachegen", "cachegen"),
    "full_cache": Streamed("uncompressed", "fixed", patient=True),
}
STREAMED_CODECS = tuple(streamed.codec for streamed in STREAMED.values())


def streamed_codec(name: str) -> Codec:
    """The codec as caches are streamed with it: with its strongest options. Raises KeyError on an unknown name."""
    return new_codec(name, strongest(name))


def codec_of(system: System) -> str:
    """The codec that a device gets ready for; SAKURA's where the system streams nothing."""
    return STREAMED[system].codec if system in STREAMED else STREAMED["sakura"].codec
