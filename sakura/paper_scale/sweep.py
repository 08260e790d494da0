"""Tables at paper scale: workloads, networks and systems; and how they move with what is assumed."""

import dataclasses
import itertools
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sakura.events import System
from sakura.network.library import constant_trace
from sakura.network.trace import Trace
from sakura.paper_scale.devices import DeviceProfile, device_profile
from sakura.paper_scale.models import MASK_SHARES, ModelCase, model_case
from sakura.paper_scale.nano import NanoSystem, nano_measured
from sakura.paper_scale.networks import NETWORKS, RTT_S, network_trace
from sakura.paper_scale.run import CaseResult, run_case
from sakura.systems import STREAMED

Row = dict[str, Any]
Progress = Callable[[float], None]

MAIN_CASE, MAIN_DEVICE = "klein-1024", "8-elite-gen-5"
# Systems by the names that tables use, with controllers; "" is the system's own.
COMPARED: tuple[tuple[str, str], ...] = (
    ("sakura", ""),
    ("intq", ""),
    ("cachegen", ""),
    ("cachegen", "fixed:-1"),
    ("full_cache", ""),
    ("on_device", ""),
    ("active_only", ""),
)
_SYSTEM_OF: dict[str, System] = {
    **{name: name for name in (*STREAMED, "on_device")},
    "active_only": "resident_cache",
}
# What "sensitivity" moves: numbers of the profile by their names, and the network.
CHANGED = ("npu_tflops", "gpu_tflops", "entropy_decode_gb_per_s", "bandwidth", "rtt")
FACTORS = (0.5, 1.0, 2.0)
NEAR_LIMIT = 1.15
SLOWEST_MBPS, FASTEST_MBPS = 1.0, 20_000.0


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a table is about. ``requests`` start at places of their own on the trace, the same for all systems."""

    case: ModelCase
    profile: DeviceProfile
    workload: str
    network: str
    trace: Trace
    rtt_s: float = RTT_S
    requests: int = 10

    def offset_s(self, request: int) -> float:
        return random.Random(f"{self.workload}/{request}").uniform(0, self.trace.duration_s)

    def run(self, system: str, controller: str, request: int) -> CaseResult:
        return run_case(
            self.case,
            self.profile,
            _SYSTEM_OF[system],
            controller,
            self.trace,
            self.offset_s(request),
            self.rtt_s,
            workload=self.workload,
            request=request,
        )

    def rows(self, system: str, controller: str) -> list[Row]:
        """One row a request."""
        return [
            _row(self, system, controller, request, self.run(system, controller, request))
            for request in range(self.requests)
        ]


def _row(setting: Setting, system: str, controller: str, request: int, result: CaseResult) -> Row:
    known = STREAMED.get(_SYSTEM_OF[system])
    return {
        "scale": "paper",
        "workload": setting.workload,
        "network": setting.network,
        "system": system,
        "controller": controller or (known.controller if known else ""),
        "request": request,
        "latency_s": result.latency_s,
        "limit_s": result.limit_s,
        "on_device_s": result.on_device_s,
        "received_bytes": result.received_bytes,
        "network_wait_s": result.network_wait_s,
        "first_wait_s": result.first_wait_s,
        "compute_s": result.compute_s,
        "local_shards": result.local_shards,
        "psnr_mask_db": result.psnr_mask_db,
        "ssim_mask": result.ssim_mask,
    }


def level_near(system: NanoSystem, psnr_db: float) -> int:
    """Which level of a codec, counted from the coarsest, comes nearest to a quality."""
    levels = max(len(ladder.rungs) for ladder in system.ladders)

    def far_db(level: int) -> float:
        rungs = [ladder.rungs[min(level, len(ladder.rungs) - 1)] for ladder in system.ladders]
        distortion = statistics.fmean(rungs[number].distortion for number in system.ladder_of)
        return abs(system.quality(distortion).psnr_mask_db - psnr_db)

    return min(range(levels), key=far_db)


def rows_of_setting(setting: Setting) -> list[Row]:
    """All systems, and CacheGen at the fixed level that comes nearest to SAKURA's quality."""
    rows: list[Row] = []
    for system, controller in COMPARED:
        rows += setting.rows(system, controller)
    psnr_db = mean_of(rows, "sakura", "psnr_mask_db")
    nearest = level_near(nano_measured().template(setting.workload, 0).systems["cachegen"], psnr_db)
    if nearest > 0:  # the coarsest is there already
        rows += setting.rows("cachegen", f"fixed:-{nearest + 1}")
    return rows


