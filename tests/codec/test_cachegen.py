"""CacheGen: bins are as wide as said, streams decode from bytes alone, and what cannot be is refused."""

import numpy as np
import pytest
from arrays import GEOMETRY, as_arrays, awkward_arrays, places, random_arrays
from hypothesis import given, settings
from hypothesis import strategies as st

from sakura.codec.cachegen import GROUP_TOKENS, CacheGenCodec
from sakura.codec.interface import CacheArrays, CacheGeometry, EncodedCache, Rung
from sakura.codec.token_groups import Order, group_tokens

AWKWARD = awkward_arrays()
VARIANTS: dict[str, dict] = {
    "default": {},
    "raster after RoPE": {"order": "raster", "keys": "after_rope"},
    "matrix": {"unit": "matrix"},
    "no deltas": {"deltas": False},
}


def decoded(
    codec: CacheGenCodec, geometry: CacheGeometry, arrays: CacheArrays, encoded: EncodedCache, shard: int, rung: Rung
) -> np.ndarray:
    """Decode a rung with a new decoder, from the segments that it names and nothing else."""
    decoder = codec.decoder(geometry, arrays.places)
    wanted = encoded.ladders[shard].segments(rung)
    assert sum(len(encoded.segments[number]) for number in wanted) == rung.size_bytes
    decoder.add({number: encoded.segments[number] for number in wanted})
    return decoder.shard(shard)


def exact_shard(geometry: CacheGeometry, arrays: CacheArrays, shard: int) -> np.ndarray:
    blocks = geometry.blocks_of(shard)
    kv = arrays.kv[geometry.step_of(shard), blocks.start : blocks.stop]
    return kv.reshape(-1, geometry.rows, geometry.columns).astype(np.float64)


