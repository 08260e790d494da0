"""Properties that every codec must have, on matrices made at random and on awkward ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sakura.codec import CODECS, new_codec
from sakura.codec.interface import Codec, EncodedShard, Representation, Rung, ShardShape
from sakura.codec.low_rank import row_scales
from sakura.codec.sakura import SakuraCodec, lower_hull
from sakura.codec.uncompressed import FULL, UncompressedCodec

SHAPE = ShardShape(4, 90, 24)
# A rank within reach and 8 bits leave at most this share of the weighted energy.
TOP_RUNG_LOSS = 3e-3


def random_shard(seed: int, rank: int, noise: float, shape: ShardShape = SHAPE) -> np.ndarray:
    """Low rank plus noise plus column means, as keys and values are: float32 (matrices, rows, columns)."""
    rng = np.random.default_rng(seed)
    left = rng.normal(size=(shape.rows, rank)) * 0.7 ** np.arange(rank)
    right = rng.normal(size=(shape.matrices, rank, shape.columns))
    means = rng.normal(size=(shape.matrices, 1, shape.columns))
    scatter = noise * rng.normal(size=(shape.matrices, shape.rows, shape.columns))
    return (left @ right + means + scatter).astype(np.float32)


def random_importance(seed: int, rows: int = SHAPE.rows) -> np.ndarray:
    scores = np.random.default_rng(seed).lognormal(0, 1, rows).astype(np.float32)
    return scores / scores.mean()


def decoded(codec: Codec, encoded: EncodedShard, rung: Rung, shape: ShardShape = SHAPE) -> np.ndarray:
    """Decode a rung from the segments that it names and nothing else."""
    segments = {index: encoded.segments[index] for index in codec.segment_ids(rung.representation)}
    assert sum(map(len, segments.values())) == rung.size_bytes
    return codec.decode(shape, rung.representation, segments)


def measured_loss(codec: SakuraCodec, shard: np.ndarray, rebuilt: np.ndarray, importance: np.ndarray) -> float:
    """The share of importance-weighted energy about the column means that is lost, from its definition."""
    weights = np.square(row_scales(importance, codec.q, codec.floor), dtype=np.float64)[None, :, None]
    exact = shard.astype(np.float64)
    mean = (weights * exact).sum(1, keepdims=True) / weights.sum()
    norms = np.square(exact - exact.mean(1, keepdims=True)).sum((1, 2), keepdims=True)
    lost = (weights * np.square(exact - rebuilt) / norms).sum()
    return float(lost / (weights * np.square(exact - mean) / norms).sum())


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), rank=st.integers(1, 20), noise=st.sampled_from([0.0, 0.02, 0.2]))
def test_distortion_is_what_a_rung_loses(seed: int, rank: int, noise: float) -> None:
    codec, shard, importance = SakuraCodec(), random_shard(seed, rank, noise), random_importance(seed)
    encoded = codec.encode(shard, importance)
    for rung in encoded.rungs:
        loss = measured_loss(codec, shard, decoded(codec, encoded, rung), importance)
        assert loss == pytest.approx(rung.distortion, rel=0.25, abs=1e-7)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), rank=st.integers(1, 60))
def test_top_rung_of_a_low_rank_shard_is_nearly_exact(seed: int, rank: int) -> None:
    codec, shard, importance = SakuraCodec(), random_shard(seed, rank, 0.0), random_importance(seed)
    encoded = codec.encode(shard, importance)
    rebuilt = decoded(codec, encoded, encoded.rungs[-1])
    assert measured_loss(codec, shard, rebuilt, importance) < TOP_RUNG_LOSS


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 90),
    columns=st.integers(1, 24),
    matrices=st.sampled_from([2, 4]),
    name=st.sampled_from(sorted(CODECS)),
)
def test_rungs_grow_and_improve_and_decode(seed: int, rows: int, columns: int, matrices: int, name: str) -> None:
    shape, codec = ShardShape(matrices, rows, columns), new_codec(name)
    encoded = codec.encode(random_shard(seed, 5, 0.1, shape), random_importance(seed, rows))
    sizes = [rung.size_bytes for rung in encoded.rungs]
    losses = [rung.distortion for rung in encoded.rungs]
    assert sizes == sorted(set(sizes))
    assert losses == sorted(set(losses), reverse=True)
    for rung in encoded.rungs:
        rebuilt = decoded(codec, encoded, rung, shape)
        assert rebuilt.shape == (matrices, rows, columns)
        assert rebuilt.dtype == np.float32
        assert np.isfinite(rebuilt).all()


def test_important_rows_are_kept_better() -> None:
    codec, shard = SakuraCodec(), random_shard(1, 40, 0.2)
    importance = np.where(np.arange(SHAPE.rows) < 10, 8.0, 0.125).astype(np.float32)
    importance /= importance.mean()
    encoded = codec.encode(shard, importance)
    error = np.square(decoded(codec, encoded, encoded.rungs[0]) - shard).mean((0, 2))
    assert error[:10].mean() < 0.5 * error[10:].mean()


AWKWARD = {
    "zero": np.zeros((4, 30, 8)),
    "constant": np.full((4, 30, 8), 0.1),
    "constant columns": np.broadcast_to(np.linspace(-3, 3, 8), (4, 30, 8)),
    "one constant matrix": np.concatenate([np.full((1, 30, 8), 7.0), random_shard(3, 2, 0.1, ShardShape(3, 30, 8))]),
    "huge": 1e30 * random_shard(4, 3, 0.0, ShardShape(4, 30, 8)),
    "huge constant": np.full((4, 30, 8), 1e30),
    "denormal": 1e-40 * random_shard(5, 3, 0.0, ShardShape(4, 30, 8)),
    "one row": random_shard(6, 1, 0.0, ShardShape(4, 1, 8)),
    "one column": random_shard(7, 1, 0.0, ShardShape(4, 30, 1)),
    "one number stands out": np.where(np.arange(960).reshape(4, 30, 8) == 500, 1e4, 1e-4),
}


@pytest.mark.parametrize("kind", AWKWARD)
def test_sakura_keeps_awkward_matrices(kind: str) -> None:
    shard = AWKWARD[kind].astype(np.float32)
    codec, shape = SakuraCodec(), ShardShape(*shard.shape)
    encoded = codec.encode(shard, np.ones(shape.rows, np.float32))
    assert all(np.isfinite(rung.distortion) for rung in encoded.rungs)
    rebuilt = decoded(codec, encoded, encoded.rungs[-1], shape)
    largest = np.abs(shard).max((1, 2))
    assert (np.abs(rebuilt - shard).max((1, 2)) <= 0.02 * largest + 1e-44).all()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), exponent=st.integers(-8, 4))
def test_uncompressed_is_exact_to_fp16(seed: int, exponent: int) -> None:
    shard = random_shard(seed, 3, 0.1) * np.float32(10.0**exponent)
    codec = UncompressedCodec()
    encoded = codec.encode(shard, random_importance(seed))
    expected = np.clip(shard, -65504, 65504).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(decoded(codec, encoded, encoded.rungs[0]), expected)


@pytest.mark.parametrize("name", sorted(CODECS))
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused_by_place(name: str, bad: float) -> None:
    shard = random_shard(0, 3, 0.1)
    shard[2, 5, 7] = bad
    with pytest.raises(ValueError, match=rf"holds {bad} at \(matrix, row, column\) \(2, 5, 7\)"):
        new_codec(name).encode(shard, random_importance(0))


@pytest.mark.parametrize("name", sorted(CODECS))
def test_missing_and_short_segments_are_refused(name: str) -> None:
    codec = new_codec(name)
    encoded = codec.encode(random_shard(0, 3, 0.1), random_importance(0))
    representation = encoded.rungs[-1].representation
    for victim in codec.segment_ids(representation):
        segments = {index: encoded.segments[index] for index in codec.segment_ids(representation)}
        with pytest.raises(ValueError, match=r"bytes|buffer|reshape"):
            codec.decode(SHAPE, representation, {**segments, victim: segments[victim][:-1]})
        del segments[victim]
        with pytest.raises(ValueError, match=f"Segment {victim} of the shard is missing"):
            codec.decode(SHAPE, representation, segments)


@pytest.mark.parametrize("wrong", [Representation(5, 4, 4), Representation(8, 1, 4), Representation(8, 4, 9)])
def test_representations_that_are_not_offered_are_refused(wrong: Representation) -> None:
    codec = SakuraCodec()
    encoded = codec.encode(random_shard(0, 3, 0.1), random_importance(0))
    with pytest.raises(ValueError, match=r".+"):
        codec.decode(SHAPE, wrong, dict(enumerate(encoded.segments)))


POINTS = st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 1)), min_size=1, max_size=60)


@given(POINTS)
def test_hull_lies_below_every_point(points: list[tuple[int, float]]) -> None:
    hull = lower_hull([Rung(FULL, size, loss) for size, loss in points])
    sizes, losses = [rung.size_bytes for rung in hull], [rung.distortion for rung in hull]
    assert min(sizes) == min(size for size, _ in points)
    assert min(losses) == min(loss for _, loss in points)
    for size, loss in points:
        assert loss >= np.interp(size, sizes, losses) - 1e-9
