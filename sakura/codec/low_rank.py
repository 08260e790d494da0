"""Low rank with fixed precision pairs: what SAKURA's ideas are measured against.

With q = 0 it is the plain truncated SVD; with q > 0 importance biases it. Each shard is factorised by itself, K and V
of its blocks side by side, so that one left factor serves all of them, and each representation is stored apart: nothing
is shared, entropy-coded or progressive.

A segment holds: float32 norms of the matrices; column means as fp16; fp16 scales of the left vectors and of the right
vectors, one a component; then codes of the left factor and of the right factor, packed.
"""

import itertools
from collections.abc import Mapping
from typing import ClassVar, Literal

import msgspec
import numpy as np
import scipy.linalg

from sakura.codec.distortion import weighted_distortion, worthwhile
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
from sakura.codec.rope import rotate, rotation
from sakura.codec.weights import row_scales

Pair = tuple[int, int]


class LowRankCodec(msgspec.Struct, frozen=True, kw_only=True):
    """Representations are all of ``ranks`` with all of ``pairs`` (bits of the left and of the right factor)."""

    name: ClassVar[str] = "low-rank"
    q: float = 0.0
    floor: float = 0.02
    ranks: tuple[int, ...] = (4, 8, 16, 32, 48, 64)
    pairs: tuple[Pair, ...] = ((4, 4), (6, 4), (6, 6), (8, 6))
    keys: Literal["after_rope", "before_rope"] = "before_rope"

    def __post_init__(self) -> None:
        if not all(1 <= bits <= 8 for bits in itertools.chain.from_iterable(self.pairs)):
            raise ValueError("A factor of the low-rank codec keeps 1 to 8 bits.")

    def representations(self, geometry: CacheGeometry) -> list[Representation]:
        most = min(geometry.rows, geometry.matrices * geometry.columns)
        ranks = sorted({min(rank, most) for rank in self.ranks})
        return [Representation(rank, *pair) for rank in ranks for pair in self.pairs]

    def encode(self, geometry: CacheGeometry, arrays: CacheArrays) -> EncodedCache:
        require_finite(arrays.kv)
        factors = rotation(arrays.places).conj() if self.keys == "before_rope" else None
        decoder = self.decoder(geometry, arrays.places)
        segments: list[bytes] = []
        ladders = []
        for shard in range(geometry.shards):
            exact, importance = arrays.shard(geometry, shard)
            stored = self._encode_shard(geometry, exact, row_scales(importance.mean(0), self.q, self.floor), factors)
            rungs = []
            for index, (kind, segment) in enumerate(zip(self.representations(geometry), stored, strict=True)):
                lost = weighted_distortion(exact, decoder.decode(segment, kind), importance.repeat(2, axis=0))
                rungs.append(Rung(kind, index, index + 1, len(segment), lost))
            first = len(segments)
            segments.extend(stored)
            rungs.sort(key=lambda rung: rung.size_bytes)
            ladders.append(Ladder(list(range(first, len(segments))), worthwhile(rungs)))
        return EncodedCache(segments, ladders, list(range(geometry.shards)))

    def decoder(self, geometry: CacheGeometry, places: TokenPlaces) -> "LowRankDecoder":
        return LowRankDecoder(self, geometry, places)

    def _encode_shard(
        self, geometry: CacheGeometry, exact: np.ndarray, scales: np.ndarray, factors: np.ndarray | None
    ) -> list[bytes]:
        """A segment for each representation of one shard."""
        matrices = exact.astype(np.float32, copy=True)
        if factors is not None:
            for matrix in matrices[::2]:
                rotate(matrix, factors)
        weights = np.square(scales) / np.square(scales).sum()
        numbers = matrices.astype(np.float64)
        means = np.einsum("n,mnc->mc", weights, numbers)
        norms = np.linalg.norm(numbers - means[:, None], axis=(1, 2))
        norms = np.maximum(norms, np.linalg.norm(numbers, axis=(1, 2)) * 1e-3)
        norms = np.where(norms > 0, norms, 1).astype("<f4")
        units = norms.astype(np.float64)[:, None]
        sent_means = (means / units).astype("<f2")
        centred = (numbers - (sent_means * units)[:, None]) / units[..., None]
        joint = scales[:, None] * centred.transpose(1, 0, 2).reshape(geometry.rows, -1)
        rank = self.representations(geometry)[-1].rank
        left, right = _factorise(joint, rank)
        left /= scales  # before anything is quantised: errors of unimportant rows must not be multiplied
        head = norms.tobytes() + sent_means.tobytes()
        segments = []
        for kind in self.representations(geometry):
            left_scale, left_codes = _quantise(left[: kind.rank], kind.left_bits)
            right_scale, right_codes = _quantise(right[: kind.rank], kind.right_bits)
            segments.append(head + left_scale.tobytes() + right_scale.tobytes() + left_codes + right_codes)
        return segments


