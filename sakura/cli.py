"""Command line of SAKURA. Each command imports what it needs, so that help and errors come at once."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sakura.cli_traces import traces_app
from sakura.errors import UserError

if TYPE_CHECKING:
    from sakura.network.trace import Trace
    from sakura.studio import Studio

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
bench_app = typer.Typer(no_args_is_help=True, help="Measure; compare only numbers of one run.")
model_app = typer.Typer(no_args_is_help=True, help="The shipped model.")
cache_app = typer.Typer(no_args_is_help=True, help="Stored caches.")
templates_app = typer.Typer(no_args_is_help=True, help="Templates.")
app.add_typer(bench_app, name="bench")
app.add_typer(cache_app, name="cache")
app.add_typer(model_app, name="model")
app.add_typer(templates_app, name="templates")
app.add_typer(traces_app, name="traces")


@app.callback()
def main() -> None:
    """Template-based image editing whose reusable attention KV streams to the device."""


@contextlib.contextmanager
def _sentences() -> Iterator[None]:
    """End with one sentence, not a traceback, where the person can mend what is wrong."""
    try:
        yield
    except UserError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from error


@contextlib.contextmanager
def _studio() -> Iterator["Studio"]:
    from sakura.studio import LocalRoles, Studio

    studio = Studio()
    try:
        with LocalRoles(studio):
            yield studio
    finally:
        studio.close()


def _trace(name: str, column: str | None = None) -> "Trace":
    """A shipped trace by id, a constant rate such as "30" (Mbit/s), or a file and the column that holds its rates."""
    from sakura.network.formats import load_trace
    from sakura.network.library import constant_trace, load_library_trace, trace_ids

    if name in trace_ids():
        return load_library_trace(name)
    with contextlib.suppress(ValueError):
        return constant_trace(float(name))
    if not Path(name).exists():
        raise UserError(f"There is no trace {name!r}; use {', '.join(trace_ids())}, a number of Mbit/s, or a file.")
    return load_trace(Path(name), Path(name).name, column=column)


def _write_json(path: Path | None, value: object) -> None:
    text = json.dumps(value, indent=1)
    typer.echo(text)
    if path:
        _write(path, text + "\n")


def _write(path: Path, text: str) -> None:
    """Raises UserError where it cannot be written."""
    try:
        path.write_text(text)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); choose another file.") from error


@app.command()
def edit(
    template: Annotated[str, typer.Option(help="Template id; see `templates list`.")],
    out: Annotated[Path, typer.Option(help="Where the picture goes (PNG).")],
    reference: Annotated[Path | None, typer.Option(help="Reference picture (face swap, try-on).")] = None,
    prompt: Annotated[str, typer.Option(help="Instruction, for instruction templates.")] = "",
    system: Annotated[str, typer.Option(help="sakura, intq, cachegen, full_cache or on_device.")] = "sakura",
    trace: Annotated[str, typer.Option(help="Trace id, a number of Mbit/s, or a file.")] = "5g-static",
    column: Annotated[str | None, typer.Option(help="Column of the trace file, where it has several.")] = None,
    controller: Annotated[str, typer.Option(help="Controller; the system's own if absent.")] = "",
    rate_budget: Annotated[int | None, typer.Option("--bytes", help="Bytes to spend; automatic if absent.")] = None,
    rtt_ms: Annotated[float, typer.Option(min=0, max=5000, help="Round trip of the emulated link.")] = 20,
    offset_s: Annotated[float, typer.Option(min=0, help="Where on the trace to start.")] = 0,
    seed: Annotated[int, typer.Option(help="Varies the result.")] = 0,
    events: Annotated[Path | None, typer.Option(help="Write the run's events as JSON.")] = None,
) -> None:
    """Edit a template: the same cloud, link and device as on the page, started for this one edit."""
    with _sentences():
        from sakura.control import new_controller
        from sakura.events import RACE_SYSTEMS
        from sakura.pictures import read_picture
        from sakura.report import print_run
        from sakura.studio import EditRequest

        if controller:
            new_controller(controller)
        chosen = next((known for known in RACE_SYSTEMS if known == system.replace("-", "_")), None)
        if chosen is None:
            raise UserError(f"There is no system {system!r}; use {', '.join(RACE_SYSTEMS)}.")
        picture = None
        if reference:
            if not reference.exists():
                raise UserError(f"There is no file {reference}; check the path.")
            read = read_picture(reference, reference.name)
            picture = read.pixels
            for note in read.notes:
                typer.echo(note)
        request = EditRequest(
            template_id=template,
            system=chosen,
            trace=_trace(trace, column),
            reference=picture,
            prompt=prompt,
            controller=controller,
            rate_budget_bytes=rate_budget,
            rtt_s=rtt_ms / 1000,
            trace_offset_s=offset_s,
            seed=seed,
        )
        with _studio() as studio:
            print_run(studio, request, out, events)


@templates_app.command("list")
def list_templates() -> None:
    """List the templates with their tasks and edited shares."""
    with _sentences():
        from sakura.settings import SHIPPED_TEMPLATES, own_templates
        from sakura.templates import TemplateLibrary

        for template in TemplateLibrary(SHIPPED_TEMPLATES, own_templates()):
            typer.echo(f"{template.template_id:16} {template.task:12} {template.mask.mean():6.1%}  {template.title}")


@templates_app.command("add")
def add_template(
    picture: Annotated[Path, typer.Option(help="The template's picture.")],
    mask: Annotated[Path, typer.Option(help="Its mask: white is edited.")],
    subject: Annotated[str, typer.Option(help="face, garment, hair, hat, glasses, mouth, beard or outfit.")],
    title: Annotated[str, typer.Option(help="What people see.")] = "",
    invert: Annotated[bool, typer.Option(help="Black is edited instead.")] = False,
) -> None:
    """Add a template of your own; its cache is built at its first edit."""
    with _sentences():
        from sakura.pictures import invert as inverted
        from sakura.pictures import read_mask, read_picture
        from sakura.portraits.tasks import SUBJECT_REGIONS
        from sakura.templates import add_own_template

        known = next((name for name in SUBJECT_REGIONS if name == subject), None)
        if known is None:
            raise UserError(f"There is no subject {subject!r}; use one of {', '.join(SUBJECT_REGIONS)}.")
        for path in (picture, mask):
            if not path.exists():
                raise UserError(f"There is no file {path}; check the path.")
        read = read_picture(picture, picture.name)
        region = read_mask(mask, mask.name, (read.pixels.shape[1], read.pixels.shape[0]))
        if invert:
            region = inverted(region)
        for note in (*read.notes, *region.notes):
            typer.echo(note)
        typer.echo(f"The edit may change {region.share:.1%} of the picture (white is edited; --invert turns it round).")
        typer.echo(add_own_template(title or picture.stem, known, read.pixels, region.mask))


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Folder for the checkpoint and the state to resume from.")],
    samples: Annotated[int, typer.Option(min=1, help="Examples to see in all.")] = 200_000,
    batch: Annotated[int, typer.Option(min=1)] = 16,
    start_from: Annotated[Path | None, typer.Option(help="Begin with the weights of this checkpoint.")] = None,
    small_share: Annotated[float, typer.Option(min=0, max=1, help="Share of examples at half size, first.")] = 0.3,
    full_share: Annotated[float, typer.Option(min=0, max=1, help="Share with all tokens, last.")] = 0.3,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
) -> None:
    """Train nano-flux2 on the portrait world. The same command again resumes."""
    # Threads that spin while they wait take the cores from each other.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    import torch

    from sakura.backbone.training import TrainingPlan
    from sakura.backbone.training import train as run_training

    torch.set_num_threads(threads)
    plan = TrainingPlan(samples=samples, batch=batch, small_share=small_share, full_share=full_share)
    run_training(plan, out, start_from=start_from)


@model_app.command("evaluate")
def evaluate_model(
    samples: Annotated[int, typer.Option(min=1, help="Held-out examples a task.")] = 32,
    model: Annotated[Path | None, typer.Option(help="Checkpoint folder; the shipped one if absent.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the scores here too.")] = None,
) -> None:
    """Masked-region PSNR against the exact truth, on held-out examples."""
    import torch

    from sakura.backbone.editor import Editor
    from sakura.backbone.evaluate import evaluate
    from sakura.settings import MODEL_FOLDER

    torch.set_num_threads(threads)
    with typer.progressbar(length=3 * samples, label="Editing", file=typer.get_text_stream("stderr")) as bar:
        scores = evaluate(Editor.load(model or MODEL_FOLDER), samples, lambda done: bar.update(1))
    _write_json(json_file, {score.task: dataclasses.asdict(score) for score in scores})


@model_app.command("sensitivity")
def measure_sensitivity(
    model: Annotated[Path | None, typer.Option(help="Checkpoint folder; the shipped one if absent.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
) -> None:
    """Measure which blocks' keys and values the picture depends on, and keep it beside the checkpoint for encoding."""
    import numpy as np
    import torch

    from sakura.backbone.editor import Editor, capture
    from sakura.backbone.sensitivity import save_sensitivity, sensitivity_of
    from sakura.settings import MODEL_FOLDER, SHIPPED_TEMPLATES
    from sakura.templates import TemplateLibrary

    torch.set_num_threads(threads)
    folder = model or MODEL_FOLDER
    editor = Editor.load(folder)
    templates = list(TemplateLibrary(SHIPPED_TEMPLATES))
    measured = []
    with typer.progressbar(templates, label="Measuring", file=typer.get_text_stream("stderr")) as bar:
        for template in bar:
            picture, requests = template.for_editor(), template.typical_requests()
            measured.append(sensitivity_of(editor, picture, requests, capture(editor, picture, requests)))
    mean = np.mean(measured, axis=0)
    save_sensitivity(folder, mean / mean.mean())
    _write_json(None, {"keys": mean[:, 0].tolist(), "values": mean[:, 1].tolist()})


