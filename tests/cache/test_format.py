"""FORMAT.md is enough: a reader written from that page alone gives the numbers that the decoder gives."""

import bisect
import itertools
import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from containers import GEOMETRY, packed, some_arrays

from sakura.cache.container import Container, write_file
from sakura.codec.interface import CacheGeometry
from sakura.codec.planes import encode_planes
from sakura.codec.sakura import SakuraCodec


class PageReader:
    """The container, as the page has it."""

    def __init__(self, data: bytes) -> None:
        magic, version, size, checksum = struct.unpack_from("<8sHII", data)
        assert (magic, version) == (b"SAKURAKV", 2)
        index = data[18 : 18 + size]
        assert zlib.crc32(index) == checksum
        self.index: dict[str, Any] = msgspec.msgpack.decode(index)
        start = 18 + size
        self.segments: list[bytes] = []
        for length, crc in zip(self.index["segment_bytes"], self.index["segment_crc32"], strict=True):
            self.segments.append(data[start : start + length])
            assert zlib.crc32(self.segments[-1]) == crc
            start += length
        assert start == len(data)

    def rung(self, shard: int, number: int) -> list[int]:
        """Segments of a rung of a shard."""
        ladder = self.index["ladders"][self.index["ladder_of"][shard]]
        _, start, stop, size_bytes, distortion = ladder["rungs"][number]
        assert sum(len(self.segments[segment]) for segment in ladder["order"][start:stop]) == size_bytes
        assert distortion >= 0
        return ladder["order"][start:stop]


class Gaps:
    """The asymmetric numeral system."""

    def __init__(self, words: tuple[int, ...]) -> None:
        self.words, self.state = list(words), 0
        self.refill()
        self.refill()

    def refill(self) -> None:
        if self.state < 2**32 and self.words:
            self.state = self.state * 2**32 + self.words.pop()

    def next(self, left: list[int]) -> int:
        q = self.state % 2**24
        gap = bisect.bisect_right(left, q) - 1
        self.state = self.state // 2**24 * (left[gap + 1] - left[gap]) + q - left[gap]
        self.refill()
        return gap


def left_of(p: int) -> list[int]:
    quiet = 1 - (p / 256) ** 2
    power = [1.0]
    while len(power) < 256:
        power.append(power[-1] * quiet)
    probability = [x * (1 - quiet) for x in power[:255]] + power[255:]
    below = list(itertools.accumulate(probability, initial=0.0))
    scale = (2**24 - 256) / below[256]
    return [math.floor(below[k] * scale) + k for k in range(256)] + [2**24]


class Part:
    """Integers of a part, from as many planes as there are."""

    def __init__(self, kinds: int, count: int, planes: int) -> None:
        self.kinds, self.count, self.planes, self.read = kinds, count, planes, 0
        self.magnitude: dict[tuple[int, int], int] = {}  # keeps the order in which numbers became significant
        self.sign: dict[tuple[int, int], int] = {}

    def add(self, plane: bytes) -> None:
        at = 0

        def number(size: int) -> int:
            nonlocal at
            at += size
            return int.from_bytes(plane[at - size : at], "little")

        announced = []
        for _ in range(self.kinds):
            p = number(1)
            announced.append((p, number(3) if p else 0))
        length = number(3)
        gaps = Gaps(struct.unpack_from(f"<{length}I", plane, at))
        at += 4 * length
        new: list[tuple[int, int]] = []
        for kind, (p, count) in enumerate(announced):
            left = left_of(p) if p else []
            unknown = [place for place in range(self.count) if (kind, place) not in self.magnitude]
            position = 0
            for _ in range(count):
                gap = gaps.next(left)
                position += gap
                if gap < 255:
                    new.append((kind, unknown[position]))
                    position += 1
        assert gaps.state == 0
        assert not gaps.words
        bits = self.bits(plane[at:])
        for place in new:
            self.sign[place] = -1 if next(bits) else 1
        for place in self.magnitude:
            self.magnitude[place] = 2 * self.magnitude[place] + next(bits)
        self.magnitude |= dict.fromkeys(new, 1)
        self.read += 1

    @staticmethod
    def bits(data: bytes) -> Iterator[int]:
        for byte in data:
            for place in range(7, -1, -1):
                yield byte >> place & 1

    def values(self) -> np.ndarray:
        found = np.zeros((self.kinds, self.count))
        for place, magnitude in self.magnitude.items():
            found[place] = self.sign[place] * (magnitude + 0.5) * 2 ** (self.planes - self.read)
        return found


