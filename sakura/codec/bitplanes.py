"""Numbers as nested bit planes: the first b planes of an 8-bit code are the b-bit code of the same number."""

import numpy as np

CODE_BITS = 8
FIRST_BITS = 2  # the first chunk holds two planes: one bit a number is never worth its transfer
CHUNKS = CODE_BITS - FIRST_BITS + 1
# byte -> its eight bits as the bytes of a little-endian 64-bit number, first bit first
SPREAD = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).view("<u8")[:, 0].astype(np.uint64)


def chunks_for(bits: int) -> int:
    """How many chunks hold ``bits`` bits: the first chunk has two planes, each other chunk one."""
    if not FIRST_BITS <= bits <= CODE_BITS:
        raise ValueError(f"A factor keeps {FIRST_BITS} to {CODE_BITS} bits, not {bits}.")
    return bits - FIRST_BITS + 1


def chunk_bytes(count: int, chunk: int) -> int:
    """Size of one chunk of ``count`` numbers; each plane fills whole bytes."""
    return (count + 7) // 8 * (FIRST_BITS if chunk == 0 else 1)


def quantise(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Mid-rise codes, uint8 in the shape of ``values``, of values within -scale..scale (scale broadcasts)."""
    levels = 1 << CODE_BITS
    unit = np.divide(values, scale, out=np.zeros_like(values), where=scale > 0)
    return np.clip(np.floor((unit + 1) * (levels / 2)), 0, levels - 1).astype(np.uint8)


def dequantise(codes: np.ndarray, bits: int, scale: np.ndarray) -> np.ndarray:
    """Cell centres, float32, of codes of which only the top ``bits`` bits count (the rest must be zero)."""
    half = np.float32(1 << (CODE_BITS - bits)) / 2
    return ((codes.astype(np.float32) + half) * np.float32(2 / (1 << CODE_BITS)) - 1) * scale


def truncate(codes: np.ndarray, bits: int) -> np.ndarray:
    """Keep the top ``bits`` bits of uint8 codes."""
    return codes & np.uint8((0xFF << (CODE_BITS - bits)) & 0xFF)


def pack_chunks(codes: np.ndarray) -> list[bytes]:
    """Split uint8 codes into chunks of planes, most significant first."""
    planes = np.packbits(np.unpackbits(codes.reshape(-1, 1), axis=1).T, axis=1)
    chunks = [planes[:FIRST_BITS], *(planes[index : index + 1] for index in range(FIRST_BITS, CODE_BITS))]
    return [chunk.tobytes() for chunk in chunks]


def unpack_chunks(chunks: list[bytes], count: int) -> np.ndarray:
    """The uint8 codes, (count,), that leading chunks determine. Raises ValueError where a chunk has a wrong size."""
    for number, chunk in enumerate(chunks):
        if len(chunk) != chunk_bytes(count, number):
            raise ValueError(f"Chunk {number} has {len(chunk)} bytes instead of {chunk_bytes(count, number)}.")
    stored = np.frombuffer(b"".join(chunks), np.uint8).reshape(len(chunks) + FIRST_BITS - 1, -1)
    # Eight numbers at a time: each byte of a plane becomes eight lanes of one bit, shifted to the plane's place.
    shifts = np.arange(CODE_BITS - 1, CODE_BITS - 1 - len(stored), -1, dtype=np.uint64)
    lanes = np.bitwise_or.reduce(SPREAD[stored] << shifts[:, None], axis=0)
    return lanes.view(np.uint8)[:count]
