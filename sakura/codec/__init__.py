"""Codecs for a template's cache. To add one, write a file and name it in ``CODECS``."""

from sakura.codec.interface import Codec
from sakura.codec.sakura import SakuraCodec
from sakura.codec.uncompressed import UncompressedCodec

CODECS: dict[str, type[SakuraCodec] | type[UncompressedCodec]] = {
    "sakura": SakuraCodec,
    "uncompressed": UncompressedCodec,
}


def new_codec(name: str) -> Codec:
    """The codec of that name with its default options. Raises KeyError on an unknown name."""
    return CODECS[name]()
