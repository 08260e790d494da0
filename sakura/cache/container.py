"""The file that holds one template's cache: an index, then segments that can be read by byte range.

FORMAT.md beside this module describes it byte by byte.
"""

import contextlib
import itertools
import os
import struct
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol

import fsspec
import msgspec
from fsspec.core import url_to_fs

from sakura.codec import new_codec, options_of
from sakura.codec.interface import CacheGeometry, Codec, EncodedCache, Ladder
from sakura.codec.offers import offer_fault

MAGIC = b"SAKURAKV"
VERSION = 2
PREFIX = struct.Struct("<8sHII")
MAX_INDEX_BYTES = 64 * 1024 * 1024


class ContainerError(Exception):
    """The file is not a cache that this version can read; the message names the part at fault."""


class ContainerIndex(msgspec.Struct, frozen=True):
    """What the cache is of (fingerprints), how it was encoded, and where everything is."""

    model: str
    template: str
    codec: str
    options: dict[str, object]
    geometry: CacheGeometry
    segment_bytes: list[int]
    segment_crc32: list[int]
    ladders: list[Ladder]
    ladder_of: list[int]


def pack_container(encoded: EncodedCache, *, model: str, template: str, codec: Codec, geometry: CacheGeometry) -> bytes:
    """The bytes of a container."""
    index = msgspec.msgpack.encode(
        ContainerIndex(
            model,
            template,
            codec.name,
            options_of(codec),
            geometry,
            [len(segment) for segment in encoded.segments],
            [zlib.crc32(segment) for segment in encoded.segments],
            encoded.ladders,
            encoded.ladder_of,
        )
    )
    return b"".join((PREFIX.pack(MAGIC, VERSION, len(index), zlib.crc32(index)), index, *encoded.segments))


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


def write_file(url: str, data: bytes) -> None:
    """Write a local file at once, or an object of any store that fsspec knows."""
    filesystem, path = url_to_fs(url)
    if "file" in filesystem.protocol:
        with replacing(Path(path)) as file:
            file.write(data)
    else:
        filesystem.makedirs(filesystem._parent(path), exist_ok=True)
        filesystem.pipe_file(path, data)


class _ByteRanges(Protocol):
    size: int

    def read(self, start: int, end: int) -> bytes: ...

    def close(self) -> None: ...


class _LocalFile:
    """A local file. It is not mapped: a mapped file that someone cuts short takes the process with it."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self._descriptor).st_size

    def read(self, start: int, end: int) -> bytes:
        return os.pread(self._descriptor, end - start, start)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


class _Object:
    """An object of a store, or a file behind HTTP, read by ranges."""

    def __init__(self, filesystem: fsspec.AbstractFileSystem, path: str) -> None:
        self._filesystem, self._path = filesystem, path
        size = filesystem.size(path)
        if size is None:
            raise ContainerError(f"The store of {path} does not tell its size; copy the file and open that.")
        self.size = int(size)

    def read(self, start: int, end: int) -> bytes:
        end = min(end, self.size)
        data = self._filesystem.cat_file(self._path, start, end) if end > start else b""
        if len(data) != max(0, end - start):
            raise ContainerError(f"The store of {self._path} does not serve byte ranges; copy the file and open that.")
        return data

    def close(self) -> None:
        pass


class _Held:
    """All of a file in memory."""

    def __init__(self, data: bytes) -> None:
        self._data, self.size = data, len(data)

    def read(self, start: int, end: int) -> bytes:
        return self._data[start:end]

    def close(self) -> None:
        pass


class Container:
    """A container opened for reading, by path or URL. Segments are read, and their checksums verified, one at a time.

    Raises FileNotFoundError where there is none, ContainerError where it cannot be read.
    """

    def __init__(self, url: str | Path) -> None:
        filesystem, path = url_to_fs(str(url))
        self.name = path.rsplit("/", 1)[-1]
        local = "file" in filesystem.protocol
        self._bytes: _ByteRanges = _LocalFile(path) if local else _Object(filesystem, path)
        try:
            self.index, start = self._read_index()
            self._check(start)
        except BaseException:
            self.close()
            raise
        self._offsets = list(itertools.accumulate(self.index.segment_bytes, initial=start))

    @property
    def geometry(self) -> CacheGeometry:
        return self.index.geometry

    @property
    def size_bytes(self) -> int:
        return self._bytes.size

    @property
    def index_bytes(self) -> int:
        """How much of the file comes before the first segment."""
        return self._offsets[0]

    @property
    def codec(self) -> Codec:
        return new_codec(self.index.codec, self.index.options)

    def _read_index(self) -> tuple[ContainerIndex, int]:
        name, size = self.name, self._bytes.size
        prefix = self._bytes.read(0, PREFIX.size)
        if len(prefix) < PREFIX.size:
            raise ContainerError(f"{name} is too short to be a SAKURA cache.")
        magic, version, index_bytes, checksum = PREFIX.unpack(prefix)
        if magic != MAGIC:
            raise ContainerError(f"{name} is not a SAKURA cache.")
        if version != VERSION:
            raise ContainerError(f"{name} has format version {version}; this program reads version {VERSION}.")
        start = PREFIX.size + index_bytes
        if index_bytes > MAX_INDEX_BYTES or start > size:
            raise ContainerError(f"The index of {name} is longer than the file.")
        index = self._bytes.read(PREFIX.size, start)
        if zlib.crc32(index) != checksum:
            raise ContainerError(f"The index of {name} is damaged (its checksum does not match).")
        try:
            return msgspec.msgpack.decode(index, type=ContainerIndex), start
        except (msgspec.DecodeError, RecursionError) as error:
            raise ContainerError(f"The index of {name} cannot be read: {error}.") from error

    def _check(self, start: int) -> None:
        """Refuse an index that contradicts itself or the file."""
        name, index, geometry = self.name, self.index, self.index.geometry
        if len(index.segment_bytes) != len(index.segment_crc32):
            raise ContainerError(f"The index of {name} does not have a checksum for each segment.")
        if any(size < 0 for size in index.segment_bytes) or start + sum(index.segment_bytes) != self._bytes.size:
            raise ContainerError(f"The segments of {name} do not fill the file exactly.")
        fault = offer_fault(
            name, geometry, index.codec, index.options, index.segment_bytes, index.ladders, index.ladder_of
        )
        if fault:
            raise ContainerError(fault)

    def hold(self) -> None:
        """Bring all of an object or a file behind HTTP here at once, so that later reads need no network."""
        if isinstance(self._bytes, _Object):
            self._bytes = _Held(self._bytes.read(0, self._bytes.size))

    def read_segment(self, segment: int) -> bytes:
        """The bytes of one segment. Raises ContainerError if they are damaged."""
        data = self._bytes.read(self._offsets[segment], self._offsets[segment + 1])
        if zlib.crc32(data) != self.index.segment_crc32[segment]:
            raise ContainerError(f"Segment {segment} of {self.name} is damaged.")
        return data

    def read_all(self) -> EncodedCache:
        """Everything. Raises ContainerError naming the first damaged segment."""
        segments = [self.read_segment(segment) for segment in range(len(self.index.segment_bytes))]
        return EncodedCache(segments, self.index.ladders, self.index.ladder_of)

    def close(self) -> None:
        self._bytes.close()
