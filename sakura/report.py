"""A run told in a terminal, line by line as it happens."""

from pathlib import Path

import typer

from sakura.errors import UserError
from sakura.events import (
    AnyEvent,
    FellBack,
    LaneFinished,
    NetworkChanged,
    NetworkWait,
    QualityMeasured,
    QualityScores,
    RunFailed,
    RunFinished,
    RunStarted,
    StepFinished,
    events_to_json,
)
from sakura.studio import EditRequest, Studio

RUN_TIMEOUT_S = 3600.0  # a whole cache over a slow network takes long, but not for ever


def print_run(studio: Studio, request: EditRequest, out: Path, events_file: Path | None) -> None:
    """Run a request, tell what happens, write the picture and the events. Raises UserError if it fails."""
    for file in (out, events_file):
        if file and not file.parent.is_dir():
            raise UserError(f"There is no folder {file.parent}; create it, or choose another place for {file.name}.")
    typer.echo(f"Getting ready for template {request.template_id}")
    studio.plan(request.template_id, request.system)
    run_id = studio.start(request)
    events: list[AnyEvent] = []
    teller = Teller()
    for new in studio.follow(run_id, RUN_TIMEOUT_S):
        events.extend(new)
        for event in new:
            teller.tell(event)
    for event in events:
        if isinstance(event, RunFinished):
            out.write_bytes(event.picture_png)
            typer.echo(f"Wrote {out}")
            if request.rate_budget_bytes is not None and event.received_bytes > request.rate_budget_bytes:
                typer.echo(f"The smallest that works for this template was {event.received_bytes:,} bytes.")
    if events_file:
        events_file.write_bytes(events_to_json(events) + b"\n")
    for event in events:
        if isinstance(event, RunFailed):
            raise UserError(event.reason)


WORTH_TELLING_S = 0.005  # waits shorter than this are told in the sum only


class Teller:
    """Tells a run in a line a step, and what a step did not go through smoothly for."""

    def __init__(self) -> None:
        self.received_bytes = 0
        self.shards: set[int] = set()  # those that this step has executed
        self.local: set[int] = set()  # and those of them without the cache, where there is one
        self.streamed = True
        self.steps = 0

    def tell(self, event: AnyEvent) -> None:
        match event:
            case RunStarted():
                self.streamed, self.steps = event.system != "on_device", event.steps
                typer.echo(f"{event.device} edits with {event.system}: {event.steps} steps")
            case LaneFinished(lane="receive"):
                self.received_bytes += event.received_bytes
            case LaneFinished(lane="execute"):
                self.shards.add(event.shard)
                if event.on_device:
                    self.local.add(event.shard)
            case StepFinished():
                self._tell_step(f"step {event.step + 1} done", event.at_s)
            case NetworkWait() if event.at_s - event.started_s >= WORTH_TELLING_S:
                waited_ms = 1000 * (event.at_s - event.started_s)
                typer.echo(f"{event.at_s:7.3f} s  waited {waited_ms:.0f} ms for shard {event.shard + 1}")
            case FellBack():
                typer.echo(f"{event.at_s:7.3f} s  shard {event.shard + 1}: {event.reason}")
            case NetworkChanged():
                typer.echo(f"{event.at_s:7.3f} s  the network is now {event.title}")
            case RunFinished():
                self.received_bytes = event.received_bytes
                self._tell_step(f"step {self.steps} done", event.latency_s)
                typer.echo(
                    f"{event.latency_s:7.3f} s  done: {event.received_bytes:,} bytes received, "
                    f"{event.network_wait_s * 1000:.0f} ms waiting for the network"
                )
            case QualityMeasured():
                _tell_scores("full-cache output", event.against_full_cache)
                _tell_scores("truth", event.against_truth)

    def _tell_step(self, what: str, at_s: float) -> None:
        words = [what]
        if self.streamed:
            words.append(f"{self.received_bytes:,} bytes so far")
        if self.streamed and self.local:
            words.append(f"{len(self.local)} of {len(self.shards)} shards without the cache")
        typer.echo(f"{at_s:7.3f} s  " + ", ".join(words))
        self.shards, self.local = set(), set()


def _tell_scores(what: str, scores: QualityScores | None) -> None:
    if scores is None:
        return
    typer.echo(
        f"Against the {what}: edited region {scores.mask_psnr_db:.1f} dB PSNR, {scores.mask_ssim:.3f} SSIM, "
        f"{scores.mask_lpips:.3f} LPIPS; whole picture {scores.psnr_db:.1f} dB, {scores.ssim:.3f}, {scores.lpips:.3f}"
    )
