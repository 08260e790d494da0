"""INTQ: asymmetric uniform integer quantisation in groups, the plain baseline.

Keys are grouped per channel (a group runs along tokens), values per token (a group runs along channels), each group
with an fp16 scale and an fp16 smallest number, as KIVI (Liu et al., ICML 2024) does. Each matrix is first multiplied by
a power of two (our addition, two bytes a matrix), so that no scale leaves the range of fp16. Keys may be quantised as
they were before RoPE, as KVQuant (Hooper et al., NeurIPS 2024) does: their channels are steadier.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import msgspec
import numpy as np

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

# Matrices are scaled to at most 2**15, so that fp16 holds the smallest number of any group, and the scale of any group
# that spans more than 2**-38 of its matrix' largest number.
TOP_EXPONENT = 15
LARGEST = np.finfo(np.float32).max
EXPONENTS = range(-148 - TOP_EXPONENT, 129 - TOP_EXPONENT)  # of any float32 but zero, whose exponent we call 0


class IntqCodec(msgspec.Struct, frozen=True, kw_only=True):
    """``group`` numbers share a scale; ``widths`` are the bits a number, 2 to 8, from coarse to fine.

    A number comes back within half a step of its group: (span + slack) / (2**width - 1), where slack is what fp16
    rounds, at most 2**-8 of the group's largest magnitude and 2**-29 of the matrix' largest. Keys that were coded
    before RoPE mix the errors of two channels.
    """

    name: ClassVar[str] = "intq"
    group: int = 64
    widths: tuple[int, ...] = (2, 3, 4, 8)
    keys: Literal["after_rope", "before_rope"] = "before_rope"

    def __post_init__(self) -> None:
        if self.group < 2:
            raise ValueError(f"INTQ needs groups of two numbers or more, not {self.group}.")
        if not self.widths or list(self.widths) != sorted({*self.widths} & {*range(2, 9)}):
            raise ValueError(f"INTQ keeps widths from 2 to 8 bits, each once, in ascending order, not {self.widths}.")

    def encode(self, geometry: CacheGeometry, arrays: CacheArrays) -> EncodedCache:
        """One segment for each shard and width, shard by shard. Raises ValueError on numbers that are not finite."""
        require_finite(arrays.kv)
        layouts = self.layouts(geometry, arrays.places)
        segments: list[bytes] = []
        ladders = []
        for shard in range(geometry.shards):
            exact, importance = arrays.shard(geometry, shard)
            rungs, first = [], len(segments)
            for index, layout in enumerate(layouts):
                segment = layout.encode(exact)
                rebuilt = layout.decode(segment)
                segments.append(segment)
                lost = weighted_distortion(exact, rebuilt, importance.repeat(2, axis=0))
                rungs.append(Rung(Representation(0, layout.width, layout.width), index, index + 1, len(segment), lost))
            ladders.append(Ladder(list(range(first, len(segments))), worthwhile(rungs)))
        return EncodedCache(segments, ladders, list(range(geometry.shards)))

    def decoder(self, geometry: CacheGeometry, places: TokenPlaces) -> "IntqDecoder":
        return IntqDecoder(geometry.shards, self.layouts(geometry, places))

    def layouts(self, geometry: CacheGeometry, places: TokenPlaces) -> "list[SegmentLayout]":
        """One for each width."""
        factors = rotation(places) if self.keys == "before_rope" else None
        return [SegmentLayout(geometry, self.group, width, factors) for width in self.widths]


class IntqDecoder:
    """Keeps segments as they arrive and rebuilds a shard from its finest one."""

    def __init__(self, shards: int, layouts: "list[SegmentLayout]") -> None:
        self._shards, self._layouts = shards, layouts
        self._segments: dict[int, bytes] = {}

    def add(self, segments: Mapping[int, bytes]) -> None:
        for number, segment in segments.items():
            if not 0 <= number < self._shards * len(self._layouts):
                raise ValueError(f"Segment {number} is none of this cache's.")
            fault = self._layouts[number % len(self._layouts)].fault(segment)
            if fault:
                raise ValueError(f"Segment {number} {fault}.")
            self._segments[number] = segment

    def shard(self, shard: int) -> np.ndarray:
        for index in reversed(range(len(self._layouts))):
            segment = self._segments.get(shard * len(self._layouts) + index)
            if segment is not None:
                return self._layouts[index].decode(segment)
        raise ValueError(f"No segment of shard {shard} has arrived.")


def lines_of(matrices: np.ndarray) -> list[np.ndarray]:
    """(matrices, rows, columns), K and V in turn, as arrays whose last axis is the one that groups run along."""
    return [matrices[0::2].transpose(0, 2, 1), matrices[1::2]]


def quantise(lines: np.ndarray, width: int, group: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Quantise float32 (blocks, lines, length) in groups along its last axis.

    Returns codes uint8 (numbers,), and scales and smallest numbers, each fp16 (blocks, lines, groups).
    The smallest number is rounded down and the scale up, so that the codes reach every number of the group.
    """
    length = lines.shape[-1]
    padded = np.pad(lines, ((0, 0), (0, 0), (0, -length % group)), mode="edge").reshape(*lines.shape[:2], -1, group)
    lowest = rounded_down(padded.min(-1))
    top = (1 << width) - 1
    scales = -rounded_down(-(padded.max(-1) - lowest) / top)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = (padded - lowest[..., None].astype(np.float32)) / scales[..., None].astype(np.float32)
    codes = np.where(scales[..., None] > 0, np.rint(steps), 0).clip(0, top).astype(np.uint8)
    return codes.reshape(*lines.shape[:2], -1)[..., :length].reshape(-1), scales, lowest


