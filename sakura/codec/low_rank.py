"""Importance-weighted low-rank factorisation of a shard (our reading of the paper's compression)."""

import dataclasses

import numpy as np
import scipy.linalg


@dataclasses.dataclass(frozen=True)
class Factors:
    """``mean`` (width,) and the components of (rows, width): left (rank, rows), right (rank, width).

    Where the matrix has fewer components than ``rank``, the rest are zero.

    ``energy`` (min(rows, width),) are the squared weighted singular values, all of them.
    """

    mean: np.ndarray
    left: np.ndarray
    right: np.ndarray
    energy: np.ndarray
    row_scales: np.ndarray


def row_scales(importance: np.ndarray, q: float, floor: float) -> np.ndarray:
    """importance**q, averaging 1 and at least ``floor``: float32 (rows,)."""
    scales = np.maximum(importance, 1e-6).astype(np.float64) ** q
    return np.maximum(scales / scales.mean(), floor).astype(np.float32)


def factorise(joint: np.ndarray, scales: np.ndarray, rank: int) -> Factors:
    """Truncated SVD of diag(scales) (joint - mean), with the scales divided out of the left factor.

    ``joint`` float32 (rows, width). Dividing before anything is quantised keeps the error of unimportant rows from
    being multiplied by 1 / scale. Means are weighted like the rows that they are taken over.
    """
    weights = scales.astype(np.float64) ** 2
    mean = (weights @ joint / weights.sum()).astype(np.float32)
    weighted = scales[:, None] * (joint - mean)
    # The smaller Gram matrix gives the same factors in a fraction of the time of an SVD.
    if weighted.shape[0] <= weighted.shape[1]:
        energy, vectors = scipy.linalg.eigh(weighted @ weighted.T)
        energy, vectors = np.maximum(energy[::-1], 0), vectors[:, ::-1][:, :rank]
        left = vectors.T
        right = left @ weighted
    else:
        energy, vectors = scipy.linalg.eigh(weighted.T @ weighted)
        energy, vectors = np.maximum(energy[::-1], 0), vectors[:, ::-1][:, :rank]
        right = vectors.T
        left = right @ weighted.T
    # Both factors carry the square root of the singular value.
    norms_left = np.linalg.norm(left, axis=1, keepdims=True)
    norms_right = np.linalg.norm(right, axis=1, keepdims=True)
    balance = np.sqrt(np.divide(norms_right, norms_left, out=np.ones_like(norms_left), where=norms_left > 0))
    safe = np.where(balance > 0, balance, 1)
    absent = ((0, rank - len(left)), (0, 0))
    return Factors(
        mean=mean,
        left=np.pad(left * safe / scales, absent).astype(np.float32),
        right=np.pad(right / safe, absent).astype(np.float32),
        energy=energy,
        row_scales=scales,
    )
