"""Rotary position embedding on arrays, so that a codec may store keys as they were before it."""

import numpy as np

from sakura.codec.interface import TokenPlaces


def rotation(places: TokenPlaces) -> np.ndarray:
    """RoPE factors as complex numbers: complex64 (rows, head_dim / 2). Their conjugates undo them."""
    return (places.cosine[:, ::2] + 1j * places.sine[:, ::2]).astype(np.complex64)


def rotate(keys: np.ndarray, factors: np.ndarray) -> None:
    """Turn neighbouring channels of float32 (rows, ..., heads * head_dim), last axis contiguous, in place.

    ``factors`` complex (rows, ..., head_dim / 2) broadcasts over heads.
    """
    pairs = keys.view(np.complex64)
    pairs = pairs.reshape(*pairs.shape[:-1], -1, factors.shape[-1])
    assert np.shares_memory(pairs, keys)
    pairs *= factors[..., None, :]
