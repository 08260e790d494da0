"""Figure 18: latency and quality against resolution, in virtual time: the nano model has one resolution."""

from collections.abc import Sequence

import altair as alt
import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import Drawn, system_legend, system_scales
from sakura.errors import UserError
from sakura.reproduce.figure import Claim, Figure, Progress, Row, Scope
from sakura.streaming.paper import rows_by_resolution
from sakura.streaming.rows import chart_name, label_of, measured_of, medians, own, table_of
from sakura.templates import TemplateLibrary


def run(store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure:
    """Raises UserError at nano scale."""
    if scope.scale != "paper":
        raise UserError("The nano model edits at 128 px alone; add --scale paper for 512, 768 and 1024 px.")
    rows = rows_by_resolution(scope, progress)
    return Figure("fig18", rows, _claims(_found(rows)), measured_of(rows))


def _found(rows: Sequence[Row]) -> pd.DataFrame:
    return medians(own(table_of(rows)), ["px", "system"]).sort_values("px")


def _claims(found: pd.DataFrame) -> list[Claim]:
    ours = found[found["system"] == "sakura"]
    told = ", ".join(f"{row.px} px {row.speedup:.2f} times" for row in ours.itertuples())
    growing = bool((ours["speedup"].diff().dropna() >= 0).all())
    return [Claim("The larger the picture, the more SAKURA gains over the device alone", None, told, growing)]


def summary(figure: Figure) -> pd.DataFrame:
    found = _found(figure.rows)
    found["system"] = [label_of(system) for system in found["system"]]
    return found[["px", "system", "latency_s", "limit_s", "speedup", "psnr_mask_db", "requests"]].round(3)


def chart(figure: Figure) -> Drawn:
    found = _found(figure.rows)
    found = found.assign(mark=[chart_name(system) for system in found["system"]])
    colour, shape = system_scales(list(found["mark"].unique()))
    panels = []
    for field, title in (("latency_s", "median latency, seconds (log)"), ("psnr_mask_db", "PSNR, dB (from nano)")):
        shown = found if field == "latency_s" else found[found["system"].isin(["sakura", "intq", "cachegen"])]
        scale = alt.Scale(type="log", nice=False) if field == "latency_s" else alt.Scale(zero=False)
        base = alt.Chart(shown).encode(
            x=alt.X("px:O", title="side of the picture, px", axis=alt.Axis(labelAngle=0)),
            y=alt.Y(f"{field}:Q", title=title, scale=scale),
            color=alt.Color("mark:N", scale=colour, legend=system_legend()),
        )
        points = base.mark_point(filled=True, size=80, opacity=1).encode(
            shape=alt.Shape("mark:N", scale=shape, legend=None)
        )
        panels.append(alt.layer(base.mark_line(), points).properties(width=300, height=260))
    return alt.hconcat(*panels).properties(title="Latency and quality by resolution")
