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

import itertools
from collections.abc import Iterator, Mapping
from typing import ClassVar

import msgspec
import numpy as np
import scipy.linalg

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
from sakura.codec.planes import MAX_PLANES, PlaneReader, cell_centres, encode_planes
from sakura.codec.rope import rotate, rotation
from sakura.codec.weights import row_scales

HEADER = 0
LARGEST = 1e38  # so that undoing RoPE, which can double a number, stays within float32
MAX_DISTORTION = 0.3  # what loses more than this is not worth executing with
RUNG_GROWTH = 1.06  # a rung is at least this many times the size of the one before it
MIN_SPREAD = 1e-2  # of a matrix's mean: what varies less than that counts as constant
_LOG_STEPS = 8  # scales are stored as powers of 2**(1/8)
_LOG_ZERO = 192  # the byte of scale 1


class SakuraCodec(msgspec.Struct, frozen=True, kw_only=True):
    """``q`` controls how strongly importance biases the factors; ``ranks`` are where component groups end.

    ``finest`` is the quantisation step of the last plane, as a share of the norm of a matrix. ``share_steps``,
    ``use_sensitivity`` and ``unrotate_keys`` can be turned off to see what they bring.
    """

    name: ClassVar[str] = "sakura"
    q: float = 0.75
    floor: float = 0.02
    ranks: tuple[int, ...] = (4, 8, 16, 32, 48, 64, 96)
    finest: float = 0.0015
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
        return _Encoder(self, geometry, arrays).encode()

    def decoder(self, geometry: CacheGeometry, places: TokenPlaces) -> "SakuraDecoder":
        return SakuraDecoder(self, geometry, places)

    def segments_of(self, geometry: CacheGeometry, encoded: EncodedCache, representation: Representation) -> list[int]:
        """What every shard of a template needs in the same representation: any rank of ``ranks``, any bits from 1."""
        columns, groups = geometry.shards_per_step, self.groups(geometry)
        parts = len(groups) + columns * (len(groups) + 1)
        layout = Layout(len(groups), columns, list(encoded.segments[HEADER][-parts:]))
        kept = sum(group.start < representation.rank for group in groups)
        found: dict[int, None] = {}
        for column in range(columns):
            subset = layout.subset(column, kept, representation.left_bits, representation.right_bits)
            found.update(dict.fromkeys(subset))
        return list(found)

    def groups(self, geometry: CacheGeometry) -> list[slice]:
        """The components of each group, as far as a cache of so many tokens has them."""
        ends = [min(rank, geometry.rows) for rank in self.ranks]
        return [slice(start, end) for start, end in itertools.pairwise([0, *ends]) if start < end]


class Layout:
    """Which segment holds which plane. Parts are numbered: left groups, then a column's means and right groups."""

    def __init__(self, groups: int, columns: int, planes: list[int]) -> None:
        self.groups, self.columns, self.planes = groups, columns, planes
        self.first = list(itertools.accumulate(planes, initial=HEADER + 1))

    def left(self, group: int) -> int:
        return group

    def means(self, column: int) -> int:
        return self.groups + column * (self.groups + 1)

    def right(self, column: int, group: int) -> int:
        return self.means(column) + 1 + group

    def segments(self, part: int, planes: int) -> range:
        """The segments of a part's leading ``planes`` planes."""
        return range(self.first[part], self.first[part] + min(planes, self.planes[part]))

    def subset(self, column: int, rank_groups: int, left_bits: int, right_bits: int) -> list[int]:
        """The segments of a representation with the first ``rank_groups`` groups, in sending order."""
        found = [HEADER, *self.segments(self.means(column), MAX_PLANES)]
        for group in range(rank_groups):
            found.extend(self.segments(self.left(group), left_bits))
            found.extend(self.segments(self.right(column, group), right_bits))
        return found

    def order(self, column: int) -> Iterator[tuple[int, int]]:
        """All (part, plane index) of a column by usefulness: coarser planes first, then lower groups.

        Planes are aligned at the last one. A left plane that comes before its group's first right plane could not be
        used; it waits for that.
        """
        means = self.means(column)
        for level in range(max(self.planes, default=0), 0, -1):
            if level <= self.planes[means]:
                yield means, self.planes[means] - level
            for group in range(self.groups):
                left, right = self.left(group), self.right(column, group)
                if level > self.planes[right]:
                    continue
                waiting = max(self.planes[left], level) if level == self.planes[right] else level
                for earlier in range(waiting, level - 1, -1):
                    if earlier <= self.planes[left]:
                        yield left, self.planes[left] - earlier
                yield right, self.planes[right] - level


