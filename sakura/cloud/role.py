"""The cloud as a process."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import torch

from sakura.backbone.editor import Editor
from sakura.cache.store import CacheStore
from sakura.cloud.server import CloudServer
from sakura.settings import MODEL_FOLDER, SHIPPED_TEMPLATES, cache_folder, own_templates
from sakura.templates import TemplateLibrary


def run_cloud(announce: Callable[[int], None], *, host: str, port: int, model: Path | None, threads: int = 1) -> None:
    """Serve caches until the process ends; ``announce`` is told the port."""
    logging.basicConfig(level=logging.WARNING, format="cloud: %(message)s")
    torch.set_num_threads(threads)
    store = CacheStore(cache_folder(), Editor.load(model or MODEL_FOLDER))
    library = TemplateLibrary(SHIPPED_TEMPLATES, own_templates())

    async def serve() -> None:
        async with CloudServer(store, library, host=host, port=port) as server:
            announce(server.port)
            await asyncio.Event().wait()

    asyncio.run(serve())
