"""Command line of the bridge."""

from pathlib import Path
from typing import Annotated, NoReturn

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

Model = Annotated[Path | None, typer.Option(help="Checkpoint folder; the shipped one if absent.")]
Engine = Annotated[
    str, typer.Option(help="auto, torch-cpu, onnxruntime-cpu, qnn-htp (Snapdragon) or qnn-htp-emulator (slow).")
]
Soc = Annotated[
    int | None, typer.Option(help="QAIRT's number of this machine's SoC, for qnn-htp where it is not known.")
]
Threads = Annotated[int, typer.Option(min=1, max=64, help="Threads that execution may use.")]


@app.callback()
def main() -> None:
    """Make this machine a device that runs edits for a studio."""


@app.command()
def agent(
    connect: Annotated[str, typer.Option(help="Address of the studio's hub, ws://HOST:PORT, as its page shows it.")],
    pair: Annotated[str, typer.Option(help="The code that the page shows; needed the first time only.")] = "",
    token: Annotated[str, typer.Option(help="A token instead of a code.", envvar="SAKURA_DEVICE_TOKEN")] = "",
    name: Annotated[str, typer.Option(help="What people see; this machine's name if absent.")] = "",
    engine: Engine = "auto",
    model: Model = None,
    threads: Threads = 1,
    soc: Soc = None,
    ca: Annotated[Path | None, typer.Option(help="Certificate to trust, for wss with one of your own.")] = None,
) -> None:
    """Connect to a hub and run its edits until stopped."""
    from sakura.processes import limit_threads

    limit_threads()  # before numpy and torch are loaded
    from device_bridge.agent import RejectedError
    from device_bridge.role import run_agent
    from sakura.errors import UserError

    try:
        run_agent(
            connect,
            pairing_code=pair,
            token=token,
            name=name,
            engine=engine,
            model=model,
            threads=threads,
            ca=ca,
            soc=soc,
        )
    except (RejectedError, UserError) as error:
        _fail(error)
    except KeyboardInterrupt:
        pass


@app.command()
def doctor(
    engine: Engine = "auto",
    model: Model = None,
    threads: Threads = 1,
    soc: Soc = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write what was found as JSON.")] = None,
) -> None:
    """Say what this machine can run edits on, test it, and measure how fast it is."""
    from sakura.processes import limit_threads

    limit_threads()
    from device_bridge.doctor import examine, told
    from sakura.errors import UserError

    if json_file and not json_file.absolute().parent.is_dir():
        _fail(UserError(f"There is no folder {json_file.absolute().parent} to write {json_file.name} to."))
    try:
        found = examine(engine, model, threads, soc, lambda line: typer.echo(line, err=True))
        if json_file:
            json_file.write_bytes(found.json())
    except (UserError, OSError) as error:
        _fail(error)
    typer.echo(told(found))


@app.command()
def export(
    out: Annotated[Path, typer.Option(help="Folder for the shards; what it held is replaced.")],
    model: Model = None,
    precision: Annotated[str, typer.Option(help="fp32, or fp16 for weights, inputs and outputs.")] = "fp32",
    padded: Annotated[bool, typer.Option(help="With a key bias that hides padding, as NPUs need it.")] = False,
    soc: Annotated[list[int] | None, typer.Option(help="Add context binaries for this SoC model; repeat it.")] = None,
    blocks_per_shard: Annotated[int, typer.Option(min=1, max=64, help="Blocks a shard.")] = 2,
) -> None:
    """Write a model's shards as ONNX files, each checked against torch."""
    from sakura.processes import limit_threads

    limit_threads()
    from device_bridge.export import export_model
    from sakura.errors import UserError

    try:
        manifest = export_model(
            model,
            out,
            precision,
            blocks_per_shard,
            padded=padded or bool(soc),
            socs=soc or [],
            progress=lambda done: typer.echo(f"{100 * done:.0f} % of the shards are written", err=True),
        )
    except OSError as error:
        _fail(UserError(f"{out} cannot be written ({error.strerror}); choose another folder."))
    except UserError as error:
        _fail(error)
    worst = max(shard.error for shard in manifest.shards)
    typer.echo(f"{len(manifest.shards)} shards in {out}; what they add is wrong by at most {worst:.1e} against torch.")


def _fail(error: Exception) -> NoReturn:
    typer.echo(f"Error: {error}", err=True)
    raise typer.Exit(1) from error
