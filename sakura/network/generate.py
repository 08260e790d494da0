"""Made-up network traces that behave like measured ones; run as a program, this module writes the shipped files.

The model is our own. The logarithm of the rate is a sum of four parts: the level of the present radio mode
(semi-Markov, with heavy-tailed dwell times), a slow Gaussian drift, fast heavy-tailed noise, and sudden drops that
recover exponentially. A soft ceiling stands for the best the radio can do, and outages come on top. Steps are 1 s.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sakura.network.library import TRACES_FOLDER

Series = NDArray[np.float64]

_NOISE_FREEDOM = 4.0
"""Degrees of freedom of the fast noise: the lowest whole number with a variance and tails well above Gaussian ones."""

_OUTAGE_SPREAD = 0.8
"""Standard deviation of the logarithm of an outage's length."""

_OUTAGE_RATE_MBPS = 0.6
"""Rates within an outage lie evenly between 0 and this."""


@dataclass(frozen=True)
class Dwell:
    """Log-normal time that a radio mode lasts, in s."""

    median_s: float
    mean_s: float


@dataclass(frozen=True)
class Kind:
    """Parameters of one kind of network.

    ``scale_mbps`` is the rate of the better mode without any disturbance and ceiling, ``ceiling`` the highest rate in
    units of it, ``mode_ratio`` the rate of the better mode over that of the worse one. ``*_spread`` are standard
    deviations of the logarithm of the rate, ``drop_depth`` the mean of a drop's logarithm. Chances are per second.
    """

    scale_mbps: float
    ceiling: float
    mode_ratio: float
    better: Dwell
    worse: Dwell
    slow_spread: float
    slow_s: float
    fast_spread: float
    fast_s: float
    drop_chance: float
    drop_depth: float
    recovery_s: float
    outage_chance: float
    outage_s: float


KINDS = {
    "5g-walking": Kind(
        scale_mbps=1520.0,
        ceiling=1.28,
        mode_ratio=4.1,
        better=Dwell(29.6, 120),
        worse=Dwell(5.53, 33.5),
        slow_spread=0.747,
        slow_s=30.3,
        fast_spread=0.02,
        fast_s=1.64,
        drop_chance=0.157,
        drop_depth=0.814,
        recovery_s=6.63,
        outage_chance=0.0117,
        outage_s=2.16,
    ),
    "5g-driving": Kind(
        scale_mbps=759.0,
        ceiling=1.61,
        mode_ratio=3.49,
        better=Dwell(3.18, 15.6),
        worse=Dwell(19.2, 67.8),
        slow_spread=0.867,
        slow_s=10.6,
        fast_spread=0.972,
        fast_s=8.0,
        drop_chance=0.0153,
        drop_depth=1.77,
        recovery_s=2.97,
        outage_chance=0.0113,
        outage_s=1.69,
    ),
    "5g-static": Kind(
        scale_mbps=254.0,
        ceiling=1.78,
        mode_ratio=4.81,
        better=Dwell(13.8, 42.2),
        worse=Dwell(25.4, 115),
        slow_spread=0.625,
        slow_s=8.96,
        fast_spread=0.0257,
        fast_s=3.35,
        drop_chance=0.015,
        drop_depth=2.65,
        recovery_s=7.23,
        outage_chance=0.00442,
        outage_s=8.04,
    ),
    "4g-5g-mix": Kind(
        scale_mbps=35.6,
        ceiling=30.0,
        mode_ratio=3.09,
        better=Dwell(14, 100),
        worse=Dwell(27, 100),
        slow_spread=0.735,
        slow_s=54.0,
        fast_spread=0.531,
        fast_s=8.0,
        drop_chance=0.0252,
        drop_depth=1.2,
        recovery_s=4.77,
        outage_chance=0.00893,
        outage_s=5.87,
    ),
    "4g-driving": Kind(
        scale_mbps=57.5,
        ceiling=1.71,
        mode_ratio=2.51,
        better=Dwell(24.3, 101),
        worse=Dwell(7.03, 40.3),
        slow_spread=0.717,
        slow_s=8.91,
        fast_spread=0.564,
        fast_s=4.6,
        drop_chance=0.0182,
        drop_depth=2.71,
        recovery_s=3.09,
        outage_chance=0.00156,
        outage_s=5.77,
    ),
    "wifi-walking": Kind(
        scale_mbps=128.0,
        ceiling=0.587,
        mode_ratio=2.98,
        better=Dwell(29, 120),
        worse=Dwell(3.28, 19),
        slow_spread=0.295,
        slow_s=12.4,
        fast_spread=0.0616,
        fast_s=3.7,
        drop_chance=0.112,
        drop_depth=1.56,
        recovery_s=6.25,
        outage_chance=0.0156,
        outage_s=9.0,
    ),
}
"""By trace id: fitted so that long traces have the statistics of measured ones."""

