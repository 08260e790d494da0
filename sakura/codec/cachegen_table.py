"""What CacheGen's device must know of a whole template at one level: bin widths and code tables, as bytes.

A table has one entry for each channel of K and of V of each block, shared by all steps. Histograms are kept as four
bits a symbol, and only over the range that occurs; anchors have 255 symbols but few tokens, so their distribution is
kept as a Gaussian's mean and deviation (our choice: a histogram would be larger than what it saves). All is deflated.
"""

import dataclasses
import functools
import zlib
from typing import Any

import constriction
import numpy as np

LARGEST_SYMBOL = 127
LARGEST_EXPONENT = 200  # beyond what float32 needs, below what its arithmetic is troubled by
WIDTH_STEPS = 8  # to an octave: a bin may be up to 9 % wider than asked for
WIDEST = 2.0**20
SPREAD_STEPS = 16
NARROWEST_SPREAD = 0.25
RARER = 2.0**-0.75  # one step of a histogram's four-bit code; 15 steps are a probability of 1 in 2400
RAREST = 15


def inflated(stored: bytes, least_bytes: int, most_bytes: int) -> bytes:
    """What was deflated. Raises ValueError where it is damaged, cut off, goes on, or has a size that it cannot have."""
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(stored, most_bytes)
    except zlib.error:
        raise ValueError("is damaged") from None
    if not inflater.eof or inflater.unused_data or len(plain) < least_bytes:
        raise ValueError(f"has {len(stored)} bytes, which are no whole table")
    return plain


def width_codes(widths: np.ndarray) -> np.ndarray:
    """uint8 codes of the next wider widths that a code can tell; 0 stands for no width."""
    with np.errstate(divide="ignore"):
        octaves = np.log2(widths / WIDEST)
    return np.where(widths > 0, np.ceil(octaves * WIDTH_STEPS - 1e-6).clip(-254, 0) + 255, 0).astype(np.uint8)


