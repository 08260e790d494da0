"""From a codec and a template to pictures: decode what a choice of representations sends, edit, compare."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from sakura.backbone.editor import Editor
from sakura.cache.container import pack_container
from sakura.codec.interface import CacheGeometry, Codec, EncodedCache, TokenPlaces
from sakura.control.controllers import BudgetController
from sakura.events import QualityScores
from sakura.metrics import compare
from sakura.reproduce.workloads import Case


@dataclasses.dataclass(frozen=True)
class Received:
    """A cache as the device has it: ``kv`` float32 (steps, blocks, 2, rows, columns), and all bytes that it took."""

    kv: np.ndarray
    received_bytes: int


def container_bytes(codec: Codec, geometry: CacheGeometry, encoded: EncodedCache) -> tuple[int, int]:
    """Bytes of the whole stored object, and of what in it is not segments (index, names, checksums)."""
    whole = len(pack_container(encoded, model="0" * 32, template="0" * 32, codec=codec, geometry=geometry))
    return whole, whole - sum(map(len, encoded.segments))


def receive(
    codec: Codec, geometry: CacheGeometry, places: TokenPlaces, encoded: EncodedCache, segments: Sequence[int]
) -> Received:
    """Decode the cache from these segments alone. The index counts as received, since the device needs it too."""
    decoder = codec.decoder(geometry, places)
    decoder.add({segment: encoded.segments[segment] for segment in segments})
    _, overhead = container_bytes(codec, geometry, encoded)
    kv = np.empty((geometry.steps, geometry.blocks, 2, geometry.rows, geometry.columns), np.float32)
    for shard in range(geometry.shards):
        blocks = geometry.blocks_of(shard)
        rebuilt = decoder.shard(shard).reshape(-1, 2, geometry.rows, geometry.columns)
        kv[geometry.step_of(shard), blocks.start : blocks.stop] = rebuilt
    return Received(kv, overhead + sum(len(encoded.segments[segment]) for segment in segments))


def segments_for_budget(encoded: EncodedCache, budget_bytes: int) -> list[int]:
    """What a template gets for so many bytes; at least its smallest representations."""
    sizes = [len(segment) for segment in encoded.segments]
    chosen = BudgetController(encoded.ladders, encoded.ladder_of, sizes, budget_bytes).chosen
    return _united(encoded, chosen)


def segments_of_level(encoded: EncodedCache, level: int) -> list[int]:
    """Rung number ``level`` of every ladder (the finest where a ladder has fewer)."""
    return _united(encoded, [min(level, len(ladder.rungs) - 1) for ladder in encoded.ladders])


def levels(encoded: EncodedCache) -> int:
    return max(len(ladder.rungs) for ladder in encoded.ladders)


def _united(encoded: EncodedCache, rungs: Sequence[int]) -> list[int]:
    found: dict[int, None] = {}
    for ladder, rung in zip(encoded.ladders, rungs, strict=True):
        found.update(dict.fromkeys(ladder.segments(ladder.rungs[rung])))
    return list(found)


def score(editor: Editor, case: Case, kv: np.ndarray) -> Iterator[QualityScores]:
    """Scores of each of the case's requests against its full-cache output."""
    mask = case.template.mask
    for picture, full in zip(case.edits(editor, kv), case.full, strict=True):
        yield compare(picture, full, mask)
