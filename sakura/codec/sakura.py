"""The SAKURA codec: importance-weighted low rank, an independent precision pair, progressive bit planes.

K and V of a shard's blocks are normalised, set side by side and factorised once, so one left factor (tokens x rank)
serves all of them. Components come in groups; a group's numbers are stored as chunks of bit planes, left and right
factor apart. Any (rank, left bits, right bits) is then a subset of the same segments:

    segment 0                       column means and their scales
    segment 1 + (g * 2 + f) * 7 + c chunk c of factor f (0 left, 1 right) of component group g; chunk 0 has the scales
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from sakura.codec import bitplanes
from sakura.codec.interface import EncodedShard, Representation, Rung, ShardShape, require_finite
from sakura.codec.low_rank import Factors, factorise, row_scales

MEAN_SEGMENT = 0
SCALE_DTYPE = np.dtype("<f4")
MIN_ENERGY_SHARE = 1e-3  # of the means' energy: what varies less than that counts as constant
MAX_DISTORTION = 0.15  # what loses more than this is not worth executing with


@dataclasses.dataclass(frozen=True)
class SakuraCodec:
    """``q`` controls how strongly importance biases the factors, ``ranks`` where component groups end."""

    q: float = 0.75
    floor: float = 0.02
    ranks: tuple[int, ...] = (4, 8, 12, 16, 24, 32, 48, 64)
    name: str = "sakura"

    def segment_ids(self, representation: Representation) -> list[int]:
        groups = self.ranks.index(representation.rank) + 1
        ids = [MEAN_SEGMENT]
        for group in range(groups):
            for factor, bits in enumerate((representation.left_bits, representation.right_bits)):
                first = _first_segment(group, factor)
                ids.extend(range(first, first + bitplanes.chunks_for(bits)))
        return ids

    def encode(self, shard: np.ndarray, importance: np.ndarray) -> EncodedShard:
        require_finite(shard)
        matrices, rows, columns = shard.shape
        norms = _norms(shard)
        normalised = (shard / norms[:, None, None]).astype(np.float32)
        joint = normalised.transpose(1, 0, 2).reshape(rows, matrices * columns)
        factors = factorise(joint, row_scales(importance, self.q, self.floor), self.ranks[-1])
        left_scale = _scale(factors.left)
        right_scale = _scale(factors.right.reshape(-1, matrices, columns))
        left = bitplanes.quantise(factors.left, left_scale)
        right = bitplanes.quantise(factors.right.reshape(-1, matrices, columns), right_scale)
        # The norms travel inside the right factor's scales and the means' scales.
        sent_scale = (right_scale * norms[:, None]).astype(SCALE_DTYPE)

        means = factors.mean.reshape(matrices, columns)
        mean_scale = _scale(means)
        mean_codes = bitplanes.quantise(means, mean_scale)
        mean_error = bitplanes.dequantise(mean_codes, bitplanes.CODE_BITS, mean_scale) - means
        segments = [(mean_scale * norms[:, None]).astype(SCALE_DTYPE).tobytes() + mean_codes.tobytes()]
        start = 0
        for rank in self.ranks:
            group = slice(start, rank)
            for scales, codes in ((left_scale[group], left[group]), (sent_scale[group], right[group])):
                chunks = bitplanes.pack_chunks(codes)
                segments.append(scales.tobytes() + chunks[0])
                segments.extend(chunks[1:])
            start = rank
        weight = float(np.square(factors.row_scales, dtype=np.float64).sum())
        mean_loss = weight * float(np.square(mean_error, dtype=np.float64).sum())
        least_energy = MIN_ENERGY_SHARE * weight * float(np.square(means, dtype=np.float64).sum())
        total = max(float(factors.energy.sum()), least_energy, 1e-30)
        rungs = self._rungs(factors, left, left_scale, right, right_scale, segments, mean_loss, total)
        return EncodedShard(segments, rungs)

    def _rungs(
        self,
        factors: Factors,
        left: np.ndarray,
        left_scale: np.ndarray,
        right: np.ndarray,
        right_scale: np.ndarray,
        segments: list[bytes],
        mean_loss: float,
        total: float,
    ) -> list[Rung]:
        """The representations on the lower convex hull of size and weighted distortion.

        Components are orthogonal, so the weighted error is a sum: that of the means, energy left out, and each
        factor's quantisation error times the energy of its counterpart.
        """
        count = len(left)
        energy = np.zeros(count)
        energy[: min(count, len(factors.energy))] = factors.energy[:count]
        singular = np.sqrt(energy)
        left_loss, right_loss = {}, {}
        for bits in range(bitplanes.FIRST_BITS, bitplanes.CODE_BITS + 1):
            error = bitplanes.dequantise(bitplanes.truncate(left, bits), bits, left_scale) - factors.left
            left_loss[bits] = singular * np.square(error * factors.row_scales).sum(1)
            error = bitplanes.dequantise(bitplanes.truncate(right, bits), bits, right_scale).reshape(count, -1)
            right_loss[bits] = singular * np.square(error - factors.right).sum(1)
        sizes = [len(segment) for segment in segments]
        points = []
        for rank in self.ranks:
            dropped = float(factors.energy[rank:].sum())
            for left_bits, left_error in left_loss.items():
                for right_bits, right_error in right_loss.items():
                    chosen = Representation(rank, left_bits, right_bits)
                    size = sum(sizes[index] for index in self.segment_ids(chosen))
                    loss = mean_loss + dropped + float(left_error[:rank].sum() + right_error[:rank].sum())
                    points.append(Rung(chosen, size, loss / total))
        hull = lower_hull(points)
        return [rung for rung in hull if rung.distortion <= MAX_DISTORTION] or hull[-1:]

    def decode(self, shape: ShardShape, representation: Representation, segments: Mapping[int, bytes]) -> np.ndarray:
        matrices, rows, columns = shape.matrices, shape.rows, shape.columns
        missing = [segment for segment in self.segment_ids(representation) if segment not in segments]
        if missing:
            raise ValueError(f"Segment {missing[0]} of the shard is missing.")
        means = segments[MEAN_SEGMENT]
        if len(means) != matrices * (SCALE_DTYPE.itemsize + columns):
            raise ValueError(f"The segment of column means has {len(means)} bytes, which does not fit the shard.")
        scale_bytes = matrices * SCALE_DTYPE.itemsize
        mean_scale = np.frombuffer(means[:scale_bytes], SCALE_DTYPE).reshape(matrices, 1)
        mean_codes = np.frombuffer(means[scale_bytes:], np.uint8).reshape(matrices, columns)
        mean = bitplanes.dequantise(mean_codes, bitplanes.CODE_BITS, mean_scale)

        rank = representation.rank
        left = self._factor(0, rank, representation.left_bits, (rank, 1, rows), segments)[:, 0]
        right = self._factor(1, rank, representation.right_bits, (rank, matrices, columns), segments)
        joint = left.T @ right.reshape(rank, -1)
        joint += mean.reshape(-1)
        return joint.reshape(rows, matrices, columns).transpose(1, 0, 2)

    def _factor(
        self, factor: int, rank: int, bits: int, shape: tuple[int, int, int], segments: Mapping[int, bytes]
    ) -> np.ndarray:
        """The first ``rank`` components of a factor: float32 of ``shape`` (rank, parts, numbers)."""
        codes = np.empty(shape, np.uint8)
        scales = np.empty((*shape[:2], 1), SCALE_DTYPE)
        start = 0
        for group, end in enumerate(self.ranks[: self.ranks.index(rank) + 1]):
            first = _first_segment(group, factor)
            head = segments[first]
            size = (end - start) * shape[1] * SCALE_DTYPE.itemsize
            later = [segments[first + index] for index in range(1, bitplanes.chunks_for(bits))]
            part = codes[start:end]
            part[:] = bitplanes.unpack_chunks([head[size:], *later], part.size).reshape(part.shape)
            scales[start:end].reshape(-1)[:] = np.frombuffer(head[:size], SCALE_DTYPE)
            start = end
        return bitplanes.dequantise(codes, bits, scales)


def _first_segment(group: int, factor: int) -> int:
    """The segment with the first chunk of a component group's left (0) or right (1) factor."""
    return MEAN_SEGMENT + 1 + (group * 2 + factor) * bitplanes.CHUNKS


