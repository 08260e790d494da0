"""Figure 2: how much the edited region looks at each reusable token is uneven, and stable across references."""

import itertools

import altair as alt
import numpy as np
import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import FONT, Drawn, colours, label
from sakura.reproduce.figure import Claim, Figure, Progress, Row, Scope
from sakura.reproduce.workloads import plan_cases
from sakura.templates import TemplateLibrary

TOP_PERCENT = 10
# Where the curve of mass over tokens, most important first, is kept.
CURVE_PERCENT = (1, 2, 5, 10, 15, 20, 30, 40, 50, 60, 80, 100)
UNEVEN_SHARE = 0.4
STABLE_CORRELATION = 0.95


def run(store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure:
    plans = plan_cases(library, scope.requests)
    rows: list[Row] = []
    for number, plan in enumerate(plans):
        importance = store.importance(plan.template)
        rows.extend(
            {
                "workload": plan.workload,
                "template": plan.template.template_id,
                "step": step + 1,
                "block": block + 1,
                "correlation": correlation(importance[:, step, block]),
                **curve(importance[:, step, block]),
            }
            for step, block in np.ndindex(importance.shape[1:3])
        )
        progress((number + 1) / len(plans))
    return Figure("fig2", rows, _claims(pd.DataFrame(rows)))


def curve(importance: np.ndarray) -> dict[str, float]:
    """Share of the mass in the most important tokens, averaged over requests: ``importance`` (requests, tokens)."""
    ordered = -np.sort(-importance, axis=-1)
    mass = np.cumsum(ordered, axis=-1) / ordered.sum(-1, keepdims=True)
    tokens = importance.shape[-1]
    counts = {percent: max(1, round(tokens * percent / 100)) for percent in CURVE_PERCENT}
    return {_column(percent): float(mass[:, count - 1].mean()) for percent, count in counts.items()}


def correlation(importance: np.ndarray) -> float:
    """Mean Pearson correlation over pairs of requests: ``importance`` (requests, tokens)."""
    pairs = itertools.combinations(range(len(importance)), 2)
    matrix = np.corrcoef(importance)
    return float(np.mean([matrix[pair] for pair in pairs]))


def _column(percent: int) -> str:
    return f"share_of_top_{percent}_percent"


def _claims(table: pd.DataFrame) -> list[Claim]:
    share = float(table[_column(TOP_PERCENT)].mean())
    correlated = float(table["correlation"].mean())
    return [
        Claim(
            f"Importance is uneven: the top {TOP_PERCENT} % of tokens hold at least {UNEVEN_SHARE:.0%} of the mass",
            "very uneven",
            f"{share:.1%}",
            share >= UNEVEN_SHARE,
        ),
        Claim(
            f"Importance is stable: correlation between references is at least {STABLE_CORRELATION}",
            "stable from reference to reference",
            f"{correlated:.3f}",
            correlated >= STABLE_CORRELATION,
        ),
    ]


def summary(figure: Figure) -> pd.DataFrame:
    table = figure.table().groupby("workload", sort=False)
    return pd.DataFrame(
        {
            f"share of top {TOP_PERCENT} %": table[_column(TOP_PERCENT)].mean().map("{:.1%}".format),
            "correlation": table["correlation"].mean().map("{:.3f}".format),
            "lowest correlation": table["correlation"].min().map("{:.3f}".format),
        }
    ).reset_index()


def chart(figure: Figure) -> Drawn:
    return alt.hconcat(_curves(figure), _maps(figure))


def _curves(figure: Figure) -> Drawn:
    table = figure.table()
    of = colours()
    means = table.groupby("workload", sort=False)[[_column(percent) for percent in CURVE_PERCENT]].mean()
    points = [
        {"workload": workload, "tokens": percent, "mass": 100 * float(means.loc[workload, _column(percent)])}
        for workload in means.index
        for percent in CURVE_PERCENT
    ]
    points += [{"workload": workload, "tokens": 0, "mass": 0.0} for workload in means.index]
    overall = pd.DataFrame(points).groupby("tokens", as_index=False)["mass"].mean()
    at_top = overall[overall["tokens"] == TOP_PERCENT]
    x = alt.X("tokens:Q", title="tokens, most important first, %", axis=alt.Axis(values=[0, 10, 50, 100]))
    y = alt.Y("mass:Q", title="share of attention, %", axis=alt.Axis(values=[0, 50, 100]))
    each = alt.Chart(pd.DataFrame(points)).mark_line(color=of["heat-1"], strokeWidth=1.5)
    mean = alt.Chart(overall).mark_line(color=of["sys-sakura"]).encode(x, y)
    equal = alt.Chart(pd.DataFrame({"tokens": [0, 100], "mass": [0, 100]}))
    dotted = equal.mark_line(color=of["sk-edge"], strokeDash=[2, 3], strokeWidth=1).encode(x, y)
    named = alt.Chart(pd.DataFrame({"tokens": [62], "mass": [42]})).encode(x, y)
    stem = alt.Chart(at_top).mark_rule(color=of["sk-ink"]).encode(x=x, y=alt.Y("mass:Q"), y2=alt.datum(0))
    dot = alt.Chart(at_top).mark_circle(color=of["sk-ink"], size=60, opacity=1).encode(x, y)
    share = float(at_top["mass"].iloc[0])
    says = label(
        alt.Chart(at_top).encode(x, y),
        alt.value(f"{TOP_PERCENT} % of tokens hold {share:.0f} %"),
        alt.value(of["sk-ink"]),
        align="left",
        dx=10,
        dy=10,
    )
    equally = label(named, alt.value("if all were equal"), alt.value(of["sk-ink-2"]), align="left", fontWeight="normal")
    return alt.layer(dotted, each.encode(x, y, detail="workload:N"), mean, stem, dot, equally, says).properties(
        width=300, height=220, title="How uneven importance is"
    )


def _maps(figure: Figure) -> Drawn:
    """Correlation by step and block, averaged over templates."""
    of = colours()
    table = figure.table().groupby(["step", "block"], as_index=False)["correlation"].mean()
    lowest = float(table["correlation"].min())
    cells = alt.Chart(table).encode(
        alt.X("block:O", title="block", axis=alt.Axis(labelAngle=0, domain=False, ticks=False)),
        alt.Y("step:O", title="step", axis=alt.Axis(grid=False)),
    )
    ramp = [of[f"heat-{level}"] for level in range(1, 5)]
    # From here on the ramp is dark enough for white.
    dark_from = lowest + 0.3 * (float(table["correlation"].max()) - lowest)
    fill = cells.mark_rect(stroke=of["sk-surface"]).encode(
        alt.Color("correlation:Q", scale=alt.Scale(range=ramp, interpolate="lab"), legend=None)
    )
    numbers = cells.mark_text(font=FONT, fontSize=12).encode(
        alt.Text("correlation:Q", format=".2f"),
        color=alt.when(alt.datum.correlation >= dark_from)
        .then(alt.value("#FFFFFF"))
        .otherwise(alt.value(of["sk-ink"])),
    )
    steps, blocks = table["step"].nunique(), table["block"].nunique()
    return alt.layer(fill, numbers).properties(
        width=44 * blocks, height=44 * steps, title="How alike two references' importance is (correlation)"
    )
