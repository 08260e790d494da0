"""Figure 12: latency under 5G by system and workload."""

import altair as alt
import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import Drawn, colours, label, system_scales
from sakura.reproduce.figure import Claim, Figure, Progress, Scope
from sakura.streaming.rows import (
    PAPER_SPEEDUPS,
    chart_name,
    label_of,
    measured_of,
    medians,
    own,
    speed_up,
    streamed_rows,
    table_of,
)
from sakura.templates import TemplateLibrary


def run(store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure:
    """The first network is 5G unless others are asked for."""
    rows = streamed_rows(store, library, scope, progress, one_network=True)
    return Figure("fig12", rows, _claims(own(table_of(rows))), measured_of(rows))


def _claims(table: pd.DataFrame) -> list[Claim]:
    claims = []
    for system, paper in PAPER_SPEEDUPS.items():
        ratio = speed_up(table, system)
        text = f"On {table['network'].iloc[0]}, SAKURA is {paper} times faster than {label_of(system)}"
        claims.append(Claim(text, paper, f"{ratio:.2f} times", ratio >= paper))
    return claims


def summary(figure: Figure) -> pd.DataFrame:
    found = medians(own(table_of(figure.rows)), ["workload", "system"])
    found["system"] = [label_of(system) for system in found["system"]]
    found["limit_s"] = found["limit_s"].round(3)
    return found[["workload", "system", "latency_s", "limit_s", "speedup", "received_bytes", "requests"]].round(3)


def chart(figure: Figure) -> Drawn:
    found = medians(own(table_of(figure.rows)), ["workload", "system"])
    found["name"] = [label_of(system) for system in found["system"]]
    found["mark"] = [chart_name(system) for system in found["system"]]
    colour, _ = system_scales(list(found["mark"].unique()))
    panels = []
    for workload, part in found.groupby("workload", sort=False):
        base = alt.Chart(part).encode(
            x=alt.X("latency_s:Q", title="seconds"), y=alt.Y("name:N", title=" ", sort=list(part["name"]))
        )
        limit = alt.Chart(part.head(1)).mark_rule(strokeDash=[3, 3], color=colours()["sk-ink-2"]).encode(x="limit_s:Q")
        bars = base.mark_bar(height=18).encode(color=alt.Color("mark:N", scale=colour, legend=None))
        text = label(base, alt.Text("latency_s:Q", format=".2f"), alt.value(colours()["sk-ink"]), align="left", dx=4)
        panels.append(alt.layer(bars, limit, text).properties(width=240, height=150, title=str(workload)))
    subtitle = "Medians. Dashed: computing the active tokens alone and one round trip."
    return alt.hconcat(*panels).properties(
        title=alt.TitleParams(f"Latency of an edit, {figure.rows[0]['network']}", subtitle=subtitle)
    )
