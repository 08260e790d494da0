"""What every codec offers: arrays and importance in, segments out, and back. No model, no network, no page."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np


class Representation(msgspec.Struct, frozen=True, array_like=True):
    """How finely a shard is sent: components kept, and bits kept of each factor (or of each number)."""

    rank: int
    left_bits: int
    right_bits: int


class Rung(msgspec.Struct, frozen=True, array_like=True):
    """One offered representation of a shard: its payload size, and its distortion.

    ``distortion`` is the share of the shard's importance-weighted energy that is lost (0 is exact).
    """

    representation: Representation
    size_bytes: int
    distortion: float


class EncodedShard(msgspec.Struct, frozen=True):
    """A shard as segments. ``rungs`` grow in size and fall in distortion; the last one is the finest."""

    segments: list[bytes]
    rungs: list[Rung]


class ShardShape(msgspec.Struct, frozen=True, array_like=True):
    """A shard holds ``matrices`` arrays of (rows, columns): K and V of each of its blocks, in that order."""

    matrices: int
    rows: int
    columns: int


class Codec(Protocol):
    """Encode a shard once at every supported precision; decode any rung from the segments it names."""

    @property
    def name(self) -> str:
        """What registry and containers call it."""
        ...

    def encode(self, shard: np.ndarray, importance: np.ndarray) -> EncodedShard:
        """``shard`` float32 (matrices, rows, columns); ``importance`` float32 (rows,), averaging 1."""
        ...

    def segment_ids(self, representation: Representation) -> Sequence[int]:
        """Which segments a representation needs, in the order in which they are sent."""
        ...

    def decode(self, shape: ShardShape, representation: Representation, segments: Mapping[int, bytes]) -> np.ndarray:
        """Rebuild float32 (matrices, rows, columns), possibly as a strided view. Raises ValueError on bad sizes."""
        ...


def require_finite(shard: np.ndarray) -> None:
    """Raise ValueError naming the first entry that no codec could keep."""
    if not np.isfinite(shard).all():
        where = tuple(int(index[0]) for index in np.nonzero(~np.isfinite(shard)))
        raise ValueError(f"The cache holds {shard[where]} at (matrix, row, column) {where}; it cannot be encoded.")
