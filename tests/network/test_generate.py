from pathlib import Path

import numpy as np
import pytest

from sakura.network import generate
from sakura.network.generate import KINDS, SHIPPED_S, SHIPPED_SEEDS, generate_rates_mbps, write_trace
from sakura.network.library import TITLES, TRACES_FOLDER
from sakura.network.statistics import TraceStatistics, trace_statistics

MEASURED = {
    "5g-walking": TraceStatistics(559, 0.82, 0.12, (0.92, 0.69, 0.53, 0.18), 0.074, 0.026, 2.2),
    "5g-driving": TraceStatistics(336, 0.97, 0.12, (0.89, 0.54, 0.32, 0.0), 0.102, 0.022, 1.8),
    "5g-static": TraceStatistics(82, 0.96, 0.15, (0.94, 0.63, 0.46, 0.38), 0.028, 0.049, 6.5),
    "4g-5g-mix": TraceStatistics(29, 1.42, 0.10, (0.92, 0.64, 0.50, 0.33), 0.044, 0.061, 4.8),
    "4g-driving": TraceStatistics(38, 0.67, 0.24, (0.88, 0.48, 0.27, 0.0), 0.047, 0.020, 3.1),
    "wifi-walking": TraceStatistics(31, 0.73, 0.02, (0.89, 0.56, 0.17, -0.05), 0.089, 0.15, 6.2),
}
"""Medians of measured traces of each kind."""

SEEDS = range(5)
SECONDS = 20_000


@pytest.mark.parametrize("trace_id", KINDS)
def test_long_traces_behave_like_measured_ones(trace_id: str) -> None:
    """Means over five traces of 20,000 s; single ones scatter, since the time in a radio mode is heavy-tailed."""
    runs = [trace_statistics(generate_rates_mbps(KINDS[trace_id], SECONDS, seed)) for seed in SEEDS]
    target = MEASURED[trace_id]

    def mean(name: str) -> float:
        return float(np.mean([getattr(run, name) for run in runs]))

    assert mean("mean_mbps") == pytest.approx(target.mean_mbps, rel=0.1)
    assert mean("variation") == pytest.approx(target.variation, rel=0.1)
    assert mean("p10_share") == pytest.approx(target.p10_share, abs=0.025)
    assert mean("drop_chance") == pytest.approx(target.drop_chance, rel=0.2)
    assert mean("low_share") == pytest.approx(target.low_share, rel=0.2)
    assert mean("low_mean_s") == pytest.approx(target.low_mean_s, rel=0.15)
    autocorrelation = np.mean([run.autocorrelation for run in runs], axis=0)
    np.testing.assert_allclose(autocorrelation[:1], target.autocorrelation[:1], atol=0.04)
    np.testing.assert_allclose(autocorrelation[1:], target.autocorrelation[1:], atol=0.13)


@pytest.mark.parametrize("trace_id", KINDS)
def test_changes_of_the_logarithm_are_heavy_tailed(trace_id: str) -> None:
    changes = np.diff(np.log(np.maximum(generate_rates_mbps(KINDS[trace_id], SECONDS, 0), 0.01)))
    excess_kurtosis = np.mean((changes - changes.mean()) ** 4) / changes.var() ** 2 - 3
    assert excess_kurtosis > 3


@pytest.mark.parametrize("trace_id", KINDS)
def test_rates_are_finite_and_depend_on_the_seed_alone(trace_id: str) -> None:
    rates_mbps = generate_rates_mbps(KINDS[trace_id], 600, 7)
    assert rates_mbps.shape == (600,)
    assert np.isfinite(rates_mbps).all()
    assert (rates_mbps >= 0).all()
    np.testing.assert_array_equal(rates_mbps, generate_rates_mbps(KINDS[trace_id], 600, 7))
    assert (rates_mbps != generate_rates_mbps(KINDS[trace_id], 600, 8)).any()


@pytest.mark.parametrize("trace_id", KINDS)
def test_shipped_traces_are_near_measured_ones(trace_id: str) -> None:
    """600 s hold few radio modes and outages, so the tolerances are wider than those of long traces."""
    shipped = trace_statistics(np.loadtxt(TRACES_FOLDER / f"{trace_id}.csv")[:, 1])
    target = MEASURED[trace_id]
    assert shipped.mean_mbps == pytest.approx(target.mean_mbps, rel=0.1)
    assert shipped.variation == pytest.approx(target.variation, rel=0.1)
    assert shipped.p10_share == pytest.approx(target.p10_share, abs=0.025)
    assert shipped.drop_chance == pytest.approx(target.drop_chance, rel=0.2)
    assert shipped.low_share == pytest.approx(target.low_share, abs=0.025)
    assert shipped.low_mean_s == pytest.approx(target.low_mean_s, rel=0.3)
    np.testing.assert_allclose(shipped.autocorrelation[:1], target.autocorrelation[:1], atol=0.05)
    np.testing.assert_allclose(shipped.autocorrelation[1:3], target.autocorrelation[1:3], atol=0.13)
    # What is 30 s apart is hardly independent of anything in 600 s.
    assert shipped.autocorrelation[3] == pytest.approx(target.autocorrelation[3], abs=0.35)


@pytest.mark.parametrize("trace_id", KINDS)
def test_shipped_files_are_what_the_generator_writes(trace_id: str, tmp_path: Path) -> None:
    write_trace(tmp_path / "new.csv", generate_rates_mbps(KINDS[trace_id], SHIPPED_S, SHIPPED_SEEDS[trace_id]))
    assert (tmp_path / "new.csv").read_bytes() == (TRACES_FOLDER / f"{trace_id}.csv").read_bytes()


def test_the_program_writes_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "TRACES_FOLDER", tmp_path)
    generate.main()
    assert {path.name for path in tmp_path.iterdir()} == {f"{trace_id}.csv" for trace_id in KINDS}


def test_every_kind_has_a_title() -> None:
    assert set(KINDS) == set(SHIPPED_SEEDS) == set(TITLES)
