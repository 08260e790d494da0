"""What is in a container, in words and as plain data."""

import dataclasses
import itertools

from aiohttp import ClientError
from fsspec.core import url_to_fs

from sakura.cache.container import Container, ContainerError
from sakura.codec.interface import Representation
from sakura.codec.sakura import SakuraCodec
from sakura.codec.sakura_layout import HEADER
from sakura.errors import UserError


@dataclasses.dataclass(frozen=True)
class RungSummary:
    """One representation on offer; ``distortion`` is the share of importance-weighted energy that is lost."""

    rank: int
    left_bits: int
    right_bits: int
    segments: int
    size_bytes: int
    distortion: float


@dataclasses.dataclass(frozen=True)
class LadderSummary:
    """The representations of some shards, and all bytes that they can ask for."""

    shards: list[int]
    size_bytes: int
    rungs: list[RungSummary]


@dataclasses.dataclass(frozen=True)
class Summary:
    """A container. ``segment_kinds`` are bytes by what segments hold; ``damaged_segments`` fail their checksum."""

    name: str
    model: str
    template: str
    codec: str
    options: dict[str, object]
    steps: int
    blocks: int
    blocks_per_shard: int
    tokens: int
    channels: int
    file_bytes: int
    index_bytes: int
    full_cache_bytes: int
    segments: int
    segment_kinds: dict[str, int]
    ladders: list[LadderSummary]
    damaged_segments: list[int]


def open_container(url: str) -> Container:
    """A container by path or URL. Raises UserError where there is none or it cannot be read."""
    try:
        url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise UserError(f"{url} cannot be opened ({error}); use a path, or a URL that fsspec can read.") from error
    try:
        return Container(url)
    except ContainerError as error:
        raise UserError(f"{str(error).rstrip('.')}; build or copy the cache again.") from error
    except FileNotFoundError as error:
        raise UserError(f"No cache can be read at {url}; check the path or URL.") from error
    except (OSError, ClientError) as error:
        raise UserError(f"{url} cannot be read ({error}); check the path or URL.") from error


def summarise(container: Container) -> Summary:
    """Read everything and verify it."""
    index, geometry = container.index, container.geometry
    damaged = []
    header = b""
    for segment in range(len(index.segment_bytes)):
        try:
            data = container.read_segment(segment)
        except ContainerError:
            damaged.append(segment)
        else:
            header = data if segment == HEADER else header
    ladders = []
    for number, ladder in enumerate(index.ladders):
        rungs = [
            RungSummary(*_bits(rung.representation), rung.stop - rung.start, rung.size_bytes, rung.distortion)
            for rung in ladder.rungs
        ]
        shards = [shard for shard, served_by in enumerate(index.ladder_of) if served_by == number]
        ladders.append(LadderSummary(shards, sum(index.segment_bytes[s] for s in ladder.order), rungs))
    return Summary(
        container.name,
        index.model,
        index.template,
        index.codec,
        index.options,
        geometry.steps,
        geometry.blocks,
        geometry.blocks_per_shard,
        geometry.rows,
        geometry.columns,
        container.size_bytes,
        container.index_bytes,
        geometry.full_cache_bytes,
        len(index.segment_bytes),
        _kinds(container, header),
        ladders,
        damaged,
    )


def _bits(representation: Representation) -> tuple[int, int, int]:
    return representation.rank, representation.left_bits, representation.right_bits


def _kinds(container: Container, header: bytes) -> dict[str, int]:
    """Bytes of segments by what they hold, as far as the codec says so."""
    sizes, geometry, codec = container.index.segment_bytes, container.geometry, container.codec
    if not isinstance(codec, SakuraCodec) or not header:
        return {"segments": sum(sizes)}
    layout = codec.layout(geometry, header)
    groups, columns = layout.groups, layout.columns
    if layout.first[-1] != len(sizes):
        return {"segments": sum(sizes)}
    parts = [sum(sizes[start:end]) for start, end in itertools.pairwise(layout.first)]
    means = [layout.means(column) for column in range(columns)]
    found = {"header": sizes[HEADER], "token basis": sum(parts[:groups]), "means": sum(parts[part] for part in means)}
    for column, part in enumerate(means):
        blocks = geometry.blocks_of(column)
        name = f"coefficients of blocks {blocks.start + 1} to {blocks.stop}"
        found[name] = sum(parts[part + 1 : part + 1 + groups])
    return found


def describe(summary: Summary) -> str:
    """A summary as lines of text."""
    shards = sum(len(ladder.shards) for ladder in summary.ladders)
    options = ", ".join(f"{name} {value}" for name, value in summary.options.items())
    lines = [
        summary.name,
        f"  Model      {summary.model}",
        f"  Template   {summary.template}",
        f"  Codec      {summary.codec}" + (f": {options}" if options else ""),
        f"  Cache      {summary.steps} steps x {summary.blocks} blocks x K and V of {summary.tokens} tokens x "
        f"{summary.channels} channels, in {shards} shards of {summary.blocks_per_shard} blocks",
        f"  Size       {summary.file_bytes:,} bytes, {summary.full_cache_bytes / summary.file_bytes:.1f} times smaller "
        f"than the full cache ({summary.full_cache_bytes:,})",
        f"  Checksums  {_checksums(summary)}",
        "",
        f"  {'Part':32} {'bytes':>12}",
    ]
    for name, size_bytes in {"index": summary.index_bytes, **summary.segment_kinds}.items():
        lines.append(f"  {name:32} {size_bytes:12,}")
    for number, ladder in enumerate(summary.ladders):
        served = _ranges(ladder.shards)
        lines += ["", f"  Ladder {number + 1}, {served}: {ladder.size_bytes:,} bytes in all"]
        lines.append(f"  {'rank':>6} {'bits':>7} {'segments':>9} {'bytes':>12} {'distortion':>11}")
        for rung in ladder.rungs:
            bits = f"{rung.left_bits}+{rung.right_bits}"
            lines.append(f"  {rung.rank:6} {bits:>7} {rung.segments:9} {rung.size_bytes:12,} {rung.distortion:11.5f}")
    return "\n".join(map(_plain, lines))


def _plain(line: str) -> str:
    """A line without anything that a terminal would obey."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line)


def _checksums(summary: Summary) -> str:
    if not summary.damaged_segments:
        return f"all {summary.segments} segments are whole"
    named = ", ".join(map(str, summary.damaged_segments[:8]))
    more = len(summary.damaged_segments) - 8
    return f"{len(summary.damaged_segments)} of {summary.segments} segments are damaged: {named}" + (
        f" and {more} more" if more > 0 else ""
    )


def _ranges(shards: list[int]) -> str:
    """Shards counted from 1, as people see them."""
    return ("shard " if len(shards) == 1 else "shards ") + ", ".join(str(shard + 1) for shard in shards)
