"""The headline: how much faster than CacheGen and than the device alone, at what quality, how near to the limit."""

import altair as alt
import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import Drawn, colours, label
from sakura.reproduce.figure import Claim, Figure, Progress, Scope
from sakura.streaming.live import MAIN, NEAREST, VARIANTS
from sakura.streaming.rows import (
    PAPER_SPEEDUPS,
    label_of,
    measured_of,
    medians,
    own,
    speed_up,
    streamed_rows,
    table_of,
)
from sakura.templates import TemplateLibrary

NEAR_LIMIT, FAST_MBPS = 1.15, 50.0
STALL_SHARE = 0.05
LEAD_DB, LEAD_LATENCY = 2.0, 0.10  # of deadline-progressive over choose-before-send
SAME_LATENCY, SAME_DB = 1.02, 0.1


def run(store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure:
    rows = streamed_rows(store, library, scope, progress, contestants=(*MAIN, *VARIANTS))
    return Figure("headline", rows, _claims(table_of(rows)), measured_of(rows))


def _of(table: pd.DataFrame, network: str, system: str, controller: str = "own") -> pd.DataFrame:
    chosen = (table["network"] == network) & (table["system"] == system) & (table["controller"] == controller)
    return table[chosen]


def _claims(table: pd.DataFrame) -> list[Claim]:
    claims = []
    for network in dict.fromkeys(table["network"]):
        ours = _of(table, network, "sakura")
        claims += _against_cachegen(table, network, ours)
        claims.append(_against_device(table, network))
        if ours["mean_mbps"].iloc[0] > FAST_MBPS:
            claims.append(_near_the_limit(network, ours))
        claims.append(_little_stall(network, ours))
        claims += _progressive_leads(table, network, ours)
    return claims


def _against_cachegen(table: pd.DataFrame, network: str, ours: pd.DataFrame) -> list[Claim]:
    claims = []
    names = {"own": "its own rule", "fixed:-1": "its fastest level", NEAREST: "its level nearest in PSNR"}
    for controller, name in names.items():
        theirs = _of(table, network, "cachegen", controller)
        if theirs.empty:
            continue
        ratio = speed_up(table[table["network"] == network], "cachegen", controller)
        told = (
            f"{ratio:.2f} times ({theirs['latency_s'].median():.3f} s at {theirs['psnr_mask_db'].mean():.1f} dB, "
            f"ours {ours['latency_s'].median():.3f} s at {ours['psnr_mask_db'].mean():.1f} dB)"
        )
        paper = PAPER_SPEEDUPS["cachegen"]
        claims.append(
            Claim(f"{network}: {paper} times faster than CacheGen at {name}", paper, told, bool(ratio >= paper))
        )
    return claims


def _against_device(table: pd.DataFrame, network: str) -> Claim:
    ratio = speed_up(table[table["network"] == network], "on_device")
    alone = _of(table, network, "on_device")
    limit = float(alone["latency_s"].median() / alone["limit_s"].median())
    paper = PAPER_SPEEDUPS["on_device"]
    text = f"{network}: {paper} times faster than the device alone"
    return Claim(text, paper, f"{ratio:.2f} times (the limit is {limit:.2f})", ratio >= paper)


def _near_the_limit(network: str, ours: pd.DataFrame) -> Claim:
    over = float(ours["latency_s"].median() / ours["limit_s"].median())
    text = f"{network}: within {NEAR_LIMIT - 1:.0%} of the limit"
    return Claim(text, None, f"{over - 1:+.1%} over it", over <= NEAR_LIMIT)


def _little_stall(network: str, ours: pd.DataFrame) -> Claim:
    """Compared with computing the active tokens alone, which is the limit less its round trip."""
    stall = float(ours["stall_s"].sum() / (ours["limit_s"] - ours["rtt_s"]).sum())
    text = f"{network}: execution stands still for at most {STALL_SHARE:.0%} of computing"
    return Claim(text, None, f"{stall:.1%}", stall <= STALL_SHARE)


def _progressive_leads(table: pd.DataFrame, network: str, ours: pd.DataFrame) -> list[Claim]:
    before = _of(table, network, "sakura", "choose-before-send")
    if before.empty:
        return []
    latency = float(ours["latency_s"].median() / before["latency_s"].median())
    lead_db = float(ours["psnr_mask_db"].mean() - before["psnr_mask_db"].mean())
    better = (latency <= SAME_LATENCY and lead_db >= LEAD_DB) or (lead_db >= -SAME_DB and latency <= 1 - LEAD_LATENCY)
    text = f"{network}: deadline-progressive beats choosing before sending by 2 dB or a tenth of the latency"
    return [Claim(text, None, f"{lead_db:+.1f} dB at {latency:.2f} times the latency", better)]


def summary(figure: Figure) -> pd.DataFrame:
    found = medians(table_of(figure.rows), ["network", "system", "controller"])
    found["system"] = [label_of(*each) for each in found[["system", "controller"]].itertuples(index=False)]
    columns = ["network", "system", "latency_s", "over_limit", "speedup", "psnr_mask_db", "received_bytes", "requests"]
    return found[columns].round(3)


def chart(figure: Figure) -> Drawn:
    of = colours()
    table = own(table_of(figure.rows))
    found = medians(table[table["system"] != "on_device"], ["network", "system"])
    found["name"] = [label_of(system) for system in found["system"]]
    ours = found[found["system"] == "sakura"]
    base = alt.Chart(ours).encode(
        x=alt.X("speedup:Q", title="times faster than the device alone"),
        y=alt.Y("network:N", title=" ", sort=list(ours["network"])),
    )
    limits = ours.assign(limit=ours["on_device_s"] / ours["limit_s"])
    limit = (
        alt.Chart(limits)
        .mark_tick(thickness=3, height=26, color=of["sk-ink-2"])
        .encode(x="limit:Q", y=alt.Y("network:N", sort=list(ours["network"])))
    )
    return alt.layer(
        base.mark_bar(height=22, color=of["sys-sakura"]),
        limit,
        label(base, alt.Text("speedup:Q", format=".2f"), alt.value(of["sk-ink"]), align="left", dx=6),
    ).properties(
        width=520,
        height=44 * len(ours),
        title=alt.TitleParams("SAKURA over the device alone", subtitle="Upright line: the limit of streaming."),
    )
