"""The studio's side of the bridge: accepts devices, hands them jobs, receives their events."""

import asyncio
import collections
import contextlib
import dataclasses
import hmac
import itertools
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable

import msgspec
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from device_bridge.clocks import ClockOffset, OffsetEstimator
from device_bridge.pairing import Pairing
from device_bridge.protocol import (
    MAX_MESSAGE_BYTES,
    PING_INTERVAL_S,
    PING_TIMEOUT_S,
    VERSIONS,
    Accepted,
    ClockProbe,
    ClockReply,
    DeviceHello,
    DeviceStatus,
    NotPrepared,
    Prepare,
    Prepared,
    Preparing,
    Rejected,
    RunEvents,
    RunJob,
    StopJob,
    ToDevice,
    common_version,
    decode_from_device,
    encode,
)
from sakura.errors import UserError
from sakura.events import AnyEvent, RunFailed, is_last

log = logging.getLogger(__name__)

HELLO_TIMEOUT_S = 5.0
MAX_DEVICES = 32
MAX_RUN_EVENTS = 4096
RUNS_COUNTED = 64  # of whose messages a device remembers the number
QUICK_PROBES, QUICK_PROBE_S, PROBE_S = 5, 0.1, 10.0
NO_DEVICE = "No device is connected; the local one comes back by itself in a few seconds, then press Edit again."


@dataclasses.dataclass
class Traffic:
    """What came of a run: messages, bytes, and events that the device had to leave out."""

    frames: int = 0
    size_bytes: int = 0
    dropped: int = 0


class ConnectedDevice:
    """A device that said hello, and the conversations with it. ``paired``: with a token of its own, to be revoked."""

    def __init__(self, device_id: str, hello: DeviceHello, connection: ServerConnection, *, paired: bool) -> None:
        self.device_id, self.name, self.engine, self.paired = device_id, hello.name, hello.engine, paired
        self.connection = connection
        self.connected_s = time.monotonic()
        self.runs: dict[str, asyncio.Queue[AnyEvent]] = {}
        self.preparing: dict[tuple[str, str], list[_Preparation]] = {}
        self.status = DeviceStatus()
        self.traffic: collections.OrderedDict[str, Traffic] = collections.OrderedDict()
        self._offset = OffsetEstimator()

    @property
    def clock(self) -> ClockOffset | None:
        """How far its clock is from this one's."""
        return self._offset.offset()

    async def probe(self) -> None:
        """Ask what time it is there, for ever."""
        for number in itertools.count():
            await self.send(ClockProbe(time.monotonic()))
            await asyncio.sleep(QUICK_PROBE_S if number < QUICK_PROBES else PROBE_S)

    def took(self, reply: ClockReply) -> None:
        now_s = time.monotonic()
        if 0 <= now_s - reply.sent_s < PING_TIMEOUT_S:
            self._offset.add(reply.sent_s, reply.device_s, now_s)

    def count(self, message: RunEvents, size_bytes: int) -> None:
        traffic = self.traffic.setdefault(message.run_id, Traffic())
        traffic.frames += 1
        traffic.size_bytes += size_bytes
        traffic.dropped += message.dropped
        while len(self.traffic) > RUNS_COUNTED:
            self.traffic.popitem(last=False)

    async def send(self, message: ToDevice) -> None:
        try:
            await self.connection.send(encode(message))
        except ConnectionClosed as error:
            raise UserError(f"{self.name} is gone; connect a device, then try again.") from error


@dataclasses.dataclass(eq=False)
class _Preparation:
    progress: Callable[[float], None]
    future: asyncio.Future[Prepared]

    def settle(self, outcome: Prepared | UserError) -> None:
        if self.future.done():
            return
        if isinstance(outcome, UserError):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


def _port(server: Server) -> int:
    port: int = next(iter(server.sockets)).getsockname()[1]
    return port


