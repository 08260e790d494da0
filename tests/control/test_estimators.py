import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakura.control.estimators import WINDOW_S, DiscountedEstimator, RateMeter, Sample

SAMPLES = st.lists(st.builds(Sample, st.integers(2_000, 500_000), st.floats(0, 3)), min_size=1, max_size=60)


def at_rate(mbps: float, size_bytes: int = 100_000) -> Sample:
    return Sample(size_bytes, 8e-6 * size_bytes / mbps)


def test_steady_rate_is_found_and_never_exceeded() -> None:
    estimator = DiscountedEstimator()
    for _ in range(50):
        estimator.add(at_rate(20))
    assert 0.95 * 20 < estimator.predict_mbps() <= 20 + 1e-9


@given(SAMPLES)
def test_prediction_is_positive_and_bounded_by_what_was_seen(samples: list[Sample]) -> None:
    estimator = DiscountedEstimator(10.0)
    for sample in samples:
        estimator.add(sample)
    assert 0 < estimator.predict_mbps() <= max(10.0, *(sample.rate_mbps for sample in samples)) * (1 + 1e-9)


def test_quick_samples_only_raise_and_at_most_double() -> None:
    estimator = DiscountedEstimator(10.0)
    before = estimator.predict_mbps()
    estimator.add(Sample(2_000, 0.007))
    assert estimator.predict_mbps() == before
    estimator.add(Sample(200_000, 0.0))
    assert estimator.predict_mbps() == pytest.approx(2 * before)


def test_drop_is_followed_at_once_and_recovery_with_care() -> None:
    estimator = DiscountedEstimator()
    for _ in range(20):
        estimator.add(at_rate(40))
    estimator.add(at_rate(4))
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
        estimator.add(Sample(int(125_000 * rate * 0.02), 0.02))
    assert 0.03 < np.mean(late) < 0.2


@given(st.floats(1, 400), st.floats(0, 5), st.integers(2, 40))
def test_meter_measures_the_rate_and_no_idle_time(mbps: float, pause_s: float, messages: int) -> None:
    """Bursts of 16 KB messages at a steady rate with pauses between: every sample has that rate."""
    size_bytes = 16_384
    meter, now_s, samples = RateMeter(), 0.0, []
    for _ in range(3):
        for number in range(messages):
            now_s += 8e-6 * size_bytes / mbps
            samples.append(meter.arrived(now_s, size_bytes, after_pause=number == 0))
        now_s += pause_s
    found = [sample for sample in samples if sample is not None]
    assert sum(sample.size_bytes for sample in found) <= 3 * (messages - 1) * size_bytes
    for sample in found:
        if not sample.quick:
            assert sample.rate_mbps == pytest.approx(mbps, rel=1e-6)
    if (messages - 1) * 8e-6 * size_bytes / mbps >= 2 * WINDOW_S:
        assert found
