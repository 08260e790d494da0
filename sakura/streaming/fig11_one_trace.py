"""Figure 11: latency and choices along 60 s of one trace."""

import altair as alt
import numpy as np
import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import Drawn, colours, system_legend, system_scales
from sakura.network.library import load_library_trace
from sakura.reproduce.figure import Claim, Figure, Progress, Scope
from sakura.streaming.live import RTT_S, Contestant, measure_along, planned_requests, running_studio
from sakura.streaming.paper import rows_along
from sakura.streaming.rows import label_of, medians
from sakura.templates import TemplateLibrary

TRACE = "4g-5g-mix"
CONTESTANTS = (Contestant("sakura"), Contestant("sakura", "choose-before-send"), Contestant("cachegen"))
WINDOW_S, QUICK_EVERY_S, EVERY_S = 60.0, 6.0, 1.0


def run(store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure:
    """The same request again and again, each time starting later on the trace."""
    trace = scope.networks[0] if scope.networks else load_library_trace(TRACE)
    starts = np.arange(0.0, WINDOW_S, QUICK_EVERY_S if scope.quick else EVERY_S).tolist()
    if scope.scale == "paper":
        rows = rows_along(trace, starts, [(each.system, each.controller) for each in CONTESTANTS], progress)
    else:
        planned = planned_requests(library, 1, trace, RTT_S)[0]
        with running_studio() as studio:
            rows = measure_along(studio, planned, starts, CONTESTANTS, progress)
    for row in rows:
        row["rate_mbps"] = trace.rate_mbps_at(float(str(row["start_s"])))
    return Figure("fig11", rows, _claims(pd.DataFrame(rows)))


def _claims(table: pd.DataFrame) -> list[Claim]:
    ours = table[(table["system"] == "sakura") & (table["controller"] == "own")]
    theirs = table[table["system"] == "cachegen"]
    worst = (ours["latency_s"].max(), theirs["latency_s"].max())
    spread = (ours["latency_s"].std(), theirs["latency_s"].std())
    return [
        Claim(
            "SAKURA's slowest edit along the trace is faster than CacheGen's",
            None,
            f"{worst[0]:.2f} s against {worst[1]:.2f} s",
            bool(worst[0] <= worst[1]),
        ),
        Claim(
            "SAKURA's latency varies less",
            None,
            f"standard deviation {spread[0]:.3f} s against {spread[1]:.3f} s",
            bool(spread[0] <= spread[1]),
        ),
    ]


def summary(figure: Figure) -> pd.DataFrame:
    found = medians(figure.table(), ["system", "controller"])
    found["system"] = [label_of(*each) for each in found[["system", "controller"]].itertuples(index=False)]
    return found[["system", "latency_s", "received_bytes", "distortion", "requests"]].round(3)


def chart(figure: Figure) -> Drawn:
    of, table = colours(), figure.table()
    shown = table[table["controller"] == "own"]
    colour, _ = system_scales(list(shown["system"].unique()))
    x = alt.X("start_s:Q", title="start of the edit on the trace, seconds")
    rate = (
        alt.Chart(table.drop_duplicates("start_s"))
        .mark_area(interpolate="step-after", color=of["sk-edge"], opacity=0.35)
        .encode(x, alt.Y("rate_mbps:Q", title="bandwidth, Mbit/s"))
        .properties(width=720, height=100)
    )
    panels: list[alt.Chart] = [rate]
    for field, title in (("latency_s", "latency, seconds"), ("received_bytes", "bytes received (log)")):
        kind = "log" if field == "received_bytes" else "linear"
        lines = alt.Chart(shown[shown[field] > 0]).mark_line(interpolate="step-after")
        panels.append(
            lines.encode(
                x,
                alt.Y(f"{field}:Q", title=title, scale=alt.Scale(type=kind, nice=False)),  # type: ignore[arg-type]
                color=alt.Color("system:N", scale=colour, legend=system_legend()),
            ).properties(width=720, height=150)
        )
    return alt.vconcat(*panels).properties(title="Along one trace")
