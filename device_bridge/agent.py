"""The device's side of the bridge: connects to a hub, prepares templates, runs jobs, sends events."""

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from device_bridge.protocol import (
    MAX_MESSAGE_BYTES,
    PING_INTERVAL_S,
    PING_TIMEOUT_S,
    VERSION,
    Accepted,
    DeviceHello,
    FromDevice,
    NotPrepared,
    Prepare,
    Prepared,
    Preparing,
    Rejected,
    RunEvents,
    RunJob,
    StopJob,
    decode_to_device,
    encode,
)
from sakura.errors import UserError
from sakura.events import AnyEvent, RunFailed, is_last
from sakura.pictures import from_png
from sakura.runtime.device import Device, Job

log = logging.getLogger(__name__)

OUTBOX_MESSAGES = 4096
EVENTS_WAIT_S = 0.02


class RejectedError(Exception):
    """The hub does not want this device; trying again would not help."""


class Agent:
    """Keeps a device connected to a hub, coming back with growing pauses when the connection is lost."""

    def __init__(self, device: Device, hub_url: str, token: str) -> None:
        self.device, self.hub_url, self.token = device, hub_url, token

    async def run(self) -> None:
        """Serve until cancelled. Raises RejectedError."""
        options = {
            "max_size": MAX_MESSAGE_BYTES,
            "compression": None,
            "ping_interval": PING_INTERVAL_S,
            "ping_timeout": PING_TIMEOUT_S,
            "proxy": None,
        }
        async for connection in connect(self.hub_url, **options):  # type: ignore[arg-type]
            try:
                await _Session(self, connection).run()
            except ConnectionClosed:
                log.warning("The connection to %s was lost; trying again.", self.hub_url)


class _Batcher:
    """Collects a run's events for a moment, since a message costs more than an event; the last one goes at once."""

    def __init__(self, send: Callable[[list[AnyEvent]], None]) -> None:
        self._send = send
        self._events: list[AnyEvent] = []

    def __call__(self, event: AnyEvent) -> None:
        self._events.append(event)
        if is_last(event):
            self._flush()
        elif len(self._events) == 1:
            asyncio.get_running_loop().call_later(EVENTS_WAIT_S, self._flush)

    def _flush(self) -> None:
        if self._events:
            self._send(self._events)
            self._events = []


class _Session:
    """One connection to the hub."""

    def __init__(self, agent: Agent, connection: ClientConnection) -> None:
        self.agent, self.device, self.connection = agent, agent.device, connection
        self.outbox: asyncio.Queue[FromDevice] = asyncio.Queue(OUTBOX_MESSAGES)
        self.jobs: dict[str, asyncio.Task[None]] = {}
        self.others: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        hello = DeviceHello(VERSION, self.agent.token, self.device.name, self.device.engine.name)
        await self.connection.send(encode(hello))
        sender = asyncio.create_task(self._send())
        try:
            async for data in self.connection:
                self._handle(data if isinstance(data, bytes) else data.encode())
        finally:
            tasks = [sender, *self.jobs.values(), *self.others]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self) -> None:
        while True:
            await self.connection.send(encode(await self.outbox.get()))

    def _handle(self, data: bytes) -> None:
        try:
            message = decode_to_device(data)
        except msgspec.DecodeError:
            log.warning("The hub sent a message that this version cannot read.")
            return
        match message:
            case Accepted():
                log.info("Connected to %s as %s.", self.agent.hub_url, message.device_id)
            case Rejected():
                raise RejectedError(message.reason)
            case Prepare():
                task = asyncio.create_task(self._prepare(message))
                self.others.add(task)
                task.add_done_callback(self.others.discard)
            case RunJob():
                job = asyncio.create_task(self._run(message))
                self.jobs[message.run_id] = job
                job.add_done_callback(lambda _: self.jobs.pop(message.run_id, None))
            case StopJob():
                running = self.jobs.get(message.run_id)
                if running:
                    running.cancel()

    async def _prepare(self, message: Prepare) -> None:
        template_id, codec = message.template_id, message.codec
        try:
            prepared = await self.device.prepare(
                template_id,
                message.cloud_url,
                lambda done: self.outbox.put_nowait(Preparing(template_id, codec, done)),
                codec,
            )
        except UserError as error:
            self.outbox.put_nowait(NotPrepared(template_id, codec, str(error)))
            return
        profile = prepared.profile
        self.outbox.put_nowait(
            Prepared(template_id, codec, prepared.geometry, profile.active_step_s, profile.full_step_s)
        )

    async def _run(self, message: RunJob) -> None:
        began = time.perf_counter()

        emit = _Batcher(lambda events: self.outbox.put_nowait(RunEvents(message.run_id, events)))

        def fail(reason: str) -> None:
            emit(RunFailed(at_s=time.perf_counter() - began, reason=reason))

        try:
            job = Job(
                run_id=message.run_id,
                template_id=message.template_id,
                system=message.system,
                words=tuple(message.words),
                reference=from_png(message.reference_png) if message.reference_png else None,
                seed=message.seed,
                rate_budget_bytes=message.rate_budget_bytes,
                link_id=message.link_id,
                rtt_s=message.rtt_s,
                controller=message.controller,
            )
            await self.device.run(job, message.cloud_url, emit)
        except UserError as error:
            fail(str(error))
        except asyncio.CancelledError:
            fail("You stopped this edit.")
            raise
        except Exception:
            log.exception("A run failed")
            fail("The device failed during this edit; its log says why. Try again.")
