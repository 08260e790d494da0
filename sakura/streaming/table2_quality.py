"""Table 2: PSNR and SSIM of each system against the picture from the full cache, by workload and network."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import Drawn, system_legend, system_scales
from sakura.errors import UserError
from sakura.network.library import TITLES, load_library_trace
from sakura.paper_scale.networks import NETWORKS
from sakura.reproduce.figure import Claim, Figure, Progress, Row, Scope
from sakura.streaming.rows import chart_name, label_of, measured_of, medians, own, streamed_rows, table_of
from sakura.templates import TemplateLibrary

# Titles of the networks that stand for the paper's, by scale.
NETWORK_OF: dict[str, dict[str, str]] = {
    "nano": {"5G": TITLES["5g-static"], "4G+5G": TITLES["4g-5g-mix"], "WiFi": TITLES["wifi-walking"]},
    "paper": {"5G": NETWORKS["5g-330"], "4G+5G": NETWORKS["mix"], "WiFi": NETWORKS["wifi"]},
}
AIM_DB = 10.0  # above the paper's
# (workload, system): PSNR in dB and SSIM on 5G, 4G+5G and WiFi, as the paper states them.
PAPER = {
    ("FS", "sakura"): ((27.9, 0.90), (24.9, 0.85), (32.7, 0.97)),
    ("FS", "intq"): ((21.3, 0.79), (21.0, 0.78), (21.4, 0.80)),
    ("FS", "cachegen"): ((20.8, 0.70), (16.2, 0.51), (23.5, 0.81)),
    ("VTON", "sakura"): ((30.4, 0.95), (26.8, 0.91), (37.3, 0.99)),
    ("VTON", "intq"): ((24.1, 0.91), (23.1, 0.89), (25.6, 0.93)),
}


def run(store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure:
    """Raises UserError where other networks are asked for: the paper's three have values of their own."""
    if scope.networks:
        raise UserError("Table 2 compares with the paper's networks; leave out --trace.")
    if scope.scale == "nano" and not scope.known:
        networks = tuple(load_library_trace(trace_id) for trace_id in ("5g-static", "4g-5g-mix", "wifi-walking"))
        scope = dataclasses.replace(scope, networks=networks)
    rows = streamed_rows(store, library, scope, progress)
    compared = _compared(rows)
    if compared.empty:
        raise UserError("None of the rows is of a network that stands for one of the paper's.")
    return Figure("table2", rows, _claims(compared), measured_of(rows))


def _compared(rows: Sequence[Row]) -> pd.DataFrame:
    """One row a workload, network and system of the paper's, ours beside it."""
    table = own(table_of(rows))
    names = {title: name for name, title in NETWORK_OF[str(table["scale"].iloc[0])].items()}
    found = medians(table[table["network"].isin(list(names))], ["workload", "network", "system"])
    found["network"] = [names[network] for network in found["network"]]
    stated = [
        {"workload": workload, "system": system, "network": network, "paper_db": psnr, "paper_ssim": ssim}
        for (workload, system), values in PAPER.items()
        for network, (psnr, ssim) in zip(NETWORK_OF["nano"], values, strict=True)
    ]
    return found.merge(pd.DataFrame(stated), how="left", on=["workload", "system", "network"])


def _claims(compared: pd.DataFrame) -> list[Claim]:
    claims = []
    rows: list[Any] = compared[(compared["system"] == "sakura") & compared["paper_db"].notna()].to_dict("records")
    for row in rows:
        text = f"{row['workload']} on {row['network']}: at least the paper's PSNR (aim: {AIM_DB:.0f} dB more)"
        ours = f"{row['psnr_mask_db']:.1f} dB, {row['psnr_mask_db'] - row['paper_db']:+.1f}"
        claims.append(Claim(text, row["paper_db"], ours, bool(row["psnr_mask_db"] >= row["paper_db"])))
    return claims


def summary(figure: Figure) -> pd.DataFrame:
    found = _compared(figure.rows)
    found["system"] = [label_of(system) for system in found["system"]]
    columns = ["workload", "network", "system", "psnr_mask_db", "paper_db", "ssim_mask", "paper_ssim", "latency_s"]
    return found[columns].round(3)


def chart(figure: Figure) -> Drawn:
    found = _compared(figure.rows)
    found = found[found["system"].isin(["sakura", "intq", "cachegen"])]
    found = found.assign(mark=[chart_name(system) for system in found["system"]])
    colour, shape = system_scales(list(found["mark"].unique()))
    panels = []
    for workload, part in found.groupby("workload", sort=False):
        base = alt.Chart(part).encode(
            x=alt.X("network:N", title="network", sort=list(NETWORK_OF["nano"]), axis=alt.Axis(labelAngle=0)),
            color=alt.Color("mark:N", scale=colour, legend=system_legend()),
            shape=alt.Shape("mark:N", scale=shape, legend=None),
        )
        ours = base.mark_point(filled=True, size=110, opacity=1).encode(
            y=alt.Y("psnr_mask_db:Q", title="PSNR in the edited region, dB", scale=alt.Scale(zero=False))
        )
        paper = base.mark_point(filled=False, size=110).encode(y="paper_db:Q")
        panels.append(alt.layer(paper, ours).properties(width=200, height=260, title=str(workload)))
    return alt.hconcat(*panels).properties(
        title=alt.TitleParams("Quality by network", subtitle="Filled: ours. Hollow: as the paper states.")
    )
