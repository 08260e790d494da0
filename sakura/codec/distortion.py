"""How much of a shard is lost, and which representations are worth offering."""

import numpy as np

from sakura.codec.interface import Rung

MAX_DISTORTION = 0.3  # what loses more than this is not worth executing with
RUNG_GROWTH = 1.06  # a rung is at least this many times the size of the one before it
ENERGY_FLOOR = 1e-3  # of the mean square: rows that are all equal have no energy of their own to compare an error with


def weighted_distortion(exact: np.ndarray, rebuilt: np.ndarray, importance: np.ndarray) -> float:
    """The share of importance-weighted energy about the column means that is lost, averaged over matrices.

    ``exact`` and ``rebuilt`` float32 (matrices, rows, columns); ``importance`` (matrices, rows), not negative. Energy
    is taken about the weighted mean of each column. A matrix of zeros has lost nothing if it is exact, otherwise all.
    """
    return float(np.mean([matrix_distortion(*matrix) for matrix in zip(exact, rebuilt, importance, strict=True)]))


def matrix_distortion(exact: np.ndarray, rebuilt: np.ndarray, importance: np.ndarray) -> float:
    """``weighted_distortion`` of one matrix: (rows, columns) twice and (rows,)."""
    numbers = exact.astype(np.float64)  # squares of float32 overflow float32
    weights = importance.astype(np.float64) / importance.sum(dtype=np.float64)
    lost = weights @ np.square(numbers - rebuilt).sum(1)
    total = weights @ np.square(numbers).sum(1)
    energy = weights @ np.square(numbers - weights @ numbers).sum(1)
    energy = max(energy, ENERGY_FLOOR * total)
    if energy == 0:
        return 0.0 if lost == 0 else 1.0
    return float(lost / energy)


def worthwhile(rungs: list[Rung]) -> list[Rung]:
    """Of rungs from coarse to fine, those that lose less than every one that is no larger."""
    kept: list[Rung] = []
    for rung in rungs:
        while kept and kept[-1].size_bytes >= rung.size_bytes and kept[-1].distortion >= rung.distortion:
            kept.pop()
        if not kept or (rung.size_bytes > kept[-1].size_bytes and rung.distortion < kept[-1].distortion):
            kept.append(rung)
    return kept


def lower_hull(points: list[Rung]) -> list[Rung]:
    """The points that are best for some price of a byte: sizes grow, distortions fall, slopes flatten."""
    hull: list[Rung] = []
    for point in sorted(points, key=lambda rung: (rung.size_bytes, rung.distortion)):
        if hull and point.distortion >= hull[-1].distortion:
            continue
        while len(hull) >= 2 and _slope(hull[-2], point) <= _slope(hull[-2], hull[-1]):
            hull.pop()
        hull.append(point)
    return hull


def _slope(start: Rung, end: Rung) -> float:
    return (end.distortion - start.distortion) / max(1, end.size_bytes - start.size_bytes)


def thinned(hull: list[Rung]) -> list[Rung]:
    """Rungs that are good enough to offer and differ enough in size; the finest always."""
    kept = [hull[-1]]
    for rung in reversed(hull[:-1]):
        if rung.distortion <= MAX_DISTORTION and rung.size_bytes * RUNG_GROWTH <= kept[-1].size_bytes:
            kept.append(rung)
    return kept[::-1]
