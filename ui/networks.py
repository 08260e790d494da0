"""What is drawn of the network of a run, which may have been switched to others while it ran."""

import itertools
from collections.abc import Sequence
from typing import NotRequired

import numpy as np

from sakura.network.trace import Trace
from ui.views import WINDOW_EDGES_S, TraceView, trace_key

Networks = Sequence[tuple[float, Trace]]
"""From when on each network held, in s since the run began; ``Studio.networks`` tells it. The first one from 0 on."""


class SwitchedTraceView(TraceView):
    """``switches`` are times in s since the run began and the titles of the networks that began to hold then."""

    switches: NotRequired[list[tuple[float, str]]]


def networks_view(networks: Networks, start_s: float) -> SwitchedTraceView:
    """What ``views.trace_view`` says of one trace, of all networks of a run that began ``start_s`` into them.

    A link that is switched goes on with the new trace at the time that has passed, not at the new one's start.
    """
    ends_s = [*(at_s for at_s, _ in networks[1:]), float("inf")]
    times_s, rates_mbps = [], []
    for (from_s, trace), to_s in zip(networks, ends_s, strict=True):
        edges_s = [max(from_s, min(edge_s, to_s)) for edge_s in WINDOW_EDGES_S]
        for begin_s, end_s in itertools.pairwise(edges_s):
            if begin_s < end_s:
                times, rates = trace.window(start_s + begin_s, end_s - begin_s)
                times_s.append(times - start_s)
                rates_mbps.append(rates)
    view: SwitchedTraceView = {
        "times": np.round(np.concatenate(times_s), 4).tolist(),
        "rates": np.round(np.concatenate(rates_mbps), 2).tolist(),
        "keys": [trace_key(trace, start_s) for _, trace in networks],
    }
    if len(networks) > 1:
        view["switches"] = [(round(at_s, 4), trace.title) for at_s, trace in networks[1:]]
    return view
