"""`python -m sakura bench bridge`: what delegating an edit over the bridge costs, against the runtime in-process.

Two processes hold the same device. One runs jobs that it is handed as they are; the other one is an agent at a hub, as
in the demo, with its events and its picture coming back over a websocket. They take turns with the same jobs.
"""

import asyncio
import multiprocessing
import secrets
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import msgspec

from device_bridge.hub import ConnectedDevice, Hub
from device_bridge.protocol import RunJob
from device_bridge.role import load
from sakura.errors import UserError
from sakura.events import AnyEvent, RunFailed, System
from sakura.pictures import from_png, to_png
from sakura.processes import Role, limit_threads
from sakura.runtime.device import Device, Job
from sakura.templates import TemplateAssets

SYSTEMS: tuple[System, ...] = ("resident_cache", "sakura")
DEVICE_TIMEOUT_S = 120.0


def bench_bridge(
    template: TemplateAssets, edits: int, progress: Callable[[float], None] = lambda done: None
) -> list[dict[str, object]]:
    """A row a system: medians of an edit in seconds both ways, and the share that the bridge adds. Raises UserError."""
    limit_threads()
    token = secrets.token_urlsafe(16)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    direct = context.Process(target=_run_directly, args=(theirs,), daemon=True)
    direct.start()
    theirs.close()  # or the end of that process would go unnoticed
    cloud = Role("cloud", "sakura.cloud.role:run_cloud", {"host": "127.0.0.1", "port": 0, "model": None})

    async def measure() -> list[dict[str, object]]:
        async with Hub(token) as hub:
            options = {"hub_url": hub.local_url, "token": token, "name": "Bench", "model": None, "threads": 1}
            device = Role("device", "device_bridge.role:run_device", options)
            cloud.start()
            device.start()
            try:
                url = f"ws://127.0.0.1:{await asyncio.to_thread(cloud.wait_ready)}"
                await asyncio.to_thread(device.wait_ready)
                async with asyncio.timeout(DEVICE_TIMEOUT_S):
                    while not hub.devices:
                        await asyncio.sleep(0.05)
                return await _compare(hub, hub.device(None), ours, template, url, edits, progress)
            finally:
                device.close()
                cloud.close()

    try:
        return asyncio.run(measure())
    except (EOFError, BrokenPipeError) as error:
        raise UserError("The device in-process has ended; what it said stands above.") from error
    finally:
        direct.kill()


async def _compare(
    hub: Hub,
    device: ConnectedDevice,
    direct: Connection,
    template: TemplateAssets,
    cloud_url: str,
    edits: int,
    progress: Callable[[float], None],
) -> list[dict[str, object]]:
    await hub.prepare(device, template.template_id, cloud_url, "sakura", lambda done: None)
    rows: list[dict[str, object]] = []
    requests = template.typical_requests(edits)
    for place, system in enumerate(SYSTEMS):
        bridged_s, direct_s = [], []
        for number in range(-1, edits):  # the first one only warms up
            request = requests[max(0, number)]
            job = RunJob(
                run_id=secrets.token_hex(4),
                template_id=template.template_id,
                cloud_url=cloud_url,
                system=system,
                words=list(request.words),
                reference_png=None if request.reference is None else to_png(request.reference),
                seed=request.seed,
                rate_budget_bytes=None,
                link_id=None,
                rtt_s=0.0,
                controller="",
            )
            began_s = time.perf_counter()
            async for event in hub.run(device, job):
                _check(event)
            over_bridge_s = time.perf_counter() - began_s
            await asyncio.to_thread(direct.send_bytes, msgspec.msgpack.encode(job))
            alone_s = msgspec.msgpack.decode(await asyncio.to_thread(direct.recv_bytes), type=float)
            if number >= 0:
                bridged_s.append(over_bridge_s)
                direct_s.append(alone_s)
            progress((place + (number + 1) / edits) / len(SYSTEMS))
        bridged, alone = statistics.median(bridged_s), statistics.median(direct_s)
        paired = statistics.median(over / without for over, without in zip(bridged_s, direct_s, strict=True))
        rows.append(
            {
                "system": system,
                "edits": edits,
                "in_process_s": alone,
                "over_the_bridge_s": bridged,
                "bridge_adds_share": bridged / alone - 1,
                "median_of_pairs_share": paired - 1,
            }
        )
    return rows


def _check(event: AnyEvent) -> None:
    if isinstance(event, RunFailed):
        raise UserError(event.reason)


def _run_directly(connection: Connection) -> None:
    """In a process of its own: run jobs without a bridge, and say how long each took."""
    editor, executor, _ = load("auto", None, 1)

    async def serve() -> None:
        device = Device(editor, "In-process", executor)
        while True:
            message = msgspec.msgpack.decode(await asyncio.to_thread(connection.recv_bytes), type=RunJob)
            began_s = time.perf_counter()
            fields = {name: getattr(message, name) for name in Job.__dataclass_fields__ if name != "reference"}
            reference = from_png(message.reference_png) if message.reference_png else None
            events: list[AnyEvent] = []
            job = Job(**{**fields, "words": tuple(message.words), "reference": reference})
            await device.run(job, message.cloud_url, events.append)
            connection.send_bytes(msgspec.msgpack.encode(time.perf_counter() - began_s))

    asyncio.run(serve())
