"""Bandwidth estimators: fed with finished transfers, asked for the rate of the next one.

To add one, write a file and name it in ``ESTIMATORS``.
"""

from collections.abc import Callable

from sakura.control.estimators.discounted import DiscountedEstimator
from sakura.control.estimators.ewma import EwmaEstimator
from sakura.control.estimators.harmonic import HarmonicEstimator
from sakura.control.estimators.interface import DEFAULT_MBPS, Estimator, Sample
from sakura.control.estimators.last_transfer import LastTransferEstimator
from sakura.control.estimators.meter import RateMeter
from sakura.control.estimators.robust import RobustEstimator
from sakura.errors import UserError

__all__ = [
    "DEFAULT_MBPS",
    "ESTIMATORS",
    "DiscountedEstimator",
    "Estimator",
    "EwmaEstimator",
    "HarmonicEstimator",
    "LastTransferEstimator",
    "RateMeter",
    "RobustEstimator",
    "Sample",
    "new_estimator",
]

ESTIMATORS: dict[str, Callable[[float], Estimator]] = {
    "discounted": DiscountedEstimator,
    "robust": RobustEstimator,
    "harmonic": HarmonicEstimator,
    "ewma": EwmaEstimator,
    "last-transfer": LastTransferEstimator,
}


def new_estimator(name: str, prior_mbps: float = DEFAULT_MBPS) -> Estimator:
    """The estimator of that name; ``prior_mbps`` is believed until something has been measured.

    Raises UserError if there is none.
    """
    if name not in ESTIMATORS:
        raise UserError(f"There is no estimator {name!r}; use one of {', '.join(ESTIMATORS)}.")
    return ESTIMATORS[name](prior_mbps)
