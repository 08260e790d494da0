"""The measure of loss that all codecs share."""

import numpy as np
import pytest

from sakura.codec.distortion import weighted_distortion, worthwhile
from sakura.codec.interface import Representation, Rung

EVEN = np.ones((1, 50), np.float32)


def matrix(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(3, 1, (1, 50, 8)).astype(np.float32)


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_keeping_the_column_means_only_loses_all(size: float) -> None:
    exact = matrix(0) * np.float32(size)
    assert weighted_distortion(exact, exact, EVEN) == 0
    means = np.broadcast_to(exact.mean(1, keepdims=True, dtype=np.float64), exact.shape)
    assert weighted_distortion(exact, means, EVEN) == pytest.approx(1)


def test_errors_count_by_importance_and_matrices_alike() -> None:
    exact, importance = np.concatenate([matrix(0), 100 * matrix(1)]), np.ones((2, 50), np.float32)
    importance[:, 25:] = 0
    rebuilt = exact.copy()
    rebuilt[:, 25:] = 0
    assert weighted_distortion(exact, rebuilt, importance) == 0
    rebuilt[1, :25] = exact[1, :25].mean(0)
    assert weighted_distortion(exact, rebuilt, importance) == pytest.approx(0.5, rel=1e-4)


def test_rows_that_are_all_equal_are_compared_with_their_size() -> None:
    exact = np.full((1, 50, 8), 2, np.float32)
    assert weighted_distortion(exact, exact + np.float32(0.01), EVEN) == pytest.approx(1e-4 / (1e-3 * 4), rel=1e-4)
    zero = np.zeros_like(exact)
    assert weighted_distortion(zero, zero, EVEN) == 0
    assert weighted_distortion(zero, exact, EVEN) == 1


def test_rungs_that_cost_more_for_nothing_are_left_out() -> None:
    points = [(10, 0.5), (20, 0.5), (30, 0.3), (30, 0.2), (25, 0.1), (40, 0.1)]
    rungs = [Rung(Representation(0, i, i), i, i + 1, *point) for i, point in enumerate(points)]
    assert [(rung.size_bytes, rung.distortion) for rung in worthwhile(rungs)] == [(10, 0.5), (25, 0.1)]
