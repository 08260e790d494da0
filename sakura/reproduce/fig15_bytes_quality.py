"""Figure 15: transferred bytes against quality, each baseline with the option that serves it best."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import SYSTEMS, Drawn, colours, label, system_colour, system_label, system_scales
from sakura.codec import new_codec
from sakura.reproduce.figure import Claim, Figure, Progress, Row, Scope
from sakura.reproduce.quality import Measured, Stored, means, samples
from sakura.reproduce.workloads import Case, each_case
from sakura.systems import OPTIONS
from sakura.templates import TemplateLibrary

RATIOS = (15, 25, 30, 50, 90, 150, 250)
LEADS_AT = (15, 25)
LEADS_DB = {"intq": 12.0, "cachegen": 12.0, "low-rank": 8.0}
REACHES_DB = {30: 45.0, 50: 41.0, 90: 34.0}


def run(store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure:
    """A quick look leaves out all but each system's first option."""
    choices = [
        (system, option) for system, options in OPTIONS.items() for option in list(options)[: scope.quick or None]
    ]
    measured: list[Row] = []
    for case, inside in each_case(store, library, scope.requests, progress):
        for number, (system, option) in enumerate(choices):
            stored = Stored(store.editor, case, new_codec(system, OPTIONS[system][option]))
            for point, found in _points(case, stored).items():
                measured += samples(case, found, system=system, option=option, point=point)
            inside((number + 1) / len(choices))
    averaged = means(measured, ["workload", "system", "option", "point"])
    # A mean over those templates alone that have so many levels would not compare with the others.
    rows = [row for row in averaged if row["requests"] == scope.requests]
    return Figure("fig15", rows, _claims(rows))


def _points(case: Case, stored: Stored) -> dict[str, Measured]:
    """All levels, from the finest down, and what the bytes of each ratio buy (levels differ by shard then)."""
    finest = stored.levels - 1
    points = {f"level {finest - level}": stored.at_level(level) for level in range(finest, -1, -1)}
    if finest:
        full = case.geometry.full_cache_bytes
        points |= {f"{ratio} times": stored.at_budget(full / ratio) for ratio in RATIOS}
    return points


def best_at(rows: Sequence[Row], workload: str, system: str, ratio: float) -> Row:
    """A system's best row that fits the bytes, of all its options.

    Where none is so small, the best of its options' smallest ones, which serves a baseline better than it deserves.
    """
    known: list[Any] = [row for row in rows if (row["workload"], row["system"]) == (workload, system)]
    candidates = [row for row in known if row["bytes"] <= row["full_cache_bytes"] / ratio]
    if not candidates:
        for option in {row["option"] for row in known}:
            own = [row for row in known if row["option"] == option]
            candidates.append(min(own, key=lambda row: row["bytes"]))
    return max(candidates, key=lambda row: row["psnr_mask_db"])


def _claims(rows: list[Row]) -> list[Claim]:
    workloads = list(dict.fromkeys(str(row["workload"]) for row in rows))

    def qualities(system: str, ratio: float) -> np.ndarray:
        return np.array([best_at(rows, workload, system, ratio)["psnr_mask_db"] for workload in workloads], float)

    def told(values: np.ndarray) -> str:
        each = ", ".join(f"{workload} {value:.1f}" for workload, value in zip(workloads, values, strict=True))
        return f"{values.mean():.1f} dB ({each})"

    claims = []
    for ratio in LEADS_AT:
        for system, goal in LEADS_DB.items():
            lead = qualities("sakura", ratio) - qualities(system, ratio)
            text = f"At {ratio} times fewer bytes, SAKURA leads {system_label(system)} by at least {goal:.0f} dB"
            at = ", ".join(f"{best_at(rows, workload, system, ratio)['ratio']:.0f}" for workload in workloads)
            ours = f"{told(lead)}; {system_label(system)}'s point is {at} times smaller than the full cache"
            claims.append(Claim(text, None, ours, bool(lead.mean() >= goal)))
    for ratio, goal in REACHES_DB.items():
        reached = qualities("sakura", ratio)
        text = f"At {ratio} times fewer bytes, SAKURA reaches {goal:.0f} dB in the edited region"
        claims.append(Claim(text, None, told(reached), bool(reached.mean() >= goal)))
    return claims