def assert_within_bounds(codec: CacheGenCodec, geometry: CacheGeometry, arrays: CacheArrays) -> None:
    """Hold anchors and deltas of the finest level against the bounds in the codec's docstring (no RoPE undone)."""
    encoded = codec.encode(geometry, arrays)
    groups = group_tokens(arrays.places.positions, codec.order, GROUP_TOKENS)
    for place in range(geometry.shards_per_step):
        shards = range(place, geometry.shards, geometry.shards_per_step)
        exact = np.stack([exact_shard(geometry, arrays, shard) for shard in shards])
        rebuilt = np.stack([decoded(codec, geometry, arrays, encoded, s, encoded.ladders[s].rungs[-1]) for s in shards])
        assert rebuilt.dtype == np.float32
        assert np.isfinite(rebuilt).all()
        largest = np.abs(exact).max((0, 2, 3))[:, None, None]
        slack = 2.0**-20 * largest + 2.0**-149  # what float32 rounds
        anchors, others = exact[:, :, groups.anchors], exact[:, :, groups.others]
        steps = np.abs(anchors).max(-1, keepdims=True) / 127
        assert (np.abs(rebuilt[:, :, groups.anchors] - anchors) <= 0.501 * steps + slack).all()
        if groups.others.size == 0:
            continue
        deltas = others - rebuilt[:, :, groups.anchors].astype(np.float64)[:, :, groups.group_of]
        level = encoded.ladders[place].rungs[-1].representation.left_bits
        thirds = np.array([codec.thirds[3 * b // geometry.blocks] for b in geometry.blocks_of(place)]).repeat(2)
        asked = codec.levels[level] * thirds[:, None] * np.sqrt(np.square(deltas).mean((0, 2)))
        bins = 1.1 * np.maximum(asked, np.abs(deltas).max((0, 2)) / 127)
        assert (np.abs(rebuilt[:, :, groups.others] - others) <= 0.5 * bins[:, None] + slack).all()


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 80),
    noise=st.sampled_from([0.0, 0.1, 2.0]),
    order=st.sampled_from(["raster", "tiles"]),
    exponent=st.integers(-30, 30),
)
def test_numbers_come_back_within_half_a_bin(seed: int, rows: int, noise: float, order: Order, exponent: int) -> None:
    geometry = CacheGeometry(steps=2, blocks=3, blocks_per_shard=1, rows=rows, columns=8)
    kv = random_arrays(geometry, seed, noise=noise).kv * np.float32(10.0**exponent)
    codec = CacheGenCodec(levels=(2.0, 0.5), order=order, keys="after_rope")
    assert_within_bounds(codec, geometry, as_arrays(kv, geometry))


@pytest.mark.parametrize("kind", AWKWARD)
def test_awkward_matrices_come_back_within_half_a_bin(kind: str) -> None:
    geometry, arrays = AWKWARD[kind]
    assert_within_bounds(CacheGenCodec(levels=(4.0, 0.1), keys="after_rope"), geometry, arrays)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", AWKWARD)
def test_every_variant_keeps_awkward_matrices(kind: str, variant: str) -> None:
    geometry, arrays = AWKWARD[kind]
    codec = CacheGenCodec(**VARIANTS[variant], levels=(4.0, 0.05))
    encoded = codec.encode(geometry, arrays)
    largest = np.abs(arrays.kv).max((0, 3, 4)).reshape(geometry.shards_per_step, -1)
    for shard in range(geometry.shards):
        rebuilt = decoded(codec, geometry, arrays, encoded, shard, encoded.ladders[shard].rungs[-1])
        error = np.abs(rebuilt - exact_shard(geometry, arrays, shard)).max((1, 2))
        assert (error <= 0.12 * largest[shard % geometry.shards_per_step] + 2.0**-148).all()


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), variant=st.sampled_from(sorted(VARIANTS)))
def test_levels_grow_and_improve(seed: int, variant: str) -> None:
    codec, arrays = CacheGenCodec(**VARIANTS[variant], levels=(4.0, 1.0, 0.25)), random_arrays(seed=seed)
    encoded = codec.encode(GEOMETRY, arrays)
    for shard, ladder in enumerate(encoded.ladders):
        assert [rung.representation.left_bits for rung in ladder.rungs] == [0, 1, 2]
        sizes, losses = zip(*((rung.size_bytes, rung.distortion) for rung in ladder.rungs), strict=True)
        assert list(sizes) == sorted(set(sizes))
        assert list(losses) == sorted(set(losses), reverse=True)
        errors = [
            np.square(decoded(codec, GEOMETRY, arrays, encoded, shard, rung) - exact_shard(GEOMETRY, arrays, shard))
            for rung in ladder.rungs
        ]
        assert [error.sum() for error in errors] == sorted((error.sum() for error in errors), reverse=True)


def test_all_shards_of_a_level_share_its_table_and_no_byte_is_left_over() -> None:
    encoded = CacheGenCodec(levels=(2.0, 0.5)).encode(GEOMETRY, random_arrays())
    named = [number for ladder in encoded.ladders for number in ladder.order]
    assert set(named) == set(range(len(encoded.segments)))
    assert [ladder.order[0::2] for ladder in encoded.ladders] == [[0, 1]] * GEOMETRY.shards
    assert len({number for ladder in encoded.ladders for number in ladder.order[1::2]}) == 2 * GEOMETRY.shards


