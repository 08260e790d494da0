"""Records transcript.jsonl anew: a conversation of hub and agent for other implementations of the bridge protocol.

    python tests/device_bridge/record_transcript.py

One JSON line a frame: ``connection`` (counted from 0), ``from`` ("device" or "hub"), ``frame`` (base64 of its exact
bytes) and ``message`` (its content; bytes are base64 strings). The model is tiny and its pictures mean nothing.
"""

# ruff: noqa: E402

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import patch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent.parent)]

import msgspec
from bridges import ENGINE, Bridge, ignore
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from worlds import cloud_of, tiny_model, until, url_of, write_tiny_templates

from device_bridge.agent import RejectedError
from device_bridge.hub import QUICK_PROBES, Hub
from device_bridge.protocol import EngineReport, Placement, decode_from_device, decode_to_device
from sakura.backbone.editor import Editor
from sakura.cache.store import CacheStore
from sakura.errors import UserError
from sakura.events import AnyEvent, StepFinished

MOVED = EngineReport("none", placements=[Placement(0, 2, "qnn-htp", "torch-cpu", "it failed")])
TRANSCRIPT = HERE / "transcript.jsonl"


class Recorder:
    """Stands between devices and a hub, and writes down each frame."""

    def __init__(self, hub_url: str) -> None:
        self._hub_url, self.url = hub_url, ""
        self.lines: list[str] = []
        self._connections = 0

    async def serve(self, near: ServerConnection) -> None:
        connection, self._connections = self._connections, self._connections + 1
        async with connect(self._hub_url, compression=None, proxy=None, max_size=None) as far:

            async def up() -> None:
                async for data in near:
                    assert isinstance(data, bytes)
                    self._note(connection, "device", data, decode_from_device(data))
                    await far.send(data)

            async def down() -> None:
                async for data in far:
                    assert isinstance(data, bytes)
                    self._note(connection, "hub", data, decode_to_device(data))
                    await near.send(data)

            tasks = [asyncio.create_task(up()), asyncio.create_task(down())]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _note(self, connection: int, sender: str, data: bytes, message: msgspec.Struct) -> None:
        line = {
            "connection": connection,
            "from": sender,
            "frame": b64encode(data).decode(),
            "message": msgspec.to_builtins(message),
        }
        self.lines.append(json.dumps(line, ensure_ascii=False))


@contextlib.asynccontextmanager
async def recorder_of(hub_url: str) -> AsyncIterator[Recorder]:
    recorder = Recorder(hub_url)
    async with serve(recorder.serve, "127.0.0.1", 0, compression=None, max_size=None) as server:
        recorder.url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        yield recorder


async def _converse(bridge: Bridge, url: str) -> None:
    """Pair; come back and edit, stop an edit, ask for what there is not; be revoked."""
    hub = bridge.hub
    tokens: list[str] = []
    code = hub.pairing.new_code().code
    engines = [ENGINE]
    with patch("device_bridge.agent.STATUS_S", 0.1):
        async with bridge.agent("", url=url, pairing_code=code, on_token=tokens.append, engine=lambda: engines[-1]):
            await until(lambda: bool(hub.devices) and hub.device(None).clock is not None)
            engines.append(MOVED)
            await until(lambda: hub.device(None).engine == MOVED)
    await until(lambda: not hub.devices)
    async with bridge.agent(tokens[0], url=url) as agent:
        device = await bridge.device()
        await asyncio.sleep(0.1 * (QUICK_PROBES + 1))
        await hub.prepare(device, "tiny-face", bridge.cloud_url, "uncompressed", lambda done: None)
        with contextlib.suppress(UserError):
            await hub.prepare(device, "nowhere", bridge.cloud_url, "sakura", lambda done: None)
        await bridge.run(bridge.job("edit"), device, ignore)

        async def stop(event: AnyEvent) -> None:
            if isinstance(event, StepFinished):
                await hub.stop(device, "stopped")

        await bridge.run(bridge.job("stopped", await bridge.slow_link(0.2)), device, stop)
        await hub.revoke(device.device_id)
        with contextlib.suppress(RejectedError, ConnectionClosed):
            await agent


async def record(folder: Path) -> list[str]:
    """Lines of a new conversation."""
    templates = write_tiny_templates(folder / "templates")
    store = CacheStore(folder / "caches", Editor(tiny_model(), "tiny"))
    async with cloud_of(store, templates) as cloud, Hub("") as hub, recorder_of(hub.url) as recorder:
        await _converse(Bridge(hub, store.editor, url_of(cloud)), recorder.url)
    return recorder.lines


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SAKURA_HOME"] = folder
        lines = asyncio.run(asyncio.wait_for(record(Path(folder)), 60))
    TRANSCRIPT.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
