"""One edit at paper scale: the product's pipeline, controllers and estimators on modelled processors and network."""

import dataclasses
from typing import TypeAlias

from sakura.control import estimator_of, new_controller
from sakura.control.estimators import new_estimator
from sakura.control.interface import StreamState
from sakura.errors import UserError
from sakura.events import AnyEvent, System
from sakura.metrics import MAX_PSNR_DB
from sakura.network.trace import Trace
from sakura.paper_scale.devices import DeviceProfile
from sakura.paper_scale.models import ModelCase
from sakura.paper_scale.nano import CurvePoint, NanoTemplate, nano_measured
from sakura.paper_scale.offers import Offer, shipped_offer
from sakura.paper_scale.timing import durations, streaming_durations
from sakura.runtime.clock import RunClock
from sakura.runtime.engine import NO_KV
from sakura.runtime.measured import compute_s, first_wait_s, mean_distortion
from sakura.runtime.modelled import Durations, ModelledRun, ModelledSource
from sakura.runtime.pipeline import Outcome, Pipeline
from sakura.runtime.virtual_time import run_virtually
from sakura.runtime.without_stream import edit_with_resident_cache, edit_without_cache
from sakura.systems import STREAMED

Events: TypeAlias = list[AnyEvent]


@dataclasses.dataclass(frozen=True)
class CaseResult:
    """One edit. ``limit_s`` is computing the active tokens alone and one round trip, ``on_device_s`` all of them.

    ``compute_s`` is how long execution was busy. ``distortion`` is the mean over shards, those computed without the
    cache counting as exact; PSNR and SSIM are what nano scores there.
    """

    latency_s: float
    limit_s: float
    on_device_s: float
    received_bytes: int
    network_wait_s: float
    first_wait_s: float
    compute_s: float
    local_shards: int
    distortion: float
    psnr_mask_db: float
    ssim_mask: float
    events: Events


def run_case(
    case: ModelCase,
    profile: DeviceProfile,
    system: System,
    controller: str,
    trace: Trace,
    offset_s: float,
    rtt_s: float,
    *,
    workload: str = "MB",
    request: int = 0,
) -> CaseResult:
    """Run an edit in virtual time. ``controller`` may be empty for the system's own; ``request`` picks the template.

    Raises UserError where there is no such controller or system.
    """
    template = nano_measured().template(workload, request)
    limit_s = unstreamed(case, profile, with_cache=True)[0] + rtt_s
    on_device_s = unstreamed(case, profile, with_cache=False)[0]
    if system in ("on_device", "resident_cache"):
        latency_s, outcome, events = unstreamed(case, profile, with_cache=system == "resident_cache")
        quality = CurvePoint(0.0, MAX_PSNR_DB, 1.0)
    elif system in STREAMED:
        offer = shipped_offer(template.template_id, system, case)
        latency_s, outcome, events = _stream(case, profile, system, controller, trace, offset_s, rtt_s, template, offer)
        quality = template.systems[system].quality(mean_distortion(events))
    else:
        raise UserError(f"There is no system {system!r}; use one of {', '.join(STREAMED)}, on_device, resident_cache.")
    return CaseResult(
        latency_s,
        limit_s,
        on_device_s,
        outcome.received_bytes,
        outcome.network_wait_s,
        first_wait_s(events),
        compute_s(events),
        outcome.local_shards,
        quality.distortion,
        quality.psnr_mask_db,
        quality.ssim_mask,
        events,
    )


def unstreamed(case: ModelCase, profile: DeviceProfile, *, with_cache: bool) -> tuple[float, Outcome, Events]:
    """An edit with the whole cache on the device already, or without any: seconds, outcome and events."""
    needed, geometry = durations(case, profile), case.geometry

    async def edit() -> tuple[float, Outcome, Events]:
        events: Events = []
        clock, run = RunClock(), ModelledRun(needed)
        if with_cache:
            outcome = await edit_with_resident_cache(geometry, run, [NO_KV] * geometry.shards, clock, events.append)
        else:
            outcome = await edit_without_cache(geometry, run, clock, events.append)
        return clock.now(), outcome, events

    return run_virtually(edit())


def _stream(
    case: ModelCase,
    profile: DeviceProfile,
    system: System,
    controller: str,
    trace: Trace,
    offset_s: float,
    rtt_s: float,
    template: NanoTemplate,
    offer: Offer,
) -> tuple[float, Outcome, Events]:
    streamed = STREAMED[system]
    name = controller or streamed.controller
    needed = streaming_durations(case, profile, system, template.systems[system], offer)

    async def edit() -> tuple[float, Outcome, Events]:
        events: Events = []
        estimator = new_estimator(estimator_of(name))
        source = ModelledSource(trace, rtt_s=rtt_s, offset_s=offset_s, segment_bytes=offer.segment_bytes)
        clock = RunClock()
        pipeline = Pipeline(
            state=_state(offer, needed, profile, rtt_s, estimator.predict_mbps()),
            source=source,
            run=ModelledRun(needed),
            controller=new_controller(name),
            estimator=estimator,
            clock=clock,
            emit=events.append,
            patient=streamed.patient,
        )
        outcome = await pipeline.edit()
        latency_s = clock.now()
        await source.close()
        return latency_s, outcome, events

    return run_virtually(edit())


def _state(offer: Offer, needed: Durations, profile: DeviceProfile, rtt_s: float, predicted_mbps: float) -> StreamState:
    """What a device knows that has measured itself at rest."""
    share = profile.speed_share(0.0)
    return StreamState(
        geometry=offer.geometry,
        ladders=offer.ladders,
        ladder_of=offer.ladder_of,
        segment_bytes=offer.segment_bytes,
        shard_s=needed.active_shard_s / share,
        local_shard_s=needed.full_shard_s / share,
        reconstruct_s=needed.rebuild_s(0, set(offer.ladders[0].order)) / share,
        rtt_s=rtt_s,
        predicted_mbps=predicted_mbps,
    )