def reconstructed(page: PageReader, wanted: list[int], cosine: np.ndarray, sine: np.ndarray) -> np.ndarray:
    """(steps, blocks, 2, rows, columns) of the sakura codec from the segments ``wanted``."""
    shape, options = page.index["geometry"], page.index["options"]
    steps, blocks, rows, channels = (shape[name] for name in ("steps", "blocks", "rows", "columns"))
    shard_columns, matrices = blocks // shape["blocks_per_shard"], 2 * shape["blocks_per_shard"]
    ends = sorted({min(rank, rows) for rank in options["ranks"]})
    groups = list(itertools.pairwise([0, *ends]))
    rank, finest = ends[-1], options["finest"]
    part_count = len(groups) + shard_columns * (1 + len(groups))
    header = page.segments[0]
    step_basis = np.array(struct.unpack_from(f"<{steps * steps}f", header)).reshape(steps, steps)
    at = 4 * steps * steps
    matrix_scales = np.array(struct.unpack_from(f"<{2 * blocks}d", header, at))
    at += 16 * blocks
    scales = [2 ** ((code - 192) / 8) for code in header[at : at + rows + rank]]
    row_scales, strengths = np.array(scales[:rows]), np.array(scales[rows:])
    planes = list(header[at + rows + rank :])
    assert len(planes) == part_count

    sizes = [(1, (end - start) * rows) for start, end in groups]
    for _ in range(shard_columns):
        sizes.append((steps, matrices * channels))
        sizes += [(steps, matrices * (end - start) * channels) for start, end in groups]
    parts, segment = [], 1
    for (kinds, count), many in zip(sizes, planes, strict=True):
        part = Part(kinds, count, many)
        for number in range(segment, segment + many):
            if number in wanted and part.read == number - segment:
                part.add(page.segments[number])
        parts.append(part)
        segment += many
    assert segment == len(page.segments)

    left = np.concatenate([part.values().reshape(-1, rows) for part in parts[: len(groups)]])
    left = left.T * finest / (strengths * row_scales[:, None])
    cache = np.empty((steps, shard_columns, matrices, rows, channels))
    for column in range(shard_columns):
        mean, *right = parts[len(groups) + column * (1 + len(groups)) :][: 1 + len(groups)]
        scale = matrix_scales.reshape(shard_columns, matrices)[column][None, :, None]
        means = mean.values().reshape(steps, matrices, channels) * finest / (scale * math.sqrt(sum(row_scales**2)))
        joined = np.concatenate([part.values().reshape(steps, matrices, -1, channels) for part in right], axis=2)
        joined = joined * finest / scale[..., None]
        modes = means[:, :, None] + np.einsum("ni,kmic->kmnc", left, joined)
        cache[:, column] = np.einsum("sk,kmnc->smnc", step_basis, modes)
    kv = cache.reshape(steps, blocks, 2, rows, channels)
    if options["unrotate_keys"]:
        head = cosine.shape[1]
        for j in range(0, channels, 2):
            cos, sin = cosine[:, j % head], sine[:, j % head]
            a, b = kv[:, :, 0, :, j].copy(), kv[:, :, 0, :, j + 1].copy()
            kv[:, :, 0, :, j], kv[:, :, 0, :, j + 1] = a * cos - b * sin, a * sin + b * cos
    return kv


FEW_TOKENS = CacheGeometry(steps=3, blocks=4, blocks_per_shard=1, rows=5, columns=8)
MANY_TOKENS = CacheGeometry(steps=1, blocks=2, blocks_per_shard=2, rows=60, columns=16)


@pytest.mark.parametrize("geometry", [GEOMETRY, FEW_TOKENS, MANY_TOKENS])
@pytest.mark.parametrize("options", [{}, {"ranks": (2, 3, 9), "finest": 0.01, "unrotate_keys": False}])
def test_page_reader_gives_the_decoders_numbers(tmp_path: Path, geometry: CacheGeometry, options: dict) -> None:
    codec, arrays = SakuraCodec(**options), some_arrays(geometry)
    encoded = codec.encode(geometry, arrays)
    path = tmp_path / "some.sakura"
    write_file(str(path), packed(codec, encoded, geometry))
    container, page = Container(path), PageReader(path.read_bytes())
    rungs = [0, -1] if len(encoded.ladders[0].rungs) > 1 else [0]
    for rung in rungs:
        wanted = sorted({segment for shard in range(geometry.shards) for segment in page.rung(shard, rung)})
        found = reconstructed(page, wanted, arrays.places.cosine, arrays.places.sine)
        decoder = container.codec.decoder(geometry, arrays.places)
        decoder.add({segment: container.read_segment(segment) for segment in wanted})
        for shard in range(geometry.shards):
            expected = decoder.shard(shard)
            blocks = geometry.blocks_of(shard)
            same = found[geometry.step_of(shard), blocks.start : blocks.stop].reshape(expected.shape)
            np.testing.assert_allclose(same, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
        if rung == -1:
            assert np.square(found - arrays.kv).mean() < 0.3 * np.square(arrays.kv).mean()


def test_long_gaps_and_every_probability() -> None:
    """The page's entropy coder against the codec's, for each probability and for runs beyond 255."""
    rng = np.random.default_rng(0)
    for share in (*np.linspace(0.001, 1, 60) ** 2, 1 / 2900):
        numbers = np.zeros((2, 3000), np.int32)
        chosen = rng.random(numbers.shape) < share
        numbers[chosen] = rng.integers(-9, 10, int(chosen.sum()))
        segments = encode_planes(numbers)
        part = Part(2, 3000, len(segments))
        for segment in segments:
            part.add(segment)
        np.testing.assert_array_equal(part.values(), numbers + 0.5 * np.sign(numbers))
