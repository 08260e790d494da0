import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sakura.codec import bitplanes

CODES = hnp.arrays(np.uint8, hnp.array_shapes(max_dims=2, max_side=40))
BITS = st.integers(bitplanes.FIRST_BITS, bitplanes.CODE_BITS)
VALUES = hnp.arrays(np.float32, (3, 17), elements=st.floats(-1, 1, width=32))


@given(CODES, BITS)
def test_leading_chunks_hold_the_truncated_codes(codes: np.ndarray, bits: int) -> None:
    chunks = bitplanes.pack_chunks(codes)[: bitplanes.chunks_for(bits)]
    unpacked = bitplanes.unpack_chunks(chunks, codes.size).reshape(codes.shape)
    np.testing.assert_array_equal(unpacked, bitplanes.truncate(codes, bits))
    assert [len(chunk) for chunk in chunks] == [bitplanes.chunk_bytes(codes.size, n) for n in range(len(chunks))]


@given(VALUES, BITS)
def test_planes_are_nested(values: np.ndarray, bits: int) -> None:
    """Cutting an 8-bit code to b bits gives the b-bit code of the same number."""
    scale = np.ones(1, np.float32)
    cut = bitplanes.truncate(bitplanes.quantise(values, scale), bits) >> (bitplanes.CODE_BITS - bits)
    levels = 1 << bits
    np.testing.assert_array_equal(cut, np.clip(np.floor((values + 1) * (levels / 2)), 0, levels - 1))


@given(VALUES, BITS)
def test_error_is_at_most_half_a_cell(values: np.ndarray, bits: int) -> None:
    scale = np.abs(values).max(-1, keepdims=True)
    codes = bitplanes.truncate(bitplanes.quantise(values, scale), bits)
    error = np.abs(bitplanes.dequantise(codes, bits, scale) - values)
    assert (error <= scale * (2.0**-bits + 1e-6)).all()


def test_wrong_chunk_size_is_refused() -> None:
    chunks = bitplanes.pack_chunks(np.arange(20, dtype=np.uint8))
    with pytest.raises(ValueError, match="Chunk 1 has 2 bytes instead of 3"):
        bitplanes.unpack_chunks([chunks[0], chunks[1][:-1]], 20)


@pytest.mark.parametrize("bits", [1, 9])
def test_bits_out_of_range_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match="2 to 8 bits"):
        bitplanes.chunks_for(bits)
