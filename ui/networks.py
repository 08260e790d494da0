"""Networks that runs were switched to while they ran, so that every page draws what the link really carried."""

import collections
import itertools
import threading
from typing import NotRequired

import numpy as np

from sakura.network.trace import Trace
from ui.views import WINDOW_EDGES_S, TraceView

MAX_RUNS_KEPT = 64


class SwitchedTraceView(TraceView):
    """``switches`` are times in s since the run began and the titles of the networks that began to hold then.

    Without a switch there are none: the page compares this view with that of a single trace.
    """

    switches: NotRequired[list[tuple[float, str]]]


class Networks:
    """The switches of each run, by run id. Safe to use from any thread."""

    def __init__(self) -> None:
        self._switches: collections.OrderedDict[str, list[tuple[float, Trace]]] = collections.OrderedDict()
        self._lock = threading.Lock()

    def switch(self, run_id: str, at_s: float, trace: Trace) -> None:
        """Remember that ``trace`` holds from ``at_s`` on, in s since the run began."""
        with self._lock:
            self._switches.setdefault(run_id, []).append((at_s, trace))
            while len(self._switches) > MAX_RUNS_KEPT:
                self._switches.popitem(last=False)

    def present(self, run_id: str, first: Trace) -> Trace:
        """The network that holds last, of a run that began with ``first``."""
        return self._of(run_id, first)[-1][1]

    def view(self, run_id: str, first: Trace, start_s: float) -> SwitchedTraceView:
        """What ``views.trace_view`` says of one trace, of all networks of a run that began with ``first``.

        A link that is switched goes on with the new trace at the time that has passed, not at the new one's start.
        """
        parts = self._of(run_id, first)
        ends_s = [*(at_s for at_s, _ in parts[1:]), float("inf")]
        times_s, rates_mbps = [], []
        for (from_s, trace), to_s in zip(parts, ends_s, strict=True):
            edges_s = [max(from_s, min(edge_s, to_s)) for edge_s in WINDOW_EDGES_S]
            for begin_s, end_s in itertools.pairwise(edges_s):
                if begin_s < end_s:
                    times, rates = trace.window(start_s + begin_s, end_s - begin_s)
                    times_s.append(times - start_s)
                    rates_mbps.append(rates)
        view: SwitchedTraceView = {
            "times": np.round(np.concatenate(times_s), 4).tolist(),
            "rates": np.round(np.concatenate(rates_mbps), 2).tolist(),
        }
        if len(parts) > 1:
            view["switches"] = [(round(at_s, 4), trace.title) for at_s, trace in parts[1:]]
        return view

    def _of(self, run_id: str, first: Trace) -> list[tuple[float, Trace]]:
        with self._lock:
            return [(0.0, first), *self._switches.get(run_id, [])]
