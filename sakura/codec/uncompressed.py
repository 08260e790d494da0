"""The full cache: fp16 numbers as they are. The reference that quality is measured against."""

from collections.abc import Mapping
from typing import ClassVar

import msgspec
import numpy as np

from sakura.codec.interface import (
    CacheArrays,
    CacheGeometry,
    EncodedCache,
    Ladder,
    Representation,
    Rung,
    TokenPlaces,
    require_finite,
)

FULL = Representation(rank=0, left_bits=16, right_bits=16)


class UncompressedCodec(msgspec.Struct, frozen=True, kw_only=True):
    """One segment a shard, one representation."""

    name: ClassVar[str] = "uncompressed"

    def encode(self, geometry: CacheGeometry, arrays: CacheArrays) -> EncodedCache:
        require_finite(arrays.kv)
        halves = np.clip(arrays.kv, -65504, 65504).astype("<f2")
        segments = []
        for shard in range(geometry.shards):
            blocks = geometry.blocks_of(shard)
            segments.append(halves[geometry.step_of(shard), blocks.start : blocks.stop].tobytes())
        ladders = [Ladder([index], [Rung(FULL, 0, 1, len(data), 0.0)]) for index, data in enumerate(segments)]
        return EncodedCache(segments, ladders, list(range(geometry.shards)))

    def decoder(self, geometry: CacheGeometry, places: TokenPlaces) -> "UncompressedDecoder":
        return UncompressedDecoder(geometry)


class UncompressedDecoder:
    """Keeps what arrived until it is asked for."""

    def __init__(self, geometry: CacheGeometry) -> None:
        self.geometry = geometry
        self._segments: dict[int, bytes] = {}

    def add(self, segments: Mapping[int, bytes]) -> None:
        expected = self.geometry.full_cache_bytes // self.geometry.shards
        for number, data in segments.items():
            if not 0 <= number < self.geometry.shards:
                raise ValueError(f"Segment {number} is none of this cache's.")
            if len(data) != expected:
                raise ValueError(f"Segment {number} has {len(data)} bytes instead of {expected}.")
        self._segments.update(segments)

    def shard(self, shard: int) -> np.ndarray:
        if shard not in self._segments:
            raise ValueError(f"Segment {shard} of the cache is missing.")
        numbers = np.frombuffer(self._segments[shard], "<f2").astype(np.float32)
        return numbers.reshape(self.geometry.matrices, self.geometry.rows, self.geometry.columns)
