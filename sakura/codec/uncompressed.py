"""The full cache: fp16 numbers as they are. The reference that quality is measured against."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from sakura.codec.interface import EncodedShard, Representation, Rung, ShardShape, require_finite

FULL = Representation(rank=0, left_bits=16, right_bits=16)


@dataclasses.dataclass(frozen=True)
class UncompressedCodec:
    """One segment a shard, one representation."""

    name: str = "uncompressed"

    def segment_ids(self, representation: Representation) -> list[int]:
        return [0]

    def encode(self, shard: np.ndarray, importance: np.ndarray) -> EncodedShard:
        require_finite(shard)
        segment = np.clip(shard, -65504, 65504).astype("<f2").tobytes()
        return EncodedShard([segment], [Rung(FULL, len(segment), 0.0)])

    def decode(self, shape: ShardShape, representation: Representation, segments: Mapping[int, bytes]) -> np.ndarray:
        expected = shape.matrices * shape.rows * shape.columns * 2
        if 0 not in segments:
            raise ValueError("Segment 0 of the shard is missing.")
        if len(segments[0]) != expected:
            raise ValueError(f"The shard has {len(segments[0])} bytes instead of {expected}.")
        numbers = np.frombuffer(segments[0], "<f2").astype(np.float32)
        return numbers.reshape(shape.matrices, shape.rows, shape.columns)