SHIPPED_S = 600

SHIPPED_SEEDS = {
    "5g-walking": 10,
    "5g-driving": 21,
    "5g-static": 59,
    "4g-5g-mix": 121,
    "4g-driving": 191,
    "wifi-walking": 41,
}
"""Seeds whose first ``SHIPPED_S`` seconds are typical of the kind."""


def _decaying_sum(impulses: Series, time_s: float) -> Series:
    """First-order recursion y[t] = y[t-1]·exp(-1/time_s) + impulses[t] from rest; (n,) to (n,)."""
    keep = float(np.exp(-1 / time_s))
    value = 0.0
    result = np.empty_like(impulses)
    for index, impulse in enumerate(impulses.tolist()):
        value = keep * value + impulse
        result[index] = value
    return result


def _unit_impulse_scale(time_s: float) -> float:
    """Standard deviation of white impulses whose decaying sum has standard deviation 1."""
    return float(np.sqrt(-np.expm1(-2 / time_s)))


def _draw_s(rng: np.random.Generator, dwell: Dwell) -> float:
    spread = np.sqrt(2 * np.log(dwell.mean_s / dwell.median_s))
    return float(dwell.median_s * np.exp(spread * rng.standard_normal()))


def _in_worse_mode(rng: np.random.Generator, kind: Kind, seconds: int) -> NDArray[np.bool_]:
    worse = np.zeros(seconds, dtype=bool)
    is_worse = bool(rng.random() < kind.worse.mean_s / (kind.better.mean_s + kind.worse.mean_s))
    at_s = 0.0
    while at_s < seconds:
        end_s = at_s + _draw_s(rng, kind.worse if is_worse else kind.better)
        worse[round(at_s) : round(end_s)] = is_worse
        is_worse, at_s = not is_worse, end_s
    return worse


def _in_outage(rng: np.random.Generator, kind: Kind, seconds: int) -> NDArray[np.bool_]:
    down = np.zeros(seconds, dtype=bool)
    length = Dwell(median_s=kind.outage_s * float(np.exp(-(_OUTAGE_SPREAD**2) / 2)), mean_s=kind.outage_s)
    at_s = float(rng.exponential(1 / kind.outage_chance))
    while at_s < seconds:
        end_s = at_s + max(1.0, _draw_s(rng, length))
        down[round(at_s) : round(end_s)] = True
        at_s = end_s + float(rng.exponential(1 / kind.outage_chance))
    return down


def generate_rates_mbps(kind: Kind, seconds: int, seed: int) -> Series:
    """Rates (seconds,) in Mbit/s at steps of 1 s; the same for the same arguments."""
    # One stream a part: a changed parameter of one part leaves the draws of the others alone.
    mode_rng, slow_rng, fast_rng, drop_rng, outage_rng = np.random.default_rng(seed).spawn(5)
    slow_impulses = kind.slow_spread * _unit_impulse_scale(kind.slow_s) * slow_rng.standard_normal(seconds)
    fast_unit = np.sqrt((_NOISE_FREEDOM - 2) / _NOISE_FREEDOM) * fast_rng.standard_t(_NOISE_FREEDOM, seconds)
    fast_impulses = kind.fast_spread * _unit_impulse_scale(kind.fast_s) * fast_unit
    drops = (drop_rng.random(seconds) < kind.drop_chance) * drop_rng.exponential(kind.drop_depth, seconds)
    log_rate = (
        _decaying_sum(slow_impulses, kind.slow_s)
        + _decaying_sum(fast_impulses, kind.fast_s)
        - _decaying_sum(drops, kind.recovery_s)
        - np.log(kind.mode_ratio) * _in_worse_mode(mode_rng, kind, seconds)
    )
    rates = kind.scale_mbps * kind.ceiling * -np.expm1(-np.exp(log_rate) / kind.ceiling)
    down = _in_outage(outage_rng, kind, seconds)
    return np.where(down, outage_rng.uniform(0, _OUTAGE_RATE_MBPS, seconds), rates)


def write_trace(path: Path, rates_mbps: Series) -> None:
    """Write rates at steps of 1 s as lines of time in s, tab, rate in Mbit/s."""
    path.write_text(
        "".join(f"{second}\t{rate:.3f}\n" for second, rate in enumerate(rates_mbps.tolist())),
        encoding="utf-8",
        newline="\n",
    )


def main() -> None:
    """Write every shipped trace anew; the result is the same each time."""
    for trace_id, kind in KINDS.items():
        write_trace(TRACES_FOLDER / f"{trace_id}.csv", generate_rates_mbps(kind, SHIPPED_S, SHIPPED_SEEDS[trace_id]))


if __name__ == "__main__":
    main()
