"""The networks of the evaluation at paper scale: shipped traces, and one more of the same generator."""

import functools

import numpy as np

from sakura.errors import UserError
from sakura.network.generate import KINDS, SHIPPED_S, generate_rates_mbps
from sakura.network.library import load_library_trace
from sakura.network.trace import Trace, checked_trace

SLOWER_5G_MBPS = 130.0
SLOWER_5G_KIND = "5g-static"
SLOWER_5G_SEED = 114  # the first whose mean is within 1 % of SLOWER_5G_MBPS
RTT_S = 0.04

NETWORKS = {
    "5g-330": "5G, driving, 332 Mbit/s on average",
    "5g-130": "5G, standing still, 130 Mbit/s on average",
    "mix": "4G and 5G mix, driving, 29 Mbit/s on average",
    "wifi": "WiFi, walking, 31 Mbit/s on average",
}
_SHIPPED = {"5g-330": "5g-driving", "mix": "4g-5g-mix", "wifi": "wifi-walking"}


@functools.cache
def network_trace(network: str) -> Trace:
    """The trace of one of ``NETWORKS``. Raises UserError if there is none."""
    if network not in NETWORKS:
        raise UserError(f"There is no network {network!r}; use one of {', '.join(NETWORKS)}.")
    if network in _SHIPPED:
        return load_library_trace(_SHIPPED[network])
    rates_mbps = generate_rates_mbps(KINDS[SLOWER_5G_KIND], SHIPPED_S, SLOWER_5G_SEED)
    return checked_trace(network, np.arange(SHIPPED_S + 1.0), rates_mbps, title=NETWORKS[network], format="generated")