class LowRankDecoder:
    """Rebuilds a shard from the finest of its representations that has arrived."""

    def __init__(self, codec: LowRankCodec, geometry: CacheGeometry, places: TokenPlaces) -> None:
        self._geometry, self._kinds = geometry, codec.representations(geometry)
        self._factors = rotation(places) if codec.keys == "before_rope" else None
        self._segments: dict[int, bytes] = {}

    def add(self, segments: Mapping[int, bytes]) -> None:
        for number, segment in segments.items():
            if not 0 <= number < self._geometry.shards * len(self._kinds):
                raise ValueError(f"Segment {number} is none of this cache's.")
            expected = self._size(self._kinds[number % len(self._kinds)])
            if len(segment) != expected:
                raise ValueError(f"Segment {number} has {len(segment)} bytes instead of {expected}.")
            self._segments[number] = segment

    def shard(self, shard: int) -> np.ndarray:
        numbers = range(shard * len(self._kinds), (shard + 1) * len(self._kinds))
        arrived = [number for number in numbers if number in self._segments]
        if not arrived:
            raise ValueError(f"No segment of shard {shard} has arrived.")
        finest = max(arrived, key=lambda number: len(self._segments[number]))
        return self.decode(self._segments[finest], self._kinds[finest - numbers.start])

    def _sides(self) -> tuple[int, int]:
        return self._geometry.rows, self._geometry.matrices * self._geometry.columns

    def _size(self, kind: Representation) -> int:
        rows, width = self._sides()
        packed = (kind.rank * rows * kind.left_bits + 7) // 8 + (kind.rank * width * kind.right_bits + 7) // 8
        return 4 * self._geometry.matrices + 2 * width + 4 * kind.rank + packed

    def decode(self, segment: bytes, kind: Representation) -> np.ndarray:
        """float32 (matrices, rows, columns) of one segment."""
        rows, width = self._sides()
        sizes = [4 * self._geometry.matrices, 2 * width, 2 * kind.rank, 2 * kind.rank]
        sizes.append((kind.rank * rows * kind.left_bits + 7) // 8)
        cuts = [*itertools.accumulate(sizes, initial=0), len(segment)]
        norms, means, left_scale, right_scale, left, right = (
            segment[start:end] for start, end in itertools.pairwise(cuts)
        )
        joint = _dequantise(left, np.frombuffer(left_scale, "<f2"), rows, kind.left_bits).T @ _dequantise(
            right, np.frombuffer(right_scale, "<f2"), width, kind.right_bits
        )
        joint += np.frombuffer(means, "<f2").astype(np.float32)
        matrices = joint.reshape(rows, self._geometry.matrices, -1)
        matrices *= np.frombuffer(norms, "<f4")[:, None]
        if self._factors is not None:
            rotate(matrices[:, ::2], self._factors[:, None])
        return matrices.transpose(1, 0, 2)


def _factorise(joint: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Truncated SVD of (rows, width); both factors, (rank, ...), carry the square root of the singular values."""
    left, singular, right = scipy.linalg.svd(joint, full_matrices=False)
    roots = np.sqrt(singular[:rank])[:, None]
    return left.T[:rank] * roots, right[:rank] * roots


def _quantise(factor: np.ndarray, bits: int) -> tuple[np.ndarray, bytes]:
    """fp16 scales, one a component, and packed mid-rise codes of (rank, numbers)."""
    scale = np.nextafter(np.abs(factor).max(1).astype("<f2"), np.float16(np.inf))
    levels = 1 << bits
    unit = factor / scale.astype(np.float64)[:, None]
    codes = np.clip(np.floor((unit + 1) * (levels / 2)), 0, levels - 1).astype(np.uint8)
    return scale, np.packbits(np.unpackbits(codes.reshape(-1, 1), axis=1)[:, 8 - bits :]).tobytes()


def _dequantise(packed: bytes, scale: np.ndarray, numbers: int, bits: int) -> np.ndarray:
    """Cell centres: float32 (rank, numbers)."""
    planes = np.unpackbits(np.frombuffer(packed, np.uint8), count=len(scale) * numbers * bits).reshape(-1, bits)
    codes = np.packbits(np.pad(planes, ((0, 0), (8 - bits, 0))), axis=1).reshape(len(scale), numbers)
    return ((codes + np.float32(0.5)) * np.float32(2 / (1 << bits)) - 1) * scale.astype(np.float32)[:, None]