@cache_app.command("inspect")
def inspect_cache(
    cache: Annotated[str, typer.Argument(metavar="FILE_OR_URL", help="A .sakura file, or its URL.")],
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the same as JSON here too.")] = None,
) -> None:
    """What a stored cache holds: sizes by part, representations on offer, and whether it is whole."""
    with _sentences():
        from sakura.cache.inspect import describe, open_container, summarise

        summary = summarise(open_container(cache))
        if json_file:
            _write(json_file, json.dumps(dataclasses.asdict(summary), indent=1) + "\n")
        typer.echo(describe(summary))
        if summary.damaged_segments:
            raise UserError(f"{summary.name} is damaged; build or copy the cache again.")


@bench_app.command("codec")
def bench_codec(
    template: Annotated[str, typer.Option(help="The template to encode.")] = "face-hoodie",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the result here too.")] = None,
) -> None:
    """Seconds to encode a template, to reconstruct a shard, and memory, at nano and at FLUX.2 klein size."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))
    from sakura.backbone.editor import Editor
    from sakura.benchmarks.codec import bench_codec as run_benchmark
    from sakura.cache.store import CacheStore
    from sakura.settings import MODEL_FOLDER, SHIPPED_TEMPLATES, cache_folder, own_templates
    from sakura.templates import TemplateLibrary

    with _sentences():
        store = CacheStore(cache_folder(), Editor.load(MODEL_FOLDER))
        chosen = TemplateLibrary(SHIPPED_TEMPLATES, own_templates()).get(template)
        _write_json(json_file, run_benchmark(store, chosen, lambda what: typer.echo(what, err=True)))


@bench_app.command("engines")
def bench_engines(
    engine: Annotated[list[str] | None, typer.Option(help="Compare these; repeat it. The CPU's if absent.")] = None,
    threads: Annotated[int, typer.Option(min=1, max=64, help="CPU threads.")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the result here too.")] = None,
) -> None:
    """Seconds a step on each engine, and ratios to torch."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))
    import torch

    from sakura.backbone.editor import Editor
    from sakura.benchmarks.engines import CPU_ENGINES
    from sakura.benchmarks.engines import bench_engines as run_benchmark
    from sakura.settings import MODEL_FOLDER

    with _sentences():
        torch.set_num_threads(threads)
        rows = run_benchmark(
            Editor.load(MODEL_FOLDER), engine or CPU_ENGINES, progress=lambda what: typer.echo(what, err=True)
        )
        _write_json(json_file, rows)


