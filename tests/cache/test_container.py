import random
import struct
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest

from sakura.cache.container import MAGIC, PREFIX, Container, ContainerError, ContainerIndex, write_container
from sakura.codec.interface import CacheGeometry
from sakura.codec.interface import EncodedShard, Representation, Rung

GEOMETRY = CacheGeometry(steps=2, blocks=4, blocks_per_shard=2, rows=6, columns=4)
MUTATIONS = 2_000


def some_shards() -> list[EncodedShard]:
    rng = np.random.default_rng(0)
    rungs = [Rung(Representation(4, 4, 4), 12, 0.5), Rung(Representation(4, 8, 8), 30, 0.1)]
    return [EncodedShard([rng.bytes(size) for size in (12, 18, 1 + number)], rungs) for number in range(4)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "some.sakura"
    write_container(path, model="m", template="t", codec="sakura", geometry=GEOMETRY, shards=some_shards())
    return path


def contents(container: Container) -> list[list[bytes]]:
    return [
        [container.read_segment(shard, segment) for segment in range(len(entry.segment_bytes))]
        for shard, entry in enumerate(container.index.shards)
    ]


def replace_index(path: Path, **changes: object) -> None:
    """Write the index anew with its checksum right, as a faulty writer would."""
    data = path.read_bytes()
    _, version, size, _ = PREFIX.unpack_from(data)
    index = msgspec.msgpack.decode(data[PREFIX.size : PREFIX.size + size], type=ContainerIndex)
    encoded = msgspec.msgpack.encode(msgspec.structs.replace(index, **changes))
    head = PREFIX.pack(MAGIC, version, len(encoded), zlib.crc32(encoded))
    path.write_bytes(head + encoded + data[PREFIX.size + size :])


def test_round_trip(path: Path) -> None:
    container = Container(path)
    assert (container.index.model, container.index.template, container.index.codec) == ("m", "t", "sakura")
    assert container.index.geometry == GEOMETRY
    assert contents(container) == [shard.segments for shard in some_shards()]
    assert [entry.rungs for entry in container.index.shards] == [shard.rungs for shard in some_shards()]
    container.verify()
    assert [child.name for child in path.parent.iterdir()] == [path.name]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """``data`` with a few bytes changed, cut, repeated or added."""
    changed = bytearray(data)
    kind = rng.choice(("flip", "set", "cut", "extend", "insert", "delete"))
    if kind == "flip":
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    elif kind == "set":
        start = rng.randrange(len(changed))
        changed[start : start + 4] = rng.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", rng.randbytes(4)))
        del changed[len(data) :]
    elif kind == "cut":
        del changed[rng.randrange(len(changed)) :]
    elif kind == "extend":
        changed += rng.randbytes(rng.randint(1, 50))
    elif kind == "insert":
        start = rng.randrange(len(changed))
        changed[start:start] = rng.randbytes(rng.randint(1, 5))
    else:
        start = rng.randrange(len(changed))
        del changed[start : start + rng.randint(1, 5)]
    return bytes(changed)


def test_damage_is_named_and_never_read(path: Path) -> None:
    data = path.read_bytes()
    expected = contents(Container(path))
    rng = random.Random(7)
    noticed = 0
    for _ in range(MUTATIONS):
        path.write_bytes(mutated(data, rng))
        try:
            container = Container(path)
            try:
                assert contents(container) == expected
            finally:
                container.close()
        except ContainerError as error:
            noticed += 1
            assert path.name in str(error)
    assert noticed > 0.95 * MUTATIONS


def test_wrong_magic_and_version_are_named(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(b"PNGPNGPN" + data[8:])
    with pytest.raises(ContainerError, match="not a SAKURA cache"):
        Container(path)
    path.write_bytes(MAGIC + struct.pack("<H", 9) + data[10:])
    with pytest.raises(ContainerError, match="format version 9; this program reads version 1"):
        Container(path)
    path.write_bytes(b"")
    with pytest.raises(ContainerError, match="too short"):
        Container(path)


def test_damaged_segment_is_named(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    container = Container(path)
    assert container.read_segment(0, 0) == some_shards()[0].segments[0]
    with pytest.raises(ContainerError, match="Segment 2 of shard 3"):
        container.read_segment(3, 2)
    with pytest.raises(ContainerError, match="Segment 2 of shard 3"):
        container.verify()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"geometry": msgspec.structs.replace(GEOMETRY, blocks_per_shard=0)}, "geometry"),
        ({"geometry": msgspec.structs.replace(GEOMETRY, steps=3)}, "4 shards"),
        ({"geometry": msgspec.structs.replace(GEOMETRY, rows=-6)}, "geometry"),
        ({"shards": []}, "fill the file"),
        ({"model": 5}, "index"),
        ({"shards": [{"segment_bytes": [1], "segment_crc32": [], "rungs": []}]}, "checksum for each segment"),
    ],
)
def test_wellformed_nonsense_in_the_index_is_named(path: Path, changes: dict[str, object], named: str) -> None:
    replace_index(path, **changes)
    with pytest.raises(ContainerError, match=named):
        Container(path)


def test_interrupted_writing_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> list[EncodedShard]:
        raise OSError("the disk is full")

    path = tmp_path / "caches" / "some.sakura"
    with pytest.raises(OSError, match="full"):
        write_container(path, model="m", template="t", codec="c", geometry=GEOMETRY, shards=failing())
    assert not path.exists()
