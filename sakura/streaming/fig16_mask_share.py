"""Figure 16: latency and quality against the edited share of the picture."""

from collections.abc import Sequence

import altair as alt
import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import Drawn, system_legend, system_scales
from sakura.reproduce.figure import Claim, Figure, Progress, Row, Scope
from sakura.streaming.rows import chart_name, label_of, measured_of, medians, own, streamed_rows, table_of
from sakura.templates import TemplateLibrary

BY = ["mask_share", "system"]


def run(store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure:
    """Templates differ in how much of them is edited."""
    rows = streamed_rows(store, library, scope, progress, one_network=True)
    return Figure("fig16", rows, _claims(_found(rows)), measured_of(rows))


def _found(rows: Sequence[Row]) -> pd.DataFrame:
    return medians(own(table_of(rows)), BY).sort_values("mask_share")


def _claims(found: pd.DataFrame) -> list[Claim]:
    ours = found[found["system"] == "sakura"]
    smallest, largest = ours.iloc[0], ours.iloc[-1]
    told = (
        f"{smallest['speedup']:.2f} times at {smallest['mask_share']:.0%}, "
        f"{largest['speedup']:.2f} times at {largest['mask_share']:.0%}"
    )
    faster = bool((ours["speedup"] > 1).all())
    return [
        Claim("SAKURA is faster than the device alone at every edited share", None, told, faster),
        Claim(
            "The smaller the edited share, the more is gained",
            None,
            told,
            bool(smallest["speedup"] > largest["speedup"]),
        ),
    ]


def summary(figure: Figure) -> pd.DataFrame:
    found = _found(figure.rows)
    found["system"] = [label_of(system) for system in found["system"]]
    return found[["mask_share", "system", "latency_s", "speedup", "psnr_mask_db", "requests"]].round(3)


def chart(figure: Figure) -> Drawn:
    found = _found(figure.rows)
    found = found.assign(mark=[chart_name(system) for system in found["system"]])
    colour, shape = system_scales(list(found["mark"].unique()))
    panels = []
    for field, title in (("latency_s", "median latency, seconds"), ("psnr_mask_db", "PSNR in the edited region, dB")):
        shown = found if field == "latency_s" else found[found["system"].isin(["sakura", "intq", "cachegen"])]
        base = alt.Chart(shown).encode(
            x=alt.X("mask_share:Q", title="edited share", axis=alt.Axis(format="%")),
            y=alt.Y(f"{field}:Q", title=title, scale=alt.Scale(zero=field == "latency_s")),
            color=alt.Color("mark:N", scale=colour, legend=system_legend()),
        )
        points = base.mark_point(filled=True, size=70, opacity=1).encode(
            shape=alt.Shape("mark:N", scale=shape, legend=None)
        )
        panels.append(alt.layer(base.mark_line(opacity=0.4), points).properties(width=340, height=260))
    return alt.hconcat(*panels).properties(title="Latency and quality by the edited share")
