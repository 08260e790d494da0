"""Figure 13: storage a template. One progressive object serves every setting; the others store each level apart."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import Drawn, colours, label, system_label, system_scales
from sakura.codec import new_codec
from sakura.reproduce.figure import Claim, Figure, Progress, Row, Scope
from sakura.reproduce.quality import Measured, Stored, means, samples
from sakura.reproduce.workloads import each_case
from sakura.systems import OPTIONS, strongest
from sakura.templates import TemplateLibrary

STORED = ("sakura", "intq", "cachegen", "uncompressed")
EVERYTHING, FINEST, GOOD = "everything", "finest level alone", "smallest good level alone"
PAPER_RATIO = 3.06
GOAL_RATIO = 18.0
GOOD_DB = 45.0


def run(store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure:
    measured: list[Row] = []
    for case, inside in each_case(store, library, scope.requests, progress):
        for number, system in enumerate(STORED):
            stored = Stored(store.editor, case, new_codec(system, strongest(system)))
            finest = stored.finest()
            measured += samples(case, finest, system=system, stored=EVERYTHING, stored_bytes=stored.whole_bytes)
            if stored.levels > 1 and system != "sakura":  # whose object serves every level
                measured += samples(case, finest, system=system, stored=FINEST, stored_bytes=finest.received_bytes)
                others = [
                    Stored(store.editor, case, new_codec(system, options)) for options in OPTIONS[system].values()
                ]
                good = smallest_good(others)
                measured += samples(case, good, system=system, stored=GOOD, stored_bytes=good.received_bytes)
            inside((number + 1) / len(STORED))
    rows = means(measured, ["workload", "system", "stored"])
    for row in rows:
        row["stored_ratio"] = row["full_cache_bytes"] / row["stored_bytes"]  # type: ignore[operator]
    return Figure("fig13", rows, _claims(rows))


def smallest_good(options: Sequence[Stored]) -> Measured:
    """The smallest level of any option with a masked PSNR of at least ``GOOD_DB``; the best level if none has."""
    finest = [stored.finest() for stored in options]
    good = []
    for stored in options:
        for level in range(stored.levels):
            measured = stored.at_level(level)
            if measured.mask_psnr_db >= GOOD_DB:
                good.append(measured)
                break
    if not good:
        return max(finest, key=lambda measured: measured.mask_psnr_db)
    return min(good, key=lambda measured: measured.received_bytes)


def _of(rows: Sequence[Row], system: str, stored: str, field: str) -> float:
    """Averaged over workloads."""
    values: list[Any] = [row[field] for row in rows if (row["system"], row["stored"]) == (system, stored)]
    return float(np.mean(values))


def _claims(rows: list[Row]) -> list[Claim]:
    full = _of(rows, "sakura", EVERYTHING, "full_cache_bytes")
    ours = full / _of(rows, "sakura", EVERYTHING, "stored_bytes")
    top_db = _of(rows, "sakura", EVERYTHING, "psnr_mask_db")
    claims = [
        Claim(
            "One object for every setting takes less storage than the uncompressed cache, by at least the paper's",
            f"{PAPER_RATIO} times less",
            f"{ours:.1f} times less",
            ours >= PAPER_RATIO,
        ),
        Claim(f"It takes at least {GOAL_RATIO:.0f} times less", None, f"{ours:.1f} times less", ours >= GOAL_RATIO),
        Claim(
            f"Its finest level has a masked PSNR of at least {GOOD_DB:.0f} dB",
            None,
            f"{top_db:.1f} dB",
            top_db >= GOOD_DB,
        ),
    ]
    for system in ("intq", "cachegen"):
        less = _of(rows, system, GOOD, "stored_bytes") * ours / full
        claims.append(
            Claim(
                f"All its settings take less storage than only the smallest level of {system_label(system)} "
                f"with at least {GOOD_DB:.0f} dB",
                None,
                f"{less:.1f} times less",
                less > 1,
            )
        )
    return claims


def summary(figure: Figure) -> pd.DataFrame:
    table = figure.table()
    return pd.DataFrame(
        {
            "workload": table["workload"],
            "system": table["system"].map(system_label),
            "stored": table["stored"],
            "MB": (table["stored_bytes"] / 1e6).map("{:.3f}".format),
            "times smaller": table["stored_ratio"].map("{:.2f}".format),
            "masked PSNR, dB": table["psnr_mask_db"].map("{:.1f}".format),
        }
    )


def chart(figure: Figure) -> Drawn:
    of = colours()
    table = figure.table()
    bars = table.groupby(["system", "stored"], as_index=False, sort=False)[
        ["stored_bytes", "full_cache_bytes", "psnr_mask_db"]
    ].mean()
    full_bytes = float(bars["full_cache_bytes"].mean())
    names = {
        ("sakura", EVERYTHING): "SAKURA: one object, all settings",
        ("intq", EVERYTHING): "INTQ: all widths",
        ("intq", FINEST): "INTQ: finest width alone",
        ("intq", GOOD): f"INTQ: smallest from {GOOD_DB:.0f} dB alone",
        ("cachegen", EVERYTHING): "CacheGen: all levels",
        ("cachegen", FINEST): "CacheGen: finest level alone",
        ("cachegen", GOOD): f"CacheGen: smallest from {GOOD_DB:.0f} dB alone",
        ("uncompressed", EVERYTHING): "Full cache",
    }
    bars["name"] = [names[key] for key in zip(bars["system"], bars["stored"], strict=True)]
    bars["megabytes"] = bars["stored_bytes"] / 1e6
    bars["says"] = [_size(size, full_bytes) for size in bars["stored_bytes"]]
    in_paper = "SAKURA in the paper"
    paper = pd.DataFrame({"name": [in_paper], "megabytes": [full_bytes / 1e6 / PAPER_RATIO]})
    order = list(names.values())
    order.insert(1, in_paper)
    colour, _ = system_scales(list(bars["system"]))
    x = alt.X(
        "megabytes:Q",
        title="stored for one template, MB",
        scale=alt.Scale(domain=[0, 1.45 * float(bars["megabytes"].max())], nice=False),
    )
    y = alt.Y("name:N", sort=order, title=None, axis=alt.Axis(labelColor=of["sk-ink"], grid=False, labelLimit=300))
    shape: dict[str, Any] = {"height": 16, "cornerRadiusEnd": 2}
    solid, hollow = alt.Chart(bars).encode(x, y), alt.Chart(paper).encode(x, y)
    said: dict[str, Any] = {"align": "left", "dx": 8, "fontWeight": "normal"}
    return alt.layer(
        solid.mark_bar(**shape).encode(alt.Color("system:N", scale=colour, legend=None)),
        hollow.mark_bar(**shape, filled=False, stroke=of["sys-sakura"], strokeWidth=1.5),
        label(solid, "says:N", alt.value(of["sk-ink"]), **said),
        label(hollow, alt.value(f"{PAPER_RATIO} times smaller, paper"), alt.value(of["sys-sakura"]), **said),
    ).properties(
        width=560,
        height=28 * len(order),
        title=alt.TitleParams(
            "Storage of one template", subtitle="Mean of the workloads; every byte that the device needs."
        ),
    )


def _size(size_bytes: float, full_bytes: float) -> str:
    ratio = full_bytes / size_bytes
    if abs(ratio - 1) < 0.005:  # the index
        return f"{size_bytes / 1e6:#.3g} MB"
    compared = f"{ratio:#.3g} times smaller" if ratio > 1 else f"{1 / ratio:#.3g} times larger"
    return f"{size_bytes / 1e6:#.3g} MB, {compared}"
