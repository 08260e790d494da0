"""The SAKURA codec: prefixes, distortions and bounds, measured with a weighted error that is written out anew here."""

import dataclasses

import numpy as np
import pytest
from arrays import GEOMETRY, as_arrays, awkward_arrays, random_arrays
from hypothesis import given, settings
from hypothesis import strategies as st

from sakura.codec.distortion import lower_hull
from sakura.codec.interface import CacheArrays, CacheGeometry, EncodedCache, Representation, Rung
from sakura.codec.rope import rotation
from sakura.codec.sakura import SakuraCodec
from sakura.codec.sakura_layout import HEADER

AWKWARD = awkward_arrays()
# A finer plane moves each number to the centre of a smaller cell, which may be farther from it; so few numbers as here
# do not even out entirely.
MAX_GROWTH = 0.03
# The encoder adds up errors of the two factors as if they were independent.
DISTORTION_SHARE = 0.2
WEIGHTED_ROUNDING = 2e-5  # of float32, as a share of the weighted norm of cache and means


@dataclasses.dataclass(frozen=True)
class Weights:
    """``rows`` (rows,) are squared row scales, ``matrices`` (blocks, 2) squared matrix scales, both float64.

    ``spread`` is the weighted energy about the weighted means, and ``norm`` the weighted norm of everything.
    """

    rows: np.ndarray
    matrices: np.ndarray
    spread: float
    norm: float


def weights_of(codec: SakuraCodec, arrays: CacheArrays) -> Weights:
    """From their definition: importance**q in eighths of octaves; matrices by sensitivity and the size of K and V.

    Keys count as they were before RoPE, which only matters for their means.
    """
    kv = arrays.kv.astype(np.float64)
    factors = rotation(arrays.places).conj().astype(np.complex128)
    pairs = kv[:, :, 0].reshape(*kv.shape[:2], kv.shape[3], -1, factors.shape[1], 2)
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * factors[:, None]
    kv[:, :, 0] = np.stack([turned.real, turned.imag], -1).reshape(kv[:, :, 0].shape)
    scales = np.maximum(arrays.importance.mean((0, 1), dtype=np.float64), 1e-6) ** codec.q
    scales = np.maximum(scales / scales.mean(), codec.floor)
    rows = np.exp2(np.round(8 * np.log2(scales)) / 4)
    means = np.tensordot(kv, rows / rows.sum(), (3, 0))
    energy = np.einsum("n,sbpnc->bp", rows, np.square(kv - means[..., None, :])) / len(kv)
    mean_energy = rows.sum() * np.square(means).sum(-1).mean(0)
    spread = np.maximum(energy, 1e-4 * mean_energy)
    norms = np.sqrt(spread)
    norms[norms == 0] = 1
    effect = np.maximum(arrays.sensitivity, 1e-6) * norms if codec.use_sensitivity else np.ones_like(norms)
    matrices = effect / effect.mean() / np.square(norms)
    steps = len(kv)
    whole = np.sum(matrices * (energy + mean_energy)) * steps
    return Weights(rows, matrices, float(np.sum(matrices * spread) * steps), float(np.sqrt(whole)))


def column_error(
    geometry: CacheGeometry, arrays: CacheArrays, weights: Weights, column: int, shards: list[np.ndarray]
) -> float:
    """Weighted squared error of a column of shards, of which ``shards`` has one a step."""
    blocks = geometry.blocks_of(column)
    exact = arrays.kv[:, blocks.start : blocks.stop].astype(np.float64)
    rebuilt = np.stack(shards).reshape(exact.shape)
    chosen = weights.matrices[blocks.start : blocks.stop]
    return float(np.einsum("bp,n,sbpnc->", chosen, weights.rows, np.square(exact - rebuilt)))


