"""Figure 12: latency under 5G by system and workload."""

import altair as alt
import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import Drawn, colours, label, system_scales
from sakura.reproduce.figure import Claim, Figure, Progress, Scope
from sakura.streaming.rows import chart_name, label_of, medians, networks_of, own, streamed_rows, table_of
from sakura.templates import TemplateLibrary

PAPER_SPEEDUP = {"cachegen": 1.82, "on_device": 3.27}


def run(store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure:
    rows = streamed_rows(store, library, scope, progress, networks=networks_of(scope)[:1])
    return Figure("fig12", rows, _claims(at_5g(own(table_of(rows)))))


def at_5g(table: pd.DataFrame) -> pd.DataFrame:
    """Edits over the first network measured, which is 5G unless others were asked for."""
    return table[table["network"] == table["network"].iloc[0]]


def _claims(table: pd.DataFrame) -> list[Claim]:
    median = medians(table, ["system"]).set_index("system")["latency_s"]
    claims = []
    for system, paper in PAPER_SPEEDUP.items():
        ratio = float(median[system] / median["sakura"])
        text = f"On {table['network'].iloc[0]}, SAKURA is {paper} times faster than {label_of(system)}"
        claims.append(Claim(text, paper, f"{ratio:.2f} times", ratio >= paper))
    return claims


def summary(figure: Figure) -> pd.DataFrame:
    found = medians(at_5g(own(table_of(figure.rows))), ["workload", "system"])
    found["system"] = [label_of(system) for system in found["system"]]
    found["limit_s"] = found["limit_s"].round(3)
    return found[["workload", "system", "latency_s", "limit_s", "speedup", "received_bytes", "requests"]].round(3)


def chart(figure: Figure) -> Drawn:
    found = medians(at_5g(own(table_of(figure.rows))), ["workload", "system"])
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
    subtitle = "Medians. Dashed: computing the active tokens alone and one round trip, which no streaming can beat."
    return alt.hconcat(*panels).properties(
        title=alt.TitleParams(f"Latency of an edit, {found_network(figure)}", subtitle=subtitle)
    )


def found_network(figure: Figure) -> str:
    return str(figure.rows[0]["network"])