def widths_of(codes: np.ndarray) -> np.ndarray:
    """float32 widths of uint8 codes."""
    return np.where(codes > 0, WIDEST * 2.0 ** ((codes - 255.0) / WIDTH_STEPS), 0).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Gaussians:
    """Distributions of anchors: ``means`` int8 and ``spreads`` uint8 (logarithmic), of any one shape."""

    means: np.ndarray
    spreads: np.ndarray

    @classmethod
    def fit(cls, symbols: np.ndarray) -> "Gaussians":
        """Fit to int (..., tokens), along the last axis."""
        means = np.rint(symbols.mean(-1))
        deviations = np.sqrt(np.square(symbols - means[..., None]).mean(-1))
        spreads = np.rint(SPREAD_STEPS * np.log2(np.maximum(deviations / NARROWEST_SPREAD, 1)))
        return cls(means.astype(np.int8), spreads.astype(np.uint8))

    def parameters(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations, float64."""
        return self.means.astype(np.float64), NARROWEST_SPREAD * 2.0 ** (self.spreads / SPREAD_STEPS)


@dataclasses.dataclass(frozen=True)
class Histograms:
    """Distributions of ``len(lowest)`` channels: symbols from ``lowest`` on, ``sizes`` of them, -127 to 127.

    ``codes`` holds each symbol's rarity, 0 to 15, one channel after the other.
    """

    lowest: np.ndarray
    sizes: np.ndarray
    codes: np.ndarray

    @classmethod
    def fit(cls, symbols: np.ndarray) -> "Histograms":
        """Fit to int8 (channels, numbers)."""
        channels, numbers = symbols.shape
        lowest = symbols.min(1).astype(np.int16) if numbers else np.zeros(channels, np.int16)
        sizes = symbols.max(1) - lowest + 1 if numbers else np.ones(channels, np.int16)
        first = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        counts = np.bincount((symbols - lowest[:, None] + first[:-1, None]).reshape(-1), minlength=first[-1])
        most = np.maximum.reduceat(counts, first[:-1])
        with np.errstate(divide="ignore", invalid="ignore"):
            rarity = np.rint(np.log(counts / most.repeat(sizes)) / np.log(RARER))
        codes = np.where(counts > 0, np.minimum(rarity, RAREST), RAREST).astype(np.uint8)
        return cls(lowest, sizes, codes)

    @classmethod
    def from_bytes(cls, lowest: np.ndarray, sizes: np.ndarray, packed: bytes) -> "Histograms":
        """From int8 and uint8 (less one), seen as uint8 (channels,), and two codes a byte. Raises ValueError."""
        starts, counts = lowest.view(np.int8).astype(np.int16), sizes.astype(np.int16) + 1
        if starts.min() < -LARGEST_SYMBOL or (starts + counts).max() > LARGEST_SYMBOL + 1:
            raise ValueError("holds a histogram of symbols that do not exist")
        symbols = int(counts.sum(dtype=np.int64))
        if len(packed) != (symbols + 1) // 2:
            raise ValueError(f"has {len(packed)} bytes of histograms instead of {(symbols + 1) // 2}")
        pairs = np.frombuffer(packed, np.uint8)
        return cls(starts, counts, np.stack([pairs >> 4, pairs & 15], 1).reshape(-1)[:symbols])

    @functools.cached_property
    def models(self) -> list[Any]:
        """An entropy model for each channel, None where only one symbol occurs."""
        weights = RARER ** self.codes.astype(np.float64)
        parts = np.split(weights, np.cumsum(self.sizes)[:-1])
        categorical = constriction.stream.model.Categorical
        return [None if len(part) == 1 else categorical(part, perfect=False) for part in parts]


@dataclasses.dataclass(frozen=True)
class Table:
    """Of any run of matrices (K and V of consecutive blocks): ``exponents`` int32 (matrices,), ``widths`` uint8 and
    ``anchors`` (matrices, columns), ``histograms`` of all their channels."""

    exponents: np.ndarray
    widths: np.ndarray
    anchors: Gaussians
    histograms: Histograms

    @classmethod
    def joined(cls, parts: "list[Table]") -> "Table":
        return cls(
            np.concatenate([part.exponents for part in parts]),
            np.concatenate([part.widths for part in parts]),
            Gaussians(
                np.concatenate([part.anchors.means for part in parts]),
                np.concatenate([part.anchors.spreads for part in parts]),
            ),
            Histograms(
                np.concatenate([part.histograms.lowest for part in parts]),
                np.concatenate([part.histograms.sizes for part in parts]),
                np.concatenate([part.histograms.codes for part in parts]),
            ),
        )

    def split(self, parts: int) -> "list[Table]":
        """The inverse of ``joined`` for parts of the same number of matrices."""
        sizes = np.split(self.histograms.sizes, parts)
        codes = np.split(self.histograms.codes, np.cumsum([part.sum() for part in sizes])[:-1])
        return [
            Table(exponents, widths, Gaussians(means, spreads), Histograms(*histograms))
            for exponents, widths, means, spreads, *histograms in zip(
                np.split(self.exponents, parts),
                np.split(self.widths, parts),
                np.split(self.anchors.means, parts),
                np.split(self.anchors.spreads, parts),
                np.split(self.histograms.lowest, parts),
                sizes,
                codes,
                strict=True,
            )
        ]

    def to_bytes(self) -> bytes:
        codes = np.pad(self.histograms.codes, (0, len(self.histograms.codes) % 2))
        parts = [
            self.exponents.astype("<i2"),
            self.widths,
            self.anchors.means,
            self.anchors.spreads,
            self.histograms.lowest.astype(np.int8),
            (self.histograms.sizes - 1).astype(np.uint8),
            codes[0::2] << 4 | codes[1::2],
        ]
        return zlib.compress(b"".join(part.tobytes() for part in parts), 9)

    @classmethod
    def from_bytes(cls, stored: bytes, matrices: int, columns: int) -> "Table":
        """Read a table. Raises ValueError, whose message is the end of a sentence, on bytes that are none."""
        channels = matrices * columns
        head_bytes = 2 * matrices + 5 * channels
        plain = inflated(stored, head_bytes, head_bytes + LARGEST_SYMBOL * channels + channels)
        exponents = np.frombuffer(plain, "<i2", matrices).astype(np.int32)
        if np.abs(exponents).max() > LARGEST_EXPONENT:
            raise ValueError("holds an exponent that no cache has")
        widths, means, spreads, lowest, sizes = np.frombuffer(plain, np.uint8, 5 * channels, 2 * matrices).reshape(
            5, matrices, columns
        )
        histograms = Histograms.from_bytes(lowest.reshape(-1), sizes.reshape(-1), plain[head_bytes:])
        return cls(exponents, widths, Gaussians(means.view(np.int8), spreads), histograms)
