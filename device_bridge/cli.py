"""Command line of the bridge."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def main() -> None:
    """Make this machine a device that runs edits for a studio."""


@app.command()
def agent(
    connect: Annotated[str, typer.Option(help="Address of the studio's hub, ws://HOST:PORT.")],
    token: Annotated[str, typer.Option(help="The hub's token.", envvar="SAKURA_DEVICE_TOKEN")] = "",
    name: Annotated[str, typer.Option(help="What people see.")] = "Laptop CPU",
    model: Annotated[Path | None, typer.Option(help="Checkpoint folder; the shipped one if absent.")] = None,
    threads: Annotated[int, typer.Option(min=1, max=64, help="Threads that execution may use.")] = 1,
) -> None:
    """Connect to a hub and run its edits until stopped."""
    from sakura.processes import limit_threads

    limit_threads()  # before numpy and torch are loaded
    from device_bridge.agent import RejectedError
    from device_bridge.role import run_device

    try:
        run_device(lambda _: None, hub_url=connect, token=token, name=name, model=model, threads=threads)
    except RejectedError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        pass