@bench_app.command("bridge")
def bench_bridge(
    edits: Annotated[int, typer.Option(min=1, help="Edits each way.")] = 30,
    template: Annotated[str, typer.Option(help="The template to edit.")] = "face-hoodie",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the result here too.")] = None,
) -> None:
    """What an edit over the bridge takes more than one in-process; medians."""
    from sakura.benchmarks.bridge import bench_bridge as run_benchmark
    from sakura.settings import SHIPPED_TEMPLATES, own_templates
    from sakura.templates import TemplateLibrary

    with _sentences(), _progress("Editing") as progress:
        chosen = TemplateLibrary(SHIPPED_TEMPLATES, own_templates()).get(template)
        rows = run_benchmark(chosen, edits, progress)
    _write_json(json_file, rows)


@bench_app.command("edit")
def bench_edit(
    requests: Annotated[int, typer.Option(min=1, help="Requests a task.")] = 10,
    trace: Annotated[str, typer.Option(help="Trace id, a number of Mbit/s, or a file.")] = "5g-static",
    rtt_ms: Annotated[float, typer.Option(min=0, max=5000)] = 20,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the result here too.")] = None,
) -> None:
    """Latency of an edit under each system, through cloud, link and device; medians."""
    with _sentences():
        from sakura.backbone.editor import Editor
        from sakura.benchmarks.edit import CONTESTANTS, summarise
        from sakura.cache.store import CacheStore
        from sakura.settings import MODEL_FOLDER, SHIPPED_TEMPLATES, cache_folder
        from sakura.streaming.live import measure_live, running_studio
        from sakura.templates import TemplateLibrary

        chosen, rtt_s = _trace(trace), rtt_ms / 1000
        store = CacheStore(cache_folder(), Editor.load(MODEL_FOLDER))
        with running_studio() as studio, _progress("Editing") as progress:
            rows = measure_live(
                studio,
                store,
                TemplateLibrary(SHIPPED_TEMPLATES),
                [chosen],
                CONTESTANTS,
                requests=requests,
                rtt_s=rtt_s,
                progress=progress,
                full_cache_every=1,
            )
        summary = {**summarise(rows, rtt_s), "trace": chosen.name}
        if json_file:
            _write(json_file, json.dumps({**summary, "rows": rows}, indent=1) + "\n")
        typer.echo(json.dumps(summary, indent=1))


