"""Made-up network traces that behave like measured ones; run as a program, this module writes the shipped files.

The model is our own. The logarithm of the rate is a sum of four parts: the level of the present radio mode
(semi-Markov, with heavy-tailed dwell times), a slow Gaussian drift, fast heavy-tailed noise, and sudden drops that
recover exponentially. A soft ceiling stands for the best the radio can do, and outages come on top. Steps are 1 s.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
