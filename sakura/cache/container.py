"""The file that holds one template's cache: an index, then segments that can be read by byte range.

Layout, all integers little-endian::

    8 bytes   magic "SAKURAKV"
    u16       version (1)
    u32       length of the index
    u32       CRC-32 of the index
    index     msgpack map, see ContainerIndex
    payload   the segments of shard 0, of shard 1, ... without gaps

A segment's place follows from the sizes before it. Each has a CRC-32 in the index.
"""

import contextlib
import itertools
import mmap
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from sakura.cache.geometry import CacheGeometry
from sakura.codec.interface import EncodedShard, Rung

MAGIC = b"SAKURAKV"
VERSION = 1
PREFIX = struct.Struct("<8sHII")
MAX_INDEX_BYTES = 64 * 1024 * 1024


class ContainerError(Exception):
    """The file is not a cache that this version can read; the message names the part at fault."""


class ShardIndex(msgspec.Struct, frozen=True):
    """Where a shard's segments are, and which representations they offer."""

    segment_bytes: list[int]
    segment_crc32: list[int]
    rungs: list[Rung]


class ContainerIndex(msgspec.Struct, frozen=True):
    """What the cache is of (fingerprints), how it was encoded, and where everything is."""

    model: str
    template: str
    codec: str
    geometry: CacheGeometry
    shards: list[ShardIndex]


def write_container(
    path: Path, *, model: str, template: str, codec: str, geometry: CacheGeometry, shards: Iterable[EncodedShard]
) -> None:
    """Write a container; the file appears only when it is complete."""
    payload: list[bytes] = []
    entries = []
    for shard in shards:
        payload.extend(shard.segments)
        checksums = [zlib.crc32(segment) for segment in shard.segments]
        entries.append(ShardIndex([len(segment) for segment in shard.segments], checksums, shard.rungs))
    index = msgspec.msgpack.encode(ContainerIndex(model, template, codec, geometry, entries))
    with replacing(path) as file:
        file.write(PREFIX.pack(MAGIC, VERSION, len(index), zlib.crc32(index)))
        file.write(index)
        file.writelines(payload)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of ``path`` when it is complete; several processes may write the same one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        partial = Path(file.name)
        try:
            yield file
            file.flush()
        except BaseException:
            partial.unlink()
            raise
    partial.replace(path)


class Container:
    """A container opened for reading. Segments are read, and their checksums verified, one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        size = path.stat().st_size
        if size < PREFIX.size:
            raise ContainerError(f"{path.name} is too short to be a SAKURA cache.")
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        magic, version, index_bytes, checksum = PREFIX.unpack_from(self._bytes)
        if magic != MAGIC:
            raise ContainerError(f"{path.name} is not a SAKURA cache.")
        if version != VERSION:
            raise ContainerError(f"{path.name} has format version {version}; this program reads version {VERSION}.")
        if index_bytes > min(MAX_INDEX_BYTES, size - PREFIX.size):
            raise ContainerError(f"The index of {path.name} is longer than the file.")
        index = self._bytes[PREFIX.size : PREFIX.size + index_bytes]
        if zlib.crc32(index) != checksum:
            raise ContainerError(f"The index of {path.name} is damaged (its checksum does not match).")
        try:
            self.index = msgspec.msgpack.decode(index, type=ContainerIndex)
        except msgspec.DecodeError as error:
            raise ContainerError(f"The index of {path.name} cannot be read: {error}.") from error
        geometry = self.index.geometry
        if min(geometry.steps, geometry.blocks_per_shard, geometry.rows, geometry.columns) < 1:
            raise ContainerError(f"The geometry in {path.name} is not one of a cache.")
        if any(len(shard.segment_bytes) != len(shard.segment_crc32) for shard in self.index.shards):
            raise ContainerError(f"The index of {path.name} does not have a checksum for each segment.")
        sizes = [length for shard in self.index.shards for length in shard.segment_bytes]
        if any(length < 0 for length in sizes) or PREFIX.size + index_bytes + sum(sizes) != size:
            raise ContainerError(f"The segments of {path.name} do not fill the file exactly.")
        if len(self.index.shards) != geometry.shards:
            raise ContainerError(f"{path.name} holds {len(self.index.shards)} shards, which does not fit its geometry.")
        offsets = itertools.accumulate(sizes, initial=PREFIX.size + index_bytes)
        self._offsets = [[next(offsets) for _ in shard.segment_bytes] for shard in self.index.shards]

    def read_segment(self, shard: int, segment: int) -> bytes:
        """The bytes of one segment. Raises ContainerError if they are damaged."""
        entry = self.index.shards[shard]
        start = self._offsets[shard][segment]
        data = self._bytes[start : start + entry.segment_bytes[segment]]
        if zlib.crc32(data) != entry.segment_crc32[segment]:
            raise ContainerError(f"Segment {segment} of shard {shard} in {self.path.name} is damaged.")
        return data

    def verify(self) -> None:
        """Read every segment. Raises ContainerError naming the first damaged one."""
        for shard, entry in enumerate(self.index.shards):
            for segment in range(len(entry.segment_bytes)):
                self.read_segment(shard, segment)

    def close(self) -> None:
        self._bytes.close()
