"""The container: round trips, byte ranges over HTTP, and damage of every kind, which is always named."""

import functools
import random
import resource
import struct
import tracemalloc
from pathlib import Path

import msgspec
import numpy as np
import pytest
from containers import GEOMETRY, Sample, mutated, packed, served, some_container, some_places, with_index

from sakura.cache.container import MAGIC, PREFIX, Container, ContainerError, replacing, write_file
from sakura.codec import CODECS
from sakura.codec.interface import Ladder, Rung

MUTATIONS = 10_000
MUTATIONS_BEHIND_CHECKSUMS = 100  # for each codec, of the segments and of the index
IN_MEMORY = "memory://caches/some.sakura"
MAX_TRACED_BYTES = 20_000_000
NAMES = sorted(CODECS)
sample = functools.cache(some_container)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "some.sakura"
    write_file(str(path), sample().data)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_round_trip(tmp_path: Path, name: str) -> None:
    path = tmp_path / "some.sakura"
    write_file(str(path), sample(name).data)
    container = Container(path)
    assert (container.index.model, container.index.template) == ("a model", "a template")
    assert (container.codec, container.geometry) == (sample(name).codec, GEOMETRY)
    assert container.read_all() == sample(name).encoded
    assert container.size_bytes == len(sample(name).data)
    assert container.index_bytes == sample(name).index_end
    assert [child.name for child in tmp_path.iterdir()] == [path.name]


# Stores


def test_segments_are_read_by_range_over_http(path: Path) -> None:
    with served(path.parent) as (address, asked):
        container = Container(f"{address}/{path.name}")
        assert container.size_bytes == len(sample().data)
        opening = len(asked)
        last = len(sample().encoded.segments) - 1
        for segment in (0, last, 3):
            assert container.read_segment(segment) == sample().encoded.segments[segment]
        starts = [sample().index_end + sum(map(len, sample().encoded.segments[:s])) for s in (0, last, 3)]
        ends = [start + len(sample().encoded.segments[s]) for start, s in zip(starts, (0, last, 3), strict=True)]
        assert asked[opening:] == [f"bytes={start}-{end - 1}" for start, end in zip(starts, ends, strict=True)]
        assert all(header.startswith("bytes=") for header in asked)
        assert container.read_all() == sample().encoded
        path.write_bytes(path.read_bytes()[:-1] + b"\0")
        with pytest.raises(ContainerError, match=rf"Segment {last} of some\.sakura is damaged"):
            container.read_segment(last)
        with pytest.raises(FileNotFoundError):
            Container(f"{address}/other.sakura")


def test_server_without_ranges_is_told(path: Path) -> None:
    with served(path.parent, ranges=False) as (address, _), pytest.raises(ContainerError, match="byte ranges"):
        Container(f"{address}/{path.name}")


def test_store_in_memory() -> None:
    write_file(IN_MEMORY, sample().data)
    assert Container(IN_MEMORY).read_all() == sample().encoded
    write_file(IN_MEMORY, sample().data[:-1])
    with pytest.raises(ContainerError, match=r"segments of some\.sakura do not fill the file"):
        Container(IN_MEMORY)
    write_file(IN_MEMORY, b"")
    with pytest.raises(ContainerError, match=r"some\.sakura is too short"):
        Container(IN_MEMORY)
    with pytest.raises(FileNotFoundError):
        Container("memory://caches/missing.sakura")


def test_interrupted_writing_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "caches" / "some.sakura"

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert list(path.parent.iterdir()) == []


# Damage that checksums see


def test_damage_is_named_and_never_read(path: Path) -> None:
    """Every mutation changes what is vouched for: prefix, index, segments, or the length of the file."""
    data = sample().data
    rng = random.Random(7)
    for number in range(MUTATIONS):
        url = str(path) if number % 20 == 0 else IN_MEMORY  # opening files is what takes long
        write_file(url, mutated(data, rng))
        container = None
        try:
            container = Container(url)
            container.read_all()
        except ContainerError as error:
            assert path.name in str(error)
            assert str(error).endswith(".")
        else:
            pytest.fail("damage went unnoticed")
        finally:
            if container:
                container.close()