def decoded_column(
    codec: SakuraCodec, geometry: CacheGeometry, arrays: CacheArrays, segments: dict[int, bytes], column: int
) -> list[np.ndarray]:
    decoder = codec.decoder(geometry, arrays.places)
    decoder.add(segments)
    return [decoder.shard(shard) for shard in range(column, geometry.shards, geometry.shards_per_step)]


SMALL = [
    CacheGeometry(steps=3, blocks=4, blocks_per_shard=2, rows=110, columns=8),
    CacheGeometry(steps=2, blocks=2, blocks_per_shard=1, rows=40, columns=16),
    CacheGeometry(steps=1, blocks=2, blocks_per_shard=2, rows=60, columns=16),
]
CODECS = [SakuraCodec(), SakuraCodec(q=0.0, share_steps=False), SakuraCodec(q=1.0, use_sensitivity=False)]
CASES = {
    "seed": st.integers(0, 10_000),
    "geometry": st.sampled_from(SMALL),
    "codec": st.sampled_from(CODECS),
    "noise": st.sampled_from([0.0, 0.1, 1.0]),
}


@settings(max_examples=10, deadline=None)
@given(**CASES)
def test_longer_prefixes_are_never_worse_and_rungs_say_what_they_lose(
    seed: int, geometry: CacheGeometry, codec: SakuraCodec, noise: float
) -> None:
    arrays = random_arrays(geometry, seed, noise=noise)
    encoded, weights = codec.encode(geometry, arrays), weights_of(codec, arrays)
    for column, ladder in enumerate(encoded.ladders):
        decoder = codec.decoder(geometry, arrays.places)
        assert ladder.order[0] == HEADER
        errors: list[float] = []
        for segment in ladder.order:
            decoder.add({segment: encoded.segments[segment]})
            shards = [decoder.shard(shard) for shard in range(column, geometry.shards, geometry.shards_per_step)]
            errors.append(column_error(geometry, arrays, weights, column, shards))
            assert errors[-1] <= (1 + MAX_GROWTH) * min(errors)
        for rung in ladder.rungs:
            assert rung.start == 0
            measured = errors[rung.stop - 1] / (weights.spread / geometry.shards_per_step)
            assert measured == pytest.approx(rung.distortion, rel=DISTORTION_SHARE, abs=1e-7)


def allowed_error(codec: SakuraCodec, geometry: CacheGeometry, weights: Weights) -> float:
    """Weighted norm of the error that planes alone can make, all of them there and no component left out.

    A coefficient is off by less than ``finest``; a number of a basis vector by less than ``finest`` over the size of
    its coefficients, which is stored in eighths of octaves.
    """
    rank = min(geometry.rows, codec.ranks[-1])
    coefficients = 2 * geometry.steps * geometry.blocks * geometry.columns * (rank + 1)
    basis = geometry.rows * rank
    return codec.finest * (np.sqrt(coefficients) + 2 ** (1 / 16) * np.sqrt(basis)) + WEIGHTED_ROUNDING * weights.norm


def assert_within_planes(codec: SakuraCodec, geometry: CacheGeometry, arrays: CacheArrays) -> None:
    encoded, weights = codec.encode(geometry, arrays), weights_of(codec, arrays)
    squares = sum(
        column_error(
            geometry,
            arrays,
            weights,
            column,
            decoded_column(codec, geometry, arrays, dict(enumerate(encoded.segments)), column),
        )
        for column in range(geometry.shards_per_step)
    )
    assert np.sqrt(squares) <= allowed_error(codec, geometry, weights)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 90),
    codec=st.sampled_from(CODECS),
    noise=st.sampled_from([0.0, 0.1, 2.0]),
    exponent=st.integers(-30, 30),
)
def test_all_planes_leave_less_than_a_finest_step(
    seed: int, rows: int, codec: SakuraCodec, noise: float, exponent: int
) -> None:
    geometry = CacheGeometry(steps=2, blocks=2, blocks_per_shard=1, rows=rows, columns=8)
    arrays = random_arrays(geometry, seed, noise=noise)
    assert_within_planes(codec, geometry, as_arrays(arrays.kv * np.float32(10.0**exponent), geometry, seed))


