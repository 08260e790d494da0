"""Integers as embedded, entropy-coded bit planes: leading planes are a coarser version of the same numbers.

A number is significant from the first plane in which it is not zero. A plane codes which numbers become significant
(the gaps between them, entropy-coded with one probability a kind, so that time goes by what is there and not by what is
not), their signs, and one more bit of those that were significant before (both as they are: they are nearly random).
Coarser versions have a dead zone around zero twice as wide as their other cells.

One plane is stored as::

    u8            how many planes there are (only in the first plane)
    kinds         for each kind a u8 p, where (p / 256)**2 is the probability of becoming significant, 0 if none does;
                  and unless it is 0, how many gaps follow, as u24
    u24           length of the gaps in 32-bit words
    u32 * length  gaps, kind after kind, as an asymmetric numeral system (constriction's AnsCoder): how many numbers
                  that stay insignificant come before the next one that does not; 255: that many, and none after them
    bits          signs of the new numbers (1: negative), then the next bits of the known ones; filled up to a byte
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
    """Gaps 0..254 before a significant number, and 255 for a run of as many without one."""
    quiet = 1 - (code / 256) ** 2
    runs = quiet ** np.arange(MAX_GAP + 1)
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
        raise ValueError(f"{planes} planes are needed, {MAX_PLANES} are possible.")
    segments = []
    for plane in range(planes - 1, -1, -1):
        current = magnitudes >> plane
        known = current > 1
        kinds, coder = [], _AnsCoder()
        for kind in range(len(numbers) - 1, -1, -1):
            flags = (current[kind] == 1)[~known[kind]]
            positions = np.flatnonzero(flags)
            if len(positions) == 0:
                kinds.append(b"\0")
                continue
            code = int(np.clip(round(256 * (len(positions) / len(flags)) ** 0.5), 1, 255))
            gaps = _to_gaps(positions)
            coder.encode_reverse(gaps, _gaps_model(code))
            kinds.append(bytes([code]) + len(gaps).to_bytes(3, "little"))
        words = coder.get_compressed().astype("<u4")
        bits = np.concatenate([numbers[current == 1] < 0, (current[known] & 1).astype(bool)])
        parts = [*reversed(kinds), len(words).to_bytes(3, "little"), words.tobytes(), np.packbits(bits).tobytes()]
        first = bytes([planes]) if plane == planes - 1 else b""
        segments.append(first + b"".join(parts))
    return segments


class PlaneReader:
    """Numbers known from the planes read so far; ``planes`` is 0 until the first one is read."""

    def __init__(self, kinds: int, count: int) -> None:
        self._magnitudes = np.zeros((kinds, count), np.int32)
        self._negative = np.zeros((kinds, count), bool)
        self.planes = 0
        self.read_planes = 0

    def read(self, segment: bytes) -> None:
        """Read the next plane. Raises ValueError, with nothing changed, where its bytes cannot be one."""
        stream = io.BytesIO(segment)
        planes = self.planes or _number(stream, 1)
        if not self.read_planes < planes <= MAX_PLANES:
            raise ValueError("it has a plane too many")
        codes = []
        for _ in self._magnitudes:
            code = _number(stream, 1)
            codes.append((code, _number(stream, 3) if code else 0))
        length = 4 * _number(stream, 3)
        words = np.frombuffer(_exactly(stream, length), "<u4").astype(np.uint32)
        coder = _AnsCoder(words)  # raises ValueError where the last word is zero
        known = self._magnitudes > 0
        fresh = np.zeros_like(known)
        for kind, (code, gaps) in enumerate(codes):
            if code == 0:
                continue
            unknown = np.flatnonzero(~known[kind])
            if gaps > len(unknown):
                raise ValueError("it names more numbers than there are")
            positions = _from_gaps(coder.decode(_gaps_model(code), gaps))
            if len(positions) and positions[-1] >= len(unknown):
                raise ValueError("it names numbers beyond the last one")
            fresh[kind, unknown[positions]] = True
        new, old = int(fresh.sum()), int(known.sum())
        bits = np.unpackbits(np.frombuffer(stream.read(), np.uint8))
        if len(bits) != (new + old + 7) // 8 * 8:
            raise ValueError("its size does not fit its contents")
        self._negative[fresh] = bits[:new]
        self._magnitudes <<= 1
        self._magnitudes[known] += bits[new : new + old]
        self._magnitudes[fresh] = 1
        self.planes = planes
        self.read_planes += 1

    def values(self) -> np.ndarray:
        """Centres of the cells that the numbers lie in: float32 (kinds, count)."""
        centres = self._magnitudes.astype(np.float32)
        centres += np.float32(0.5) * (self._magnitudes > 0)
        centres *= np.float32(1 << (self.planes - self.read_planes))
        np.negative(centres, out=centres, where=self._negative)
        return centres


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