def test_wrong_magic_and_version_are_named(path: Path) -> None:
    data = path.read_bytes()
    for wrong, sentence in (
        (b"PNGPNGPN" + data[8:], "some.sakura is not a SAKURA cache"),
        (MAGIC + struct.pack("<H", 9) + data[10:], "some.sakura has format version 9; this program reads version 2"),
        (b"", "some.sakura is too short to be a SAKURA cache"),
        (data[: PREFIX.size], "The index of some.sakura is longer than the file"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(ContainerError, match=sentence):
            Container(path)


def test_damaged_segment_is_named_and_others_are_read(path: Path) -> None:
    data, last = bytearray(path.read_bytes()), len(sample().encoded.segments) - 1
    data[-1] ^= 1
    path.write_bytes(data)
    container = Container(path)
    assert container.read_segment(0) == sample().encoded.segments[0]
    with pytest.raises(ContainerError, match=rf"Segment {last} of some\.sakura is damaged"):
        container.read_segment(last)
    with pytest.raises(ContainerError, match=rf"Segment {last} of some\.sakura"):
        container.read_all()


# Damage that checksums do not see


def changed_index(**changes: object) -> bytes:
    """The container with its index written anew, as a faulty writer would."""
    fields = msgspec.to_builtins(sample().index)
    return with_index(
        msgspec.msgpack.encode(fields | msgspec.to_builtins(changes)), sample().data[sample().index_end :]
    )


def changed_ladder(**changes: object) -> bytes:
    ladders = list(sample().encoded.ladders)
    ladders[1] = msgspec.structs.replace(ladders[1], **changes)
    return changed_index(ladders=ladders)


def changed_rung(**changes: object) -> bytes:
    rungs = list(sample().encoded.ladders[1].rungs)
    rungs[-1] = msgspec.structs.replace(rungs[-1], **changes)
    return changed_ladder(rungs=rungs)


def changed_geometry(**changes: int) -> bytes:
    return changed_index(geometry=msgspec.structs.replace(GEOMETRY, **changes))


ORDER = some_container().encoded.ladders[1].order
RUNGS = some_container().encoded.ladders[1].rungs
CONTRADICTIONS = {
    "no blocks a shard": (changed_geometry(blocks_per_shard=0), "geometry in some.sakura"),
    "blocks that do not divide": (changed_geometry(blocks_per_shard=3), "geometry in some.sakura"),
    "negative rows": (changed_geometry(rows=-6), "geometry in some.sakura"),
    "far too many rows": (changed_geometry(rows=10**9), "geometry in some.sakura"),
    "too large together": (changed_geometry(rows=1 << 20, columns=1 << 20), "geometry in some.sakura"),
    "more steps": (changed_geometry(steps=3), "holds 4 shards, which does not fit its geometry"),
    "number for a name": (changed_index(model=5), "index of some.sakura cannot be read"),
    "no such codec": (changed_index(codec="zip"), "was encoded with 'zip'; this program has sakura"),
    "codec of other options": (changed_index(codec="intq", options={"group": 1}), "options that intq does not have"),
    "ranks that fall": (changed_index(options={"ranks": [8, 4]}), "options that sakura does not have"),
    "no ranks": (changed_index(options={"ranks": []}), "options that sakura does not have"),
    "step of zero": (changed_index(options={"finest": 0.0}), "options that sakura does not have"),
    "fewer checksums": (changed_index(segment_crc32=[1]), "checksum for each segment"),
    "no segments": (changed_index(segment_bytes=[], segment_crc32=[]), "do not fill the file"),
    "negative size": (
        changed_index(segment_bytes=[-1, *sample().index.segment_bytes[1:]]),
        "segments of some.sakura do not fill the file",
    ),
    "size beyond everything": (
        changed_index(segment_bytes=[2**62, *sample().index.segment_bytes[1:]]),
        "segments of some.sakura do not fill the file",
    ),
    "too few shards": (changed_index(ladder_of=[0, 1]), "holds 2 shards"),
    "unknown ladder": (changed_index(ladder_of=[0, 1, 0, 2]), "names a ladder that it does not have"),
    "unknown segment": (changed_ladder(order=[*ORDER, 10**6]), "Ladder 1 of some.sakura names a segment that there"),
    "segment twice": (changed_ladder(order=[*ORDER, ORDER[0]]), "Ladder 1 of some.sakura names a segment twice"),
    "no rungs": (changed_ladder(rungs=[]), "Ladder 1 of some.sakura has rungs that do not fit it"),
    "rung beyond the ladder": (changed_rung(stop=len(ORDER) + 1), "Ladder 1 of some.sakura has rungs that do not fit"),
    "empty rung": (changed_rung(stop=0), "Ladder 1 of some.sakura has rungs that do not fit"),
    "wrong size": (changed_rung(size_bytes=5), "Ladder 1 of some.sakura has a rung whose size"),
    "no distortion": (changed_rung(distortion=float("nan")), "Ladder 1 of some.sakura has a rung whose distortion"),
    "negative distortion": (changed_rung(distortion=-0.1), "Ladder 1 of some.sakura has a rung whose distortion"),
    "worse rung": (changed_rung(distortion=0.9), "Ladder 1 of some.sakura has rungs that do not grow and improve"),
    "rungs turned round": (changed_ladder(rungs=RUNGS[::-1]), "Ladder 1 of some.sakura has rungs that do not grow"),
    "nested without end": (
        with_index(b"\x81\xa5model" + b"\x91" * 100_000, b""),
        "index of some.sakura cannot be read",
    ),
}


@pytest.mark.parametrize("kind", CONTRADICTIONS)
def test_contradictions_in_the_index_are_named(path: Path, kind: str) -> None:
    data, sentence = CONTRADICTIONS[kind]
    path.write_bytes(data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ContainerError, match=sentence):
        Container(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_announced_index_reserves_nothing(path: Path) -> None:
    path.write_bytes(PREFIX.pack(MAGIC, 2, 0xFFFFFFFF, 0) + b"\0" * 100)
    tracemalloc.start()
    with pytest.raises(ContainerError, match=r"index of some\.sakura is longer than the file"):
        Container(path)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def decode_everything(container: Container, refusals: list[str]) -> None:
    """Decode all shards; segments may be refused by number, and what is not refused has the right shape."""
    decoder = container.codec.decoder(container.geometry, some_places())
    for number, segment in enumerate(container.read_all().segments):
        try:
            decoder.add({number: segment})
        except ValueError as error:
            refusals.append(str(error))
    geometry = container.geometry
    for shard in range(geometry.shards):
        try:
            rebuilt = decoder.shard(shard)
        except ValueError as error:
            refusals.append(str(error))
            continue
        assert rebuilt.shape == (geometry.matrices, geometry.rows, geometry.columns)
        assert rebuilt.dtype == np.float32


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers may be as large as damage makes them
def test_damage_in_segments_behind_checksums_is_refused_by_segment_or_decodes(name: str) -> None:
    rng = random.Random(11)
    refusals: list[str] = []
    tracemalloc.start()
    for _ in range(MUTATIONS_BEHIND_CHECKSUMS):
        segments = list(sample(name).encoded.segments)
        for _ in range(rng.choice((1, 1, 3))):
            victim = rng.randrange(len(segments))
            segments[victim] = mutated(segments[victim], rng) if segments[victim] else b"\0"
        write_file(IN_MEMORY, rewritten(sample(name), segments))
        container = Container(IN_MEMORY)
        decode_everything(container, refusals)
        container.close()
    assert tracemalloc.get_traced_memory()[1] < MAX_TRACED_BYTES
    tracemalloc.stop()
    assert refusals
    assert all("egment" in refusal for refusal in refusals), set(refusals)


def rewritten(whole: Sample, segments: list[bytes]) -> bytes:
    """A container of other segments, whose index tells their sizes and checksums as they are."""
    sizes = [len(segment) for segment in segments]
    ladders = []
    for ladder in whole.encoded.ladders:
        sized = [
            msgspec.structs.replace(rung, size_bytes=sum(sizes[segment] for segment in ladder.segments(rung)))
            for rung in ladder.rungs
        ]
        kept: list[Rung] = []
        for rung in sized:
            if not kept or rung.size_bytes > kept[-1].size_bytes:
                kept.append(rung)
        ladders.append(Ladder(ladder.order, kept))
    return packed(whole.codec, msgspec.structs.replace(whole.encoded, segments=segments, ladders=ladders))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_damage_in_the_index_behind_its_checksum_is_named_or_decodes(name: str) -> None:
    whole = sample(name)
    index, segments = whole.data[PREFIX.size : whole.index_end], whole.data[whole.index_end :]
    rng = random.Random(13)
    refusals: list[str] = []
    opened = 0
    tracemalloc.start()
    for _ in range(6 * MUTATIONS_BEHIND_CHECKSUMS):
        write_file(IN_MEMORY, with_index(mutated(index, rng), segments))
        try:
            container = Container(IN_MEMORY)
        except ContainerError as error:
            assert "some.sakura" in str(error)
            continue
        try:
            opened += 1
            geometry = container.geometry
            if (geometry.rows, geometry.columns) == (GEOMETRY.rows, GEOMETRY.columns):
                decode_everything(container, refusals)
        except ContainerError as error:  # a checksum was changed
            assert "some.sakura" in str(error)
        finally:
            container.close()
    assert tracemalloc.get_traced_memory()[1] < MAX_TRACED_BYTES
    tracemalloc.stop()
    assert opened > 10
    assert all("egment" in refusal for refusal in refusals), set(refusals)