class _Encoder:
    """One template being encoded."""

    def __init__(self, codec: SakuraCodec, geometry: CacheGeometry, arrays: CacheArrays) -> None:
        self.codec, self.geometry, self.kv = codec, geometry, arrays.kv
        if codec.unrotate_keys:
            factors = rotation(arrays.places)
            self.kv = arrays.kv.astype(np.float32, copy=True)
            for step, block in np.ndindex(geometry.steps, geometry.blocks):
                rotate(self.kv[step, block, 0], factors.conj())
        self.row_codes = _to_log(row_scales(arrays.importance.mean((0, 1)), codec.q, codec.floor))
        self.rows = _from_log(self.row_codes)
        self.groups = codec.groups(geometry)
        self.rank = self.groups[-1].stop
        self.columns = geometry.shards_per_step
        weights = np.square(self.rows, dtype=np.float64)
        self.row_weight = float(weights.sum())
        kv = self.kv.astype(np.float64) if np.abs(self.kv).max(initial=0) > 1e15 else self.kv
        self.means = np.einsum("n,sbpnc->sbpc", weights / self.row_weight, kv)
        self.matrix_scales, self.left, right = self._factorise(arrays.sensitivity)
        self._rotate_steps(right)

    def _matrix(self, step: int, block: int, part: int) -> np.ndarray:
        """One matrix about its mean, rows scaled, in float64 units of its own: (rows, columns)."""
        centred = self.kv[step, block, part].astype(np.float64) - self.means[step, block, part]
        return self.rows[:, None] * centred

    def _factorise(self, sensitivity: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Matrix scales (blocks, 2), token basis (rows, rank), coefficients (steps, blocks, 2, rank, columns)."""
        steps, blocks = self.geometry.steps, self.geometry.blocks
        grams = np.zeros((blocks, 2, self.geometry.rows, self.geometry.rows))
        for step, block, part in np.ndindex(steps, blocks, 2):
            matrix = self._matrix(step, block, part)
            peak = np.abs(matrix).max(initial=0)
            if peak > 0:
                small = (matrix / peak).astype(np.float32)
                grams[block, part] += np.square(peak) * (small @ small.T)
        energy = np.trace(grams, axis1=2, axis2=3) / steps
        mean_energy = np.square(self.means).sum(-1).mean(0) * self.row_weight
        spread = np.maximum(energy, MIN_SPREAD**2 * mean_energy)
        norms = np.sqrt(spread)
        norms = np.where(norms > 0, norms, 1.0)
        # Between equal relative error (1 / norm) and equal effect of small errors on the picture (sensitivity): small
        # errors say too little of large ones, and the geometric mean is what measures best.
        effect = np.sqrt(np.maximum(sensitivity, 1e-6) * norms) if self.codec.use_sensitivity else np.ones_like(norms)
        scales = (effect / np.sqrt(np.square(effect).mean()) / norms).astype(np.float64)
        gram = np.einsum("bp,bpij->ij", np.square(scales), grams)
        last = len(gram) - 1
        _, vectors = scipy.linalg.eigh(gram, subset_by_index=(last + 1 - self.rank, last))
        basis = vectors[:, ::-1]
        right = np.empty((steps, blocks, 2, self.rank, self.geometry.columns), np.float32)
        transposed = np.ascontiguousarray(basis.T, np.float32)
        for step, block, part in np.ndindex(steps, blocks, 2):
            right[step, block, part] = transposed @ (scales[block, part] * self._matrix(step, block, part)).astype(
                np.float32
            )
        self.energy = np.square(scales) * energy * steps  # (blocks, 2)
        self.spread = np.square(scales) * spread * steps  # what distortion is a share of
        return scales, basis, right

    def _rotate_steps(self, right: np.ndarray) -> None:
        """Coefficients by mode instead of by step; modes are ordered by energy."""
        steps = self.geometry.steps
        flat = right.reshape(steps, -1)
        basis = np.eye(steps)
        if self.codec.share_steps:
            _, vectors = scipy.linalg.eigh(flat @ flat.T)
            basis = vectors[:, ::-1]
        self.step_basis = basis.astype("<f4")
        self.right = (self.step_basis.T @ flat).reshape(right.shape)
        scaled = self.means * (self.matrix_scales * np.sqrt(self.row_weight))[:, :, None]
        self.mean_right = np.tensordot(self.step_basis.T.astype(np.float64), scaled, 1)

    def _column(self, coefficients: np.ndarray, column: int) -> np.ndarray:
        """The matrices of a column of shards: (modes, matrices, ...)."""
        blocks = self.geometry.blocks_of(column)
        chosen = coefficients[:, blocks.start : blocks.stop]
        return chosen.reshape(len(chosen), -1, *chosen.shape[3:])

    def encode(self) -> EncodedCache:
        finest = self.codec.finest
        strengths = np.sqrt(np.square(self.right, dtype=np.float64).sum((0, 1, 2, 4)))
        strength_codes = _to_log(strengths)
        self.left_steps = finest / _from_log(strength_codes)
        modes = self.geometry.steps
        left = np.trunc(self.left / self.left_steps).astype(np.int32)
        numbers = [left[:, group].T.reshape(1, -1) for group in self.groups]
        for column in range(self.columns):
            means = np.trunc(self._column(self.mean_right, column) / finest).astype(np.int32)
            right = np.trunc(self._column(self.right, column) / np.float32(finest)).astype(np.int32)
            numbers.append(means.reshape(modes, -1))
            numbers.extend(right[:, :, group].reshape(modes, -1) for group in self.groups)
        planes = [encode_planes(part) for part in numbers]
        header = b"".join(
            (
                self.step_basis.tobytes(),
                self.matrix_scales.astype("<f8").tobytes(),
                self.row_codes.tobytes(),
                strength_codes.tobytes(),
                bytes(len(part) for part in planes),
            )
        )
        layout = Layout(len(self.groups), self.columns, [len(part) for part in planes])
        segments = [header, *itertools.chain.from_iterable(planes)]
        left_errors = [self._left_errors(layout, left, group) for group in range(len(self.groups))]
        ladders = [self._ladder(layout, segments, numbers, left_errors, column) for column in range(self.columns)]
        return EncodedCache(segments, ladders, [shard % self.columns for shard in range(self.geometry.shards)])

    def _left_errors(self, layout: Layout, left: np.ndarray, group: int) -> list[np.ndarray]:
        """Squared error of each of a group's basis vectors with 0, 1, ... planes."""
        chosen = self.groups[group]
        exact, steps = self.left[:, chosen], self.left_steps[chosen]
        errors = [np.square(exact).sum(0)]
        planes = layout.planes[layout.left(group)]
        for dropped in range(planes - 1, -1, -1):
            kept = cell_centres(_shift(left[:, chosen], dropped), dropped) * steps
            errors.append(np.square(exact - kept).sum(0))
        return errors

    def _ladder(
        self,
        layout: Layout,
        segments: list[bytes],
        numbers: list[np.ndarray],
        left_errors: list[list[np.ndarray]],
        column: int,
    ) -> Ladder:
        """Every prefix of the column's order as a point of size and distortion; rungs are those on the hull.

        The basis is orthonormal in weighted units, so a component's error is that of its right factor plus that of its
        basis vector times the energy of the right factor. Energy beyond the last component is lost always.
        """
        total = float(self.spread.sum()) / self.columns
        blocks = self.geometry.blocks_of(column)
        right = self._column(self.right, column)
        lost = max(0.0, float(self.energy[blocks.start : blocks.stop].sum() - np.square(right, dtype=float).sum()))
        right_errors: dict[int, list[np.ndarray]] = {}
        energies: dict[int, list[np.ndarray]] = {}
        means = layout.means(column)
        exacts = {means: self._column(self.mean_right, column)[:, :, None]}
        exacts |= {layout.right(column, number): right[:, :, group] for number, group in enumerate(self.groups)}
        for part, exact in exacts.items():
            right_errors[part], energies[part] = self._right_errors(exact, numbers[part], layout.planes[part])

        have = dict.fromkeys([*range(layout.groups), *exacts], 0)

        def loss(part: int) -> float:
            if part == means:
                return float(right_errors[means][have[means]].sum())
            group = part - means - 1
            left_error = left_errors[group][have[layout.left(group)]]
            return float((right_errors[part][have[part]] + left_error * energies[part][have[part]]).sum())

        losses = {part: loss(part) for part in exacts}
        order, size, points = [HEADER], len(segments[HEADER]), []
        for part, plane in layout.order(column):
            segment = layout.first[part] + plane
            order.append(segment)
            size += len(segments[segment])
            have[part] = plane + 1
            if part < layout.groups:
                continue  # a left plane goes with the right plane that follows
            losses[part] = loss(part)
            top = max((group for group in range(layout.groups) if have[layout.right(column, group)]), default=-1)
            representation = Representation(
                0 if top < 0 else self.groups[top].stop,
                have[layout.left(0)],
                have[layout.right(column, 0)],
            )
            distortion = (lost + sum(losses.values())) / max(total, 1e-300)
            points.append(Rung(representation, 0, len(order), size, distortion))
        if not points:  # nothing but zeros
            points.append(Rung(Representation(0, 0, 0), 0, 1, size, 0.0))
        return Ladder(order, _thinned(lower_hull(points)))

    def _right_errors(
        self, exact: np.ndarray, numbers: np.ndarray, planes: int
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Squared error and energy of each component with 0, 1, ... planes; ``exact`` (modes, matrices, n, columns)."""
        whole = numbers.reshape(exact.shape)
        errors, energies = [np.square(exact, dtype=np.float64).sum((0, 1, 3))], [np.zeros(exact.shape[2])]
        for dropped in range(planes - 1, -1, -1):
            kept = cell_centres(_shift(whole, dropped), dropped) * np.float32(self.codec.finest)
            errors.append(np.square(exact - kept, dtype=np.float64).sum((0, 1, 3)))
            energies.append(np.square(kept, dtype=np.float64).sum((0, 1, 3)))
        return errors, energies


class SakuraDecoder:
    """Reads planes as they come; what several shards share is rebuilt once and kept until more of it arrives."""

    def __init__(self, codec: SakuraCodec, geometry: CacheGeometry, places: TokenPlaces) -> None:
        self.codec, self.geometry = codec, geometry
        self._factors = rotation(places) if codec.unrotate_keys else None
        self.groups = codec.groups(geometry)
        self._layout: Layout | None = None
        self._waiting: dict[int, bytes] = {}
        self._readers: dict[int, PlaneReader] = {}
        self._left: np.ndarray | None = None
        self._right: dict[int, np.ndarray] = {}

    def add(self, segments: Mapping[int, bytes]) -> None:
        self._waiting.update(segments)
        if self._layout is None:
            header = self._waiting.pop(HEADER, None)
            if header is None:
                return
            self._layout = self._read_header(header)
        self._waiting.pop(HEADER, None)
        layout = self._layout
        unknown = [segment for segment in self._waiting if not 0 <= segment < layout.first[-1]]
        if unknown:
            for segment in unknown:
                del self._waiting[segment]
            raise ValueError(f"Segment {unknown[0]} is none of this cache's.")
        for part in sorted({int(np.searchsorted(layout.first, segment, "right")) - 1 for segment in self._waiting}):
            self._read_part(part)

    def _read_header(self, header: bytes) -> Layout:
        steps, blocks, rows = self.geometry.steps, self.geometry.blocks, self.geometry.rows
        columns, groups = self.geometry.shards_per_step, len(self.groups)
        parts = groups + columns * (groups + 1)
        sizes = [4 * steps * steps, 16 * blocks, rows, self.groups[-1].stop, parts]
        if len(header) != sum(sizes):
            raise ValueError(f"Segment 0 has {len(header)} bytes instead of {sum(sizes)}.")
        cuts = [0, *itertools.accumulate(sizes)]
        fields = [header[start:end] for start, end in itertools.pairwise(cuts)]
        self._step_basis = np.frombuffer(fields[0], "<f4").reshape(steps, steps)
        scales = np.frombuffer(fields[1], "<f8")
        if not (np.isfinite(self._step_basis).all() and np.isfinite(scales).all() and (scales > 0).all()):
            raise ValueError("Segment 0 holds scales that are not positive numbers.")
        self._matrix_scales = scales.reshape(columns, self.geometry.matrices)
        self._rows = _from_log(np.frombuffer(fields[2], np.uint8))
        self._left_steps = self.codec.finest / _from_log(np.frombuffer(fields[3], np.uint8))
        planes = list(fields[4])
        if max(planes) > MAX_PLANES:
            raise ValueError(f"Segment 0 announces {max(planes)} planes; {MAX_PLANES} are possible.")
        return Layout(groups, columns, planes)

    def _read_part(self, part: int) -> None:
        """Read the planes of a part that can be read by now, in their order."""
        layout = self._layout
        assert layout is not None
        reader = self._readers.get(part)
        if reader is None:
            inside = (part - layout.groups) % (layout.groups + 1)
            matrices, columns = self.geometry.matrices, self.geometry.columns
            if part < layout.groups:
                count = (1, _length(self.groups[part]) * self.geometry.rows)
            elif inside == 0:
                count = (self.geometry.steps, matrices * columns)
            else:
                count = (self.geometry.steps, matrices * _length(self.groups[inside - 1]) * columns)
            reader = self._readers[part] = PlaneReader(*count)
        while reader.read_planes < layout.planes[part]:
            segment = layout.first[part] + reader.read_planes
            data = self._waiting.pop(segment, None)
            if data is None:
                return
            try:
                reader.read(data)
            except ValueError as error:
                raise ValueError(f"Segment {segment} is damaged: {error}.") from error
            if reader.planes != layout.planes[part]:
                raise ValueError(f"Segment {segment} does not have the planes that segment 0 announces.")
            if part < layout.groups:
                self._left = None
            else:
                self._right.pop((part - layout.groups) // (layout.groups + 1), None)

    def _left_factor(self) -> np.ndarray:
        """float32 (rows, 1 + rank), with the row scales divided out; ones come first, for the means."""
        if self._left is None:
            left = np.zeros((1 + self.groups[-1].stop, self.geometry.rows), np.float32)
            for number, group in enumerate(self.groups):
                if number in self._readers:
                    values = self._readers[number].values().reshape(_length(group), -1)
                    left[1 + group.start : 1 + group.stop] = values
            left[1:] *= self._left_steps[:, None]
            left[1:] /= self._rows
            left[0] = 1
            self._left = np.ascontiguousarray(left.T)
        return self._left

    def _right_factors(self, layout: Layout, column: int) -> np.ndarray:
        """float32 (modes, 1 + rank, matrices * columns): the means, then as many components as have arrived."""
        known = self._right.get(column)
        if known is None:
            groups = [number for number in range(layout.groups) if layout.right(column, number) in self._readers]
            rank = self.groups[groups[-1]].stop if groups else 0
            modes, matrices = self.geometry.steps, self.geometry.matrices
            known = np.zeros((modes, 1 + rank, matrices, self.geometry.columns), np.float32)
            if layout.means(column) in self._readers:
                means = self._readers[layout.means(column)].values().reshape(modes, matrices, -1)
                known[:, 0] = means / np.float32(np.sqrt(np.square(self._rows, dtype=np.float64).sum()))
            for number in groups:
                group = self.groups[number]
                values = self._readers[layout.right(column, number)].values()
                values = values.reshape(modes, matrices, _length(group), -1)
                known[:, 1 + group.start : 1 + group.stop] = values.transpose(0, 2, 1, 3)
            known *= (self.codec.finest / self._matrix_scales[column])[:, None]
            self._right[column] = known = known.reshape(modes, 1 + rank, -1)
        return known

    def shard(self, shard: int) -> np.ndarray:
        layout = self._layout
        if layout is None:
            raise ValueError("Segment 0 of the cache is missing.")
        modes = self._right_factors(layout, shard % layout.columns)
        weights = self._step_basis[self.geometry.step_of(shard)]
        right = np.tensordot(weights, modes, 1)
        rebuilt = self._left_factor()[:, : len(right)] @ right
        matrices = rebuilt.reshape(self.geometry.rows, self.geometry.matrices, -1)
        if self._factors is not None:
            rotate(matrices[:, ::2], self._factors[:, None])
        return matrices.transpose(1, 0, 2)


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


def _thinned(hull: list[Rung]) -> list[Rung]:
    """Rungs that are good enough to offer and differ enough in size; the finest always."""
    kept = [hull[-1]]
    for rung in reversed(hull[:-1]):
        if rung.distortion <= MAX_DISTORTION and rung.size_bytes * RUNG_GROWTH <= kept[-1].size_bytes:
            kept.append(rung)
    return kept[::-1]


def _to_log(scales: np.ndarray) -> np.ndarray:
    """uint8 codes of positive scales between 2**-24 and 2**8, in steps of an eighth of an octave."""
    codes = np.round(np.log2(np.maximum(scales, 1e-30)) * _LOG_STEPS) + _LOG_ZERO
    return np.clip(codes, 0, 255).astype(np.uint8)


def _from_log(codes: np.ndarray) -> np.ndarray:
    return np.exp2((codes.astype(np.float32) - _LOG_ZERO) / _LOG_STEPS)


def _shift(numbers: np.ndarray, planes: int) -> np.ndarray:
    """Drop the lowest planes of the magnitudes, keeping signs."""
    return np.sign(numbers) * (np.abs(numbers) >> planes)


def _length(group: slice) -> int:
    return group.stop - group.start
