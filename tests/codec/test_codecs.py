"""Properties that every codec must have, on caches made at random and on awkward ones."""

import dataclasses
import itertools

import numpy as np
import pytest
from arrays import GEOMETRY, as_arrays, awkward_arrays, random_arrays
from hypothesis import given, settings
from hypothesis import strategies as st

from sakura.codec import CODECS, new_codec, options_of
from sakura.codec.distortion import weighted_distortion
from sakura.codec.interface import CacheArrays, CacheGeometry, Codec, EncodedCache

AWKWARD = awkward_arrays()
NAMES = sorted(CODECS)
# Largest error of the finest representation where all rows are equally important, as a share of the largest number of
# the cache. What a codec says of its errors in more detail is held against it in a file of its own.
TOP_ERROR = {"sakura": 0.06, "intq": 0.01, "cachegen": 0.3, "low-rank": 0.08, "uncompressed": 2.0**-11}
FP16_MAX = 65504.0


def received(
    codec: Codec, geometry: CacheGeometry, arrays: CacheArrays, encoded: EncodedCache, segments: list[int], shard: int
) -> np.ndarray:
    """A shard decoded by a new decoder from these segments and nothing else: float64 (matrices, rows, columns)."""
    decoder = codec.decoder(geometry, arrays.places)
    decoder.add({segment: encoded.segments[segment] for segment in segments})
    rebuilt = decoder.shard(shard)
    assert rebuilt.shape == (geometry.matrices, geometry.rows, geometry.columns)
    assert rebuilt.dtype == np.float32
    return rebuilt.astype(np.float64)


def evenly(arrays: CacheArrays) -> CacheArrays:
    """The same cache with all rows equally important."""
    return dataclasses.replace(arrays, importance=np.ones_like(arrays.importance))


def exact_shard(geometry: CacheGeometry, arrays: CacheArrays, shard: int) -> np.ndarray:
    blocks = geometry.blocks_of(shard)
    kv = arrays.kv[geometry.step_of(shard), blocks.start : blocks.stop]
    return kv.reshape(-1, geometry.rows, geometry.columns).astype(np.float64)


def assert_well_formed(geometry: CacheGeometry, encoded: EncodedCache) -> None:
    """Rungs grow and improve, and say their true sizes; every segment that is named is there."""
    assert len(encoded.ladder_of) == geometry.shards
    assert set(encoded.ladder_of) == set(range(len(encoded.ladders)))
    for ladder in encoded.ladders:
        assert len(set(ladder.order)) == len(ladder.order)
        sizes = [rung.size_bytes for rung in ladder.rungs]
        losses = [rung.distortion for rung in ladder.rungs]
        assert sizes == [sum(len(encoded.segments[s]) for s in ladder.segments(rung)) for rung in ladder.rungs]
        assert sizes == sorted(set(sizes))
        assert losses == sorted(set(losses), reverse=True)
        assert np.isfinite(losses).all()
        assert losses[-1] >= 0
    named = {segment for ladder in encoded.ladders for segment in ladder.order}
    assert named <= set(range(len(encoded.segments)))


def assert_within_bound(codec: Codec, geometry: CacheGeometry, arrays: CacheArrays, encoded: EncodedCache) -> None:
    """Hold the finest rung of every shard against the codec's share of the largest number."""
    kv = arrays.kv if codec.name != "uncompressed" else arrays.kv.clip(-FP16_MAX, FP16_MAX)
    exact = dataclasses.replace(arrays, kv=kv)
    allowed = TOP_ERROR[codec.name] * float(np.abs(kv).max()) + (1e-15 if codec.name == "low-rank" else 2.0**-24)
    for shard, ladder_number in enumerate(encoded.ladder_of):
        ladder = encoded.ladders[ladder_number]
        rebuilt = received(codec, geometry, arrays, encoded, ladder.segments(ladder.rungs[-1]), shard)
        assert np.abs(rebuilt - exact_shard(geometry, exact, shard)).max() <= allowed


@st.composite
def geometries(draw: st.DrawFn) -> CacheGeometry:
    per_shard, per_step = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    rows, columns = draw(st.integers(1, 70)), draw(st.sampled_from([4, 8, 12]))
    return CacheGeometry(draw(st.integers(1, 3)), per_shard * per_step, per_shard, rows, columns)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    geometry=geometries(),
    noise=st.sampled_from([0.0, 0.1, 2.0]),
    exponent=st.integers(-3, 3),
)
def test_caches_come_back_within_the_bound(
    name: str, seed: int, geometry: CacheGeometry, noise: float, exponent: int
) -> None:
    codec, arrays = new_codec(name), random_arrays(geometry, seed, noise=noise)
    arrays = evenly(as_arrays(arrays.kv * np.float32(10.0**exponent), geometry, seed))
    encoded = codec.encode(geometry, arrays)
    assert_well_formed(geometry, encoded)
    assert_within_bound(codec, geometry, arrays, encoded)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", AWKWARD)
def test_awkward_caches_come_back_within_the_bound(kind: str, name: str) -> None:
    geometry, arrays = AWKWARD[kind]
    codec, arrays = new_codec(name), evenly(arrays)
    if kind == "largest float" and name in ("sakura", "low-rank"):
        with pytest.raises(ValueError, match=r".+"):
            codec.encode(geometry, arrays)
        return
    encoded = codec.encode(geometry, arrays)
    assert_well_formed(geometry, encoded)
    assert_within_bound(codec, geometry, arrays, encoded)


