"""INTQ: what comes back is within half a step, and every byte is where a rung says."""

import numpy as np
import pytest
from arrays import GEOMETRY, as_arrays, awkward_arrays, random_arrays
from hypothesis import given, settings
from hypothesis import strategies as st

from sakura.codec.interface import CacheArrays, CacheGeometry
from sakura.codec.intq import IntqCodec

AWKWARD = awkward_arrays()


def group_spans(matrix: np.ndarray, group: int, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Span and largest magnitude of each number's group along an axis, in the matrix' shape."""
    spans, largest = np.empty_like(matrix), np.empty_like(matrix)
    for first in range(0, matrix.shape[axis], group):
        part = tuple(slice(first, first + group) if index == axis else slice(None) for index in range(2))
        numbers = matrix[part]
        spans[part] = numbers.max(axis, keepdims=True) - numbers.min(axis, keepdims=True)
        largest[part] = np.abs(numbers).max(axis, keepdims=True)
    return spans, largest


def assert_within_bounds(codec: IntqCodec, geometry: CacheGeometry, arrays: CacheArrays) -> None:
    """Decode each width from its own segment alone and hold it against the bound in the codec's docstring."""
    encoded = codec.encode(geometry, arrays)
    for shard in range(geometry.shards):
        blocks = geometry.blocks_of(shard)
        exact = arrays.kv[geometry.step_of(shard), blocks.start : blocks.stop].astype(np.float64)
        exact = exact.reshape(-1, geometry.rows, geometry.columns)
        for index, width in enumerate(codec.widths):
            number = encoded.ladders[shard].order[index]
            decoder = codec.decoder(geometry, arrays.places)
            decoder.add({number: encoded.segments[number]})
            rebuilt = decoder.shard(shard)
            assert rebuilt.dtype == np.float32
            assert rebuilt.shape == exact.shape
            for part, (numbers, decoded) in enumerate(zip(exact, rebuilt, strict=True)):
                spans, largest = group_spans(numbers, codec.group, axis=part % 2)
                step = (spans + 2.0**-8 * largest + 2.0**-29 * np.abs(numbers).max()) / (2**width - 1)
                assert (np.abs(decoded - numbers) <= 0.5 * step + 2.0**-149).all()


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 140),
    columns=st.sampled_from([4, 16, 72]),
    group=st.sampled_from([7, 32, 64]),
    exponent=st.integers(-30, 30),
)
def test_numbers_come_back_within_half_a_step(seed: int, rows: int, columns: int, group: int, exponent: int) -> None:
    geometry = CacheGeometry(steps=1, blocks=2, blocks_per_shard=1, rows=rows, columns=columns)
    kv = random_arrays(geometry, seed).kv * np.float32(10.0**exponent)
    assert_within_bounds(IntqCodec(group=group, keys="after_rope"), geometry, as_arrays(kv, geometry))


@pytest.mark.parametrize("kind", AWKWARD)
def test_awkward_matrices_come_back_within_half_a_step(kind: str) -> None:
    assert_within_bounds(IntqCodec(keys="after_rope"), *AWKWARD[kind])


@pytest.mark.parametrize("kind", AWKWARD)
def test_keys_before_rope_come_back_too(kind: str) -> None:
    geometry, arrays = AWKWARD[kind]
    codec = IntqCodec()
    encoded = codec.encode(geometry, arrays)
    decoder = codec.decoder(geometry, arrays.places)
    decoder.add(dict(enumerate(encoded.segments)))
    for shard in range(geometry.shards):
        blocks = geometry.blocks_of(shard)
        exact = arrays.kv[geometry.step_of(shard), blocks.start : blocks.stop].astype(np.float64)
        exact = exact.reshape(-1, geometry.rows, geometry.columns)
        largest = np.abs(exact).max((1, 2), keepdims=True)
        assert (np.abs(decoder.shard(shard) - exact) <= 0.01 * largest + 2.0**-148).all()


