"""The commands on network traces."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sakura.errors import UserError

if TYPE_CHECKING:
    from sakura.network.trace import Trace

traces_app = typer.Typer(no_args_is_help=True, help="Network traces.")


def _facts(trace: "Trace") -> dict[str, Any]:
    """What was read, by name; ``notes`` is a list of sentences."""
    return {
        "format": trace.format,
        "unit": trace.unit,
        "duration_s": trace.duration_s,
        "mean_mbps": trace.mean_mbps,
        "min_mbps": trace.min_mbps,
        "max_mbps": trace.max_mbps,
        "notes": list(trace.notes),
    }


def _inspected(file: str, column: str | None) -> "Trace":
    """A file, or a shipped trace by its id. Raises UserError."""
    from sakura.network.formats import ColumnNeededError, load_trace
    from sakura.network.library import load_library_trace, trace_ids

    if not file.strip():
        raise UserError(f"Name a trace file, or one of {', '.join(trace_ids())}.")
    if file in trace_ids() and not Path(file).exists():
        if column:
            raise UserError(f"{file} is a shipped trace and has one rate; leave --column out.")
        return load_library_trace(file)
    try:
        return load_trace(Path(file), Path(file).name or file, column=column)
    except ColumnNeededError as error:
        raise UserError(f"{str(error).removesuffix('.')} with --column.") from error


def _write_json(path: Path, facts: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); choose another file.") from error


@traces_app.command("inspect")
def inspect_trace(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A trace file, or the id of a shipped trace.")],
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the same as JSON here too.")] = None,
    column: Annotated[str | None, typer.Option(help="Which rate to read, where the file has several.")] = None,
) -> None:
    """What a trace file was read as: format, unit, duration, rates, and what was assumed or left out."""
    try:
        facts = _facts(_inspected(file, column))
        if json_file:
            _write_json(json_file, facts)
    except UserError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from error
    for name, value in facts.items():
        if name == "notes":
            for note in value:
                typer.echo(f"{'note':12}{note}")
        else:
            typer.echo(f"{name:12}{value:.6g}" if isinstance(value, float) else f"{name:12}{value}")


@traces_app.command("list")
def list_traces() -> None:
    """List the shipped traces with their durations and rates in Mbit/s."""
    from sakura.network.library import load_library_trace, trace_ids

    typer.echo(f"{'id':14}{'duration_s':>10}{'mean_mbps':>11}{'min_mbps':>10}{'max_mbps':>10}  title")
    for trace_id in trace_ids():
        trace = load_library_trace(trace_id)
        rates = f"{trace.mean_mbps:11.1f}{trace.min_mbps:10.2f}{trace.max_mbps:10.1f}"
        typer.echo(f"{trace_id:14}{trace.duration_s:10.0f}{rates}  {trace.title}")
