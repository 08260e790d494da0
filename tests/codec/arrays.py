"""Small caches made at random, and awkward ones, that every codec is tried on."""

import numpy as np

from sakura.codec.interface import CacheArrays, CacheGeometry, TokenPlaces
from sakura.codec.rope import rotate, rotation

GEOMETRY = CacheGeometry(steps=2, blocks=6, blocks_per_shard=2, rows=75, columns=16)


def places(geometry: CacheGeometry, heads: int = 2) -> TokenPlaces:
    """Two pictures of tokens, the first with a hole in it, as a masked template has them."""
    side = int(np.ceil(np.sqrt(geometry.rows)))
    index = np.arange(geometry.rows)
    second = index >= geometry.rows // 3
    cell = np.where(second, index - geometry.rows // 3, 2 * index)
    positions = np.stack([second, cell // side, cell % side], 1).astype(np.int32)
    pairs = geometry.columns // heads // 2
    speed = 100.0 ** -(np.arange(pairs) / max(pairs, 1))
    angle = (positions @ [3.0, 1.0, 1.7])[:, None] * speed.repeat(2)
    return TokenPlaces(positions, np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32))


def random_importance(geometry: CacheGeometry, seed: int) -> np.ndarray:
    """Uneven, averaging 1 over rows: float32 (steps, blocks, rows)."""
    scores = np.random.default_rng(seed).lognormal(0, 1, (geometry.steps, geometry.blocks, geometry.rows))
    return (scores / scores.mean(-1, keepdims=True)).astype(np.float32)


def random_arrays(geometry: CacheGeometry = GEOMETRY, seed: int = 0, rank: int = 4, noise: float = 0.1) -> CacheArrays:
    """Column means, a few components shared by steps, and noise; keys are rotated afterwards."""
    rng = np.random.default_rng(seed)
    shape = (geometry.steps, geometry.blocks, 2)
    left = rng.normal(size=(geometry.rows, rank)) * 0.7 ** np.arange(rank)
    right = rng.normal(size=(geometry.blocks, 2, rank, geometry.columns)) + 0.2 * rng.normal(
        size=(*shape, rank, geometry.columns)
    )
    means = rng.normal(size=(*shape, 1, geometry.columns))
    scatter = noise * rng.normal(size=(*shape, geometry.rows, geometry.columns))
    kv = (left @ right + means + scatter).astype(np.float32)
    rotate(kv[:, :, 0], rotation(places(geometry)))
    return as_arrays(kv, geometry, seed)


def as_arrays(kv: np.ndarray, geometry: CacheGeometry, seed: int = 0) -> CacheArrays:
    """Numbers that broadcast to (steps, blocks, 2, rows, columns), with importance, sensitivity and places."""
    full = np.broadcast_to(kv, (geometry.steps, geometry.blocks, 2, geometry.rows, geometry.columns))
    sensitivity = np.random.default_rng(seed + 1).lognormal(0, 0.5, (geometry.blocks, 2)).astype(np.float32)
    return CacheArrays(
        np.array(full, np.float32, order="C"), random_importance(geometry, seed), sensitivity, places(geometry)
    )


def awkward_arrays() -> dict[str, tuple[CacheGeometry, CacheArrays]]:
    """Caches on which careless codecs divide by zero, overflow or forget the last rows."""
    small = CacheGeometry(steps=2, blocks=2, blocks_per_shard=1, rows=30, columns=8)
    one_row = CacheGeometry(steps=1, blocks=2, blocks_per_shard=2, rows=1, columns=8)
    kv = random_arrays(small).kv
    stands_out = np.where(np.arange(kv.size).reshape(kv.shape) == 500, 1e4, 1e-4)
    cases: dict[str, tuple[CacheGeometry, np.ndarray]] = {
        "zero": (small, np.zeros_like(kv)),
        "constant": (small, np.full_like(kv, 0.1)),
        "constant columns": (small, np.linspace(-3, 3, 8)),
        "constant rows": (small, np.linspace(-3, 3, 30)[:, None]),
        "one zero matrix": (small, np.where(np.arange(2)[:, None, None] == 1, 0, kv)),
        "one zero row": (small, np.where(np.arange(30)[:, None] == 3, 0, kv)),
        "small range, large mean": (small, 1000 + 0.01 * kv),
        "huge": (small, 1e30 * kv),
        "largest float": (small, np.float32(3.4e38) * np.sign(kv)),
        "denormal": (small, 1e-40 * kv),
        "one number stands out": (small, stands_out),
        "one row": (one_row, random_arrays(one_row).kv),
    }
    return {name: (geometry, as_arrays(numbers, geometry)) for name, (geometry, numbers) in cases.items()}