@pytest.mark.parametrize("name", NAMES)
def test_every_rung_decodes_from_its_segments_and_improves(name: str) -> None:
    codec, arrays = new_codec(name), random_arrays(noise=0.3)
    encoded = codec.encode(GEOMETRY, arrays)
    for shard in (0, GEOMETRY.shards - 1):
        ladder = encoded.ladders[encoded.ladder_of[shard]]
        step, blocks = GEOMETRY.step_of(shard), GEOMETRY.blocks_of(shard)
        importance = arrays.importance[step, blocks.start : blocks.stop].repeat(2, axis=0)
        exact = exact_shard(GEOMETRY, arrays, shard)
        lost = []
        for rung in ladder.rungs:
            rebuilt = received(codec, GEOMETRY, arrays, encoded, ladder.segments(rung), shard)
            lost.append(weighted_distortion(exact, rebuilt, importance))
        # Codecs may weigh shards against one another, so a single shard may lose a little where all of them gain.
        assert all(finer < 1.05 * coarser for coarser, finer in itertools.pairwise(lost))
        assert lost[-1] < 0.8 * lost[0] or len(lost) == 1


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_stored_that_no_ladder_sends(name: str) -> None:
    encoded = new_codec(name).encode(GEOMETRY, random_arrays(noise=0.3))
    named = {segment for ladder in encoded.ladders for segment in ladder.order}
    assert named == set(range(len(encoded.segments)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused_by_place(name: str, bad: float) -> None:
    arrays = random_arrays()
    arrays.kv[1, 3, 1, 5, 7] = bad
    with pytest.raises(ValueError, match=rf"holds {bad} in V of step 1, block 3 \(token 5, channel 7\)"):
        new_codec(name).encode(GEOMETRY, arrays)


@pytest.mark.parametrize("name", NAMES)
def test_decoder_without_segments_says_what_is_missing(name: str) -> None:
    decoder = new_codec(name).decoder(GEOMETRY, random_arrays().places)
    with pytest.raises(ValueError, match=r"[Ss]egment.*(missing|has arrived)"):
        decoder.shard(0)


@pytest.mark.parametrize("name", NAMES)
def test_segments_come_in_any_order_and_twice(name: str) -> None:
    codec, arrays = new_codec(name), random_arrays()
    encoded = codec.encode(GEOMETRY, arrays)
    expected = received(codec, GEOMETRY, arrays, encoded, list(range(len(encoded.segments))), 4)
    order = np.random.default_rng(3).permutation(len(encoded.segments)).tolist()
    decoder = codec.decoder(GEOMETRY, arrays.places)
    for segment in [*order, *order[:5]]:
        decoder.add({segment: encoded.segments[segment]})
    np.testing.assert_array_equal(decoder.shard(4), expected)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_no_segment_are_refused(name: str) -> None:
    codec, arrays = new_codec(name), random_arrays()
    encoded = codec.encode(GEOMETRY, arrays)
    decoder = codec.decoder(GEOMETRY, arrays.places)
    decoder.add({0: encoded.segments[0]})
    for number in (len(encoded.segments), -1):
        with pytest.raises(ValueError, match=f"Segment {number} "):
            decoder.add({number: encoded.segments[-1]})
    decoder.add(dict(enumerate(encoded.segments)))  # what was refused does not stay behind
    assert np.isfinite(decoder.shard(0)).all()


@pytest.mark.parametrize("name", NAMES)
def test_segments_of_another_cache_are_refused_or_harmless(name: str) -> None:
    codec, arrays = new_codec(name), random_arrays()
    first, second = codec.encode(GEOMETRY, arrays), codec.encode(GEOMETRY, random_arrays(seed=1, noise=0.5))
    rng = np.random.default_rng(0)
    for _ in range(20):
        decoder = codec.decoder(GEOMETRY, arrays.places)
        mixed = {
            number: (second if number < len(second.segments) and rng.random() < 0.3 else first).segments[number]
            for number in range(len(first.segments))
        }
        try:
            decoder.add(mixed)
            assert decoder.shard(3).shape == (GEOMETRY.matrices, GEOMETRY.rows, GEOMETRY.columns)
        except ValueError as error:
            assert "Segment" in str(error)


@pytest.mark.parametrize("name", NAMES)
def test_encoding_is_repeatable_and_options_travel(name: str) -> None:
    codec, arrays = new_codec(name), random_arrays()
    again = new_codec(name, options_of(codec))
    assert again == codec
    assert again.encode(GEOMETRY, arrays) == codec.encode(GEOMETRY, arrays)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), exponent=st.integers(-8, 4))
def test_uncompressed_is_exact_to_fp16(seed: int, exponent: int) -> None:
    codec, arrays = new_codec("uncompressed"), random_arrays(seed=seed)
    scaled = as_arrays(arrays.kv * np.float32(10.0**exponent), GEOMETRY, seed)
    encoded = codec.encode(GEOMETRY, scaled)
    expected = np.clip(scaled.kv, -FP16_MAX, FP16_MAX).astype(np.float16).astype(np.float32)
    halves = dataclasses.replace(scaled, kv=expected)
    for shard in range(GEOMETRY.shards):
        rebuilt = received(codec, GEOMETRY, scaled, encoded, [shard], shard)
        np.testing.assert_array_equal(rebuilt, exact_shard(GEOMETRY, halves, shard))
