"""From a codec and a template to pictures: decode what a choice of representations sends, edit, compare."""

import dataclasses
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from sakura.backbone.editor import Editor
from sakura.cache.container import pack_container
from sakura.codec.interface import CacheGeometry, Codec, EncodedCache, TokenPlaces
from sakura.control.budget import BudgetRule
from sakura.events import QualityScores
from sakura.metrics import compare
from sakura.reproduce.workloads import Case


@dataclasses.dataclass(frozen=True)
class Received:
    """A cache as the device has it: ``kv`` float32 (steps, blocks, 2, rows, columns), and all bytes that it took.

    ``decode_s`` is how long all shards took to rebuild, one after the other.
    """

    kv: np.ndarray
    received_bytes: int
    decode_s: float


def container_bytes(codec: Codec, geometry: CacheGeometry, encoded: EncodedCache) -> tuple[int, int]:
    """Bytes of the whole stored object, and of what in it is not segments (index, names, checksums)."""
    whole = len(pack_container(encoded, model="0" * 32, template="0" * 32, codec=codec, geometry=geometry))
    return whole, whole - sum(map(len, encoded.segments))


def receive(
    codec: Codec, geometry: CacheGeometry, places: TokenPlaces, encoded: EncodedCache, segments: Sequence[int]
) -> Received:
    """Decode the cache from these segments alone. The index counts as received, since the device needs it too."""
    _, overhead = container_bytes(codec, geometry, encoded)
    began_s = time.perf_counter()
    decoder = codec.decoder(geometry, places)
    decoder.add({segment: encoded.segments[segment] for segment in segments})
    kv = np.empty((geometry.steps, geometry.blocks, 2, geometry.rows, geometry.columns), np.float32)
    for shard in range(geometry.shards):
        blocks = geometry.blocks_of(shard)
        rebuilt = decoder.shard(shard).reshape(-1, 2, geometry.rows, geometry.columns)
        kv[geometry.step_of(shard), blocks.start : blocks.stop] = rebuilt
    decode_s = time.perf_counter() - began_s
    return Received(kv, overhead + sum(len(encoded.segments[segment]) for segment in segments), decode_s)


def segments_for_budget(
    encoded: EncodedCache, budget_bytes: int, segment_bytes: Sequence[int] | None = None
) -> list[int]:
    """What a template gets for so many bytes; at least its smallest representations.

    ``segment_bytes`` are other sizes of the segments than those that they have.
    """
    sizes = segment_bytes or [len(segment) for segment in encoded.segments]
    chosen = BudgetRule(encoded.ladders, encoded.ladder_of, sizes, budget_bytes).chosen
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


@dataclasses.dataclass(frozen=True)
class Measured:
    """What was received of a cache, and the scores of the case's requests with it."""

    received_bytes: int
    decode_s: float
    scores: list[QualityScores]

    @property
    def mask_psnr_db(self) -> float:
        return float(np.mean([scores.mask_psnr_db for scores in self.scores]))


class Stored:
    """A case's cache as a codec stores it, and what parts of it are worth. The same segments are measured once."""

    def __init__(self, editor: Editor, case: Case, codec: Codec) -> None:
        began_s = time.perf_counter()
        self.encoded = codec.encode(case.geometry, case.arrays)
        self.encode_s = time.perf_counter() - began_s
        self.whole_bytes, self.index_bytes = container_bytes(codec, case.geometry, self.encoded)
        self._editor, self._case, self._codec = editor, case, codec
        self._known: dict[frozenset[int], Measured] = {}

    @property
    def levels(self) -> int:
        return levels(self.encoded)

    def at_level(self, level: int) -> Measured:
        return self.of(segments_of_level(self.encoded, level))

    def finest(self) -> Measured:
        return self.at_level(self.levels - 1)

    def at_budget(self, budget_bytes: float) -> Measured:
        """The best for so many bytes, index included; the smallest there is where it takes more."""
        return self.of(segments_for_budget(self.encoded, int(budget_bytes) - self.index_bytes))

    def of(self, segments: Sequence[int]) -> Measured:
        key = frozenset(segments)
        if key not in self._known:
            case = self._case
            received = receive(self._codec, case.geometry, case.arrays.places, self.encoded, segments)
            scores = list(score(self._editor, case, received.kv))
            self._known[key] = Measured(received.received_bytes, received.decode_s, scores)
        return self._known[key]


def samples(case: Case, measured: Measured, **labels: object) -> list[dict[str, object]]:
    """One row a request: labels, bytes of the template's cache as sent and uncompressed, and the scores."""
    return [
        {
            "workload": case.workload,
            **labels,
            "bytes": measured.received_bytes,
            "full_cache_bytes": case.geometry.full_cache_bytes,
            "psnr_db": scores.psnr_db,
            "psnr_mask_db": scores.mask_psnr_db,
            "ssim": scores.ssim,
            "ssim_mask": scores.mask_ssim,
            "lpips": scores.lpips,
            "lpips_mask": scores.mask_lpips,
        }
        for scores in measured.scores
    ]


def means(rows: Sequence[dict[str, object]], by: Sequence[str]) -> list[dict[str, object]]:
    """Rows averaged over all that have the same ``by``, and how many requests those are.

    ``ratio`` is how many times smaller than the full cache.
    """
    groups = pd.DataFrame(rows).groupby(list(by), sort=False)
    averaged = groups.mean(numeric_only=True).assign(requests=groups.size()).reset_index()
    averaged["ratio"] = averaged["full_cache_bytes"] / averaged["bytes"]
    return rows_of(averaged)


def rows_of(table: pd.DataFrame) -> list[dict[str, object]]:
    """A table as plain rows of strings and numbers, None where a number is missing."""
    plain = table.astype(object).where(table.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in plain.to_dict("records")]