@pytest.mark.parametrize("kind", [kind for kind in AWKWARD if kind not in ("largest float", "denormal")])
def test_all_planes_of_awkward_caches_leave_less_than_a_finest_step(kind: str) -> None:
    geometry, arrays = AWKWARD[kind]
    assert_within_planes(SakuraCodec(), geometry, arrays)


def test_numbers_too_large_to_be_rotated_are_refused() -> None:
    geometry, arrays = AWKWARD["largest float"]
    with pytest.raises(ValueError, match=r"numbers as large as 3\.4e\+38; SAKURA encodes them up to 1e\+38"):
        SakuraCodec().encode(geometry, arrays)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), data=st.data())
def test_what_arrives_first_does_not_matter(seed: int, data: st.DataObject) -> None:
    geometry, codec = SMALL[1], SakuraCodec()
    arrays = random_arrays(geometry, seed)
    encoded = codec.encode(geometry, arrays)
    ladder = encoded.ladders[1]
    prefix = ladder.order[: data.draw(st.integers(1, len(ladder.order)))]
    expected = decoded_column(codec, geometry, arrays, {s: encoded.segments[s] for s in prefix}, 1)
    decoder = codec.decoder(geometry, arrays.places)
    for segment in data.draw(st.permutations(prefix)):
        decoder.add({segment: encoded.segments[segment]})
        if data.draw(st.booleans()):
            decoder.add({segment: encoded.segments[segment]})
    np.testing.assert_array_equal(decoder.shard(geometry.shards_per_step + 1), expected[1])


def test_a_decoder_in_use_gives_what_a_new_one_gives() -> None:
    """Factors that are kept between shards follow what arrives later."""
    codec, arrays = SakuraCodec(), random_arrays()
    encoded = codec.encode(GEOMETRY, arrays)
    decoder = codec.decoder(GEOMETRY, arrays.places)
    known: dict[int, bytes] = {}
    for shard in range(GEOMETRY.shards):
        ladder = encoded.ladders[encoded.ladder_of[shard]]
        rung = ladder.rungs[min(2 * GEOMETRY.step_of(shard), len(ladder.rungs) - 1)]
        fresh = {s: encoded.segments[s] for s in ladder.segments(rung) if s not in known}
        known |= fresh
        decoder.add(fresh)
        new = codec.decoder(GEOMETRY, arrays.places)
        new.add(known)
        np.testing.assert_array_equal(decoder.shard(shard), new.shard(shard))


@settings(max_examples=25, deadline=None)
@given(rank=st.sampled_from(SakuraCodec().ranks), left_bits=st.integers(1, 24), right_bits=st.integers(1, 24))
def test_any_rank_and_precision_pair_is_a_subset(rank: int, left_bits: int, right_bits: int) -> None:
    segments, shards = received_at(Representation(rank, left_bits, right_bits))
    assert len(set(segments)) == len(segments)
    assert all(np.isfinite(shard).all() for shard in shards)


def received_at(kind: Representation) -> tuple[list[int], list[np.ndarray]]:
    segments = CODEC.segments_of(GEOMETRY, ENCODED, kind)
    decoder = CODEC.decoder(GEOMETRY, ARRAYS.places)
    decoder.add({segment: ENCODED.segments[segment] for segment in segments})
    return segments, [decoder.shard(shard) for shard in range(GEOMETRY.shards)]


CODEC, ARRAYS = SakuraCodec(), random_arrays(noise=0.3)
ENCODED: EncodedCache = CODEC.encode(GEOMETRY, ARRAYS)


def error_at(kind: Representation) -> float:
    weights, (_, shards) = weights_of(CODEC, ARRAYS), received_at(kind)
    columns = range(GEOMETRY.shards_per_step)
    return sum(
        column_error(GEOMETRY, ARRAYS, weights, column, shards[column :: GEOMETRY.shards_per_step])
        for column in columns
    )


