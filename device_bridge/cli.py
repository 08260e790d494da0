"""Command line of the bridge."""

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True)


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
    with_parent: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Connect to a hub and run its edits until stopped."""
    # Reconstruction runs beside execution: neither may take the other's core. Set before numpy is loaded.
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import torch

    from device_bridge.agent import Agent, RejectedError
    from sakura.backbone.editor import Editor
    from sakura.processes import announce, run_role
    from sakura.runtime.device import Device
    from sakura.settings import MODEL_FOLDER

    logging.basicConfig(level=logging.WARNING, format="device: %(message)s")
    torch.set_num_threads(threads)
    # The default of 5 ms is as long as a whole shard takes to execute.
    sys.setswitchinterval(0.0005)
    editor = Editor.load(model or MODEL_FOLDER)

    async def serve() -> None:
        device = Device(editor, name)
        announce(0)
        try:
            await Agent(device, connect, token).run()
        finally:
            await device.close()

    try:
        run_role(serve(), with_parent=with_parent)
    except RejectedError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    except asyncio.CancelledError:
        pass
