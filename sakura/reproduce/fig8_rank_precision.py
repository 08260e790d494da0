"""Figure 8: rank against precision. Different precision pairs win at different sizes; the ladder follows the best."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import Drawn, colours, label, line_ends
from sakura.codec.interface import Representation
from sakura.codec.sakura import SakuraCodec
from sakura.reproduce.figure import Claim, Figure, Progress, Row, Scope
from sakura.reproduce.quality import Stored, means, samples
from sakura.reproduce.workloads import Case, each_case
from sakura.templates import TemplateLibrary

PAIRS = ((4, 4), (6, 4), (6, 6), (8, 6), (8, 8))
BUDGETS_BYTES = (25_000, 50_000, 100_000, 200_000)
LADDER = "ladder"
LADDER_RATIOS = (50, 75, 100, 150, 200, 300, 400, 500, 700)
ALLOWED_LOSS_DB = 0.3


def run(store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure:
    codec = SakuraCodec()
    measured: list[Row] = []
    for case, inside in each_case(store, library, scope.requests, progress):
        measured.extend(_measure(store, case, codec, inside))
    rows = means(measured, ["pair", "rank", "offered_ratio"])
    return Figure("fig8", rows, _claims(rows))


def _measure(store: CacheStore, case: Case, codec: SakuraCodec, progress: Progress) -> list[Row]:
    stored = Stored(store.editor, case, codec)
    rows: list[Row] = []
    ladder = [stored.at_budget(case.geometry.full_cache_bytes / ratio) for ratio in LADDER_RATIOS] + [stored.finest()]
    for ratio, measured in zip([*LADDER_RATIOS, 0], ladder, strict=True):
        rows += samples(case, measured, pair=LADDER, rank=0, offered_ratio=ratio, ahead_db=0.0)
    by_size = sorted({measured.received_bytes: measured.mask_psnr_db for measured in ladder}.items())
    sizes, qualities = np.log([size for size, _ in by_size]), [quality for _, quality in by_size]
    kinds = [(pair, rank) for pair in PAIRS for rank in codec.ranks]
    for number, (pair, rank) in enumerate(kinds):
        wanted = codec.segments_of(case.geometry, stored.encoded, Representation(rank, *pair))
        measured = stored.of(wanted)
        size = np.log(measured.received_bytes)
        within = sizes[0] <= size <= sizes[-1]
        ahead_db = float(np.interp(size, sizes, qualities)) - measured.mask_psnr_db if within else float("nan")
        rows += samples(case, measured, pair=f"{pair[0]}+{pair[1]}", rank=rank, offered_ratio=0, ahead_db=ahead_db)
        progress((number + 1) / len(kinds))
    return rows


def winners(rows: Sequence[Row], budgets_bytes: Sequence[int] = BUDGETS_BYTES) -> dict[int, tuple[str, int, float]]:
    """The best uniform representation within each number of bytes: pair, rank, dB. Without those none fits into."""
    uniform = [row for row in rows if row["pair"] != LADDER]
    found = {}
    for budget in budgets_bytes:
        fitting: list[Any] = [row for row in uniform if row["bytes"] <= budget]  # type: ignore[operator]
        if fitting:
            best = max(fitting, key=lambda row: row["psnr_mask_db"])
            found[budget] = (best["pair"], best["rank"], best["psnr_mask_db"])
    return found


def _claims(rows: list[Row]) -> list[Claim]:
    best = winners(rows)
    said = [f"{budget // 1000} kB: {pair} bits, rank {rank}" for budget, (pair, rank, _) in best.items()]
    distances: list[Any] = [row["ahead_db"] for row in rows if row["pair"] != LADDER and row["ahead_db"] is not None]
    worst = min(distances, default=0.0)
    return [
        Claim(
            "Different precision pairs win at different sizes",
            "different pairs win at different byte budgets",
            "; ".join(said),
            len({pair for pair, _, _ in best.values()}) > 1,
        ),
        Claim(
            f"At equal bytes the ladder is at most {ALLOWED_LOSS_DB} dB below any uniform representation",
            None,
            f"ahead by {worst:.2f} dB at least, by {np.mean(distances) if distances else 0.0:.1f} dB on average",
            worst >= -ALLOWED_LOSS_DB,
        ),
    ]


def summary(figure: Figure) -> pd.DataFrame:
    """dB and kB by rank and pair."""
    table = figure.table()
    uniform = table[table["pair"] != LADDER].copy()
    uniform["cell"] = [
        f"{db:.1f} dB, {size / 1000:.0f} kB" for db, size in zip(uniform["psnr_mask_db"], uniform["bytes"], strict=True)
    ]
    wide = uniform.pivot_table(index="rank", columns="pair", values="cell", aggfunc="first", sort=False)
    return wide.reset_index()


def chart(figure: Figure) -> Drawn:
    of = colours()
    table = figure.table()
    table["kilobytes"] = table["bytes"] / 1000
    ladder = table[table["pair"] == LADDER].sort_values("kilobytes")
    floor_db = float(ladder["psnr_mask_db"].min()) - 2
    uniform = table[(table["pair"] != LADDER) & (table["psnr_mask_db"] >= floor_db)]
    x = alt.X(
        "kilobytes:Q",
        title="cache of one template, kB (log)",
        scale=alt.Scale(type="log", nice=False, padding=12),
        axis=alt.Axis(values=[10, 20, 50, 100, 200]),
    )
    y = alt.Y("psnr_mask_db:Q", title="PSNR in the edited region, dB", scale=alt.Scale(zero=False))
    pairs = [f"{left}+{right}" for left, right in PAIRS]
    dashes = [[1, 3], [2, 2], [5, 3], [8, 3], [1, 0]]
    lines = alt.Chart(uniform).encode(x, y)
    stroke = lines.mark_line(color=of["sk-edge"], strokeWidth=1.5).encode(
        strokeDash=alt.StrokeDash("pair:N", scale=alt.Scale(domain=pairs, range=dashes), legend=None)
    )
    dots = lines.mark_circle(color=of["sk-edge"], size=22, opacity=1)
    ends = line_ends(uniform, "kilobytes", ["pair"])
    ends = ends.assign(name=ends["pair"] + " bits")
    best = alt.Chart(ladder).encode(x, y)
    named = label(
        alt.Chart(ladder.iloc[[len(ladder) // 2]]).encode(x, y),
        alt.value("best at each size"),
        alt.value(of["sys-sakura"]),
        align="right",
        dx=-10,
        dy=-8,
    )
    return alt.layer(
        stroke,
        dots,
        best.mark_line(color=of["sys-sakura"]),
        best.mark_circle(color=of["sys-sakura"], size=40, opacity=1),
        label(alt.Chart(ends).encode(x, y), "name:N", alt.value(of["sk-ink-2"]), align="left", dx=10),
        named,
    ).properties(
        width=560,
        height=320,
        title=alt.TitleParams(
            "Rank against precision",
            subtitle="Each line is one pair of bits; its points are ranks, rising to the right.",
        ),
    )