def summary(figure: Figure) -> pd.DataFrame:
    """The best of each system at each ratio's bytes."""
    table = []
    systems = [system for system in SYSTEMS if system in OPTIONS and system != "uncompressed"]
    for workload in dict.fromkeys(str(row["workload"]) for row in figure.rows):
        for ratio in RATIOS:
            cells: dict[str, object] = {"workload": workload, "times fewer bytes": ratio}
            for system in systems:
                row: Any = best_at(figure.rows, workload, system, ratio)
                over = "" if row["ratio"] >= ratio else f" (at {row['ratio']:.0f} times)"
                cells[system_label(system)] = f"{row['psnr_mask_db']:.1f} dB{over}"
            table.append(cells)
    return pd.DataFrame(table)


def frontier(table: pd.DataFrame) -> pd.DataFrame:
    """Of one system's points those that none beats at the same bytes (within 2 %) or fewer."""
    bytes_, quality = table["bytes"].to_numpy(), table["psnr_mask_db"].to_numpy()
    better = (bytes_[:, None] <= 1.02 * bytes_) & (quality[:, None] > quality)
    return table.loc[pd.Series(~better.any(axis=0), index=table.index)].sort_values("bytes")


def chart(figure: Figure) -> Drawn:
    table = figure.table()
    table["megabytes"] = table["bytes"] / 1e6
    panels = [_panel(own, str(workload), table) for workload, own in table.groupby("workload", sort=False)]
    return alt.hconcat(*panels).properties(
        title=alt.TitleParams(
            "Transferred bytes and quality",
            subtitle="Compared with the picture from the full cache. Lines join each system's best points; "
            "pale marks are its other points and options.",
        )
    )


def _panel(own: pd.DataFrame, workload: str, table: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    of = colours()
    everything = table[table["system"] != "uncompressed"]
    lowest_db = 10 * (everything["psnr_mask_db"].min() // 10) - 5
    full_mb = float(own["full_cache_bytes"].iloc[0]) / 1e6
    x = alt.X(
        "megabytes:Q",
        title="cache of one template, MB (log)",
        scale=alt.Scale(type="log", nice=False, domain=[0.7 * float(table["megabytes"].min()), 1.6 * full_mb]),
        axis=alt.Axis(values=[0.02, 0.1, 0.5, 2, 10], format="~g"),
    )
    y = alt.Y(
        "psnr_mask_db:Q",
        # Panels need a title each to stand at one height.
        title="PSNR in the edited region, dB" if workload == table["workload"].iloc[0] else " ",
        scale=alt.Scale(domain=[lowest_db, float(everything["psnr_mask_db"].max()) + 5], nice=False),
    )
    coded = own[own["system"] != "uncompressed"]
    lines = pd.concat([frontier(group) for _, group in coded.groupby("system", sort=False)])
    colour, shape = system_scales(list(lines["system"].unique()))
    marks = {"color": alt.Color("system:N", scale=colour, legend=None)}
    shapes = {**marks, "shape": alt.Shape("system:N", scale=shape, legend=None)}
    # SAKURA's line is named at its upper end, the others, which cross up there, at the lower one.
    ends = [
        lines[lines["system"] == system].iloc[-1 if system == "sakura" else 0] for system in lines["system"].unique()
    ]
    names = [
        label(
            alt.Chart(pd.DataFrame([end])).encode(x, y),
            alt.value(system_label(end["system"])),
            alt.value(system_colour(end["system"])),
            align="center",
            dy=-14 if end["system"] == "sakura" else 16,
        )
        for end in ends
    ]
    full = alt.Chart(pd.DataFrame({"megabytes": [full_mb], "psnr_mask_db": [lowest_db + 2]})).encode(x)
    return alt.layer(
        full.mark_rule(color=of["sys-full"], strokeDash=[2, 3]),
        alt.Chart(coded.drop_duplicates(["option", "bytes"]))
        .mark_point(filled=True, size=26, opacity=0.22)
        .encode(x, y, **shapes),
        alt.Chart(lines).mark_line().encode(x, y, **marks),
        alt.Chart(lines).mark_point(filled=True, size=60, opacity=1).encode(x, y, **shapes),
        *names,
        label(full.encode(y), alt.value("Full cache, exact"), alt.value(of["sys-full"]), align="right", dx=-6),
    ).properties(width=300, height=300, title=alt.TitleParams(workload, fontSize=13, offset=20))
