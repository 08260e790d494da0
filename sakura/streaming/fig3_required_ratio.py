"""Figure 3: how far a cache must be compressed for its transfer to hide behind execution, beside the bandwidth."""

import altair as alt
import numpy as np
import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import Drawn, colours
from sakura.network.library import load_library_trace
from sakura.reproduce.figure import Claim, Figure, Progress, Row, Scope
from sakura.reproduce.workloads import WORKLOADS
from sakura.streaming.live import running_studio
from sakura.streaming.paper import hidden_behind
from sakura.templates import TemplateLibrary

WINDOW_S, EVERY_S = 60.0, 0.5
TRACE = "5g-driving"
NEVER = 1e4  # shown where nothing can be carried


def run(store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure:
    """Face swap; the time that a transfer can hide behind is measured on this machine, or modelled at paper scale."""
    trace = scope.networks[0] if scope.networks else load_library_trace(TRACE)
    full_cache_bytes, active_s = hidden_behind("FS") if scope.scale == "paper" else _nano(library)
    progress(0.9)
    rows: list[Row] = []
    for start_s in np.arange(0.0, WINDOW_S, EVERY_S):
        carried = trace.bytes_between(float(start_s), float(start_s) + active_s)
        rows.append(
            {
                "scale": scope.scale,
                "network": trace.title,
                "start_s": float(start_s),
                "rate_mbps": trace.rate_mbps_at(float(start_s)),
                "active_s": active_s,
                "full_cache_bytes": full_cache_bytes,
                "ratio": min(NEVER, full_cache_bytes / max(1.0, carried)),
            }
        )
    return Figure("fig3", rows, _claims(pd.DataFrame(rows)))


def _nano(library: TemplateLibrary) -> tuple[int, float]:
    template = next(each for each in library if each.task == WORKLOADS["FS"] and each.person is not None)
    with running_studio() as studio:
        plan = studio.plan(template.template_id, "sakura")
        return plan.full_cache_bytes, plan.steps * plan.step_s


def _claims(table: pd.DataFrame) -> list[Claim]:
    low, high = (float(table["ratio"].quantile(share)) for share in (0.1, 0.9))
    told = f"from {low:.1f} (one tenth of the time) to {high:.0f} (nine tenths)"
    return [
        Claim("No fixed compression fits: what is required changes at least fivefold", None, told, high >= 5 * low),
    ]


def summary(figure: Figure) -> pd.DataFrame:
    table = figure.table()
    found = table["ratio"].describe(percentiles=[0.1, 0.5, 0.9]).round(1)
    return pd.DataFrame({"required ratio": found.index, "": found.to_numpy()})


def chart(figure: Figure) -> Drawn:
    of, table = colours(), figure.table()
    x = alt.X("start_s:Q", title="seconds")
    rate = (
        alt.Chart(table)
        .mark_area(interpolate="step-after", color=of["sk-edge"], opacity=0.35, line={"color": of["sk-ink-2"]})
        .encode(x, alt.Y("rate_mbps:Q", title="bandwidth, Mbit/s"))
        .properties(width=720, height=120)
    )
    ratio = (
        alt.Chart(table)
        .mark_line(interpolate="step-after", color=of["sys-sakura"])
        .encode(x, alt.Y("ratio:Q", title="required compression ratio (log)", scale=alt.Scale(type="log", nice=False)))
        .properties(width=720, height=180)
    )
    return alt.vconcat(rate, ratio).properties(
        title=alt.TitleParams(
            f"Compression that hides the transfer, {table['network'].iloc[0]}",
            subtitle="For an edit that starts then: cache size over what the network carries while it computes.",
        )
    )
