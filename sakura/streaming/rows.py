"""What the figures of streamed edits share: where their rows come from, and how rows become medians and names."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import SYSTEMS
from sakura.errors import UserError
from sakura.network.library import load_library_trace
from sakura.network.trace import Trace
from sakura.reproduce.figure import Progress, Row, Scope
from sakura.streaming.live import MAIN, RTT_S, Contestant, measure_live, running_studio
from sakura.streaming.paper import paper_rows
from sakura.templates import TemplateLibrary

NETWORKS = ("5g-static", "4g-5g-mix", "wifi-walking", "5g-driving", "5g-walking")
QUICK_NETWORKS = ("5g-static", "4g-5g-mix")
# What every row of an edit has, whichever way it was measured.
FIELDS = (
    "scale",
    "workload",
    "network",
    "system",
    "controller",
    "request",
    "rtt_s",
    "latency_s",
    "limit_s",
    "on_device_s",
    "first_wait_s",
    "network_wait_s",
    "psnr_mask_db",
    "mean_mbps",
    "mask_share",
)
WORDS = ("scale", "workload", "network", "system", "controller")
# How many times faster than each of these SAKURA is, as the paper states.
PAPER_SPEEDUPS = {"cachegen": 1.82, "on_device": 3.27}


def networks_of(scope: Scope) -> list[Trace]:
    """The traces to measure on."""
    if scope.networks:
        return list(scope.networks)
    return [load_library_trace(trace_id) for trace_id in (QUICK_NETWORKS if scope.quick else NETWORKS)]


def streamed_rows(
    store: CacheStore,
    library: TemplateLibrary,
    scope: Scope,
    progress: Progress,
    contestants: Sequence[Contestant] = MAIN,
    *,
    one_network: bool = False,
) -> list[Row]:
    """One row an edit, measured now, or those that the scope brings; of the first network alone if ``one_network``.

    Raises UserError on rows of something else.
    """
    if scope.known:
        for number, row in enumerate(scope.known):
            for field in FIELDS:
                if not isinstance(row.get(field), str if field in WORDS else (int, float)):
                    raise UserError(f"Row {number + 1} has no {field!r}; give the rows that headline --json wrote.")
        rows = [row for row in scope.known if row["scale"] == scope.scale]
        if not rows:
            raise UserError(f"The rows are not of scale {scope.scale}; give others, or another --scale.")
        return [row for row in rows if not one_network or row["network"] == rows[0]["network"]]
    if scope.scale == "paper":
        return paper_rows(scope, progress, one_network=one_network)
    networks = networks_of(scope)
    with running_studio() as studio:
        return measure_live(
            studio,
            store,
            library,
            networks[:1] if one_network else networks,
            contestants,
            requests=scope.streamed_requests,
            rtt_s=RTT_S,
            progress=progress,
        )


def measured_of(rows: Sequence[Row]) -> Row:
    """How much was measured: requests a workload and network, the networks, and their round trip."""
    requests = {row["request"] for row in rows}
    networks = list(dict.fromkeys(row["network"] for row in rows))
    return {"requests": len(requests), "networks": networks, "rtt_s": rows[0]["rtt_s"]}


def speed_up(table: pd.DataFrame, over: str, controller: str = "own") -> float:
    """How many times SAKURA's median latency fits into another contestant's; NaN where that is not in the table."""
    ours = table[(table["system"] == "sakura") & (table["controller"] == "own")]["latency_s"].median()
    theirs = table[(table["system"] == over) & (table["controller"] == controller)]["latency_s"].median()
    return float(theirs / ours)


def table_of(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows with what is derived from them: how far over the limit, and how much faster than the device alone.

    ``limit_s`` is the active tokens' computing alone plus one round trip. ``stall_s`` is what execution stood still
    beyond the first round trip, which is part of the limit.
    """
    table = pd.DataFrame(rows)
    table["speedup"] = table["on_device_s"] / table["latency_s"]
    table["over_limit"] = table["latency_s"] / table["limit_s"]
    table["stall_s"] = table["network_wait_s"] - np.minimum(table["first_wait_s"], table["rtt_s"])
    return table


def own(table: pd.DataFrame) -> pd.DataFrame:
    """Edits of each system with its own controller."""
    return table[table["controller"] == "own"]


def medians(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Medians of all numbers over requests, means of qualities, and how many requests those are."""
    groups = table.groupby(list(by), sort=False)
    found = groups.median(numeric_only=True)
    for quality in ("psnr_mask_db", "ssim_mask"):
        if quality in table:
            found[quality] = groups[quality].mean()
    return found.assign(requests=groups.size()).reset_index()


def chart_name(system: str) -> str:
    """A system's name in charts."""
    return "uncompressed" if system == "full_cache" else system


def label_of(system: str, controller: str = "own") -> str:
    """A contestant's name for people."""
    name = SYSTEMS[chart_name(system)][0]
    return name if controller == "own" else f"{name}, {controller}"
