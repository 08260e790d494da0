"""What every codec offers: a template's cache and its importance in, segments out, and back.

No model, no network, no page. A codec stores each byte once, in a pool of segments. A shard names the segments that it
needs; several shards may name the same ones, which are then sent once.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, Protocol

import msgspec
import numpy as np


class CacheGeometry(msgspec.Struct, frozen=True):
    """A per-step cache: at each of ``steps`` steps, ``blocks`` blocks hold K and V of (rows, columns).

    Rows are tokens, columns are the channels of all heads. A shard is K and V of ``blocks_per_shard`` consecutive
    blocks at one step; shards are numbered in the order in which they are executed.
    """

    steps: int
    blocks: int
    blocks_per_shard: int
    rows: int
    columns: int

    @property
    def shards_per_step(self) -> int:
        return self.blocks // self.blocks_per_shard

    @property
    def shards(self) -> int:
        return self.steps * self.shards_per_step

    @property
    def matrices(self) -> int:
        """How many (rows, columns) arrays a shard has: K and V of each of its blocks, in that order."""
        return 2 * self.blocks_per_shard

    @property
    def full_cache_bytes(self) -> int:
        """Size of the uncompressed fp16 cache."""
        return self.steps * self.blocks * 2 * self.rows * self.columns * 2

    def step_of(self, shard: int) -> int:
        return shard // self.shards_per_step

    def blocks_of(self, shard: int) -> range:
        first = shard % self.shards_per_step * self.blocks_per_shard
        return range(first, first + self.blocks_per_shard)


@dataclasses.dataclass(frozen=True)
class TokenPlaces:
    """Where each cached token sits. Cloud and device both know it from the template, so it costs no bytes.

    ``positions`` int32 (rows, 3): picture, row and column in its token grid. ``cosine`` and ``sine`` float32
    (rows, head_dim): the token's RoPE factors, which keys have been rotated by.
    """

    positions: np.ndarray
    cosine: np.ndarray
    sine: np.ndarray


@dataclasses.dataclass(frozen=True)
class CacheArrays:
    """What is encoded: ``kv`` float32 (steps, blocks, 2, rows, columns), K before V.

    ``importance`` float32 (steps, blocks, rows) averages 1 over rows. ``sensitivity`` float32 (blocks, 2) says how much
    an error of the same size in K or V of a block disturbs the picture, relative to the others.
    """

    kv: np.ndarray
    importance: np.ndarray
    sensitivity: np.ndarray
    places: TokenPlaces

    def shard(self, geometry: CacheGeometry, shard: int) -> tuple[np.ndarray, np.ndarray]:
        """K and V of a shard, (matrices, rows, columns), and importance in each of its blocks, (blocks, rows)."""
        step, blocks = geometry.step_of(shard), geometry.blocks_of(shard)
        kv = self.kv[step, blocks.start : blocks.stop].reshape(-1, geometry.rows, geometry.columns)
        return kv, self.importance[step, blocks.start : blocks.stop]


class Representation(msgspec.Struct, frozen=True, array_like=True):
    """How finely a shard is sent: components kept, and bits kept of each factor (or of each number).

    Of a rung in a progressive codec they are the bits of the most important components; others may have fewer.
    """

    rank: int
    left_bits: int
    right_bits: int


class Rung(msgspec.Struct, frozen=True, array_like=True):
    """One offered representation: the part ``order[start:stop]`` of its ladder, that part's size, and its distortion.

    ``distortion`` is the share that is lost of what the codec weighs errors by (SAKURA: importance and sensitivity, the
    others: importance); 0 is exact. It compares rungs of one cache, not codecs.
    """

    representation: Representation
    start: int
    stop: int
    size_bytes: int
    distortion: float


class Ladder(msgspec.Struct, frozen=True):
    """The representations of one or more shards. ``order`` lists segments in the order in which they are sent.

    Rungs grow in size and fall in distortion; the last one is the finest. In a progressive codec all start at 0.
    """

    order: list[int]
    rungs: list[Rung]

    def segments(self, rung: Rung) -> list[int]:
        return self.order[rung.start : rung.stop]


class EncodedCache(msgspec.Struct, frozen=True):
    """A template's cache as a pool of segments; ``ladder_of[shard]`` says which ladder serves a shard."""

    segments: list[bytes]
    ladders: list[Ladder]
    ladder_of: list[int]


class Decoder(Protocol):
    """Rebuilds shards from what has arrived so far. One per edit; not for several threads at once."""

    def add(self, segments: Mapping[int, bytes]) -> None:
        """Take in segments. Raises ValueError on a segment that does not fit the cache."""
        ...

    def shard(self, shard: int) -> np.ndarray:
        """Rebuild float32 (matrices, rows, columns), possibly as a strided view, from the segments added.

        Raises ValueError where a segment that it cannot do without is missing.
        """
        ...


class Codec(Protocol):
    """Options are its fields (a msgspec struct), so that a container can say how it was encoded."""

    name: ClassVar[str]

    def encode(self, geometry: CacheGeometry, arrays: CacheArrays) -> EncodedCache:
        """Encode a whole template at every supported precision. Raises ValueError on numbers that are not finite."""
        ...

    def decoder(self, geometry: CacheGeometry, places: TokenPlaces) -> Decoder:
        """A decoder without any segment yet."""
        ...


def require_finite(kv: np.ndarray) -> None:
    """Raise ValueError naming the first entry of (steps, blocks, 2, rows, columns) that no codec could keep."""
    if not np.isfinite(kv).all():
        step, block, part, row, column = (int(index) for index in np.argwhere(~np.isfinite(kv))[0])
        name = "KV"[part]
        raise ValueError(
            f"The cache holds {kv[step, block, part, row, column]} in {name} of step {step}, block {block} "
            f"(token {row}, channel {column}); it cannot be encoded."
        )
