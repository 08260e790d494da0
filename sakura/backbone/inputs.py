"""What an edit is made of, before any model sees it. Needs no torch, so that the page need not load it."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Template:
    """What an edit starts from. ``picture`` uint8 (px, px, 3), ``mask`` bool (px, px)."""

    picture: np.ndarray
    mask: np.ndarray
    has_reference: bool


@dataclasses.dataclass(frozen=True)
class Request:
    """What a user brings: words of the model's vocabulary, a reference picture uint8 (px/2, px/2, 3), a seed."""

    words: tuple[str, ...]
    reference: np.ndarray | None
    seed: int = 0


def masked_tokens(mask: np.ndarray, patch_px: int) -> tuple[int, ...]:
    """Positions of the tokens that a bool mask (height, width) touches, in row-major order."""
    rows, columns = mask.shape[0] // patch_px, mask.shape[1] // patch_px
    touched = mask.reshape(rows, patch_px, columns, patch_px).any(axis=(1, 3))
    return tuple(int(index) for index in np.flatnonzero(touched))
