"""Figure 17: latency under different traces."""

import altair as alt
import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import Drawn, colours, system_legend, system_scales
from sakura.reproduce.figure import Claim, Figure, Progress, Scope
from sakura.streaming.rows import chart_name, label_of, measured_of, medians, own, streamed_rows, table_of
from sakura.templates import TemplateLibrary


def run(store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure:
    rows = streamed_rows(store, library, scope, progress)
    return Figure("fig17", rows, _claims(own(table_of(rows))), measured_of(rows))


def _claims(table: pd.DataFrame) -> list[Claim]:
    claims = []
    for network, part in table.groupby("network", sort=False):
        median = part.groupby("system")["latency_s"].median()
        fastest = str(median.idxmin())
        claims.append(
            Claim(
                f"SAKURA has the lowest median latency on {network}",
                None,
                ", ".join(f"{label_of(str(system))} {value:.2f} s" for system, value in median.sort_values().items()),
                fastest == "sakura",
            )
        )
    return claims


def summary(figure: Figure) -> pd.DataFrame:
    found = medians(own(table_of(figure.rows)), ["network", "system"])
    found["system"] = [label_of(system) for system in found["system"]]
    return found.pivot_table(index="network", columns="system", values="latency_s", sort=False).round(3).reset_index()


def chart(figure: Figure) -> Drawn:
    found = medians(own(table_of(figure.rows)), ["network", "system"])
    found["mark"] = [chart_name(system) for system in found["system"]]
    colour, shape = system_scales(list(found["mark"].unique()))
    order = list(dict.fromkeys(found["network"]))
    base = alt.Chart(found).encode(
        x=alt.X("latency_s:Q", title="median latency, seconds (log)", scale=alt.Scale(type="log", nice=False)),
        y=alt.Y("network:N", title=" ", sort=order),
    )
    points = base.mark_point(filled=True, size=110, opacity=1).encode(
        color=alt.Color("mark:N", scale=colour, legend=system_legend()),
        shape=alt.Shape("mark:N", scale=shape, legend=None),
    )
    limit = base.encode(x="limit_s:Q").mark_tick(thickness=2, height=18, color=colours()["sk-ink-2"])
    return alt.layer(limit, points).properties(
        width=520,
        height=44 * len(order),
        title=alt.TitleParams("Latency under different networks", subtitle="Upright line: the limit of streaming."),
    )