def test_a_rung_is_one_segment_of_packed_bits() -> None:
    encoded = IntqCodec().encode(GEOMETRY, random_arrays())
    numbers = GEOMETRY.matrices * GEOMETRY.rows * GEOMETRY.columns
    key_groups, value_groups = GEOMETRY.columns * 2, GEOMETRY.rows  # a matrix: 75 rows make two groups
    parameters = 4 * GEOMETRY.blocks_per_shard * (key_groups + value_groups)
    for ladder in encoded.ladders:
        assert [rung.representation.left_bits for rung in ladder.rungs] == [2, 3, 4, 8]
        for rung in ladder.rungs:
            (segment,) = ladder.segments(rung)
            expected = 2 * GEOMETRY.matrices + parameters + numbers * rung.representation.left_bits // 8
            assert len(encoded.segments[segment]) == rung.size_bytes == expected
    assert sum(len(ladder.order) for ladder in encoded.ladders) == len(encoded.segments)


def test_the_finest_segment_that_arrived_is_used() -> None:
    codec, arrays = IntqCodec(), random_arrays()
    encoded = codec.encode(GEOMETRY, arrays)
    decoder = codec.decoder(GEOMETRY, arrays.places)
    exact = arrays.kv[0, 0:2].reshape(-1, GEOMETRY.rows, GEOMETRY.columns)
    errors = []
    for number in encoded.ladders[0].order:
        decoder.add({number: encoded.segments[number]})
        errors.append(float(np.square(decoder.shard(0) - exact).sum()))
    assert errors == sorted(errors, reverse=True)
    decoder.add({encoded.ladders[0].order[0]: encoded.segments[encoded.ladders[0].order[0]]})
    assert float(np.square(decoder.shard(0) - exact).sum()) == errors[-1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused_by_place(bad: float) -> None:
    arrays = random_arrays()
    arrays.kv[1, 3, 1, 5, 7] = bad
    with pytest.raises(ValueError, match=rf"holds {bad} in V of step 1, block 3 \(token 5, channel 7\)"):
        IntqCodec().encode(GEOMETRY, arrays)


def test_segments_that_cannot_be_are_refused_by_number() -> None:
    codec, arrays = IntqCodec(), random_arrays()
    encoded = codec.encode(GEOMETRY, arrays)
    decoder = codec.decoder(GEOMETRY, arrays.places)
    segment = encoded.segments[5]
    for wrong in (b"", segment[:-1], segment + b"\0", encoded.segments[6]):
        with pytest.raises(ValueError, match=rf"Segment 5 has {len(wrong)} bytes instead of {len(segment)}"):
            decoder.add({5: wrong})
    with pytest.raises(ValueError, match="Segment 5 holds an exponent"):
        decoder.add({5: b"\xff\x7f" + segment[2:]})
    with pytest.raises(ValueError, match="Segment 5 holds a scale that is not finite"):
        decoder.add({5: segment[:8] + b"\x00\x7e" + segment[10:]})
    for number in (-1, len(encoded.segments)):
        with pytest.raises(ValueError, match=f"Segment {number} is none of this cache's"):
            decoder.add({number: segment})
    with pytest.raises(ValueError, match="No segment of shard 1 has arrived"):
        decoder.shard(1)


@settings(max_examples=30, deadline=None)
@given(noise=st.binary(min_size=200, max_size=200), seed=st.integers(0, 100))
def test_noise_is_refused_or_decodes_to_numbers(noise: bytes, seed: int) -> None:
    geometry = CacheGeometry(steps=1, blocks=1, blocks_per_shard=1, rows=30, columns=8)
    codec, arrays = IntqCodec(widths=(3,)), random_arrays(geometry, seed)
    whole = codec.encode(geometry, arrays).segments[0]
    decoder = codec.decoder(geometry, arrays.places)
    try:
        decoder.add({0: (noise + whole[len(noise) :])[: len(whole)]})
    except ValueError:
        return
    assert np.isfinite(decoder.shard(0)).all()


@pytest.mark.parametrize("options", [{"group": 1}, {"widths": ()}, {"widths": (4, 2)}, {"widths": (1, 2)}])
def test_options_that_mean_nothing_are_refused(options: dict) -> None:
    with pytest.raises(ValueError, match="INTQ"):
        IntqCodec(**options)
