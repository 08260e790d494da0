"""The device's side of the bridge: connects to a hub, prepares templates, runs jobs, sends events."""

import asyncio
import collections
import contextlib
import logging
import ssl
import time
from collections.abc import Callable, Iterator

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.client import process_exception as whether_to_retry
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from device_bridge.liveness import break_off, end_when_stuck
from device_bridge.protocol import (
    CLOSE_TIMEOUT_S,
    MAX_FRAME_EVENTS,
    MAX_MESSAGE_BYTES,
    MAX_SENTENCE,
    PING_INTERVAL_S,
    PING_TIMEOUT_S,
    VERSIONS,
    Accepted,
    ClockProbe,
    ClockReply,
    DeviceHello,
    DeviceStatus,
    EngineChanged,
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
FRAME_BYTES = 1024 * 1024  # of events, about: pictures of several go into one frame only up to here
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
        engine: Callable[[], EngineReport] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.device, self.hub_url, self.token, self.tls = device, hub_url, token, tls
        self.pairing_code, self.on_token = pairing_code, on_token
        self.engine = engine or (lambda: EngineReport(device.engine.name))
        self._told_unreachable = False

    async def run(self) -> None:
        """Serve until cancelled. Raises RejectedError, and UserError where no hub can be at that address."""
        options = {
            "max_size": MAX_MESSAGE_BYTES,
            "compression": None,
            "ping_interval": PING_INTERVAL_S,
            "ping_timeout": PING_TIMEOUT_S,
            "close_timeout": CLOSE_TIMEOUT_S,
            "process_exception": self._whether_to_retry,
            "proxy": None,
            **({"ssl": self.tls} if self.tls else {}),
        }
        pause_s = FIRST_PAUSE_S  # before going back to a hub that answers; connect() has its own for one that does not
        try:
            connections = connect(self.hub_url, **options)  # type: ignore[arg-type]
        except InvalidURI as error:
            raise self._no_hub(error) from error
        async for connection in connections:
            began_s = time.monotonic()
            self._told_unreachable = False
            with contextlib.suppress(ConnectionClosed):
                await _Session(self, connection).run()
            pause_s = FIRST_PAUSE_S if time.monotonic() - began_s > LONG_SESSION_S else min(2 * pause_s, MAX_PAUSE_S)
            log.warning("The connection to %s was lost; trying again.", self.hub_url)
            await asyncio.sleep(pause_s)

    def _whether_to_retry(self, error: Exception) -> Exception | None:
        """What to raise because of a connection that could not be opened, or None to try again."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return UserError(
                f"The certificate of {self.hub_url} is not trusted here ({error.verify_message}); "
                "give the hub's PEM file with --ca, and use a name or address that it was made for."
            )
        if isinstance(error, InvalidHandshake) and whether_to_retry(error):
            return self._no_hub(error)
        # All else may pass, also what a transport makes of a connection that breaks while much is being sent.
        if not self._told_unreachable:
            reason = str(error) or type(error).__name__
            log.warning("%s cannot be reached (%s); trying on. Is it ws:// or wss://?", self.hub_url, reason)
            self._told_unreachable = True
        return None

    def _no_hub(self, error: Exception) -> UserError:
        return UserError(f"No hub answers at {self.hub_url} ({error}); use the address that its page shows.")

    def hello(self) -> DeviceHello:
        code = "" if self.token else self.pairing_code
        return DeviceHello(VERSIONS, self.device.name, self.engine(), self.token, code)

    def accepted(self, message: Accepted) -> None:
        log.info("Connected to %s as %s.", self.hub_url, message.device_id)
        if message.token:
            self.token = message.token
            try:
                self.on_token(message.token)
            except OSError as error:
                log.warning("The token cannot be kept (%s); after a restart this device needs a new code.", error)


class _Outbox:
    """What waits to be sent. Events of a run are sent together; a hub that reads slowly makes nobody wait.

    When too many events of a run wait, the oldest that only tell of progress are left out, and counted. Of messages
    that say how things are, only the latest waits.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._messages: collections.deque[FromDevice] = collections.deque()
        self._latest: dict[tuple[str, ...], FromDevice] = {}
        self._events: dict[str, list[AnyEvent]] = {}
        self._dropped: collections.Counter[str] = collections.Counter()
        self._filled, self._urgent = asyncio.Event(), asyncio.Event()

    def put(self, message: FromDevice) -> None:
        """Breaks the connection off when the hub has taken nothing for so long that too much waits."""
        match message:
            case DeviceStatus():
                self._latest["status",] = message
            case Preparing():
                self._latest[message.template_id, message.codec] = message
            case _:
                if len(self._messages) >= MAX_WAITING_MESSAGES:
                    log.warning("The hub takes no messages; connecting anew.")
                    break_off(self._connection)
                    return
                if isinstance(message, Prepared | NotPrepared):
                    self._latest.pop((message.template_id, message.codec), None)
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

    async def send_all(self) -> None:
        """Send what comes, for ever. Raises ConnectionClosed."""
        while True:
            await self._filled.wait()
            with contextlib.suppress(TimeoutError):  # wait for more events: a message costs more than an event
                async with asyncio.timeout(EVENTS_WAIT_S):  # wait_for of Python 3.11 may lose a cancellation
                    await self._urgent.wait()
            self._filled.clear()
            self._urgent.clear()
            while self._messages or self._latest:
                message = self._messages.popleft() if self._messages else self._latest.pop(next(iter(self._latest)))
                await self._connection.send(encode(message))
            for run_id in list(self._events):
                events, dropped = self._events.pop(run_id), self._dropped.pop(run_id, 0)
                for part in _in_frames(events):
                    await self._connection.send(encode(RunEvents(run_id, part, dropped)))
                    dropped = 0


def _in_frames(events: list[AnyEvent]) -> Iterator[list[AnyEvent]]:
    """Events in parts that each fit in a message."""
    part: list[AnyEvent] = []
    part_bytes = 0
    for event in events:
        size_bytes = len(getattr(event, "preview_png", b"")) + len(getattr(event, "picture_png", b""))
        if part and (part_bytes + size_bytes > FRAME_BYTES or len(part) == MAX_FRAME_EVENTS):
            yield part
            part, part_bytes = [], 0
        part.append(event)
        part_bytes += size_bytes
    yield part


class _Session:
    """One connection to the hub."""

    def __init__(self, agent: Agent, connection: ClientConnection) -> None:
        self.agent, self.device, self.connection = agent, agent.device, connection
        self.outbox = _Outbox(connection)
        self.jobs: dict[str, asyncio.Task[None]] = {}
        self.others: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until the connection is lost, or one of what keeps it going fails. Raises RejectedError."""
        await self.connection.send(encode(self.agent.hello()))
        going = [
            asyncio.create_task(self._receive()),
            asyncio.create_task(self.outbox.send_all()),
            asyncio.create_task(self._tell_status()),
            asyncio.create_task(end_when_stuck(self.connection)),
        ]
        try:
            await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
            for task in going:
                if task.done():
                    task.result()
        finally:
            tasks = [*going, *self.jobs.values(), *self.others]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _receive(self) -> None:
        async for data in self.connection:
            self._handle(data if isinstance(data, bytes) else data.encode())

    async def _tell_status(self) -> None:
        told = self.agent.engine()
        while True:
            if told != self.agent.engine():
                told = self.agent.engine()
                self.outbox.put(EngineChanged(told))
            self.outbox.put(await asyncio.to_thread(read_status))  # some sensors are slow to answer
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
                if message.run_id in self.jobs:
                    log.warning("The hub asked twice for the same run.")
                    return
                began_s = time.perf_counter()
                job = asyncio.create_task(self._run(message, began_s))
                self.jobs[message.run_id] = job
                job.add_done_callback(lambda job: self._over(message.run_id, job, began_s))
            case StopJob():
                running = self.jobs.get(message.run_id)
                if running:
                    running.cancel()

    def _over(self, run_id: str, job: asyncio.Task[None], began_s: float) -> None:
        del self.jobs[run_id]
        if job.cancelled():  # perhaps before it had begun
            self.outbox.put_event(
                run_id, RunFailed(at_s=time.perf_counter() - began_s, reason="You stopped this edit.")
            )

    async def _prepare(self, message: Prepare) -> None:
        template_id, codec = message.template_id, message.codec
        try:
            prepared = await self.device.prepare(
                template_id,
                message.cloud_url,
                lambda done: self.outbox.put(Preparing(template_id, codec, min(1.0, max(0.0, done)))),
                codec,
            )
        except UserError as error:
            self.outbox.put(NotPrepared(template_id, codec, str(error)[:MAX_SENTENCE]))
            return
        except Exception:
            log.exception("Getting ready failed")
            reason = "The device failed to get ready; its log says why. Try again."
            self.outbox.put(NotPrepared(template_id, codec, reason))
            return
        profile = prepared.profile
        self.outbox.put(Prepared(template_id, codec, prepared.geometry, profile.active_step_s, profile.full_step_s))

    async def _run(self, message: RunJob, began_s: float) -> None:
        def emit(event: AnyEvent) -> None:
            self.outbox.put_event(message.run_id, event)

        def fail(reason: str) -> None:
            emit(RunFailed(at_s=time.perf_counter() - began_s, reason=reason))

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
        except Exception:
            log.exception("A run failed")
            fail("The device failed during this edit; its log says why. Try again.")
