"""Ablation: what each part of SAKURA's codec brings at equal bytes, and what it costs in time."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import Drawn, colours, label
from sakura.codec import new_codec
from sakura.codec.interface import CacheGeometry, EncodedCache
from sakura.codec.planes import PlaneReader
from sakura.codec.sakura import SakuraCodec
from sakura.codec.sakura_layout import HEADER
from sakura.reproduce.figure import Claim, Figure, Progress, Row, Scope
from sakura.reproduce.quality import Measured, Stored, means, samples, segments_for_budget
from sakura.reproduce.workloads import Case, each_case
from sakura.templates import TemplateLibrary

FULL = "full codec"
# What is taken away, by name.
VARIANTS: dict[str, tuple[str, Mapping[str, object]]] = {
    FULL: ("sakura", {}),
    "without a shared step basis": ("sakura", {"share_steps": False}),
    "without sensitivity": ("sakura", {"use_sensitivity": False}),
    "keys after RoPE": ("sakura", {"unrotate_keys": False}),
    "without importance (q = 0)": ("sakura", {"q": 0.0}),
    "one factorisation a shard, fixed pairs": ("low-rank", {"q": 0.75}),
}
UNCODED = "without entropy coding (sizes computed)"
RATIOS = (60, 120, 240)


def run(store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure:
    measured: list[Row] = []
    for case, inside in each_case(store, library, scope.requests, progress):
        budgets = {ratio: case.geometry.full_cache_bytes / ratio for ratio in RATIOS}
        for number, (variant, (name, options)) in enumerate(VARIANTS.items()):
            stored = Stored(store.editor, case, new_codec(name, options))
            times = {"encode_s": stored.encode_s, "decode_ms": 1000 * stored.finest().decode_s}
            for ratio, budget in budgets.items():
                measured += samples(case, stored.at_budget(budget), variant=variant, budget_ratio=ratio, **times)
            if variant == FULL:
                for ratio, budget in budgets.items():
                    found = _uncoded(case, stored, budget)
                    measured += samples(case, found, variant=UNCODED, budget_ratio=ratio, **times)
            inside((number + 1) / len(VARIANTS))
    rows = means(measured, ["variant", "budget_ratio"])
    by_key: dict[tuple[object, object], Any] = {(row["variant"], row["budget_ratio"]): row for row in rows}
    for (_, asked), row in by_key.items():
        row["gain_db"] = by_key[FULL, asked]["psnr_mask_db"] - row["psnr_mask_db"]
    return Figure("ablation", rows, _claims(rows))


def _uncoded(case: Case, stored: Stored, budget_bytes: float) -> Measured:
    """What fits into the bytes where planes are stored bit by bit."""
    sizes = plain_sizes(case.geometry, stored.encoded)
    chosen = segments_for_budget(stored.encoded, int(budget_bytes) - stored.index_bytes, sizes)
    received_bytes = stored.index_bytes + sum(sizes[segment] for segment in chosen)
    return dataclasses.replace(stored.of(chosen), received_bytes=received_bytes)


def plain_sizes(geometry: CacheGeometry, encoded: EncodedCache) -> list[int]:
    """Bytes of each segment of SAKURA's codec if planes were stored as they are.

    That is one bit a number and plane, but for kinds of numbers that are all zero so far, and a sign once a number is
    not zero. No such container is written: these sizes are computed.
    """
    layout = SakuraCodec().layout(geometry, encoded.segments[HEADER])
    sizes = [len(encoded.segments[HEADER])]
    for part, several in enumerate(layout.planes):
        kinds, count = layout.shape(part)
        reader, known = PlaneReader(kinds, count, several), 0
        for _ in range(several):
            reader.read(encoded.segments[len(sizes)])
            significant = reader.values() != 0
            before, known = known, int(significant.sum())
            flags, numbers = kinds, int(significant.any(1).sum()) * count
            sizes.append((flags + numbers + known - before + 7) // 8)
    return sizes


def _claims(rows: list[Row]) -> list[Claim]:
    claims = []
    for variant in dict.fromkeys(str(row["variant"]) for row in rows):
        if variant == FULL:
            continue
        own: list[Any] = [row for row in rows if row["variant"] == variant]
        gains = [row["gain_db"] for row in own]
        each = "; ".join(
            f"{row['gain_db']:+.1f} dB at {row['budget_ratio']} times"
            + ("" if _fits(row) else f" (which it does not reach: {row['ratio']:.0f} times)")
            for row in own
        )
        claims.append(Claim(f"The full codec beats: {variant}", None, each, float(np.mean(gains)) > 0))
    return claims


def _fits(row: Row) -> bool:
    return row["bytes"] <= row["full_cache_bytes"] / row["budget_ratio"] * 1.01  # type: ignore[operator]


def summary(figure: Figure) -> pd.DataFrame:
    table = figure.table()
    wide = table.pivot_table(index="variant", columns="budget_ratio", values="psnr_mask_db", sort=False)
    wide.columns = [f"dB at {ratio} times" for ratio in wide.columns]
    times = table.groupby("variant", sort=False)[["encode_s", "decode_ms"]].mean()
    wide = wide.map("{:.1f}".format)
    wide["encode, s"] = times["encode_s"].map("{:.2f}".format)
    wide["decode all, ms"] = times["decode_ms"].map("{:.0f}".format)
    return wide.reset_index()


def chart(figure: Figure) -> Drawn:
    of = colours()
    table = figure.table()
    order = list(table["variant"].unique())
    x = alt.X("psnr_mask_db:Q", title="PSNR in the edited region, dB", scale=alt.Scale(zero=False, padding=16))
    y = alt.Y("variant:N", sort=order, title=None, axis=alt.Axis(labelColor=of["sk-ink"], labelLimit=300, grid=True))
    tones = alt.Scale(domain=list(RATIOS), range=[of["heat-4"], of["heat-3"], of["heat-2"]])
    tone = alt.Color("budget_ratio:O", scale=tones, legend=None)
    top = table[table["variant"] == FULL].copy()
    top["name"] = [f"{ratio} times" for ratio in top["budget_ratio"]]
    lines = alt.Chart(top).mark_rule(strokeDash=[2, 3]).encode(x=x, color=tone)
    return alt.layer(
        lines,
        alt.Chart(table).mark_circle(size=90, opacity=1).encode(x, y, tone),
        label(alt.Chart(top).encode(x, y), "name:N", tone, align="center", dy=-14),
    ).properties(
        width=460,
        height=36 * len(order),
        title=alt.TitleParams(
            "What each part of the codec brings",
            subtitle="At equal bytes, so many times fewer than the full cache. Dotted: the full codec.",
        ),
    )
