"""Bit planes: leading ones are a coarser version, all of them are exact, and damaged ones do no harm."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sakura.codec.planes import MAX_PLANES, PlaneReader, cell_centres, encode_planes

LARGEST = (1 << MAX_PLANES) - 1
DENSE = hnp.arrays(
    np.int32,
    st.tuples(st.integers(1, 4), st.integers(1, 60)),
    elements=st.integers(-(2**23), 2**23) | st.integers(-3, 3) | st.just(0),
)


@st.composite
def sparse(draw: st.DrawFn) -> np.ndarray:
    """A few numbers in a long run of zeros, so that gaps beyond 255 occur."""
    numbers = np.zeros((draw(st.integers(1, 3)), draw(st.integers(1, 3000))), np.int32)
    places = draw(st.lists(st.integers(0, numbers.size - 1), max_size=8))
    for place in places:
        numbers.flat[place] = draw(st.integers(-LARGEST, LARGEST))
    return numbers


@st.composite
def laplacian(draw: st.DrawFn) -> np.ndarray:
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 2000)))
    return np.trunc(rng.laplace(0, draw(st.sampled_from([0.1, 1, 30, 1e5])), shape)).astype(np.int32)


NUMBERS = DENSE | sparse() | laplacian()


def read(numbers: np.ndarray, segments: list[bytes]) -> PlaneReader:
    planes = int(np.abs(numbers).max(initial=0)).bit_length()
    kinds, count = numbers.shape
    reader = PlaneReader(kinds, count, planes)
    for segment in segments:
        reader.read(segment)
    return reader


@settings(max_examples=150, deadline=None)
@given(NUMBERS, st.data())
def test_leading_planes_are_the_truncated_numbers(numbers: np.ndarray, data: st.DataObject) -> None:
    segments = encode_planes(numbers)
    assert len(segments) == int(np.abs(numbers).max()).bit_length()
    kept = data.draw(st.integers(0, len(segments)))
    reader = read(numbers, segments[:kept])
    assert reader.read_planes == kept
    if kept == 0:
        return
    dropped = len(segments) - kept
    truncated = np.sign(numbers) * (np.abs(numbers) >> dropped)
    expected = cell_centres(truncated, dropped).astype(np.float32)
    np.testing.assert_array_equal(reader.values(), expected)
    assert reader.values().dtype == np.float32
    cell = np.where(truncated == 0, 1 << dropped, 0.5 * (1 << dropped))
    rounding = 2.0**-24 * np.abs(numbers)
    assert (np.abs(reader.values() - numbers.astype(np.float64)) <= cell + rounding).all()


def test_nothing_but_zeros_takes_no_plane() -> None:
    assert encode_planes(np.zeros((2, 50), np.int32)) == []
    assert not PlaneReader(2, 50, 0).values().any()


@pytest.mark.parametrize("number", [1, -1, 2, -(2**23), LARGEST])
def test_one_number(number: int) -> None:
    numbers = np.array([[number]], np.int32)
    values = read(numbers, encode_planes(numbers)).values()
    assert values[0, 0] == np.float32(number + 0.5 * np.sign(number))


def test_more_planes_than_possible_are_refused() -> None:
    with pytest.raises(ValueError, match="25 planes are needed, 24 are possible"):
        encode_planes(np.array([[1 << 24]], np.int32))


def test_sizes_follow_entropy() -> None:
    """Sparse planes cost little more than what a perfect coder of their gaps and signs would need."""
    rng = np.random.default_rng(0)
    for share in (0.001, 0.03, 0.3):
        numbers = (rng.random((1, 100_000)) < share).astype(np.int32) * rng.choice([-1, 1], (1, 100_000)).astype(
            np.int32
        )
        bits = numbers.size * -(share * np.log2(share) + (1 - share) * np.log2(1 - share)) + np.abs(numbers).sum()
        assert 8 * len(encode_planes(numbers)[0]) < 1.05 * bits + 300


def damaged(segment: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(segment)
    match rng.integers(4):
        case 0:
            return bytes(changed[: rng.integers(len(changed))])
        case 1:
            return bytes(changed) + rng.bytes(int(rng.integers(1, 9)))
        case 2:
            changed[rng.integers(len(changed))] ^= 1 << rng.integers(8)
        case _:
            start = int(rng.integers(len(changed)))
            changed[start : start + 4] = rng.bytes(min(4, len(changed) - start))
    return bytes(changed)


def test_damage_is_refused_or_decodes_to_numbers() -> None:
    """Whatever the bytes are, a plane is refused with nothing changed, or read, in little time and memory."""
    rng = np.random.default_rng(7)
    numbers = np.trunc(rng.laplace(0, 20, (3, 400))).astype(np.int32)
    segments = encode_planes(numbers)
    refused = 0
    tracemalloc.start()
    for trial in range(1500):
        victim = trial % len(segments)
        reader = read(numbers, segments[:victim])
        before = reader.values() if victim else None
        wrong = damaged(segments[victim], rng)
        if wrong == segments[victim]:
            continue
        try:
            reader.read(wrong)
        except ValueError as error:
            refused += 1
            assert reader.read_planes == victim
            if before is not None:
                np.testing.assert_array_equal(reader.values(), before)
                reader.read(segments[victim])
            assert str(error)
        else:
            assert reader.values().shape == numbers.shape
            assert np.isfinite(reader.values()).all()
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()
    assert refused > 700


@pytest.mark.parametrize("length", [0xFFFFFF, 0x10000])
def test_announced_lengths_reserve_nothing(length: int) -> None:
    """A plane that announces more than it holds is refused before anything is set aside for it."""
    numbers = np.array([[5, 0, 0, -2]], np.int32)
    plane = bytearray(encode_planes(numbers)[0])
    for start in (1, 4):  # how many gaps follow, and how many words they take
        wrong = bytearray(plane)
        wrong[start : start + 3] = length.to_bytes(3, "little")
        tracemalloc.start()
        with pytest.raises(ValueError, match=r"it (names more numbers than there are|is too short)"):
            PlaneReader(1, 4, 3).read(bytes(wrong))
        assert tracemalloc.get_traced_memory()[1] < 100_000
        tracemalloc.stop()
