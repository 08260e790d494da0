"""Edits through the real cloud, link and device of this machine: one row an edit, for every system and network."""

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sakura.backbone.inputs import Request
from sakura.cache.store import CacheStore
from sakura.errors import UserError
from sakura.events import AnyEvent, RunFailed, RunFinished, System
from sakura.metrics import masked_psnr_ssim
from sakura.network.trace import Trace
from sakura.pictures import from_png
from sakura.prompts import prompt_for
from sakura.reproduce.quality import Stored
from sakura.reproduce.workloads import WORKLOADS, held_out_requests, make_case
from sakura.runtime.measured import compute_s, first_wait_s, local_shards, mean_distortion
from sakura.studio import EditRequest, LocalRoles, Studio
from sakura.systems import STREAMED, streamed_codec
from sakura.templates import TemplateAssets, TemplateLibrary

Row = dict[str, object]
RTT_S = 0.020
RUN_TIMEOUT_S = 120.0
NEAREST = "fixed:nearest"  # the level whose PSNR is nearest to SAKURA's on that network, found before measuring
FULL_CACHE_EVERY = 4  # a download of the whole cache takes seconds, so that only every fourth request tries it
LEVEL_REQUESTS = 2


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A system, with its own controller unless another one is named."""

    system: System
    controller: str = ""


MAIN = tuple(Contestant(system) for system in ("sakura", "intq", "cachegen", "full_cache", "on_device"))
VARIANTS = (
    Contestant("sakura", "choose-before-send"),
    Contestant("sakura", "deadline"),
    Contestant("sakura", "robust-mpc"),
    Contestant("cachegen", "fixed:-1"),
    Contestant("cachegen", NEAREST),
)


@dataclasses.dataclass(frozen=True)
class Planned:
    """One held-out request of a workload, as it is asked of the studio; where it starts is a place of its own."""

    workload: str
    number: int
    template: TemplateAssets
    asked: EditRequest


@contextmanager
def running_studio() -> Iterator[Studio]:
    """A studio with a cloud and a device on this machine, ready for edits."""
    studio = Studio()
    try:
        with LocalRoles(studio):
            yield studio
    finally:
        studio.close()


def planned_requests(library: TemplateLibrary, requests: int, trace: Trace, rtt_s: float) -> list[Planned]:
    """``requests`` held-out requests a workload over its drawn templates in turn, at random places of the trace."""
    planned = []
    for workload, task in WORKLOADS.items():
        templates = [template for template in library if template.task == task and template.person is not None]
        for index, template in enumerate(templates):
            share = len(range(index, requests, len(templates)))
            for order, request in enumerate(held_out_requests(template, share) if share else []):
                number = index + order * len(templates)
                offset_s = random.Random(f"{trace.name}/{workload}/{number}").uniform(0, trace.duration_s)
                asked = _asked(template, request, trace, rtt_s, offset_s)
                planned.append(Planned(workload, number, template, asked))
    return sorted(planned, key=lambda each: each.number)


def _asked(template: TemplateAssets, request: Request, trace: Trace, rtt_s: float, offset_s: float) -> EditRequest:
    return EditRequest(
        template_id=template.template_id,
        system="sakura",
        trace=trace,
        reference=request.reference,
        prompt=prompt_for(template.subject, request.words) if request.reference is None else "",
        rtt_s=rtt_s,
        trace_offset_s=offset_s,
        seed=request.seed,
        measure=False,
    )


def run_edit(studio: Studio, request: EditRequest) -> list[AnyEvent]:
    """Run a request to its end and return its events. Raises UserError where it fails."""
    run_id = studio.start(request)
    events = [event for new in studio.follow(run_id, RUN_TIMEOUT_S) for event in new]
    for event in events:
        if isinstance(event, RunFailed):
            raise UserError(event.reason)
    return events


def finished(events: Sequence[AnyEvent]) -> RunFinished:
    """The last event of a run that came to its end."""
    return next(event for event in events if isinstance(event, RunFinished))


def measure_live(
    studio: Studio,
    store: CacheStore,
    library: TemplateLibrary,
    networks: Sequence[Trace],
    contestants: Sequence[Contestant],
    *,
    requests: int,
    rtt_s: float,
    progress: Callable[[float], None],
    full_cache_every: int = FULL_CACHE_EVERY,
) -> list[Row]:
    """Every request under every contestant in turn, so that all share the machine's mood; one row an edit.

    The cache that is on the device already and the device alone are measured with each request: they give the limit,
    and the picture that quality is measured against.
    """
    levels = _Levels(store)
    rows: list[Row] = []
    for place, trace in enumerate(networks):
        planned = planned_requests(library, requests, trace, rtt_s)
        for template_id in {each.template.template_id for each in planned}:
            for system in {contestant.system for contestant in contestants} - {"on_device"}:
                studio.plan(template_id, system)
        pilot_db: dict[str, float] = {}
        for done, each in enumerate(planned):
            rows += _measure_request(studio, each, contestants, levels, pilot_db, full_cache_every)
            progress((place + (done + 1) / len(planned)) / len(networks))
    return rows


def _measure_request(
    studio: Studio,
    planned: Planned,
    contestants: Sequence[Contestant],
    levels: "_Levels",
    pilot_db: dict[str, float],
    full_cache_every: int,
) -> list[Row]:
    """``pilot_db`` keeps each workload's first PSNR of SAKURA on this network."""
    asked = planned.asked
    resident = dataclasses.replace(asked, system="resident_cache")
    run_edit(studio, resident)  # brings the cache to the device
    active = finished(run_edit(studio, resident))
    alone = run_edit(studio, dataclasses.replace(asked, system="on_device"))
    reference = from_png(active.picture_png)
    if planned.workload not in pilot_db:
        # Under its name the controller is another one to the device: what the pilot learns serves nobody.
        pilot = finished(run_edit(studio, dataclasses.replace(asked, controller=STREAMED["sakura"].controller)))
        pilot_db[planned.workload], _ = masked_psnr_ssim(from_png(pilot.picture_png), reference, planned.template.mask)
    found = []
    for contestant in contestants:
        if contestant.system == "full_cache" and planned.number % full_cache_every:
            continue
        controller = contestant.controller
        if controller == NEAREST:
            controller = levels.nearest(planned.template, contestant.system, pilot_db[planned.workload])
        chosen = dataclasses.replace(asked, system=contestant.system, controller=controller)
        events = alone if contestant.system == "on_device" else run_edit(studio, chosen)
        psnr, ssim = masked_psnr_ssim(from_png(finished(events).picture_png), reference, planned.template.mask)
        found.append(
            {
                "scale": "nano",
                "workload": planned.workload,
                "network": asked.trace.title,
                "mean_mbps": asked.trace.mean_mbps,
                "system": contestant.system,
                "controller": contestant.controller or "own",
                "request": planned.number,
                "template": planned.template.template_id,
                "mask_share": float(planned.template.mask.mean()),
                "rtt_s": asked.rtt_s,
                "limit_s": active.latency_s + asked.rtt_s,
                "on_device_s": finished(alone).latency_s,
                **_measured(events),
                "psnr_mask_db": psnr,
                "ssim_mask": ssim,
            }
        )
    return found


