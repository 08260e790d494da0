import numpy as np
import pytest

from sakura.network.statistics import trace_statistics


def test_by_hand() -> None:
    rates_mbps = np.array([10.0, 4.0, 0.5, 0.5, 8.0] * 20)
    statistics = trace_statistics(rates_mbps)
    assert statistics.mean_mbps == pytest.approx(4.6)
    assert statistics.variation == pytest.approx(np.std([10, 4, 0.5, 0.5, 8]) / 4.6)
    assert statistics.p10_share == pytest.approx(0.5 / 4.6)
    assert statistics.drop_chance == pytest.approx(40 / 99)
    assert statistics.low_share == pytest.approx(0.4)
    assert statistics.low_mean_s == pytest.approx(2)
    assert statistics.autocorrelation[1] == pytest.approx(0.95, abs=1e-9)


def test_without_low_rates() -> None:
    assert trace_statistics(np.arange(1, 100, dtype=np.float64)).low_mean_s == 0
