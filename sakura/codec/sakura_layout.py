"""Where the SAKURA codec's numbers are: which segment holds which plane of which part."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from sakura.codec.interface import CacheGeometry
from sakura.codec.planes import MAX_PLANES

HEADER = 0
_LOG_STEPS = 8  # scales are stored as powers of 2**(1/8)
_LOG_ZERO = 192  # the byte of scale 1


def component_groups(ranks: Sequence[int], rows: int) -> list[slice]:
    """The components of each group, as far as a cache of so many tokens has them."""
    ends = [min(rank, rows) for rank in ranks]
    return [slice(start, end) for start, end in itertools.pairwise([0, *ends]) if start < end]


class Layout:
    """Which segment holds which plane.

    Parts are numbered: the left factor's groups, whose part is the group's number; then, a column of shards, its means
    and its right groups. ``planes`` says how many segments each part has.
    """

    def __init__(self, geometry: CacheGeometry, groups: list[slice], planes: Sequence[int]) -> None:
        self.geometry, self.slices, self.planes = geometry, groups, list(planes)
        self.groups, self.columns = len(groups), geometry.shards_per_step
        self.first = list(itertools.accumulate(self.planes, initial=HEADER + 1))

    @classmethod
    def of_header(cls, geometry: CacheGeometry, groups: list[slice], header: bytes) -> "Layout":
        """The layout that segment 0 announces; its last bytes are the planes of the parts."""
        return cls(geometry, groups, header[-(len(groups) + geometry.shards_per_step * (len(groups) + 1)) :])

    def means(self, column: int) -> int:
        return self.groups + column * (self.groups + 1)

    def part_of(self, segment: int) -> int:
        return int(np.searchsorted(self.first, segment, "right")) - 1

    def column_of(self, part: int) -> int | None:
        """Which column a part belongs to; None for the left factor."""
        return None if part < self.groups else (part - self.groups) // (self.groups + 1)

    def is_means(self, part: int) -> bool:
        return part >= self.groups and (part - self.groups) % (self.groups + 1) == 0

    def shape(self, part: int) -> tuple[int, int]:
        """Kinds and numbers in each kind, as :mod:`sakura.codec.planes` counts them."""
        if part < self.groups:
            return 1, length(self.slices[part]) * self.geometry.rows
        inside = (part - self.groups) % (self.groups + 1)
        rank = 1 if inside == 0 else length(self.slices[inside - 1])
        return self.geometry.steps, self.geometry.matrices * rank * self.geometry.columns

    def right(self, column: int, group: int) -> int:
        return self.means(column) + 1 + group

    def segments(self, part: int, planes: int) -> range:
        """The segments of a part's leading ``planes`` planes."""
        return range(self.first[part], self.first[part] + min(planes, self.planes[part]))

    def subset(self, column: int, rank_groups: int, left_bits: int, right_bits: int) -> list[int]:
        """The segments of a representation with the first ``rank_groups`` groups, in sending order."""
        found = [HEADER, *self.segments(self.means(column), MAX_PLANES)]
        for group in range(rank_groups):
            found.extend(self.segments(group, left_bits))
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
                left, right = group, self.right(column, group)
                if level > self.planes[right]:
                    continue
                waiting = max(self.planes[left], level) if level == self.planes[right] else level
                for earlier in range(waiting, level - 1, -1):
                    if earlier <= self.planes[left]:
                        yield left, self.planes[left] - earlier
                yield right, self.planes[right] - level


def to_log(scales: np.ndarray) -> np.ndarray:
    """uint8 codes of positive scales between 2**-24 and 2**8, in steps of an eighth of an octave."""
    codes = np.round(np.log2(np.maximum(scales, 1e-30)) * _LOG_STEPS) + _LOG_ZERO
    return np.clip(codes, 0, 255).astype(np.uint8)


def from_log(codes: np.ndarray) -> np.ndarray:
    """float32 scales of the codes that :func:`to_log` makes."""
    return np.exp2((codes.astype(np.float32) - _LOG_ZERO) / _LOG_STEPS)


def length(group: slice) -> int:
    return group.stop - group.start