def _norms(shard: np.ndarray) -> np.ndarray:
    """What each matrix is divided by, float64 (matrices,): the norm about its column means.

    A matrix of equal rows has no such norm beyond rounding; its whole norm stands in, or 1 where it is all zero.
    """
    exact = shard.astype(np.float64)
    whole = np.linalg.norm(exact, axis=(1, 2))
    centred = np.linalg.norm(exact - exact.mean(1, keepdims=True), axis=(1, 2))
    norms = np.where(centred > 1e-6 * whole, centred, whole)
    return np.where(norms > 0, norms, 1)


def _scale(values: np.ndarray) -> np.ndarray:
    """Largest magnitude along the last axis, kept as an axis, in the stored type."""
    return np.abs(values).max(-1, keepdims=True).astype(SCALE_DTYPE)


def lower_hull(points: list[Rung]) -> list[Rung]:
    """The points that are best for some price of a byte: sizes grow, distortions fall, slopes flatten."""
    hull: list[Rung] = []
    for point in sorted(points, key=lambda rung: (rung.size_bytes, rung.distortion)):
        if hull and point.distortion >= hull[-1].distortion:
            continue
        while len(hull) >= 2 and _slope(hull[-2], point) <= _slope(hull[-2], hull[-1]):
            hull.pop()
        hull.append(point)
    return hull


def _slope(start: Rung, end: Rung) -> float:
    return (end.distortion - start.distortion) / max(1, end.size_bytes - start.size_bytes)