def test_keys_before_rope_differ_only_in_keys() -> None:
    arrays = random_arrays()
    before, after = (
        decoded(codec, GEOMETRY, arrays, encoded, 0, encoded.ladders[0].rungs[0])
        for codec in (CacheGenCodec(levels=(1.0,)), CacheGenCodec(levels=(1.0,), keys="after_rope"))
        for encoded in [codec.encode(GEOMETRY, arrays)]
    )
    np.testing.assert_array_equal(before[1::2], after[1::2])
    assert (before[0::2] != after[0::2]).any()


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 300), order=st.sampled_from(["raster", "tiles"]), size=st.sampled_from([1, 10]))
def test_groups_hold_each_token_once_and_stay_in_a_picture(rows: int, order: Order, size: int) -> None:
    positions = places(CacheGeometry(1, 1, 1, rows, 4)).positions
    groups = group_tokens(positions, order, size)
    assert sorted([*groups.anchors, *groups.others]) == list(range(rows))
    assert (positions[groups.others, 0] == positions[groups.anchors[groups.group_of], 0]).all()
    tokens = 1 + np.bincount(groups.group_of, minlength=len(groups.anchors))
    assert tokens.max() <= size
    assert (tokens < size).sum() <= 2  # the last one of each picture


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused_by_place(bad: float) -> None:
    arrays = random_arrays()
    arrays.kv[0, 2, 0, 5, 7] = bad
    with pytest.raises(ValueError, match=rf"holds {bad} in K of step 0, block 2 \(token 5, channel 7\)"):
        CacheGenCodec().encode(GEOMETRY, arrays)


def test_segments_that_cannot_be_are_refused_by_number() -> None:
    codec, arrays = CacheGenCodec(levels=(2.0, 0.5)), random_arrays()
    encoded = codec.encode(GEOMETRY, arrays)
    table, segment = encoded.segments[1], encoded.segments[3]
    decoder = codec.decoder(GEOMETRY, arrays.places)
    for wrong in (b"", table[:-1], table + b"\0", segment):
        with pytest.raises(ValueError, match=r"Segment 1 (has|is damaged)"):
            decoder.add({1: wrong})
    for wrong in (b"", segment[:-1], segment[:-4], segment + b"\0\0\0\0", table):
        with pytest.raises(ValueError, match=f"Segment 3 has {len(wrong)} bytes instead of"):
            decoder.add({3: wrong})
    with pytest.raises(ValueError, match="Segment 3 holds a scale"):
        decoder.add({3: segment[:4] + b"\x00\x7e" + segment[6:]})
    with pytest.raises(ValueError, match="Segment 99 is none of this cache's"):
        decoder.add({99: segment})
    decoder.add({3: segment})
    with pytest.raises(ValueError, match="No segment of shard 0 has arrived together with its table"):
        decoder.shard(0)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_flipped_bytes_are_refused_or_decode_to_numbers(data: st.DataObject) -> None:
    geometry = CacheGeometry(steps=1, blocks=1, blocks_per_shard=1, rows=30, columns=8)
    codec, arrays = CacheGenCodec(levels=(0.5,)), random_arrays(geometry)
    segments = codec.encode(geometry, arrays).segments
    number = data.draw(st.integers(0, 1))
    changed = bytearray(segments[number])
    for _ in range(data.draw(st.integers(1, 8))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    decoder = codec.decoder(geometry, arrays.places)
    try:
        decoder.add({0: segments[0], 1: segments[1], number: bytes(changed)})
        rebuilt = decoder.shard(0)
    except ValueError as error:
        assert str(error).startswith(f"Segment {number} ") or number == 0
        return
    assert np.isfinite(rebuilt).all()


def test_a_stream_that_is_too_long_is_refused() -> None:
    codec, arrays = CacheGenCodec(levels=(0.5,)), random_arrays()
    encoded = codec.encode(GEOMETRY, arrays)
    longer = encoded.segments[1] + b"\1\2\3\4" * 4
    words = int.from_bytes(longer[:4], "little") + 4
    decoder = codec.decoder(GEOMETRY, arrays.places)
    decoder.add({0: encoded.segments[0], 1: words.to_bytes(4, "little") + longer[4:]})
    with pytest.raises(ValueError, match="Segment 1 holds a longer stream"):
        decoder.shard(0)


@pytest.mark.parametrize(
    "options", [{"levels": ()}, {"levels": (1.0, 2.0)}, {"levels": (1.0, 0.0)}, {"thirds": (0, 1, 1)}]
)
def test_options_that_mean_nothing_are_refused(options: dict) -> None:
    with pytest.raises(ValueError, match="CacheGen"):
        CacheGenCodec(**options)
