"""Small real things for tests: models of the real classes, templates of the portrait world, clouds and devices."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import torch
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from sakura.backbone.config import NanoConfig
from sakura.backbone.editor import Editor
from sakura.backbone.nano import NanoFlux2, new_model
from sakura.cache.store import CacheStore
from sakura.cloud.server import CloudServer
from sakura.portraits.tasks import Subject
from sakura.runtime.device import Device, Job
from sakura.templates import TemplateAssets, TemplateLibrary, make_template, save_template

TINY_PX = 32
TINY_STEPS = 3
TINY_CONFIG: dict[str, object] = {
    "num_layers": 2,
    "num_single_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 16,
    "timestep_guidance_channels": 32,
    "axes_dims_rope": (4, 4, 4, 4),
}
TINY_TEMPLATES: dict[str, Subject] = {"tiny-face": "face", "tiny-wear": "garment", "tiny-hat": "hat"}
# One shipped template a task.
SHIPPED_BY_TASK = {"face_swap": "face-bob", "try_on": "wear-beanie", "instruction": "say-hat"}


def tiny_model(seed: int = 0) -> NanoFlux2:
    """nano-flux2 at 32 px with four narrow blocks and random weights."""
    torch.manual_seed(seed)
    config = NanoConfig(name="tiny", picture_px=TINY_PX, steps=TINY_STEPS)
    return new_model(config, **TINY_CONFIG).eval().requires_grad_(False)


def tiny_template(template_id: str, index: int = 8) -> TemplateAssets:
    return make_template(template_id, template_id, TINY_TEMPLATES[template_id], index, TINY_PX)


def write_tiny_templates(folder: Path) -> TemplateLibrary:
    for template_id in TINY_TEMPLATES:
        save_template(tiny_template(template_id), folder / template_id)
    return TemplateLibrary(folder)


def job_for(template: TemplateAssets, *, system: str = "sakura", link_id: str | None = None, number: int = 0) -> Job:
    """A request that the cache was not captured with."""
    request = template.typical_requests(number + 6)[-1]
    return Job(
        run_id=f"run-{number}",
        template_id=template.template_id,
        system=system,  # type: ignore[arg-type]
        words=request.words,
        reference=request.reference,
        seed=100 + number,
        rate_budget_bytes=None,
        link_id=link_id,
        rtt_s=0.0,
    )


@contextlib.asynccontextmanager
async def cloud_of(store: CacheStore, templates: TemplateLibrary) -> AsyncIterator[CloudServer]:
    async with CloudServer(store, templates) as cloud:
        yield cloud


def url_of(cloud: CloudServer) -> str:
    return f"ws://{cloud.host}:{cloud.port}"


@contextlib.asynccontextmanager
async def device_of(editor: Editor) -> AsyncIterator[Device]:
    device = Device(editor, "Test device")
    try:
        yield device
    finally:
        await device.close()


class Relay:
    """Stands between a cloud and those who use it: records what they say, and may change what they are told."""

    def __init__(self, cloud_url: str) -> None:
        self.cloud_url, self.url = cloud_url, ""
        self.sent: list[list[bytes]] = []  # by connection
        self.alter: Callable[[bytes], bytes] = lambda data: data
        self.breaks_after: Callable[[bytes], bool] = lambda data: False  # resets the connection when this was told

    async def __aenter__(self) -> "Relay":
        self._server = await serve(self._serve, "127.0.0.1", 0, max_size=None, compression=None)
        self.url = f"ws://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, near: ServerConnection) -> None:
        async with connect(self.cloud_url, max_size=None, compression=None, proxy=None) as far:
            record: list[bytes] = []
            self.sent.append(record)

            async def up() -> None:
                async for data in near:
                    assert isinstance(data, bytes)
                    record.append(data)
                    await far.send(data)

            async def down() -> None:
                async for data in far:
                    assert isinstance(data, bytes)
                    await near.send(self.alter(data))
                    if self.breaks_after(data):
                        near.transport.abort()

            tasks = [asyncio.create_task(up()), asyncio.create_task(down())]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Let the loop work until ``condition`` holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0)
