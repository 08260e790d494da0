"""The studio's side of the bridge: accepts devices, hands them jobs, receives their events."""

import asyncio
import dataclasses
import hmac
import itertools
from collections.abc import AsyncIterator, Callable

import msgspec
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from device_bridge.protocol import (
    MAX_MESSAGE_BYTES,
    PING_INTERVAL_S,
    PING_TIMEOUT_S,
    VERSION,
    Accepted,
    DeviceHello,
    NotPrepared,
    Prepare,
    Prepared,
    Preparing,
    Rejected,
    RunEvents,
    RunJob,
    StopJob,
    ToDevice,
    decode_from_device,
    encode,
)
from sakura.errors import UserError
from sakura.events import AnyEvent, RunFailed, is_last

HELLO_TIMEOUT_S = 5.0
MAX_DEVICES = 32
MAX_RUN_EVENTS = 4096
NO_DEVICE = "No device is connected; the local one comes back by itself in a few seconds, then press Edit again."


class ConnectedDevice:
    """A device that said hello, and the conversations with it."""

    def __init__(self, device_id: str, hello: DeviceHello, connection: ServerConnection) -> None:
        self.device_id, self.name, self.engine = device_id, hello.name, hello.engine
        self.connection = connection
        self.runs: dict[str, asyncio.Queue[AnyEvent]] = {}
        self.preparing: dict[tuple[str, str], list[_Preparation]] = {}

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


class Hub:
    """A websocket server for devices that know ``token``. ``async with`` listens; port 0 picks a free one."""

    def __init__(self, token: str, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.token, self.host, self.port = token, host, port
        self.devices: dict[str, ConnectedDevice] = {}
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> "Hub":
        self._server = await serve(
            self._serve_device,
            self.host,
            self.port,
            max_size=MAX_MESSAGE_BYTES,
            max_queue=64,
            compression=None,
            ping_interval=PING_INTERVAL_S,
            ping_timeout=PING_TIMEOUT_S,
            close_timeout=1,
            origins=[None],  # agents send none; a page of another site would
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"ws://{self.host}:{self.port}"

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
        self.devices[device.device_id] = device
        try:
            await connection.send(encode(Accepted(device.device_id)))
            async for data in connection:
                self._take(device, data if isinstance(data, bytes) else data.encode())
        except (ConnectionClosed, msgspec.DecodeError):
            pass
        finally:
            self.devices.pop(device.device_id, None)
            self._part_with(device)

    async def _greet(self, connection: ServerConnection) -> ConnectedDevice | None:
        """The device behind a new connection, or None after telling it why not."""
        try:
            data = await asyncio.wait_for(connection.recv(decode=False), HELLO_TIMEOUT_S)
            hello = decode_from_device(data)
        except (TimeoutError, ConnectionClosed, msgspec.DecodeError):
            return None
        reason = None
        if not isinstance(hello, DeviceHello):
            return None
        if hello.version != VERSION:
            reason = (
                f"This hub speaks version {VERSION} of the bridge protocol, not {hello.version}; update one of them."
            )
        elif not hmac.compare_digest(hello.token.encode(), self.token.encode()):
            reason = "The token is not the one of this hub; copy it again from where the hub was started."
        elif len(self.devices) >= MAX_DEVICES:
            reason = f"{MAX_DEVICES} devices are connected already; disconnect one first."
        if reason:
            await connection.send(encode(Rejected(reason)))
            return None
        return ConnectedDevice(f"device-{next(self._numbers)}", hello, connection)

    def _take(self, device: ConnectedDevice, data: bytes) -> None:
        message = decode_from_device(data)
        match message:
            case RunEvents():
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