def rounded_down(numbers: np.ndarray) -> np.ndarray:
    """The largest fp16 numbers that are not above float32 ``numbers``."""
    nearest = numbers.astype(np.float16)
    return np.where(nearest > numbers, np.nextafter(nearest, np.float16(-np.inf)), nearest)


class SegmentLayout:
    """Where things are in a segment of a given width, and how to write and read them.

    ``factors`` are the RoPE factors that keys lose before they are quantised, None where they keep them.
    """

    def __init__(self, geometry: CacheGeometry, group: int, width: int, factors: np.ndarray | None) -> None:
        blocks, rows, columns = geometry.blocks_per_shard, geometry.rows, geometry.columns
        self.shape = (geometry.matrices, rows, columns)
        self.group, self.width, self.factors = group, width, factors
        self.lines = [(blocks, columns, rows), (blocks, rows, columns)]
        self.groups = [(count, lines, -(-length // group)) for count, lines, length in self.lines]
        self.numbers = geometry.matrices * rows * columns
        self.codes_at = 2 * geometry.matrices + 4 * sum(int(np.prod(shape)) for shape in self.groups)
        self.size_bytes = self.codes_at + (self.numbers * width + 7) // 8

    def fault(self, segment: bytes) -> str | None:
        """What is wrong with a segment, as the end of a sentence."""
        if len(segment) != self.size_bytes:
            return f"has {len(segment)} bytes instead of {self.size_bytes}"
        exponents, parameters = self._head(segment)
        if exponents.min() not in EXPONENTS or exponents.max() not in EXPONENTS:
            return "holds an exponent that no cache has"
        if not np.isfinite(parameters).all():
            return "holds a scale that is not finite"
        return None

    def encode(self, exact: np.ndarray) -> bytes:
        """Exponents, then the groups' scales and smallest numbers, then packed codes; each time K, then V."""
        largest = np.abs(exact).max((1, 2), keepdims=True)
        exponents = np.where(largest > 0, np.frexp(largest)[1] - TOP_EXPONENT, 0)
        scaled = np.ldexp(exact, -exponents, order="C")
        if self.factors is not None:
            rotate(scaled[0::2], self.factors.conj())
        grouped = [quantise(lines, self.width, self.group) for lines in lines_of(scaled)]
        codes = np.left_shift(np.concatenate([codes for codes, _, _ in grouped]), np.uint8(8 - self.width))
        bits = np.unpackbits(codes[:, None], axis=1, count=self.width)
        parameters = [array.astype("<f2").tobytes() for _, *pair in grouped for array in pair]
        return b"".join([exponents.astype("<i2").tobytes(), *parameters, np.packbits(bits).tobytes()])

    def _head(self, segment: bytes) -> tuple[np.ndarray, np.ndarray]:
        """Exponents and parameters, float16, in a row."""
        parameters = np.frombuffer(segment, "<f2", (self.codes_at - 2 * self.shape[0]) // 2, 2 * self.shape[0])
        return np.frombuffer(segment, "<i2", self.shape[0]), parameters

    def decode(self, segment: bytes) -> np.ndarray:
        """float32 (matrices, rows, columns) of a segment without a fault."""
        exponents, parameters = self._head(segment)
        packed = np.frombuffer(segment, np.uint8, offset=self.codes_at)
        bits = np.unpackbits(packed, count=self.numbers * self.width).reshape(-1, self.width)
        codes = np.zeros(self.numbers, np.float32)
        for place in range(self.width):
            codes = 2 * codes + bits[:, place]
        rebuilt = np.empty(self.shape, np.float32)
        first_code = first_parameter = 0
        for target, lines, groups in zip(lines_of(rebuilt), self.lines, self.groups, strict=True):
            count = int(np.prod(groups))
            pair = parameters[first_parameter : first_parameter + 2 * count].reshape(2, *groups).astype(np.float32)
            scales, lowest = pair.repeat(self.group, axis=-1)[..., : lines[-1]]
            target[...] = codes[first_code : first_code + target.size].reshape(lines) * scales + lowest
            first_code, first_parameter = first_code + target.size, first_parameter + 2 * count
        if self.factors is not None:
            rotate(rebuilt[0::2], self.factors)
        with np.errstate(over="ignore"):
            return np.ldexp(rebuilt, exponents[:, None, None].astype(np.int32)).clip(-LARGEST, LARGEST)
