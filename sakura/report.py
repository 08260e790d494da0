"""A run told in a terminal, line by line as it happens."""

from pathlib import Path

import typer

from sakura.errors import UserError
from sakura.events import (
    AnyEvent,
    FellBack,
    LaneFinished,
    QualityMeasured,
    QualityScores,
    RunFailed,
    RunFinished,
    RunStarted,
    StepFinished,
    events_to_json,
)
from sakura.studio import EditRequest, Studio


def print_run(studio: Studio, request: EditRequest, out: Path, events_file: Path | None) -> None:
    """Run a request, tell what happens, write the picture and the events. Raises UserError if it fails."""
    for file in (out, events_file):
        if file and not file.parent.is_dir():
            raise UserError(f"There is no folder {file.parent}; create it, or choose another place for {file.name}.")
    typer.echo(f"Getting ready for template {request.template_id}")
    studio.plan(request.template_id, request.system)
    run_id = studio.start(request)
    events: list[AnyEvent] = []
    over = False
    while not over:
        over = studio.is_over(run_id)  # asked first: what is then read is all there will be
        new = studio.events(run_id, len(events), 1.0)
        events.extend(new)
        for event in new:
            _tell(event)
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


def _tell(event: AnyEvent) -> None:
    match event:
        case RunStarted():
            typer.echo(f"{event.device} edits with {event.system}: {event.steps} steps")
        case StepFinished():
            typer.echo(f"{event.at_s:7.3f} s  step {event.step + 1} done")
        case LaneFinished(lane="receive"):
            typer.echo(f"{event.at_s:7.3f} s  shard {event.shard + 1} received, {event.received_bytes:,} bytes")
        case FellBack():
            typer.echo(f"{event.at_s:7.3f} s  {event.reason}")
        case RunFinished():
            typer.echo(
                f"{event.latency_s:7.3f} s  done: {event.received_bytes:,} bytes received, "
                f"{event.network_wait_s * 1000:.0f} ms waiting for the network"
            )
        case QualityMeasured():
            _tell_scores("full-cache output", event.against_full_cache)
            _tell_scores("truth", event.against_truth)


def _tell_scores(what: str, scores: QualityScores | None) -> None:
    if scores is None:
        return
    typer.echo(
        f"Against the {what}: edited region {scores.mask_psnr_db:.1f} dB PSNR, {scores.mask_ssim:.3f} SSIM, "
        f"{scores.mask_lpips:.3f} LPIPS; whole picture {scores.psnr_db:.1f} dB, {scores.ssim:.3f}, {scores.lpips:.3f}"
    )