@contextlib.contextmanager
def _progress(words: str) -> Iterator[Callable[[float], None]]:
    """A bar on standard error, and what to call with the share that is done."""
    with typer.progressbar(length=1000, label=words, file=typer.get_text_stream("stderr")) as bar:

        def progress(done: float) -> None:
            bar.update(int(1000 * done) - bar.pos)

        yield progress


@app.command()
def reproduce(
    figure: Annotated[str, typer.Argument(help="fig2, fig3, fig8 to 13, fig15 to 19, table2, headline or ablation.")],
    quick: Annotated[bool, typer.Option("--quick", help="Few requests: a first look, in a minute.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write rows, claims and scope here.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the chart (SVG, PNG) and its rows (CSV).")] = None,
    scale: Annotated[str, typer.Option(help="nano: real sockets; paper: modelled, in virtual time.")] = "nano",
    trace: Annotated[
        list[str] | None, typer.Option(help="Trace id, Mbit/s or file instead of the figure's own; may be repeated.")
    ] = None,
    rows: Annotated[Path | None, typer.Option(help="Use the rows that headline --json wrote.")] = None,
    model: Annotated[Path | None, typer.Option(help="Checkpoint folder; the shipped one if absent.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
) -> None:
    """Measure a figure of the evaluation again, and judge what it claims."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))
    with _sentences():
        from sakura.figures import check_scope, figure_module, write_files
        from sakura.reproduce.figure import Scope, as_json, make_folder, rows_from

        module = figure_module(figure)
        for folder in filter(None, (out, json_file and json_file.parent)):
            make_folder(folder)
        if json_file and json_file.is_dir():
            raise UserError(f"{json_file} is a folder; give the name of a file.")
        import torch

        from sakura.backbone.editor import Editor
        from sakura.cache.store import CacheStore
        from sakura.settings import MODEL_FOLDER, SHIPPED_TEMPLATES, cache_folder
        from sakura.templates import TemplateLibrary

        torch.set_num_threads(threads)
        if scale not in ("nano", "paper"):
            raise UserError(f"There is no scale {scale!r}; use nano or paper.")
        networks = tuple(_trace(name) for name in trace or [])
        scope = Scope(quick, "paper" if scale == "paper" else "nano", networks, rows_from(rows) if rows else ())
        check_scope(figure, scope)
        editor = Editor.load(model or MODEL_FOLDER)
        with _progress("Measuring") as progress:
            store = CacheStore(cache_folder(), editor)
            measured = module.run(store, TemplateLibrary(SHIPPED_TEMPLATES), scope, progress)
        typer.echo(module.summary(measured).to_string(index=False))
        if scope.scale == "paper":
            from sakura.streaming.paper import assumptions

            typer.echo("\n" + "\n".join(assumptions()))
        for claim in measured.claims:
            stated = "" if claim.paper is None else f" (paper: {claim.paper})"
            typer.echo(f"\n{'yes' if claim.holds else 'NO '}  {claim.claim}{stated}\n     {claim.ours}")
        if json_file:
            _write(json_file, as_json(measured, scope, editor.fingerprint))
        for path in write_files(measured, out) if out else []:
            typer.echo(f"Wrote {path}", err=True)


@app.command()
def cloud(
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    model: Annotated[Path | None, typer.Option(help="Checkpoint folder; the shipped one if absent.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads for building caches.")] = 2,
) -> None:
    """Serve templates' caches to devices."""
    from sakura.cloud.role import run_cloud

    def announce(actual: int) -> None:
        typer.echo(f"Serving caches at ws://{host}:{actual}")

    with contextlib.suppress(KeyboardInterrupt):
        run_cloud(announce, host=host, port=port, model=model, threads=threads)