def _measured(events: Sequence[AnyEvent]) -> Row:
    """What a run's events say of it; ``first_wait_s`` is how long execution stood still for the first shard."""
    end = finished(events)
    return {
        "latency_s": end.latency_s,
        "press_to_picture_s": end.press_to_picture_s,
        "received_bytes": end.received_bytes,
        "network_wait_s": end.network_wait_s,
        "first_wait_s": first_wait_s(events),
        "compute_s": compute_s(events),
        "local_shards": local_shards(events),
        "distortion": mean_distortion(events),
    }


def measure_along(
    studio: Studio,
    planned: Planned,
    starts_s: Sequence[float],
    contestants: Sequence[Contestant],
    progress: Callable[[float], None],
) -> list[Row]:
    """One request under every contestant, again and again from other places of its trace."""
    for system in {contestant.system for contestant in contestants}:
        studio.plan(planned.template.template_id, system)
    rows: list[Row] = []
    for done, start_s in enumerate(starts_s):
        for contestant in contestants:
            asked = dataclasses.replace(
                planned.asked,
                system=contestant.system,
                controller=contestant.controller,
                trace_offset_s=start_s,
            )
            rows.append(
                {
                    "scale": "nano",
                    "network": asked.trace.title,
                    "system": contestant.system,
                    "controller": contestant.controller or "own",
                    "start_s": start_s,
                    **_measured(run_edit(studio, asked)),
                }
            )
        progress((done + 1) / len(starts_s))
    return rows


class _Levels:
    """How good each level of a codec is on a template, measured once with a few requests."""

    def __init__(self, store: CacheStore) -> None:
        self._store = store
        self._known: dict[tuple[str, System], list[float]] = {}

    def nearest(self, template: TemplateAssets, system: System, target_db: float) -> str:
        """The controller that always sends the level whose PSNR is nearest to the target."""
        key = template.template_id, system
        if key not in self._known:
            case = make_case(self._store, template, LEVEL_REQUESTS)
            stored = Stored(self._store.editor, case, streamed_codec(STREAMED[system].codec))
            self._known[key] = [stored.at_level(level).mask_psnr_db for level in range(stored.levels)]
        known = self._known[key]
        level = min(range(len(known)), key=lambda each: abs(known[each] - target_db))
        return f"fixed:{-1 - level}"
