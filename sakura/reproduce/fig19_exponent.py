"""Figure 19: the exponent q, by which importance biases the factors."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import Drawn, colours, label, line_ends
from sakura.codec.sakura import SakuraCodec
from sakura.reproduce.figure import Claim, Figure, Progress, Row, Scope
from sakura.reproduce.quality import Stored, means, samples
from sakura.reproduce.workloads import each_case
from sakura.templates import TemplateLibrary

EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)
# What is spent, as a share of the full cache.
RATIOS = (60, 120, 240)
NEAR_DB = 1.0


def run(store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure:
    measured: list[Row] = []
    for case, inside in each_case(store, library, scope.requests, progress):
        for number, q in enumerate(EXPONENTS):
            stored = Stored(store.editor, case, SakuraCodec(q=q))
            for ratio in RATIOS:
                found = stored.at_budget(case.geometry.full_cache_bytes / ratio)
                measured += samples(case, found, q=q, budget_ratio=ratio)
            inside((number + 1) / len(EXPONENTS))
    rows = means(measured, ["workload", "q", "budget_ratio"])
    return Figure("fig19", rows, _claims(rows))


def by_exponent(rows: Sequence[Row], ratio: int) -> dict[float, float]:
    """dB by q, averaged over workloads."""
    found: dict[float, list[Any]] = {}
    for row in rows:
        if row["budget_ratio"] == ratio:
            found.setdefault(float(row["q"]), []).append(row["psnr_mask_db"])  # type: ignore[arg-type]
    return {q: float(np.mean(values)) for q, values in found.items()}


def _claims(rows: list[Row]) -> list[Claim]:
    default = SakuraCodec().q
    claims = []
    for ratio in RATIOS:
        curve = by_exponent(rows, ratio)
        best = max(curve, key=lambda q: curve[q])
        gain, behind = curve[best] - curve[0.0], curve[best] - curve[default]
        at = f"At {ratio} times fewer bytes"
        claims.append(Claim(f"{at}, importance beats q = 0", None, f"q = {best:g} by {gain:.1f} dB", gain > 0))
        claims.append(
            Claim(
                f"{at}, the default q = {default:g} is within {NEAR_DB:.0f} dB of the best",
                None,
                f"{behind:.2f} dB behind q = {best:g}",
                behind <= NEAR_DB,
            )
        )
    return claims


def summary(figure: Figure) -> pd.DataFrame:
    table = figure.table()
    wide = table.pivot_table(index=["workload", "budget_ratio"], columns="q", values="psnr_mask_db", sort=False)
    wide.columns = [f"q = {q:g}, dB" for q in wide.columns]
    return wide.map("{:.1f}".format).reset_index().rename(columns={"budget_ratio": "times fewer bytes"})


def chart(figure: Figure) -> Drawn:
    of = colours()
    points = [
        {"q": q, "psnr_mask_db": db, "name": f"{ratio} times fewer bytes", "ratio": ratio}
        for ratio in RATIOS
        for q, db in by_exponent(figure.rows, ratio).items()
    ]
    table = pd.DataFrame(points)
    default = table[table["q"] == SakuraCodec().q]
    x = alt.X(
        "q:Q",
        title="importance exponent q",
        axis=alt.Axis(values=list(EXPONENTS), tickCount=len(EXPONENTS), format=".3~g"),
    )
    y = alt.Y("psnr_mask_db:Q", title="PSNR in the edited region, dB", scale=alt.Scale(zero=False, padding=12))
    line = alt.Chart(table).encode(x, y, detail="name:N")
    tones = alt.Scale(domain=list(RATIOS), range=[of["heat-4"], of["heat-3"], of["heat-2"]])
    tone = alt.Color("ratio:O", scale=tones, legend=None)
    mark = alt.Chart(default).encode(x, y)
    return alt.layer(
        line.mark_line().encode(tone),
        line.mark_circle(size=40, opacity=1).encode(tone),
        mark.mark_point(size=160, filled=False, opacity=1, color=of["sk-ink"], strokeWidth=2),
        label(alt.Chart(line_ends(table, "q", ["name"])).encode(x, y), "name:N", tone, align="left", dx=8),
        label(
            alt.Chart(default.nlargest(1, "psnr_mask_db")).encode(x, y),
            alt.value("default"),
            alt.value(of["sk-ink"]),
            align="center",
            dy=-16,
        ),
    ).properties(
        width=460,
        height=300,
        title=alt.TitleParams(
            "How strongly importance counts",
            subtitle="0 weighs all tokens alike. Mean of the workloads, at equal bytes.",
        ),
    )