class Hub:
    """A websocket server for devices that know ``token`` or were paired. ``async with`` listens; port 0 picks one.

    With ``tls``, over wss; then devices of this machine have a plain address of their own, ``local_url``.
    """

    def __init__(
        self,
        token: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        pairing: Pairing | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.token, self.host, self.port, self.tls = token, host, port, tls
        self.pairing = pairing or Pairing()
        self.devices: dict[str, ConnectedDevice] = {}
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> "Hub":
        self._servers = [await self._listen(self.host, self.port, self.tls)]
        self.port = _port(self._servers[0])
        if self.tls:
            self._servers.append(await self._listen("127.0.0.1", 0, None))
        return self

    async def _listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> Server:
        return await serve(
            self._serve_device,
            host,
            port,
            ssl=tls,
            max_size=MAX_MESSAGE_BYTES,
            max_queue=64,
            compression=None,
            ping_interval=PING_INTERVAL_S,
            ping_timeout=PING_TIMEOUT_S,
            close_timeout=1,
            origins=[None],  # agents send none; a page of another site would
        )

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for server in self._servers:
            await server.wait_closed()

    @property
    def url(self) -> str:
        return f"{'wss' if self.tls else 'ws'}://{self.host}:{self.port}"

    @property
    def local_url(self) -> str:
        """For devices on this machine."""
        return f"ws://127.0.0.1:{_port(self._servers[-1])}"

    async def revoke(self, device_id: str) -> None:
        """Unpair a device, and disconnect it if it is here. Raises UserError."""
        self.pairing.revoke(device_id)
        device = self.devices.get(device_id)
        if device:
            with contextlib.suppress(UserError):
                await device.send(Rejected("This device was revoked in the page; pair it again to use it."))
            await device.connection.close()

    def device(self, device_id: str | None) -> ConnectedDevice:
        """The device of that id, or the one that connected first. Raises UserError."""
        if device_id is None and self.devices:
            return next(iter(self.devices.values()))
        if device_id in self.devices:
            return self.devices[device_id]
        raise UserError(NO_DEVICE if device_id is None else "That device is not connected any more; choose another.")

    async def prepare(
        self, device: ConnectedDevice, template_id: str, cloud_url: str, codec: str, progress: Callable[[float], None]
    ) -> Prepared:
        """Have a device get ready for a template whose cache is streamed with a codec. Raises UserError."""
        preparation = _Preparation(progress, asyncio.get_running_loop().create_future())
        waiting = device.preparing.setdefault((template_id, codec), [])
        waiting.append(preparation)
        try:
            if len(waiting) == 1:
                await device.send(Prepare(template_id, cloud_url, codec))
            return await preparation.future
        finally:
            if preparation in waiting:
                waiting.remove(preparation)

    async def run(self, device: ConnectedDevice, job: RunJob) -> AsyncIterator[AnyEvent]:
        """Run a job and yield its events to the last one; a device that leaves ends the run with a sentence."""
        events: asyncio.Queue[AnyEvent] = asyncio.Queue(MAX_RUN_EVENTS)
        device.runs[job.run_id] = events
        try:
            await device.send(job)
            while True:
                event = await events.get()
                yield event
                if is_last(event):
                    return
        finally:
            device.runs.pop(job.run_id, None)

    async def stop(self, device: ConnectedDevice, run_id: str) -> None:
        """Ask a device to end a run early."""
        await device.send(StopJob(run_id))

    async def _serve_device(self, connection: ServerConnection) -> None:
        device = await self._greet(connection)
        if device is None:
            return
        before = self.devices.pop(device.device_id, None)
        self.devices[device.device_id] = device
        if before:  # a connection that is dead, but nobody has noticed yet
            self._part_with(before)
            await before.connection.close()
        probing = asyncio.create_task(device.probe())
        try:
            async for data in connection:
                self._take(device, data if isinstance(data, bytes) else data.encode())
        except ConnectionClosed:
            pass
        except msgspec.DecodeError as error:
            log.warning("%s sent what is no message of this protocol (%s).", device.name, error)
        finally:
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)
            if self.devices.get(device.device_id) is device:
                del self.devices[device.device_id]
            self._part_with(device)

    async def _greet(self, connection: ServerConnection) -> ConnectedDevice | None:
        """The device behind a new connection, or None after telling it why not."""
        try:
            data = await asyncio.wait_for(connection.recv(decode=False), HELLO_TIMEOUT_S)
            hello = decode_from_device(data)
        except (TimeoutError, ConnectionClosed, msgspec.DecodeError):
            return None
        if not isinstance(hello, DeviceHello):
            return None
        version = common_version(hello.versions)
        answer: Accepted | Rejected
        if version is None:
            theirs = ", ".join(map(str, hello.versions)) or "none"
            ours = ", ".join(map(str, VERSIONS))
            answer = Rejected(
                f"This hub speaks version {ours} of the bridge protocol, the device {theirs}; update one of them."
            )
        elif len(self.devices) >= MAX_DEVICES:
            answer = Rejected(f"{MAX_DEVICES} devices are connected already; disconnect one first.", final=False)
        else:
            answer = self._admit(hello, version)
        with contextlib.suppress(ConnectionClosed):
            await connection.send(encode(answer))
        if isinstance(answer, Rejected):
            return None
        return ConnectedDevice(answer.device_id, hello, connection, paired=answer.device_id in self._paired_ids())

    def _paired_ids(self) -> set[str]:
        return {each.device_id for each in self.pairing.paired()}

    def _admit(self, hello: DeviceHello, version: int) -> Accepted | Rejected:
        """Whether a device is let in, by its token or by a pairing code."""
        if hello.pairing_code and not hello.token:
            try:
                paired, token = self.pairing.pair(hello.pairing_code, hello.name)
            except UserError as error:
                return Rejected(str(error))
            return Accepted(version, paired.device_id, token)
        if hmac.compare_digest(hello.token.encode(), self.token.encode()):
            return Accepted(version, f"device-{next(self._numbers)}")
        known = self.pairing.known(hello.token)
        if known is None:
            return Rejected("This hub does not know the device, or it was revoked; pair it with a code of the page.")
        return Accepted(version, known.device_id)

    def _take(self, device: ConnectedDevice, data: bytes) -> None:
        message = decode_from_device(data)
        match message:
            case RunEvents():
                device.count(message, len(data))
                queue = device.runs.get(message.run_id)
                if queue is None:
                    return
                for event in message.events:
                    # The end of a run must get through, whatever came before it.
                    if is_last(event) and queue.full():
                        queue.get_nowait()
                    if not queue.full():
                        queue.put_nowait(event)
            case Preparing():
                for preparation in device.preparing.get((message.template_id, message.codec), []):
                    preparation.progress(message.done)
            case Prepared():
                for preparation in device.preparing.pop((message.template_id, message.codec), []):
                    preparation.settle(message)
            case NotPrepared():
                for preparation in device.preparing.pop((message.template_id, message.codec), []):
                    preparation.settle(UserError(message.reason))
            case ClockReply():
                device.took(message)
            case DeviceStatus():
                device.status = message
            case DeviceHello():
                pass

    def _part_with(self, device: ConnectedDevice) -> None:
        reason = f"{device.name} was disconnected during this edit; connect it again, then press Edit."
        for events in device.runs.values():
            if events.full():
                events.get_nowait()
            events.put_nowait(RunFailed(at_s=0.0, reason=reason))
        for waiting in device.preparing.values():
            for preparation in waiting:
                preparation.settle(UserError(f"{device.name} was disconnected; connect it again."))
