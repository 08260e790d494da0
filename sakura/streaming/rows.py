"""What the figures of streamed edits share: where their rows come from, and how rows become medians and names."""

from collections.abc import Sequence

import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import SYSTEMS
from sakura.errors import UserError
from sakura.network.library import load_library_trace
from sakura.network.trace import Trace
from sakura.reproduce.figure import RTT_S, Progress, Row, Scope
from sakura.streaming.live import MAIN, Contestant, measure_live, running_studio
from sakura.streaming.paper import paper_rows
from sakura.templates import TemplateLibrary

NETWORKS = ("5g-static", "4g-5g-mix", "wifi-walking", "5g-driving", "5g-walking")
QUICK_NETWORKS = ("5g-static", "4g-5g-mix")
# What every row of an edit has, whichever way it was measured.
FIELDS = ("scale", "workload", "network", "system", "controller", "request", "latency_s", "limit_s", "on_device_s")


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
    networks: Sequence[Trace] | None = None,
) -> list[Row]:
    """One row an edit, measured now, or those that the scope brings. Raises UserError on rows of something else."""
    if scope.known:
        missing = [field for field in FIELDS if field not in scope.known[0]]
        if missing:
            raise UserError(f"The rows have no {missing[0]!r}; give those that headline --json wrote.")
        return [row for row in scope.known if row["scale"] == scope.scale]
    if scope.scale == "paper":
        return paper_rows(scope, progress)
    with running_studio() as studio:
        return measure_live(
            studio,
            store,
            library,
            networks or networks_of(scope),
            contestants,
            requests=scope.streamed_requests,
            rtt_s=RTT_S["nano"],
            progress=progress,
        )


def table_of(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows with what is derived from them: share of the limit, speed-up over the device alone, waiting per computing.

    ``limit_s`` is the active tokens' computing alone plus one round trip.
    """
    table = pd.DataFrame(rows)
    table["speedup"] = table["on_device_s"] / table["latency_s"]
    table["over_limit"] = table["latency_s"] / table["limit_s"]
    if "network_wait_s" in table and "compute_s" in table:
        table["stall_share"] = table["network_wait_s"] / table["compute_s"]
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
