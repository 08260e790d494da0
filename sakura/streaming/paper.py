"""Rows of edits at paper scale, in the form that the figures of streamed edits take."""

from collections.abc import Sequence

from sakura.events import AnyEvent, System
from sakura.network.trace import Trace
from sakura.paper_scale.devices import device_profile
from sakura.paper_scale.models import CASE_ASSUMPTIONS, MASK_SHARES, model_case
from sakura.paper_scale.networks import NETWORKS, RTT_S, network_trace
from sakura.paper_scale.notes import QUALITY_NOTE, TIMING_ASSUMPTIONS
from sakura.paper_scale.run import run_case, unstreamed
from sakura.paper_scale.sweep import MAIN_CASE, MAIN_DEVICE, Setting, rows_of_setting
from sakura.reproduce.figure import Progress, Row, Scope
from sakura.streaming.live import NEAREST
from sakura.systems import STREAMED

REQUESTS, QUICK_REQUESTS = 10, 2
CASES = (MAIN_CASE, "sd35-1024")
SIDES_PX = (512, 768, 1024)
VARIANTS = (("sakura", "choose-before-send"), ("sakura", "deadline"), ("sakura", "robust-mpc"))


def assumptions() -> list[str]:
    """What the numbers of this scale rest on, in sentences."""
    return [QUALITY_NOTE, *CASE_ASSUMPTIONS, *TIMING_ASSUMPTIONS, *device_profile(MAIN_DEVICE).assumptions()]


def _requests(scope: Scope) -> int:
    return QUICK_REQUESTS if scope.quick else REQUESTS


def _networks(scope: Scope) -> dict[str, Trace]:
    if scope.networks:
        return {trace.title: trace for trace in scope.networks}
    return {title: network_trace(name) for name, title in NETWORKS.items()}


def paper_rows(
    scope: Scope, progress: Progress, cases: Sequence[str] = CASES, *, one_network: bool = False
) -> list[Row]:
    """One row an edit: every workload, network and contestant of each case. Networks of cases but the first say so.

    ``one_network`` measures the first case over the first network alone.
    """
    profile, networks = device_profile(MAIN_DEVICE), _networks(scope)
    if one_network:
        cases, networks = cases[:1], dict(list(networks.items())[:1])
    plans = [(case, workload, title) for case in cases for workload in MASK_SHARES for title in networks]
    rows: list[Row] = []
    for done, (case_id, workload, title) in enumerate(plans):
        case, trace = model_case(case_id, workload), networks[title]
        name = title if case_id == cases[0] else f"{case.title}: {title}"
        setting = Setting(case, profile, workload, name, trace, requests=_requests(scope))
        found = rows_of_setting(setting)
        for system, controller in VARIANTS:
            found += setting.rows(system, controller)
        more = {"mean_mbps": trace.mean_mbps, "rtt_s": RTT_S, "mask_share": case.mask_share, "px": case.picture_px}
        named = [{**row, **more, "controller": _named(row)} for row in found if row["system"] != "active_only"]
        if not any(row["controller"] == NEAREST for row in named):  # the coarsest level is the nearest
            named += [{**row, "controller": NEAREST} for row in named if row["controller"] == "fixed:-1"]
        rows += named
        progress((done + 1) / len(plans))
    return rows


def _named(row: Row) -> str:
    """A controller as the live rows name it: "own", the coarsest level, the level nearest in quality, or its name."""
    system, controller = str(row["system"]), str(row["controller"])
    streamed = {str(name): known.controller for name, known in STREAMED.items()}
    if controller in ("", streamed.get(system)):
        return "own"
    return NEAREST if controller.startswith("fixed:") and controller != "fixed:-1" else controller


def rows_by_resolution(scope: Scope, progress: Progress) -> list[Row]:
    """Like :func:`paper_rows` for FLUX.2 klein 4B at three sizes, over the first network."""
    title, trace = next(iter(_networks(scope).items()))
    one = Scope(scope.quick, scope.scale, (trace,))
    rows: list[Row] = []
    for done, side_px in enumerate(SIDES_PX):
        rows += [{**row, "network": title} for row in paper_rows(one, lambda _: None, [f"klein-{side_px}"])]
        progress((done + 1) / len(SIDES_PX))
    return rows


def hidden_behind(workload: str) -> tuple[int, float]:
    """Full cache bytes of the main case, and seconds that its active tokens alone take."""
    case = model_case(MAIN_CASE, workload)
    active_s, _, _ = unstreamed(case, device_profile(MAIN_DEVICE), with_cache=True)
    return case.geometry.full_cache_bytes, active_s


def one_edit(trace: Trace, offset_s: float = 0.0) -> list[AnyEvent]:
    """Events of an edit of the main case with SAKURA."""
    profile = device_profile(MAIN_DEVICE)
    return run_case(model_case(MAIN_CASE, "FS"), profile, "sakura", "", trace, offset_s, RTT_S, workload="FS").events


def rows_along(
    trace: Trace, starts_s: Sequence[float], contestants: Sequence[tuple[System, str]], progress: Progress
) -> list[Row]:
    """The main case again and again from other places of a trace."""
    case, profile = model_case(MAIN_CASE, "FS"), device_profile(MAIN_DEVICE)
    rows: list[Row] = []
    for done, start_s in enumerate(starts_s):
        for system, controller in contestants:
            result = run_case(case, profile, system, controller, trace, start_s, RTT_S, workload="FS")
            rows.append(
                {
                    "scale": "paper",
                    "network": trace.title,
                    "system": system,
                    "controller": controller or "own",
                    "start_s": start_s,
                    "latency_s": result.latency_s,
                    "received_bytes": result.received_bytes,
                    "network_wait_s": result.network_wait_s,
                    "compute_s": result.compute_s,
                    "local_shards": result.local_shards,
                    "distortion": result.distortion,
                }
            )
        progress((done + 1) / len(starts_s))
    return rows
