"""Where the attention of the edited region goes: folded onto the picture, and how unevenly it is spread."""

import dataclasses
import itertools

import numpy as np

from sakura.backbone.inputs import masked_tokens

TOP_SHARE = 0.1
# Shares of tokens at which the curve of attention is told; it bends at its beginning.
CURVE_AT = np.concatenate([np.arange(0, 0.1, 0.01), np.arange(0.1, 0.3, 0.02), np.linspace(0.3, 1, 15)])


@dataclasses.dataclass(frozen=True)
class ImportanceFacts:
    """``maps`` float32 (steps, blocks, rows, columns), NaN in the edited region.

    ``curves`` (steps, blocks, points): the share of attention that the most important ``CURVE_AT`` of all tokens hold;
    ``top`` (steps, blocks) is that of the first ``TOP_SHARE``. ``correlation`` (steps, blocks) is the mean over pairs
    of the ``requests`` that importance was captured with, NaN where there is only one.
    """

    maps: np.ndarray
    curves: np.ndarray
    top: np.ndarray
    correlation: np.ndarray
    requests: int


def importance_facts(scores: np.ndarray, mask: np.ndarray, patch_px: int) -> ImportanceFacts:
    """From captured importance (requests, steps, blocks, tokens) and the template's bool mask (px, px)."""
    mean = scores.mean(0)
    held = np.concatenate([np.zeros((*mean.shape[:2], 1)), np.cumsum(-np.sort(-mean, axis=-1), -1)], -1)
    held /= np.maximum(held[..., -1:], 1e-12)
    tokens = np.linspace(0, 1, held.shape[-1])
    at = np.append(CURVE_AT, TOP_SHARE)
    curves = np.apply_along_axis(lambda curve: np.interp(at, tokens, curve), -1, held)
    return ImportanceFacts(
        on_grid(mean, mask, patch_px), curves[..., :-1], curves[..., -1], _correlation(scores), len(scores)
    )


def on_grid(scores: np.ndarray, mask: np.ndarray, patch_px: int) -> np.ndarray:
    """Scores (..., tokens) of reusable tokens by their place: (..., rows, columns), NaN in the edited region.

    Reusable tokens are the unmasked noisy ones, then all clean ones of the template; of the two at a place the sum is
    shown.
    """
    masked = masked_tokens(mask, patch_px)
    rows, columns = mask.shape[0] // patch_px, mask.shape[1] // patch_px
    unmasked = np.setdiff1d(np.arange(rows * columns), masked)
    clean = scores[..., len(unmasked) :].copy()
    clean[..., unmasked] += scores[..., : len(unmasked)]
    clean[..., list(masked)] = np.nan
    return clean.reshape(*scores.shape[:-1], rows, columns)


def _correlation(scores: np.ndarray) -> np.ndarray:
    centred = scores.astype(np.float64) - scores.mean(-1, keepdims=True, dtype=np.float64)
    norms = np.sqrt(np.square(centred).sum(-1))
    pairs = [
        (centred[a] * centred[b]).sum(-1) / np.maximum(norms[a] * norms[b], 1e-12)
        for a, b in itertools.combinations(range(len(scores)), 2)
    ]
    return np.mean(pairs, axis=0) if pairs else np.full(scores.shape[1:3], np.nan)
