"""The device as a process: beside the studio that started it, or by itself for a studio elsewhere."""

import asyncio
import gc
import logging
import platform
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import torch

from device_bridge.agent import Agent
from device_bridge.engines import AUTO, new_executor, renewed, report
from device_bridge.protocol import EngineReport
from device_bridge.tokens import keep_token, known_tokens
from sakura.backbone.editor import Editor
from sakura.errors import UserError
from sakura.runtime.device import Device
from sakura.runtime.engine import Executor
from sakura.settings import MODEL_FOLDER

SWITCH_INTERVAL_S = 0.00005  # Python's default of 5 ms is as long as a whole shard takes to execute


def load(
    engine: str, model: Path | None, threads: int, soc: int | None = None
) -> tuple[Editor, Executor, EngineReport]:
    """A model, an engine for it, and what to tell about that engine. Raises UserError."""
    logging.basicConfig(level=logging.WARNING, format="device: %(message)s")
    torch.set_num_threads(threads)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    editor = Editor.load(model or MODEL_FOLDER)
    executor = new_executor(engine, editor, soc=soc)
    return editor, executor, report(editor, executor)


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
    """Run the edits of a hub whose token is known, until the process ends. Raises RejectedError and UserError."""
    loaded = load(engine, model, threads)
    _serve(lambda: announce(0), loaded, name, lambda device, told: Agent(device, hub_url, token, engine=told))


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        return False


def run_agent(
    hub_url: str,
    *,
    pairing_code: str,
    token: str,
    name: str,
    engine: str,
    model: Path | None,
    threads: int,
    ca: Path | None,
    soc: int | None,
) -> None:
    """Pair with a hub where need be, and run its edits until the process ends. Raises RejectedError and UserError."""
    hub_url = hub_url.rstrip("/")  # tokens are kept by it
    if not _is_address(hub_url):
        raise UserError(f"{hub_url!r} is no address of a hub; use ws://HOST:PORT or wss://HOST:PORT as the page shows.")
    token = token or ("" if pairing_code else known_tokens().get(hub_url, ""))
    if not token and not pairing_code:
        raise UserError(f"This machine is not paired with {hub_url}; add --pair with the code that its page shows.")
    tls = None
    if ca:
        try:
            tls = ssl.create_default_context(cafile=ca)
        except OSError as error:
            raise UserError(f"{ca} is no certificate ({error}); use the hub's PEM file.") from error
    loaded = load(engine, model, threads, soc)
    logging.getLogger("device_bridge").setLevel(logging.INFO)  # someone is looking on: say that it is connected

    def agent(device: Device, told: Callable[[], EngineReport]) -> Agent:
        return Agent(
            device,
            hub_url,
            token,
            pairing_code=pairing_code,
            on_token=lambda given: keep_token(hub_url, given),
            engine=told,
            tls=tls,
        )

    _serve(lambda: None, loaded, name or platform.node() or "Device", agent)


def _serve(
    ready: Callable[[], None],
    loaded: tuple[Editor, Executor, EngineReport],
    name: str,
    new_agent: Callable[[Device, Callable[[], EngineReport]], Agent],
) -> None:
    editor, executor, told = loaded
    # Nothing loaded so far will ever be garbage: looking through it again would stop an edit for tens of milliseconds.
    gc.collect()
    gc.freeze()

    async def serve() -> None:
        device = Device(editor, name[:64], executor)
        ready()
        try:
            await new_agent(device, lambda: renewed(told, executor)).run()
        finally:
            await device.close()

    asyncio.run(serve())
