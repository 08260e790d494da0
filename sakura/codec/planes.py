"""Integers as embedded, entropy-coded bit planes: leading planes are a coarser version of the same numbers.

A number is significant from the first plane in which it is not zero. A plane codes which numbers become significant
(the gaps between them, entropy-coded with one probability a kind, so that time goes by what is there and not by what is
not), their signs, and one more bit of those that were significant before (both as they are: they are nearly random).
Coarser versions have a dead zone around zero twice as wide as their other cells.

One plane is stored as::

    kinds         for each kind a u8 p, where (p / 256)**2 is the probability of becoming significant, 0 if none does;
                  and unless it is 0, how many gaps follow, as u24
    u24           length of the gaps in 32-bit words
    u32 * length  gaps, kind after kind, as an asymmetric numeral system (constriction's AnsCoder): how many numbers
                  that stay insignificant come before the next one that does not; 255: that many, and none after them
    bits          signs of the new numbers (1: negative), then the next bits of the known ones in the order in which
                  they became significant; filled up to a byte
"""

import functools
import io

import constriction
import numpy as np

MAX_PLANES = 24
MAX_GAP = 255
_AnsCoder = constriction.stream.stack.AnsCoder


@functools.lru_cache(256)
def _gaps_model(code: int) -> object:
    """Gaps 0..254 before a significant number, and 255 for a run of as many without one.

    Powers are products, one factor after the other: all processors round these alike, which ``pow`` does not promise.
    """
    quiet = 1 - (code / 256) ** 2
    runs = np.multiply.accumulate(np.where(np.arange(MAX_GAP + 1) == 0, 1.0, quiet))
    runs[:-1] *= 1 - quiet
    return constriction.stream.model.Categorical(runs, perfect=False)


def _to_gaps(positions: np.ndarray) -> np.ndarray:
    """Gaps between sorted ``positions``, long ones cut up: int32. What comes after the last one is left out."""
    distances = np.diff(positions, prepend=-1) - 1
    runs = distances // MAX_GAP
    gaps = np.full(len(positions) + int(runs.sum()), MAX_GAP, np.int32)
    gaps[np.cumsum(runs + 1) - 1] = distances % MAX_GAP
    return gaps


def _from_gaps(gaps: np.ndarray) -> np.ndarray:
    """The positions that :func:`_to_gaps` was given."""
    marks = gaps < MAX_GAP
    return (np.cumsum(gaps + marks) - 1)[marks]


def encode_planes(numbers: np.ndarray) -> list[bytes]:
    """Planes, most significant first, of int32 (kinds, count); none where all are zero."""
    magnitudes = np.abs(numbers)
    planes = int(magnitudes.max(initial=0)).bit_length()
    if planes > MAX_PLANES:
        raise ValueError(f"{planes} planes are needed, {MAX_PLANES} are possible; choose a coarser finest step.")
    flat, negative = magnitudes.reshape(-1), numbers.reshape(-1) < 0
    known = np.zeros(magnitudes.shape, bool)
    found = np.empty(0, np.int64)  # significant numbers in the order in which they became so
    segments = []
    for plane in range(planes - 1, -1, -1):
        kinds, gaps, fresh = [], [], []
        for kind in range(len(numbers)):
            unknown = np.flatnonzero(~known[kind])
            positions = np.flatnonzero(magnitudes[kind, unknown] >> plane)
            fresh.append(unknown[positions] + kind * numbers.shape[1])
            if len(positions) == 0:
                kinds.append(b"\0")
                continue
            code = int(np.clip(round(256 * (len(positions) / len(unknown)) ** 0.5), 1, 255))
            gaps.append((_to_gaps(positions), _gaps_model(code)))
            kinds.append(bytes([code]) + len(gaps[-1][0]).to_bytes(3, "little"))
        coder = _AnsCoder()
        for numbers_of_kind, model in reversed(gaps):
            coder.encode_reverse(numbers_of_kind, model)
        words = coder.get_compressed().astype("<u4")
        new = np.concatenate(fresh)
        bits = np.concatenate([negative[new], (flat[found] >> plane & 1).astype(bool)])
        parts = [*kinds, len(words).to_bytes(3, "little"), words.tobytes(), np.packbits(bits).tobytes()]
        segments.append(b"".join(parts))
        known.reshape(-1)[new] = True
        found = np.concatenate([found, new])
    return segments


class PlaneReader:
    """Numbers known from the planes read so far, of ``planes`` in all."""

    def __init__(self, kinds: int, count: int, planes: int) -> None:
        self._known = np.zeros((kinds, count), bool)
        # Of the significant numbers, in the order in which they became so.
        self._places = np.empty(0, np.int64)
        self._magnitudes = np.empty(0, np.int32)
        self._negative = np.empty(0, bool)
        self.planes = planes
        self.read_planes = 0

    def read(self, segment: bytes) -> None:
        """Read the next plane. Raises ValueError, with nothing changed, where its bytes cannot be one."""
        stream = io.BytesIO(segment)
        if self.read_planes == self.planes:
            raise ValueError("it is a plane too many")
        codes = []
        for _ in self._known:
            code = _number(stream, 1)
            codes.append((code, _number(stream, 3) if code else 0))
        length = 4 * _number(stream, 3)
        words = np.frombuffer(_exactly(stream, length), "<u4").astype(np.uint32)
        coder = _AnsCoder(words)  # raises ValueError where the last word is zero
        fresh = [np.empty(0, np.int64)]
        for kind, (code, gaps) in enumerate(codes):
            if code == 0:
                continue
            unknown = np.flatnonzero(~self._known[kind])
            if gaps > len(unknown):
                raise ValueError("it names more numbers than there are")
            positions = _from_gaps(coder.decode(_gaps_model(code), gaps))
            if len(positions) and positions[-1] >= len(unknown):
                raise ValueError("it names numbers beyond the last one")
            fresh.append(unknown[positions] + kind * self._known.shape[1])
        if not coder.is_empty():
            raise ValueError("its gaps go on after the last one")
        new = np.concatenate(fresh)
        bits = np.unpackbits(np.frombuffer(stream.read(), np.uint8))
        if len(bits) != (len(new) + len(self._places) + 7) // 8 * 8:
            raise ValueError("its size does not fit its contents")
        refined = 2 * self._magnitudes + bits[len(new) : len(new) + len(self._places)]
        self._magnitudes = np.concatenate([refined, np.ones(len(new), np.int32)])
        self._negative = np.concatenate([self._negative, bits[: len(new)].astype(bool)])
        self._places = np.concatenate([self._places, new])
        self._known.reshape(-1)[new] = True
        self.read_planes += 1

    def values(self) -> np.ndarray:
        """Centres of the cells that the numbers lie in: float32 (kinds, count)."""
        centres = (self._magnitudes + np.float32(0.5)) * np.float32(1 << (self.planes - self.read_planes))
        values = np.zeros(self._known.shape, np.float32)
        values.reshape(-1)[self._places] = np.where(self._negative, -centres, centres)
        return values


def _exactly(stream: io.BytesIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise ValueError("it is too short")
    return data


def _number(stream: io.BytesIO, size: int) -> int:
    return int.from_bytes(_exactly(stream, size), "little")


def cell_centres(truncated: np.ndarray, dropped: int) -> np.ndarray:
    """float32 values of integers that have lost their lowest ``dropped`` planes; zero stays zero."""
    return (truncated + np.float32(0.5) * np.sign(truncated)) * np.float32(1 << dropped)
