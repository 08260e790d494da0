"""The device as a process."""

import asyncio
import gc
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from device_bridge.agent import Agent
from device_bridge.engines import AUTO, new_executor
from sakura.backbone.editor import Editor
from sakura.runtime.device import Device
from sakura.settings import MODEL_FOLDER

SWITCH_INTERVAL_S = 0.00005  # Python's default of 5 ms is as long as a whole shard takes to execute


def run_device(
    announce: Callable[[int], None],
    *,
    hub_url: str,
    token: str,
    name: str,
    model: Path | None,
    threads: int,
    engine: str = AUTO,
) -> None:
    """Connect to a hub and run its edits until the process ends.

    Raises RejectedError, and UserError where the engine cannot be used.
    """
    logging.basicConfig(level=logging.WARNING, format="device: %(message)s")
    torch.set_num_threads(threads)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    editor = Editor.load(model or MODEL_FOLDER)
    executor = new_executor(engine, editor)
    # Nothing loaded so far will ever be garbage: looking through it again would stop an edit for tens of milliseconds.
    gc.collect()
    gc.freeze()

    async def serve() -> None:
        device = Device(editor, name, executor)
        announce(0)
        try:
            await Agent(device, hub_url, token).run()
        finally:
            await device.close()

    asyncio.run(serve())