def test_more_rank_or_bits_lose_less() -> None:
    for finer in (Representation(16, 6, 6), Representation(8, 8, 6), Representation(8, 6, 8)):
        assert error_at(finer) < error_at(Representation(8, 6, 6))
    assert set(CODEC.segments_of(GEOMETRY, ENCODED, Representation(96, 24, 24))) == set(range(len(ENCODED.segments)))


def test_important_rows_are_kept_better() -> None:
    geometry, codec = CacheGeometry(steps=2, blocks=2, blocks_per_shard=2, rows=90, columns=16), SakuraCodec()
    arrays = random_arrays(geometry, rank=40, noise=0.5)
    important = np.arange(geometry.rows) < 10
    importance = np.broadcast_to(np.where(important, 8.0, 0.125), arrays.importance.shape)
    weighted = dataclasses.replace(arrays, importance=(importance / importance.mean(-1, keepdims=True)))
    encoded = codec.encode(geometry, weighted)
    ladder = encoded.ladders[0]
    segments = {segment: encoded.segments[segment] for segment in ladder.segments(ladder.rungs[0])}
    shards = np.stack(decoded_column(codec, geometry, weighted, segments, 0))
    error = np.square(shards - arrays.kv.reshape(shards.shape)).mean((0, 1, 3))
    assert error[important].mean() < 0.5 * error[~important].mean()


def test_damaged_planes_are_refused_by_number_and_can_be_sent_again() -> None:
    decoder = CODEC.decoder(GEOMETRY, ARRAYS.places)
    for segment in (1, len(ENCODED.segments) - 3):
        decoder.add({earlier: ENCODED.segments[earlier] for earlier in range(segment)})
        whole = ENCODED.segments[segment]
        for wrong in (b"", whole[:-1], whole + b"\0", whole[: len(whole) // 2]):
            with pytest.raises(ValueError, match=f"Segment {segment} (is damaged|does not have the planes)"):
                decoder.add({segment: wrong})
    decoder.add(dict(enumerate(ENCODED.segments)))
    np.testing.assert_array_equal(decoder.shard(0), received_at(Representation(96, 24, 24))[1][0])


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda header: header[:-1], r"Segment 0 has \d+ bytes instead of \d+\."),
        (lambda header: header + b"\0", r"Segment 0 has \d+ bytes instead of \d+\."),
        (lambda header: header[:-1] + b"\x19", r"Segment 0 announces 25 planes; 24 are possible\."),
        (lambda header: b"\0\0\xc0\x7f" + header[4:], "Segment 0 holds scales that are not positive numbers"),
    ],
)
def test_damaged_header_is_refused(damage: object, sentence: str) -> None:
    decoder = CODEC.decoder(GEOMETRY, ARRAYS.places)
    with pytest.raises(ValueError, match=sentence):
        decoder.add({HEADER: damage(ENCODED.segments[HEADER])})  # type: ignore[operator]


@pytest.mark.parametrize(
    "options", [{"ranks": ()}, {"ranks": (0, 4)}, {"ranks": (8, 4)}, {"finest": 0.0}, {"finest": float("nan")}]
)
def test_options_that_cannot_be_are_refused(options: dict) -> None:
    with pytest.raises(ValueError, match="SAKURA needs"):
        SakuraCodec(**options)


POINTS = st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 1)), min_size=1, max_size=60)


@given(POINTS)
def test_hull_lies_below_every_point(points: list[tuple[int, float]]) -> None:
    hull = lower_hull([Rung(Representation(4, 4, 4), 0, 1, size, loss) for size, loss in points])
    sizes, losses = [rung.size_bytes for rung in hull], [rung.distortion for rung in hull]
    assert min(sizes) == min(size for size, _ in points)
    assert min(losses) == min(loss for _, loss in points)
    for size, loss in points:
        assert loss >= np.interp(size, sizes, losses) - 1e-9
