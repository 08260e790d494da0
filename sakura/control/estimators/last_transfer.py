"""CacheGen's estimator."""

from typing import ClassVar

from sakura.control.estimators.interface import DEFAULT_MBPS, Sample


class LastTransferEstimator:
    """The rate of the last transfer, as CacheGen takes the throughput of its previous chunk (SIGCOMM'24)."""

    of_transfers: ClassVar[bool] = True

    def __init__(self, prior_mbps: float = DEFAULT_MBPS) -> None:
        self._last_mbps = prior_mbps

    def add(self, sample: Sample) -> None:
        self._last_mbps = sample.raised_mbps(self._last_mbps) if sample.quick else sample.rate_mbps

    def predict_mbps(self) -> float:
        return self._last_mbps
