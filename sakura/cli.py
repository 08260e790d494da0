"""Command line of SAKURA."""

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def main() -> None:
    """Template-based image editing whose reusable attention KV streams to the device."""


@app.command()
def cloud(
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    model: Annotated[Path | None, typer.Option(help="Checkpoint folder; the shipped one if absent.")] = None,
    with_parent: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Serve templates' caches to devices."""
    import asyncio

    import torch

    from sakura.backbone.editor import Editor
    from sakura.cache.store import CacheStore
    from sakura.cloud.server import CloudServer
    from sakura.processes import announce, run_role
    from sakura.settings import MODEL_FOLDER, SHIPPED_TEMPLATES, cache_folder, own_templates
    from sakura.templates import TemplateLibrary

    logging.basicConfig(level=logging.WARNING, format="cloud: %(message)s")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    store = CacheStore(cache_folder(), Editor.load(model or MODEL_FOLDER))

    async def serve() -> None:
        library = TemplateLibrary(SHIPPED_TEMPLATES, own_templates())
        async with CloudServer(store, library, host=host, port=port) as server:
            announce(server.port)
            await asyncio.Event().wait()

    run_role(serve(), with_parent=with_parent)
