"""Codecs for a template's cache. To add one, write a file and name it in ``CODECS``."""

from collections.abc import Mapping

import msgspec

from sakura.codec.cachegen import CacheGenCodec
from sakura.codec.interface import Codec
from sakura.codec.intq import IntqCodec
from sakura.codec.low_rank import LowRankCodec
from sakura.codec.sakura import SakuraCodec
from sakura.codec.uncompressed import UncompressedCodec

CODECS: dict[str, type[Codec]] = {
    codec.name: codec for codec in (SakuraCodec, IntqCodec, CacheGenCodec, LowRankCodec, UncompressedCodec)
}


def new_codec(name: str, options: Mapping[str, object] | None = None) -> Codec:
    """The codec of that name. Raises KeyError on an unknown name, msgspec.ValidationError on options that it lacks."""
    return msgspec.convert(options or {}, CODECS[name], strict=False)


def options_of(codec: Codec) -> dict[str, object]:
    """A codec's options as plain values, for :func:`new_codec`."""
    return msgspec.to_builtins(codec)
