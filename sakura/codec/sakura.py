"""The SAKURA codec: one token basis, one step basis, and their coefficients as embedded bit planes.

Rows of the cache are scaled by importance**q and matrices by what an error in them does to the picture. Then

    cache[step, matrix] = 1 / scales * (left @ (sum over modes of step_basis[step, mode] * right[mode, matrix]) + mean)

The left factor (tokens x rank) is shared by all blocks and steps, the right factors by all steps: neighbouring steps
differ little, so nearly everything is in the first mode. All numbers are quantised with one step in these weighted
units, which makes a byte worth the same everywhere (reverse water-filling), and stored plane by plane. Components come
in groups; the planes of a group's left factor and, for each column of shards (the same blocks at all steps), of its
right factors are the segments:

    segment 0         scales, step basis, and how many planes each part has
    then              planes of the left factor, group after group
    then, a column    planes of the column means, then of the right factor, group after group

Any (rank, left bits, right bits) is a subset of these, and so is everything finer or coarser by block.
"""

from typing import ClassVar

import msgspec
import numpy as np

from sakura.codec.interface import (
    CacheArrays,
    CacheGeometry,
    EncodedCache,
    Representation,
    TokenPlaces,
    require_finite,
)
from sakura.codec.sakura_decoder import SakuraDecoder
from sakura.codec.sakura_encoder import SakuraEncoder
from sakura.codec.sakura_layout import HEADER, Layout, component_groups

LARGEST = 1e38  # so that undoing RoPE, which can double a number, stays within float32


class SakuraCodec(msgspec.Struct, frozen=True, kw_only=True):
    """``q`` controls how strongly importance biases the factors; ``floor`` is the least row scale, of a mean of 1.

    ``ranks`` are where component groups end.
    ``finest`` is the quantisation step of the last plane, as a share of the norm of a matrix. ``share_steps``,
    ``use_sensitivity`` and ``unrotate_keys`` can be turned off to see what they bring.
    """

    name: ClassVar[str] = "sakura"
    q: float = 0.75
    floor: float = 0.02
    ranks: tuple[int, ...] = (4, 8, 16, 32, 48, 64, 96)
    finest: float = 0.00075
    share_steps: bool = True
    use_sensitivity: bool = True
    unrotate_keys: bool = True

    def __post_init__(self) -> None:
        if not self.ranks or min(self.ranks) < 1 or list(self.ranks) != sorted(set(self.ranks)):
            raise ValueError(f"SAKURA needs ranks from 1, each once, in ascending order, not {self.ranks}.")
        if not 0 < self.finest <= 1:
            raise ValueError(f"SAKURA needs a finest step above 0 and up to 1, not {self.finest}.")

    def encode(self, geometry: CacheGeometry, arrays: CacheArrays) -> EncodedCache:
        require_finite(arrays.kv)
        largest = float(np.abs(arrays.kv).max(initial=0))
        if largest > LARGEST:
            raise ValueError(f"The cache holds numbers as large as {largest:.2g}; SAKURA encodes them up to {LARGEST}.")
        return SakuraEncoder(self, geometry, arrays).encode()

    def decoder(self, geometry: CacheGeometry, places: TokenPlaces) -> SakuraDecoder:
        return SakuraDecoder(self, geometry, places)

    def layout(self, geometry: CacheGeometry, header: bytes) -> Layout:
        """Which segment is what, as segment 0 of a cache says."""
        return Layout.of_header(geometry, component_groups(self.ranks, geometry.rows), header)

    def segments_of(self, geometry: CacheGeometry, encoded: EncodedCache, representation: Representation) -> list[int]:
        """What every shard of a template needs in the same representation: any rank of ``ranks``, any bits from 1."""
        layout = self.layout(geometry, encoded.segments[HEADER])
        kept = sum(group.start < representation.rank for group in layout.slices)
        found: dict[int, None] = {}
        for column in range(layout.columns):
            subset = layout.subset(column, kept, representation.left_bits, representation.right_bits)
            found.update(dict.fromkeys(subset))
        return list(found)
