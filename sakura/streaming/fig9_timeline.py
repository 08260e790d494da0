"""Figure 9: the pipeline of one edit over time."""

import altair as alt
import numpy as np
import pandas as pd

from sakura.cache.store import CacheStore
from sakura.charts import Drawn, colours
from sakura.events import AnyEvent, LaneFinished, NetworkWait
from sakura.network.library import load_library_trace
from sakura.network.trace import Trace
from sakura.reproduce.figure import Claim, Figure, Progress, Row, Scope
from sakura.streaming.live import RTT_S, planned_requests, run_edit, running_studio
from sakura.streaming.paper import one_edit
from sakura.templates import TemplateLibrary

TRACE = "4g-5g-mix"
LANES = {"receive": "Receive", "reconstruct": "Reconstruct", "execute": "Execute", "wait": "Wait for the network"}
COLOURS = ("lane-receive", "lane-reconstruct", "lane-execute", "sk-warn")


def run(store: CacheStore, library: TemplateLibrary, scope: Scope, progress: Progress) -> Figure:
    trace = scope.networks[0] if scope.networks else load_library_trace(TRACE)
    events = one_edit(trace) if scope.scale == "paper" else _nano(library, trace, progress)
    rows: list[Row] = []
    for event in events:
        if isinstance(event, LaneFinished):
            rows.append(_row(scope, event.lane, event.shard, event.started_s, event.at_s, event.on_device))
        elif isinstance(event, NetworkWait):
            rows.append(_row(scope, "wait", event.shard, event.started_s, event.at_s, False))
    return Figure("fig9", rows, _claims(pd.DataFrame(rows)))


def _row(scope: Scope, lane: str, shard: int, start_s: float, end_s: float, on_device: bool) -> Row:
    return {
        "scale": scope.scale,
        "lane": LANES[lane],
        "shard": shard + 1,
        "start_s": start_s,
        "end_s": end_s,
        "on_device": on_device,
    }


def _nano(library: TemplateLibrary, trace: Trace, progress: Progress) -> list[AnyEvent]:
    planned = planned_requests(library, 1, trace, RTT_S)[0]
    with running_studio() as studio:
        studio.plan(planned.template.template_id, "sakura")
        run_edit(studio, planned.asked)  # the first edit after a start is slower
        progress(0.7)
        return run_edit(studio, planned.asked)


def _claims(table: pd.DataFrame) -> list[Claim]:
    spans = {
        lane: table.loc[table["lane"] == LANES[lane], ["start_s", "end_s"]].to_numpy()
        for lane in ("receive", "execute")
    }
    received, executed = spans["receive"][:, None], spans["execute"][None]
    overlaps = np.minimum(received[..., 1], executed[..., 1]) - np.maximum(received[..., 0], executed[..., 0])
    hidden_s = float(np.maximum(0, overlaps).sum())
    whole_s = float(np.diff(spans["receive"]).sum())
    share = hidden_s / whole_s if whole_s else 1.0
    told = f"{share:.0%} of {1000 * whole_s:.0f} ms"
    return [Claim("Most of the reception hides behind execution", None, told, share >= 0.5)]


def summary(figure: Figure) -> pd.DataFrame:
    table = figure.table()
    table["busy_s"] = table["end_s"] - table["start_s"]
    groups = table.groupby("lane", sort=False)
    columns = {"first_s": groups["start_s"].min(), "last_s": groups["end_s"].max(), "busy_s": groups["busy_s"].sum()}
    return pd.DataFrame({"pieces": groups.size(), **columns}).round(3).reset_index()


def chart(figure: Figure) -> Drawn:
    of, table = colours(), figure.table()
    scale = alt.Scale(domain=list(LANES.values()), range=[of[name] for name in COLOURS])
    bars = alt.Chart(table).mark_bar(height=28, stroke=of["sk-surface"], strokeWidth=1)
    return alt.layer(
        bars.encode(
            x=alt.X("start_s:Q", title="seconds"),
            x2="end_s:Q",
            y=alt.Y("lane:N", title=" ", sort=list(LANES.values())),
            color=alt.condition(
                "datum.on_device", alt.value(of["sys-device"]), alt.Color("lane:N", scale=scale, legend=None)
            ),
            tooltip=["lane:N", "shard:Q", "start_s:Q", "end_s:Q"],
        )
    ).properties(
        width=760,
        height=180,
        title=alt.TitleParams("One edit in the pipeline", subtitle="Green: computed without the cache."),
    )
