"""Figure 10: how latency is spread over networks and workloads."""

import altair as alt
import numpy as np
import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import Drawn, system_scales
from sakura.reproduce.figure import Claim, Figure, Progress, Scope
from sakura.streaming.rows import chart_name, label_of, measured_of, own, streamed_rows, table_of
from sakura.templates import TemplateLibrary

WORST = 0.9  # quantile


def run(store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure:
    rows = streamed_rows(store, library, scope, progress)
    return Figure("fig10", rows, _claims(own(table_of(rows))), measured_of(rows))


def _claims(table: pd.DataFrame) -> list[Claim]:
    claims = []
    for network, part in table.groupby("network", sort=False):
        counts = part["system"].value_counts()  # the full cache is tried with fewer requests, so it does not compare
        of_all = part[part["system"].isin(counts[counts == counts.max()].index)]
        worst = of_all.groupby("system")["latency_s"].quantile(WORST)
        others = worst.drop(["sakura"])
        ours = f"{worst['sakura']:.2f} s; the best other one, {label_of(str(others.idxmin()))}, {others.min():.2f} s"
        claims.append(
            Claim(
                f"On {network}, the 90 % quantile of SAKURA's latency is the lowest",
                None,
                ours,
                bool(worst["sakura"] <= others.min()),
            )
        )
    return claims


def summary(figure: Figure) -> pd.DataFrame:
    groups = own(table_of(figure.rows)).groupby(["network", "system"], sort=False)["latency_s"]
    found = groups.quantile(np.array([0.1, 0.5, WORST])).unstack().round(3).reset_index()
    found["system"] = [label_of(system) for system in found["system"]]
    return found.rename(columns={0.1: "10 %", 0.5: "median", WORST: "90 %"})


def chart(figure: Figure) -> Drawn:
    table = own(table_of(figure.rows))
    table = table.assign(
        name=[label_of(system) for system in table["system"]], mark=[chart_name(system) for system in table["system"]]
    )
    colour, _ = system_scales(list(table["mark"].unique()))
    panels = []
    for network, part in table.groupby("network", sort=False):
        base = alt.Chart(part).encode(
            x=alt.X("latency_s:Q", title="seconds (log)", scale=alt.Scale(type="log", nice=False)),
            y=alt.Y("name:N", title=" ", sort=list(dict.fromkeys(table["name"]))),
            color=alt.Color("mark:N", scale=colour, legend=None),
        )
        ticks = base.mark_tick(thickness=1.5, opacity=0.5, height=12)
        median = base.encode(x=alt.X("median(latency_s):Q")).mark_tick(thickness=4, height=20)
        panels.append(alt.layer(ticks, median).properties(width=260, height=150, title=str(network)))
    return alt.concat(*panels, columns=3).properties(
        title=alt.TitleParams("Latency of every edit", subtitle="Thin: one edit. Thick: the median.")
    )
