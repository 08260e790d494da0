"""The decoder of the SAKURA codec: from whichever planes have arrived to keys and values."""

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from sakura.codec.interface import CacheGeometry, TokenPlaces
from sakura.codec.planes import MAX_PLANES, PlaneReader
from sakura.codec.rope import rotate, rotation
from sakura.codec.sakura_layout import HEADER, Layout, component_groups, from_log, length

if TYPE_CHECKING:
    from sakura.codec.sakura import SakuraCodec

Product = Callable[[np.ndarray, np.ndarray], np.ndarray]


class SakuraDecoder:
    """Reads planes as they come; what several shards share is rebuilt once and kept until more of it arrives.

    Only segment 0 is indispensable: without any planes, a shard is all zeros. ``product`` multiplies the factors.
    """

    def __init__(self, codec: "SakuraCodec", geometry: CacheGeometry, places: TokenPlaces) -> None:
        self.codec, self.geometry = codec, geometry
        self._factors = rotation(places) if codec.unrotate_keys else None
        self.groups = component_groups(codec.ranks, geometry.rows)
        self._layout: Layout | None = None
        self._waiting: dict[int, bytes] = {}
        self._read: set[int] = set()
        self._readers: dict[int, PlaneReader] = {}
        self._left: np.ndarray | None = None
        self._right: dict[int, np.ndarray] = {}
        self.product: Product = np.matmul

    def add(self, segments: Mapping[int, bytes]) -> None:
        self._waiting.update({number: data for number, data in segments.items() if number not in self._read})
        if self._layout is None:
            header = self._waiting.pop(HEADER, None)
            if header is None:
                return
            self._layout = self._read_header(header)
            self._read.add(HEADER)
        layout = self._layout
        unknown = [segment for segment in self._waiting if not 0 <= segment < layout.first[-1]]
        if unknown:
            for segment in unknown:
                del self._waiting[segment]
            raise ValueError(f"Segment {unknown[0]} is none of this cache's.")
        for part in sorted({layout.part_of(segment) for segment in self._waiting}):
            self._read_part(layout, part)

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
        self._rows = from_log(np.frombuffer(fields[2], np.uint8))
        self._left_steps = self.codec.finest / from_log(np.frombuffer(fields[3], np.uint8))
        if max(fields[4]) > MAX_PLANES:
            raise ValueError(f"Segment 0 announces {max(fields[4])} planes; {MAX_PLANES} are possible.")
        return Layout(self.geometry, self.groups, fields[4])

    def _read_part(self, layout: Layout, part: int) -> None:
        """Read the planes of a part that can be read by now, in their order."""
        reader = self._readers.get(part)
        if reader is None:
            reader = self._readers[part] = PlaneReader(*layout.shape(part), planes=layout.planes[part])
        while reader.read_planes < layout.planes[part]:
            segment = layout.first[part] + reader.read_planes
            data = self._waiting.pop(segment, None)
            if data is None:
                return
            try:
                reader.read(data)
            except ValueError as error:
                raise ValueError(f"Segment {segment} is damaged: {error}.") from error
            self._read.add(segment)
            column = layout.column_of(part)
            if column is None:
                self._left = None
            else:
                self._right.pop(column, None)

    def _left_factor(self) -> np.ndarray:
        """float32 (rows, 1 + rank), with the row scales divided out; ones come first, for the means."""
        if self._left is None:
            left = np.zeros((1 + self.groups[-1].stop, self.geometry.rows), np.float32)
            for number, group in enumerate(self.groups):
                if number in self._readers:
                    values = self._readers[number].values().reshape(length(group), -1)
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
                values = values.reshape(modes, matrices, length(group), -1)
                known[:, 1 + group.start : 1 + group.stop] = values.transpose(0, 2, 1, 3)
            known *= (self.codec.finest / self._matrix_scales[column])[:, None]
            self._right[column] = known = known.reshape(modes, 1 + rank, -1)
        return known

    def shard(self, shard: int) -> np.ndarray:
        layout = self._layout
        if not 0 <= shard < self.geometry.shards:
            raise ValueError(f"Shard {shard} is none of this cache's.")
        if layout is None:
            raise ValueError("Segment 0 of the cache is missing.")
        modes = self._right_factors(layout, shard % layout.columns)
        weights = self._step_basis[self.geometry.step_of(shard)]
        right = np.tensordot(weights, modes, 1)
        rebuilt = self.product(self._left_factor()[:, : len(right)], right)
        matrices = rebuilt.reshape(self.geometry.rows, self.geometry.matrices, -1)
        if self._factors is not None:
            rotate(matrices[:, ::2], self._factors[:, None])
        return matrices.transpose(1, 0, 2)