def mean_of(rows: Iterable[Row], system: str, field: str, controller: str | None = None) -> float:
    """Mean over the requests of a system (by its own controller where none is given)."""
    wanted = controller or _own_controller(system)
    return statistics.fmean(row[field] for row in rows if (row["system"], row["controller"]) == (system, wanted))


def _own_controller(system: str) -> str:
    known = STREAMED.get(_SYSTEM_OF[system])
    return known.controller if known else ""


def measure_paper_scale(
    *,
    case_id: str = MAIN_CASE,
    device_id: str = MAIN_DEVICE,
    workloads: Sequence[str] = tuple(MASK_SHARES),
    networks: Sequence[str] = tuple(NETWORKS),
    requests: int = 10,
    progress: Progress = lambda done: None,
) -> list[Row]:
    """Rows of one request each, of every workload, network and system. Raises UserError on an unknown name."""
    pairs = list(itertools.product(workloads, networks))
    rows: list[Row] = []
    for number, (workload, network) in enumerate(pairs):
        case, trace = model_case(case_id, workload), network_trace(network)
        profile = device_profile(device_id)
        rows += rows_of_setting(Setting(case, profile, workload, network, trace, requests=requests))
        progress((number + 1) / len(pairs))
    return rows


def sensitivity(
    *,
    case_id: str = MAIN_CASE,
    device_id: str = MAIN_DEVICE,
    workload: str = "MB",
    networks: Sequence[str] = ("5g-330", "5g-130"),
    requests: int = 10,
    progress: Progress = lambda done: None,
) -> list[Row]:
    """How SAKURA's speed-ups (of means) move when one assumption is halved or doubled."""
    rows: list[Row] = []
    plans = list(itertools.product(networks, CHANGED, FACTORS))
    for number, (network, changed, factor) in enumerate(plans):
        profile, trace, rtt_s = device_profile(device_id), network_trace(network), RTT_S
        if changed == "bandwidth":
            trace = dataclasses.replace(trace, rates_mbps=factor * trace.rates_mbps)
        elif changed == "rtt":
            rtt_s *= factor
        else:
            profile = profile.changed(changed, factor * getattr(profile, changed).value)
        setting = Setting(model_case(case_id, workload), profile, workload, network, trace, rtt_s, requests)
        rows.append({"network": network, "changed": changed, "factor": factor, **speed_ups(setting)})
        progress((number + 1) / len(plans))
    return rows


def speed_ups(setting: Setting) -> Row:
    """SAKURA's mean latency over the requests, and how many times more the others' means are."""
    ours = setting.rows("sakura", "")
    cachegen = setting.rows("cachegen", "")
    sakura_s = mean_of(ours, "sakura", "latency_s")
    return {
        "workload": setting.workload,
        "sakura_s": sakura_s,
        "over_on_device": mean_of(ours, "sakura", "on_device_s") / sakura_s,
        "over_cachegen": mean_of(cachegen, "cachegen", "latency_s") / sakura_s,
        "times_limit": sakura_s / mean_of(ours, "sakura", "limit_s"),
        "psnr_mask_db": mean_of(ours, "sakura", "psnr_mask_db"),
    }


def bandwidth_near_limit(
    case: ModelCase, profile: DeviceProfile, *, system: str = "sakura", workload: str = "MB", rtt_s: float = RTT_S
) -> Row:
    """The least steady bandwidth at which an edit takes at most ``NEAR_LIMIT`` times its limit, within 2 %.

    Fields: ``system``, ``mbps`` (infinity if ``FASTEST_MBPS`` does not do), ``psnr_mask_db`` there.
    """

    def at(mbps: float) -> CaseResult:
        setting = Setting(case, profile, workload, f"{mbps:g}", constant_trace(mbps), rtt_s, 1)
        return setting.run(system, "", 0)

    def near(result: CaseResult) -> bool:
        return result.latency_s <= NEAR_LIMIT * result.limit_s

    low_mbps, high_mbps = SLOWEST_MBPS, FASTEST_MBPS
    best = at(high_mbps)
    if not near(best):
        return {"system": system, "mbps": float("inf"), "psnr_mask_db": best.psnr_mask_db}
    while high_mbps > 1.02 * low_mbps:
        middle_mbps = (low_mbps * high_mbps) ** 0.5
        result = at(middle_mbps)
        if near(result):
            high_mbps, best = middle_mbps, result
        else:
            low_mbps = middle_mbps
    return {"system": system, "mbps": high_mbps, "psnr_mask_db": best.psnr_mask_db}
