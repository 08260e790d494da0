import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakura.control.estimators import RateMeter
from sakura.control.estimators.interface import WINDOW_S


@given(st.floats(1, 400), st.floats(0, 5), st.integers(2, 40))
def test_measures_the_rate_and_no_idle_time(mbps: float, pause_s: float, messages: int) -> None:
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
