"""`python -m sakura bench edit`: how long an edit takes under each system, all in one run."""

import dataclasses
import random
import statistics
import time
from collections.abc import Callable

from sakura.errors import UserError
from sakura.events import FellBack, RunFailed, RunFinished, System
from sakura.metrics import psnr_db
from sakura.network.trace import Trace
from sakura.pictures import from_png
from sakura.portraits.tasks import TASKS, Task, sample_request
from sakura.prompts import prompt_for
from sakura.studio import EditRequest, Studio
from sakura.templates import TemplateAssets

BENCH_SYSTEMS: tuple[System, ...] = ("on_device", "full_cache", "sakura", "resident_cache")
RUN_TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True)
class Measured:
    """One edit of the benchmark: seconds on the device and from press to picture, and what it cost."""

    task: Task
    template_id: str
    system: System
    latency_s: float
    press_to_picture_s: float
    received_bytes: int
    network_wait_s: float
    fell_back: bool
    mask_psnr_db: float | None


def _requests(studio: Studio, task: Task, count: int, trace: Trace, rtt_s: float) -> list[EditRequest]:
    """Requests over the task's templates in turn, each at a place of its own on the trace."""
    templates = [template for template in studio.library if template.task == task and template.person]
    found = []
    for number in range(count):
        rng = random.Random(f"bench/{task}/{number}")
        template = templates[number % len(templates)]
        assert template.person is not None
        sampled = sample_request(template.subject, template.person, rng, template.picture.shape[0])
        found.append(
            EditRequest(
                template_id=template.template_id,
                system="sakura",
                trace=trace,
                reference=sampled.reference,
                prompt=prompt_for(template.subject, sampled.words) if sampled.reference is None else "",
                rtt_s=rtt_s,
                trace_offset_s=rng.uniform(0, trace.duration_s),
                seed=number,
                measure=False,
            )
        )
    return found


def run_once(studio: Studio, request: EditRequest) -> tuple[RunFinished, float, bool]:
    """Run a request to its end: the last event, seconds from press to picture, whether it fell back."""
    began = time.perf_counter()
    run_id = studio.start(request)
    cursor, fell_back = 0, False
    while time.perf_counter() - began < RUN_TIMEOUT_S:
        events = studio.events(run_id, cursor, 1.0)
        cursor += len(events)
        for event in events:
            fell_back = fell_back or isinstance(event, FellBack)
            if isinstance(event, RunFailed):
                raise UserError(event.reason)
            if isinstance(event, RunFinished):
                return event, time.perf_counter() - began, fell_back
    raise UserError(f"An edit took longer than {RUN_TIMEOUT_S:.0f} s; the machine may be overloaded.")


def bench_edit(
    studio: Studio,
    trace: Trace,
    *,
    rtt_s: float,
    requests: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Measured]:
    """Edit ``requests`` times a task under each system in turn, so that all share the machine's mood."""
    measured: list[Measured] = []
    plans: list[tuple[Task, TemplateAssets, EditRequest]] = []
    for task in TASKS:
        found = _requests(studio, task, requests, trace, rtt_s)
        plans.extend((task, studio.library.get(request.template_id), request) for request in found)
    for template_id in {template.template_id for _, template, _ in plans}:
        studio.plan(template_id, "sakura")
    total = len(plans) * len(BENCH_SYSTEMS)
    for task, template, request in plans:
        pictures = {}
        for system in BENCH_SYSTEMS:
            chosen = dataclasses.replace(request, system=system)
            if system == "resident_cache":
                run_once(studio, chosen)  # brings the cache to the device
            finished, press_to_picture_s, fell_back = run_once(studio, chosen)
            pictures[system] = from_png(finished.picture_png)
            full = pictures.get("full_cache")
            mask = template.mask
            psnr = psnr_db(pictures[system][mask], full[mask]) if full is not None else None
            measured.append(
                Measured(
                    task,
                    template.template_id,
                    system,
                    finished.latency_s,
                    press_to_picture_s,
                    finished.received_bytes,
                    finished.network_wait_s,
                    fell_back,
                    psnr,
                )
            )
            progress(len(measured), total)
    return measured


def summarise(measured: list[Measured], rtt_s: float) -> dict[str, object]:
    """Medians over all requests and a task: latencies on the device, speed-ups and their limit."""

    def medians(rows: list[Measured]) -> dict[str, float]:
        def latency(system: System) -> float:
            return statistics.median(row.latency_s for row in rows if row.system == system)

        on_device, full, sakura, active = (latency(system) for system in BENCH_SYSTEMS)
        ours = [row for row in rows if row.system == "sakura"]
        limit = on_device / (active + rtt_s)
        return {
            "on_device_s": on_device,
            "full_cache_s": full,
            "sakura_s": sakura,
            "active_only_s": active,
            "speedup_vs_on_device": on_device / sakura,
            "speedup_vs_full_cache": full / sakura,
            "speedup_limit": limit,
            "share_of_limit": on_device / sakura / limit,
            "sakura_press_to_picture_s": statistics.median(row.press_to_picture_s for row in ours),
            "sakura_received_bytes": statistics.median(row.received_bytes for row in ours),
            "sakura_mask_psnr_db": statistics.median(row.mask_psnr_db or 0.0 for row in ours),
            "sakura_fell_back": sum(row.fell_back for row in ours),
        }

    by_task = {task: medians([row for row in measured if row.task == task]) for task in TASKS}
    return {**medians(measured), "rtt_s": rtt_s, "requests": len(measured) // len(BENCH_SYSTEMS), "tasks": by_task}
