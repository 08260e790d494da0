"""CacheGen (Liu et al., SIGCOMM 2024), adapted to a diffusion transformer: the strong baseline.

Tokens form groups of ten neighbours. A group's anchor is quantised to 8 bits a number with one scale a token; the
others are deltas to the decoded anchor, in bins that widen over the thirds of the blocks and with the level. Symbols
are arithmetic-coded with one distribution for each channel of each block, shared by all steps, anchors and deltas
apart. Bin widths and distributions are stored once a template and level.

Adapted: tokens are patches of pictures, so neighbours may be meant in two dimensions; keys may be coded as they were
before RoPE; each matrix is scaled by a power of two, so that no scale leaves the range of fp16. Our reading: a
channel's standard deviation is that of its deltas, as these are what the bins hold.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, Literal

import constriction
import msgspec
import numpy as np

from sakura.codec.cachegen_table import LARGEST_SYMBOL, Gaussians, Histograms, Table, width_codes, widths_of
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
from sakura.codec.token_groups import Order, group_tokens

GROUP_TOKENS = 10
TOP_EXPONENT = 15  # matrices are scaled to at most 2**15, so that fp16 holds scales down to 2**-39 of that
LARGEST = np.finfo(np.float32).max
# Without deltas, a token's largest magnitude is told in this many steps at a bin width of 1: the first third's 0.5
# makes 33 symbols and the second third's 1 makes 17, much like the 32 and 16 of the public code.
PLAIN_STEPS = 8
COUNT_BYTES = 4
ANCHOR_MODEL = constriction.stream.model.QuantizedGaussian(-LARGEST_SYMBOL, LARGEST_SYMBOL)


class CacheGenCodec(msgspec.Struct, frozen=True, kw_only=True):
    """``levels`` multiply the bin widths, from coarse to fine; ``thirds`` are the widths in the first, middle and last
    third of the blocks, in units of the standard deviation of each channel's deltas (``unit="channel"``, the paper's)
    or of all deltas of a matrix.

    ``deltas=False`` is the variant of the public code: every token is quantised like an anchor, in fewer steps.

    Anchors come back within half a step, 1/254 of the token's largest magnitude; other tokens within half a bin, which
    is at most 9 % wider than asked for, or 1/116 of the channel's largest delta if that is more. Keys that were coded
    before RoPE mix the errors of two channels.
    """

    name: ClassVar[str] = "cachegen"
    levels: tuple[float, ...] = (16.0, 8.0, 4.0, 2.0, 1.0, 0.5, 0.25)
    thirds: tuple[float, float, float] = (0.5, 1.0, 1.5)
    order: Order = "tiles"
    keys: Literal["after_rope", "before_rope"] = "before_rope"
    unit: Literal["channel", "matrix"] = "channel"
    deltas: bool = True

    def __post_init__(self) -> None:
        if not self.levels or min(self.levels) <= 0 or list(self.levels) != sorted(set(self.levels), reverse=True):
            raise ValueError(f"CacheGen needs levels above 0, each once, in descending order, not {self.levels}.")
        if min(self.thirds) <= 0:
            raise ValueError(f"CacheGen needs bin widths above 0 for its thirds, not {self.thirds}.")

    def encode(self, geometry: CacheGeometry, arrays: CacheArrays) -> EncodedCache:
        """A table for each level, then one segment for each shard and level, shard by shard.

        Raises ValueError on numbers that are not finite.
        """
        require_finite(arrays.kv)
        transform = Transform(self, geometry, arrays.places)
        tables: list[list[Table]] = [[] for _ in self.levels]
        streams: dict[tuple[int, int], bytes] = {}
        distortions: dict[tuple[int, int], float] = {}
        for place in range(geometry.shards_per_step):
            shards = range(place, geometry.shards, geometry.shards_per_step)
            blocks = geometry.blocks_of(place)
            exact = arrays.kv[:, blocks.start : blocks.stop].reshape(len(shards), -1, geometry.rows, geometry.columns)
            importance = arrays.importance[:, blocks.start : blocks.stop].repeat(2, axis=1)
            scaled, exponents = transform.forward(exact)
            for level in range(len(self.levels)):
                table, symbols = transform.quantise(scaled, exponents, level, place)
                tables[level].append(table)
                for step, shard in enumerate(shards):
                    streams[shard, level] = pack(symbols[step], table)
                    rebuilt = transform.rebuild(symbols[step], table, level, place)
                    distortions[shard, level] = weighted_distortion(exact[step], rebuilt, importance[step])
        segments = [Table.joined(parts).to_bytes() for parts in tables]
        ladders = []
        for shard in range(geometry.shards):
            order, rungs = [], []
            for level in range(len(self.levels)):
                order += [level, len(segments)]
                segments.append(streams[shard, level])
                size_bytes = len(segments[level]) + len(segments[-1])
                kept = Representation(0, level, level)
                rungs.append(Rung(kept, 2 * level, 2 * level + 2, size_bytes, distortions[shard, level]))
            ladders.append(Ladder(order, worthwhile(rungs)))
        return EncodedCache(segments, ladders, list(range(geometry.shards)))

    def decoder(self, geometry: CacheGeometry, places: TokenPlaces) -> "CacheGenDecoder":
        return CacheGenDecoder(self, geometry, places)


class CacheGenDecoder:
    """Keeps tables and segments as they arrive and rebuilds a shard from its finest segment that has its table."""

    def __init__(self, codec: CacheGenCodec, geometry: CacheGeometry, places: TokenPlaces) -> None:
        self._geometry = geometry
        self._levels = len(codec.levels)
        self._transform = Transform(codec, geometry, places)
        self._tables: dict[int, list[Table]] = {}
        self._segments: dict[int, bytes] = {}

    def add(self, segments: Mapping[int, bytes]) -> None:
        geometry = self._geometry
        for number, segment in segments.items():
            if not 0 <= number < self._levels * (1 + geometry.shards):
                raise ValueError(f"Segment {number} is none of this cache's.")
            try:
                if number < self._levels:
                    table = Table.from_bytes(segment, 2 * geometry.blocks, geometry.columns)
                    self._tables[number] = table.split(geometry.shards_per_step)
                else:
                    self._transform.check(segment)
                    self._segments[number] = segment
            except ValueError as error:
                raise ValueError(f"Segment {number} {error}.") from None

    def shard(self, shard: int) -> np.ndarray:
        place = shard % self._geometry.shards_per_step
        for level in sorted(self._tables, reverse=True):
            number = self._levels * (1 + shard) + level
            if number in self._segments:
                table = self._tables[level][place]
                try:
                    symbols = self._transform.unpack(self._segments[number], table)
                except ValueError as error:
                    raise ValueError(f"Segment {number} {error}.") from None
                return self._transform.rebuild(symbols, table, level, place)
        raise ValueError(f"No segment of shard {shard} has arrived together with its table.")


@dataclasses.dataclass(frozen=True)
class Symbols:
    """What is coded of a shard: ``scales`` float16 (matrices, anchors); ``anchors`` int8 (matrices, columns, anchors);
    ``deltas`` int8 (matrices, columns, other tokens)."""

    scales: np.ndarray
    anchors: np.ndarray
    deltas: np.ndarray


def pack(symbols: Symbols, table: Table) -> bytes:
    """The stream's length in words, the anchors' scales, and the stream: anchors, then deltas by channel."""
    encoder = constriction.stream.queue.RangeEncoder()
    means, deviations = (parameter.repeat(symbols.anchors.shape[-1]) for parameter in table.anchors.parameters())
    encoder.encode(symbols.anchors.reshape(-1).astype(np.int32), ANCHOR_MODEL, means, deviations)
    shifted = symbols.deltas.reshape(len(table.histograms.lowest), -1) - table.histograms.lowest[:, None]
    for channel, model in zip(shifted.astype(np.int32), table.histograms.models, strict=True):
        if model is not None:
            encoder.encode(channel, model)
    words = encoder.get_compressed().astype("<u4")
    return len(words).to_bytes(COUNT_BYTES, "little") + symbols.scales.astype("<f2").tobytes() + words.tobytes()


class Transform:
    """Between matrices and symbols, for a template's tokens and a codec's options."""

    def __init__(self, codec: CacheGenCodec, geometry: CacheGeometry, places: TokenPlaces) -> None:
        self.codec, self.geometry, self.rotation = codec, geometry, rotation(places)
        self.groups = group_tokens(places.positions, codec.order, GROUP_TOKENS if codec.deltas else 1)

    def bin_widths(self, level: int, place: int) -> np.ndarray:
        """Asked for, in the codec's units: float32 (matrices, 1, 1)."""
        thirds = [self.codec.thirds[3 * block // self.geometry.blocks] for block in self.geometry.blocks_of(place)]
        return np.float32(self.codec.levels[level]) * np.array(thirds, np.float32).repeat(2)[:, None, None]

    def anchor_steps(self, level: int, place: int) -> np.ndarray:
        """Steps from 0 to a token's largest magnitude: float32 (matrices, 1, 1)."""
        if self.codec.deltas:
            return np.full((self.geometry.matrices, 1, 1), LARGEST_SYMBOL, np.float32)
        return np.rint(PLAIN_STEPS / self.bin_widths(level, place)).clip(1, LARGEST_SYMBOL)

    def forward(self, exact: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(steps, matrices, rows, columns), scaled and perhaps with RoPE undone, and the exponents (matrices,)."""
        largest = np.abs(exact).max((0, 2, 3))
        exponents = np.where(largest > 0, np.frexp(largest)[1] - TOP_EXPONENT, 0).astype(np.int32)
        scaled = np.ldexp(exact, -exponents[:, None, None], order="C")
        if self.codec.keys == "before_rope":
            rotate(scaled[:, 0::2], self.rotation.conj())
        return scaled, exponents

    def quantise(
        self, scaled: np.ndarray, exponents: np.ndarray, level: int, place: int
    ) -> tuple[Table, list[Symbols]]:
        """The table of these matrices at a level, and the symbols of each step."""
        groups, steps = self.groups, self.anchor_steps(level, place)
        anchors = scaled[:, :, groups.anchors]
        scales = np.abs(anchors).max(-1).astype(np.float16)
        wide = scales[..., None].astype(np.float32)
        with np.errstate(divide="ignore", invalid="ignore"):
            codes = np.where(wide > 0, np.rint(anchors / wide * steps), 0).clip(-steps, steps)
        deltas = scaled[:, :, groups.others] - (codes * wide / steps)[:, :, groups.group_of]
        deviations = np.sqrt(np.square(deltas).sum((0, 2)) / max(1, deltas[:, 0, :, 0].size))
        if self.codec.unit == "matrix":
            deviations = np.broadcast_to(np.sqrt(np.square(deviations).mean(1, keepdims=True)), deviations.shape)
        asked = self.bin_widths(level, place)[:, 0] * deviations
        least = np.abs(deltas).max((0, 2), initial=0) / LARGEST_SYMBOL
        widths = width_codes(np.maximum(asked, least))
        bins = widths_of(widths)[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            bin_numbers = np.where(bins > 0, np.rint(deltas / bins), 0)
        # Channels before tokens, as they are coded.
        anchor_symbols = codes.astype(np.int8).swapaxes(-1, -2)
        delta_symbols = bin_numbers.astype(np.int8).swapaxes(-1, -2)
        by_channel = delta_symbols.transpose(1, 2, 0, 3).reshape(widths.size, -1)
        fitted = Gaussians.fit(anchor_symbols.transpose(1, 2, 0, 3).reshape(*widths.shape, -1))
        table = Table(exponents, widths, fitted, Histograms.fit(by_channel))
        return table, [Symbols(*parts) for parts in zip(scales, anchor_symbols, delta_symbols, strict=True)]

    def rebuild(self, symbols: Symbols, table: Table, level: int, place: int) -> np.ndarray:
        """float32 (matrices, rows, columns) of a shard's symbols."""
        groups, steps = self.groups, self.anchor_steps(level, place)
        scaled = np.empty((self.geometry.matrices, self.geometry.rows, self.geometry.columns), np.float32)
        anchors = symbols.anchors.swapaxes(1, 2) * (symbols.scales[..., None].astype(np.float32) / steps)
        scaled[:, groups.anchors] = anchors
        deltas = symbols.deltas.swapaxes(1, 2) * widths_of(table.widths)[:, None]
        scaled[:, groups.others] = anchors[:, groups.group_of] + deltas
        if self.codec.keys == "before_rope":
            rotate(scaled[0::2], self.rotation)
        with np.errstate(over="ignore"):
            return np.ldexp(scaled, table.exponents[:, None, None]).clip(-LARGEST, LARGEST)

    def check(self, segment: bytes) -> None:
        """Raise ValueError, whose message is the end of a sentence, where a shard's segment cannot be one."""
        stream_at = COUNT_BYTES + 2 * self.geometry.matrices * len(self.groups.anchors)
        due = stream_at + 4 * int.from_bytes(segment[:COUNT_BYTES], "little")
        if len(segment) < stream_at or len(segment) != due:
            raise ValueError(f"has {len(segment)} bytes instead of {due}")
        scales = np.frombuffer(segment[COUNT_BYTES:stream_at], "<f2")
        if not (np.isfinite(scales) & (scales >= 0)).all():
            raise ValueError("holds a scale that is not finite or below 0")

    def unpack(self, segment: bytes, table: Table) -> Symbols:
        """Undo ``pack`` on a segment that passed ``check``. Raises ValueError like it."""
        matrices, columns, tokens = self.geometry.matrices, self.geometry.columns, len(self.groups.anchors)
        scales = np.frombuffer(segment, "<f2", matrices * tokens, COUNT_BYTES).reshape(matrices, tokens)
        words = np.frombuffer(segment, "<u4", offset=COUNT_BYTES + scales.nbytes).astype(np.uint32)
        decoder = constriction.stream.queue.RangeDecoder(words)
        means, deviations = (parameter.repeat(tokens) for parameter in table.anchors.parameters())
        deltas = np.empty((matrices * columns, len(self.groups.others)), np.int8)
        try:
            anchors = decoder.decode(ANCHOR_MODEL, means, deviations)
            histograms = zip(table.histograms.lowest, table.histograms.models, deltas, strict=True)
            for lowest, model, channel in histograms:
                channel[:] = lowest if model is None else decoder.decode(model, len(channel)) + lowest
        except AssertionError:  # what constriction raises on bits that no encoder writes
            raise ValueError("holds a stream that does not belong to its table") from None
        if not decoder.maybe_exhausted():
            raise ValueError("holds a longer stream than its table tells")
        shape = (matrices, columns, -1)
        return Symbols(scales, anchors.astype(np.int8).reshape(shape), deltas.reshape(matrices, columns, -1))
