"""The device's side of the bridge: connects to a hub, prepares templates, runs jobs, sends events."""

import asyncio
import collections
import contextlib
import logging
import ssl
import time
from collections.abc import Callable

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from device_bridge.protocol import (
    MAX_MESSAGE_BYTES,
    PING_INTERVAL_S,
    PING_TIMEOUT_S,
    VERSIONS,
    Accepted,
    ClockProbe,
    ClockReply,
    DeviceHello,
    EngineReport,
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
from device_bridge.telemetry import read_status
from sakura.errors import UserError
from sakura.events import AnyEvent, RunFailed, RunFinished, RunStarted, StepFinished, is_last
from sakura.pictures import from_png
from sakura.runtime.device import Device, Job

log = logging.getLogger(__name__)

EVENTS_WAIT_S = 0.02
MAX_WAITING_EVENTS = 1024  # of a run, before those that only tell of progress are left out
MAX_WAITING_MESSAGES = 256
STATUS_S = 5.0
FIRST_PAUSE_S, MAX_PAUSE_S, LONG_SESSION_S = 0.05, 10.0, 5.0
ESSENTIAL = RunStarted, StepFinished, RunFinished, RunFailed


class RejectedError(Exception):
    """The hub does not want this device; trying again would not help."""


class Agent:
    """Keeps a device connected to a hub, coming back with growing pauses when the connection is lost.

    A device is known by its ``token``; without one, it is paired with a ``pairing_code`` and ``on_token`` gets the
    token for the next time. ``tls`` is for wss with a certificate that the system does not know.
    """

    def __init__(
        self,
        device: Device,
        hub_url: str,
        token: str = "",
        *,
        pairing_code: str = "",
        on_token: Callable[[str], None] = lambda token: None,
        engine: EngineReport | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.device, self.hub_url, self.token, self.tls = device, hub_url, token, tls
        self.pairing_code, self.on_token = pairing_code, on_token
        self.engine = engine or EngineReport(device.engine.name)

    async def run(self) -> None:
        """Serve until cancelled. Raises RejectedError."""
        options = {
            "max_size": MAX_MESSAGE_BYTES,
            "compression": None,
            "ping_interval": PING_INTERVAL_S,
            "ping_timeout": PING_TIMEOUT_S,
            "proxy": None,
            **({"ssl": self.tls} if self.tls else {}),
        }
        pause_s = FIRST_PAUSE_S  # before going back to a hub that answers; connect() has its own for one that does not
        async for connection in connect(self.hub_url, **options):  # type: ignore[arg-type]
            began_s = time.monotonic()
            with contextlib.suppress(ConnectionClosed):
                await _Session(self, connection).run()
            pause_s = FIRST_PAUSE_S if time.monotonic() - began_s > LONG_SESSION_S else min(2 * pause_s, MAX_PAUSE_S)
            log.warning("The connection to %s was lost; trying again.", self.hub_url)
            await asyncio.sleep(pause_s)

    def hello(self) -> DeviceHello:
        code = "" if self.token else self.pairing_code
        return DeviceHello(VERSIONS, self.device.name, self.engine, self.token, code)

    def accepted(self, message: Accepted) -> None:
        log.info("Connected to %s as %s.", self.hub_url, message.device_id)
        if message.token:
            self.token = message.token
            self.on_token(message.token)


class _Outbox:
    """What waits to be sent. Events of a run are sent together; a hub that reads slowly makes nobody wait.

    When too many events of a run wait, the oldest that only tell of progress are left out, and counted.
    """

    def __init__(self) -> None:
        self._messages: collections.deque[FromDevice] = collections.deque()
        self._events: dict[str, list[AnyEvent]] = {}
        self._dropped: collections.Counter[str] = collections.Counter()
        self._filled, self._urgent = asyncio.Event(), asyncio.Event()

    def put(self, message: FromDevice) -> None:
        """Raises ConnectionError when the hub has taken nothing for so long that too much waits."""
        if len(self._messages) >= MAX_WAITING_MESSAGES:
            raise ConnectionError("The hub takes no messages")
        self._messages.append(message)
        self._filled.set()
        self._urgent.set()

    def put_event(self, run_id: str, event: AnyEvent) -> None:
        waiting = self._events.setdefault(run_id, [])
        waiting.append(event)
        if len(waiting) > MAX_WAITING_EVENTS:
            oldest = next((index for index, each in enumerate(waiting) if not isinstance(each, ESSENTIAL)), 0)
            del waiting[oldest]
            self._dropped[run_id] += 1
        self._filled.set()
        if is_last(event):
            self._urgent.set()

    async def send_all(self, connection: ClientConnection) -> None:
        """Send what comes, for ever. Raises ConnectionClosed."""
        while True:
            await self._filled.wait()
            with contextlib.suppress(TimeoutError):  # wait for more events: a message costs more than an event
                await asyncio.wait_for(self._urgent.wait(), EVENTS_WAIT_S)
            self._filled.clear()
            self._urgent.clear()
            while self._messages:
                await connection.send(encode(self._messages.popleft()))
            for run_id in list(self._events):
                events = self._events.pop(run_id)
                await connection.send(encode(RunEvents(run_id, events, self._dropped.pop(run_id, 0))))


class _Session:
    """One connection to the hub."""

    def __init__(self, agent: Agent, connection: ClientConnection) -> None:
        self.agent, self.device, self.connection = agent, agent.device, connection
        self.outbox = _Outbox()
        self.jobs: dict[str, asyncio.Task[None]] = {}
        self.others: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        await self.connection.send(encode(self.agent.hello()))
        background = [
            asyncio.create_task(self.outbox.send_all(self.connection)),
            asyncio.create_task(self._tell_status()),
        ]
        try:
            async for data in self.connection:
                self._handle(data if isinstance(data, bytes) else data.encode())
        except ConnectionError as error:
            log.warning("%s; connecting anew.", error)
        finally:
            tasks = [*background, *self.jobs.values(), *self.others]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _tell_status(self) -> None:
        while True:
            self.outbox.put(read_status())
            await asyncio.sleep(STATUS_S)

    def _handle(self, data: bytes) -> None:
        try:
            message = decode_to_device(data)
        except msgspec.DecodeError:
            log.warning("The hub sent a message that this version cannot read.")
            return
        match message:
            case Accepted():
                self.agent.accepted(message)
            case Rejected():
                if message.final:
                    raise RejectedError(message.reason)
                log.warning("The hub says: %s", message.reason)
            case ClockProbe():
                self.outbox.put(ClockReply(message.sent_s, time.monotonic()))
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
                lambda done: self.outbox.put(Preparing(template_id, codec, done)),
                codec,
            )
        except UserError as error:
            self.outbox.put(NotPrepared(template_id, codec, str(error)))
            return
        profile = prepared.profile
        self.outbox.put(Prepared(template_id, codec, prepared.geometry, profile.active_step_s, profile.full_step_s))

    async def _run(self, message: RunJob) -> None:
        began = time.perf_counter()

        def emit(event: AnyEvent) -> None:
            self.outbox.put_event(message.run_id, event)

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
