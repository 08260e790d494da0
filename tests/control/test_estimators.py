import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakura.control.estimators import (
    ESTIMATORS,
    DiscountedEstimator,
    Estimator,
    HarmonicEstimator,
    RobustEstimator,
    Sample,
    new_estimator,
)
from sakura.control.estimators.interface import GROWTH, WINDOW_S

SAMPLES = st.lists(st.builds(Sample, st.integers(2_000, 500_000), st.floats(0, 3)), min_size=1, max_size=60)
ADAPTED_AFTER = 40  # samples of 20 ms


def at_rate(mbps: float, duration_s: float = 0.02) -> Sample:
    return Sample(round(125_000 * mbps * duration_s), duration_s)


def fed(estimator: Estimator, samples: list[Sample]) -> Estimator:
    for sample in samples:
        estimator.add(sample)
    return estimator


@pytest.mark.parametrize("name", ESTIMATORS)
@given(SAMPLES, st.floats(0.01, 1000))
def test_prediction_is_positive_and_bounded_by_what_was_seen(
    name: str, samples: list[Sample], prior_mbps: float
) -> None:
    mbps = fed(new_estimator(name, prior_mbps), samples).predict_mbps()
    assert math.isfinite(mbps)
    assert 0 < mbps <= max(prior_mbps, *(sample.rate_mbps for sample in samples)) * (1 + 1e-9)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_prior_is_believed_until_something_is_measured(name: str) -> None:
    assert 0.8 * 30 <= new_estimator(name, 30).predict_mbps() <= 30


@pytest.mark.parametrize("name", ESTIMATORS)
def test_steady_rate_is_found_and_never_exceeded(name: str) -> None:
    estimator = fed(new_estimator(name), [at_rate(20)] * 50)
    assert 0.95 * 20 < estimator.predict_mbps() <= 20 + 1e-9


@pytest.mark.parametrize("name", ESTIMATORS)
@given(st.floats(1, 400), st.floats(1, 400), st.integers(1, 30))
def test_a_step_of_the_rate_is_followed(name: str, before_mbps: float, after_mbps: float, samples: int) -> None:
    estimator = fed(new_estimator(name), [at_rate(before_mbps)] * samples + [at_rate(after_mbps)] * ADAPTED_AFTER)
    assert 0.8 * after_mbps <= estimator.predict_mbps() <= 1.05 * max(after_mbps, after_mbps + before_mbps / 100)


@pytest.mark.parametrize("name", ESTIMATORS)
@given(st.floats(1, 400), st.integers(2_000, 200_000), st.floats(0, 0.99 * WINDOW_S))
def test_a_quick_sample_never_lowers_and_at_most_doubles(
    name: str, mbps: float, size_bytes: int, duration_s: float
) -> None:
    estimator = fed(new_estimator(name), [at_rate(mbps)] * 10)
    before = estimator.predict_mbps()
    estimator.add(Sample(size_bytes, duration_s))
    assert before * (1 - 1e-9) <= estimator.predict_mbps() <= GROWTH * before * (1 + 1e-9)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_small_transfers_do_not_hold_the_estimate_down(name: str) -> None:
    estimator = fed(new_estimator(name, 1), [Sample(100_000, 0.005)] * 20)
    assert estimator.predict_mbps() > 100


def test_a_drop_is_followed_at_once_and_recovery_with_care() -> None:
    estimator = fed(DiscountedEstimator(), [at_rate(40)] * 20 + [at_rate(4)])
    assert estimator.predict_mbps() <= 4
    estimator.add(at_rate(40))
    assert estimator.predict_mbps() < 40


def test_about_one_sample_in_ten_is_slower_than_predicted() -> None:
    rng = np.random.default_rng(0)
    estimator = DiscountedEstimator()
    late = []
    rate = 20.0
    for number in range(1_500):
        rate = float(np.clip(rate * np.exp(0.15 * rng.normal()), 2, 200))
        if number > 50:
            late.append(rate < estimator.predict_mbps())
        estimator.add(at_rate(rate))
    assert 0.03 < np.mean(late) < 0.2


def test_harmonic_mean_of_the_last_five() -> None:
    rates = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    mbps = fed(HarmonicEstimator(), [Sample(125_000 * int(rate), 1.0) for rate in rates]).predict_mbps()
    assert mbps == pytest.approx(5 / sum(1 / rate for rate in rates[1:]))


def test_robust_estimate_is_lowered_by_the_largest_recent_error() -> None:
    steady = fed(RobustEstimator(), [at_rate(20)] * 5)
    assert steady.predict_mbps() == pytest.approx(20), "how wrong the prior was does not count"
    steady.add(at_rate(10))
    mean = 5 / (4 / 20 + 1 / 10)
    assert steady.predict_mbps() == pytest.approx(mean / (1 + abs(20 - 10) / 10))
    assert fed(steady, [at_rate(10)] * 10).predict_mbps() == pytest.approx(10), "five samples on it is forgotten"
