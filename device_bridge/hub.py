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
from websockets.frames import CloseCode

from device_bridge.clocks import ClockOffset, OffsetEstimator
from device_bridge.liveness import break_off, end_when_stuck
from device_bridge.pairing import Pairing
from device_bridge.protocol import (
    CLOSE_TIMEOUT_S,
    MAX_MESSAGE_BYTES,
    PING_INTERVAL_S,
    PING_TIMEOUT_S,
    VERSIONS,
    Accepted,
    ClockProbe,
    ClockReply,
    DeviceHello,
    DeviceStatus,
    EngineChanged,
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
MAX_STRANGERS = 64  # connections that have not said hello yet
MAX_RUN_EVENTS = 4096
RUNS_COUNTED = 64  # of whose messages a device remembers the number
QUICK_PROBES, QUICK_PROBE_S, PROBE_S = 5, 0.1, 10.0
NO_DEVICE = "No device is connected; the local one comes back by itself in a few seconds, then press Edit again."


@dataclasses.dataclass
class Traffic:
    """What came of a run: messages, bytes, and events that were left out on the way."""

    frames: int = 0
    size_bytes: int = 0
    dropped: int = 0


class ConnectedDevice:
    """A device that said hello, and the conversations with it. ``paired``: with a token of its own, to be revoked."""

    def __init__(self, device_id: str, hello: DeviceHello, connection: ServerConnection, *, paired: bool) -> None:
        # Letters that cannot be seen could turn a sentence around.
        self.name = "".join(letter for letter in hello.name if letter.isprintable()).strip() or "Device"
        self.device_id, self.engine, self.paired = device_id, hello.engine, paired
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
        """Ask what time it is there, for ever. Raises UserError when it is gone."""
        for number in itertools.count():
            await self.send(ClockProbe(time.monotonic()))
            await asyncio.sleep(QUICK_PROBE_S if number < QUICK_PROBES else PROBE_S)

    def took(self, reply: ClockReply) -> None:
        now_s = time.monotonic()
        if 0 <= now_s - reply.sent_s < PING_TIMEOUT_S:
            self._offset.add(reply.sent_s, reply.device_s, now_s)

    def count(self, message: RunEvents, size_bytes: int) -> Traffic:
        traffic = self.traffic.setdefault(message.run_id, Traffic())
        traffic.frames += 1
        traffic.size_bytes += size_bytes
        traffic.dropped += message.dropped
        while len(self.traffic) > RUNS_COUNTED:
            self.traffic.popitem(last=False)
        return traffic

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


def _address(server: Server) -> tuple[str, int]:
    host, port = next(iter(server.sockets)).getsockname()[:2]
    return host, port


def url_of(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def host_from_here(host: str) -> str:
    """Where a server of this machine that listens at ``host`` is found by others on it."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


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
        self._strangers = 0
        self._dismissing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Hub":
        self._servers = [await self._listen(self.host, self.port, self.tls)]
        self.port = _address(self._servers[0])[1]
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
            open_timeout=HELLO_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            origins=[None],  # agents send none; a page of another site would
        )

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for server in self._servers:
            await server.wait_closed()
        await asyncio.gather(*self._dismissing)

    @property
    def url(self) -> str:
        return url_of("wss" if self.tls else "ws", self.host, self.port)

    @property
    def local_url(self) -> str:
        """For devices on this machine."""
        host, port = _address(self._servers[-1])
        return url_of("ws", host_from_here(host), port)

    async def revoke(self, device_id: str) -> None:
        """Unpair a device, and disconnect it if it is here. Raises UserError."""
        try:
            self.pairing.revoke(device_id)
        finally:
            device = self.devices.get(device_id)
            if device:
                await self._dismiss(device, "This device was revoked in the page; pair it again to use it.")

    async def _dismiss(self, device: ConnectedDevice, reason: str) -> None:
        """Disconnect a device, and tell it why as far as it still listens."""
        if self.devices.get(device.device_id) is device:
            del self.devices[device.device_id]
        self._part_with(device)
        with contextlib.suppress(TimeoutError, UserError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await device.send(Rejected(reason))
                await device.connection.close()
        break_off(device.connection)

    def in_order(self) -> list[ConnectedDevice]:
        """This machine's own first, then paired ones, each in the order in which they connected."""
        return sorted(self.devices.values(), key=lambda device: device.paired)

    def device(self, device_id: str | None) -> ConnectedDevice:
        """The device of that id, or the first one of :meth:`in_order`. Raises UserError."""
        if device_id is None and self.devices:
            return self.in_order()[0]
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
        if self._strangers >= MAX_STRANGERS:
            await connection.close(CloseCode.TRY_AGAIN_LATER, "too many connections")
            return
        self._strangers += 1
        try:
            hello = await self._hello(connection)
        finally:
            self._strangers -= 1
        if hello is None:
            return
        answer = hello if isinstance(hello, Rejected) else self._answer(hello)
        if isinstance(answer, Rejected) or isinstance(hello, Rejected):
            with contextlib.suppress(ConnectionClosed):
                await connection.send(encode(answer))
            await connection.close(CloseCode.POLICY_VIOLATION, "rejected")
            return
        paired = self.pairing.knows(answer.device_id)
        await self._serve_accepted(ConnectedDevice(answer.device_id, hello, connection, paired=paired), answer)

    async def _hello(self, connection: ServerConnection) -> DeviceHello | Rejected | None:
        """The first message, or why it is none; None where nobody waits for an answer."""
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                data = await connection.recv(decode=False)
            message = decode_from_device(data)
        except ConnectionClosed:
            return None
        except TimeoutError:
            return Rejected(f"No device_hello came within {HELLO_TIMEOUT_S:g} s; send it first.", final=False)
        except msgspec.DecodeError as error:
            return Rejected(f"The first message is no device_hello of the bridge protocol ({error}).")
        if not isinstance(message, DeviceHello):
            return Rejected("The first message must be a device_hello.")
        return message

    def _answer(self, hello: DeviceHello) -> Accepted | Rejected:
        """Whether a device is let in: by version and by room, then by its token or by a pairing code."""
        version = common_version(hello.versions)
        if version is None:
            theirs = ", ".join(map(str, hello.versions)) or "none"
            ours = ", ".join(map(str, VERSIONS))
            return Rejected(
                f"This hub speaks version {ours} of the bridge protocol, the device {theirs}; update one of them."
            )
        known = self.pairing.known(hello.token)
        comes_back = known is not None and known.device_id in self.devices  # and replaces a connection
        if len(self.devices) >= MAX_DEVICES and not comes_back:
            return Rejected(f"{MAX_DEVICES} devices are connected already; disconnect one first.", final=False)
        if hello.pairing_code and not hello.token:
            try:
                paired, token = self.pairing.pair(hello.pairing_code, hello.name)
            except UserError as error:
                return Rejected(str(error))
            return Accepted(version, paired.device_id, token)
        if self.token and hmac.compare_digest(hello.token.encode(), self.token.encode()):
            return Accepted(version, f"device-{next(self._numbers)}")
        if known is None:
            return Rejected("This hub does not know the device, or it was revoked; pair it with a code of the page.")
        return Accepted(version, known.device_id)

    async def _serve_accepted(self, device: ConnectedDevice, answer: Accepted) -> None:
        before = self.devices.pop(device.device_id, None)
        self.devices[device.device_id] = device
        if before:  # dead, but nobody has noticed yet; or another machine with the same token, which must not come back
            reason = "This device connected again from elsewhere; pair each machine by itself."
            dismissing = asyncio.create_task(self._dismiss(before, reason))
            self._dismissing.add(dismissing)
            dismissing.add_done_callback(self._dismissing.discard)
        background: list[asyncio.Task[None]] = []
        code = CloseCode.NORMAL_CLOSURE
        try:
            await device.send(answer)  # goes out before anything else is sent to a device that is listed
            background += [
                asyncio.create_task(end_when_stuck(device.connection)),
                asyncio.create_task(device.probe()),
            ]
            async for data in device.connection:
                self._take(device, data if isinstance(data, bytes) else data.encode())
        except (ConnectionClosed, UserError):
            pass
        except msgspec.DecodeError as error:
            log.warning("%s sent what is no message of this protocol (%s).", device.name, error)
            code = CloseCode.PROTOCOL_ERROR
        finally:
            if self.devices.get(device.device_id) is device:
                del self.devices[device.device_id]
            self._part_with(device)
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await device.connection.close(code)

    def _take(self, device: ConnectedDevice, data: bytes) -> None:
        message = decode_from_device(data)
        match message:
            case RunEvents():
                queue = device.runs.get(message.run_id)
                if queue is None:
                    return
                traffic = device.count(message, len(data))
                for event in message.events:
                    if queue.full():
                        traffic.dropped += 1
                        if not is_last(event):
                            continue
                        queue.get_nowait()  # the end of a run must get through, whatever came before it
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
            case EngineChanged():
                device.engine = message.engine
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
