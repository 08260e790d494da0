"""Hubs, agents and devices by hand for the tests of the bridge, over real sockets."""

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TypeVar

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from worlds import device_of, job_for, tiny_template, until

from device_bridge.agent import Agent
from device_bridge.hub import ConnectedDevice, Hub
from device_bridge.liveness import break_off
from device_bridge.protocol import (
    VERSIONS,
    DeviceHello,
    EngineReport,
    FromDevice,
    RunJob,
    ToDevice,
    decode_from_device,
    decode_to_device,
    encode,
)
from sakura.backbone.editor import Editor
from sakura.cloud.client import CloudClient
from sakura.events import AnyEvent
from sakura.network.library import constant_trace
from sakura.pictures import to_png

M = TypeVar("M")

TOKEN = "a token"
ENGINE = EngineReport("none")


class Bridge:
    """A hub, the address of a cloud, and agents that come and go."""

    def __init__(self, hub: Hub, editor: Editor, cloud_url: str) -> None:
        self.hub, self.editor, self.cloud_url = hub, editor, cloud_url

    @contextlib.asynccontextmanager
    async def agent(
        self,
        token: str = TOKEN,
        *,
        url: str = "",
        pairing_code: str = "",
        on_token: Callable[[str], None] = lambda token: None,
        tls: ssl.SSLContext | None = None,
        engine: Callable[[], EngineReport] | None = None,
    ) -> AsyncIterator["asyncio.Task[None]"]:
        """A device of the tiny model; ``url`` where it does not connect to the hub itself."""
        async with device_of(self.editor) as device:
            agent = Agent(
                device, url or self.hub.url, token, pairing_code=pairing_code, on_token=on_token, tls=tls, engine=engine
            )
            task = asyncio.create_task(agent.run())
            try:
                yield task
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def device(self) -> ConnectedDevice:
        await until(lambda: bool(self.hub.devices))
        return self.hub.device(None)

    async def slow_link(self, mbps: float = 0.01) -> str:
        """Declare a link on which an edit takes long enough to be interrupted."""
        client = await CloudClient.connect(self.cloud_url, "")
        link_id = secrets.token_hex(4)
        await client.emulate_link(link_id, constant_trace(mbps), 0, 0)
        await client.close()
        return link_id

    def job(self, run_id: str, link_id: str | None = None, *, controller: str = "") -> RunJob:
        return job_of(run_id, self.cloud_url, link_id, controller=controller)

    async def run(
        self, job: RunJob, device: ConnectedDevice, on_event: Callable[[AnyEvent], Coroutine[object, object, None]]
    ) -> list[AnyEvent]:
        events = []
        async for event in self.hub.run(device, job):
            events.append(event)
            await on_event(event)
        return events


Scenario = Callable[[Bridge], Coroutine[object, object, None]]
Play = Callable[[Scenario], None]


async def ignore(event: AnyEvent) -> None:
    pass


def job_of(run_id: str, cloud_url: str, link_id: str | None = None, *, controller: str = "") -> RunJob:
    request = job_for(tiny_template("tiny-face"))
    assert request.reference is not None
    return RunJob(
        run_id=run_id,
        template_id="tiny-face",
        cloud_url=cloud_url,
        system="full_cache",
        words=list(request.words),
        reference_png=to_png(request.reference),
        seed=request.seed,
        rate_budget_bytes=None,
        link_id=link_id,
        rtt_s=0.0,
        controller=controller,
    )


class Phone:
    """A device by hand: says and hears single messages."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def say(self, message: FromDevice) -> None:
        await self.connection.send(encode(message))

    async def hear(self, kind: type[M]) -> M:
        """The next message of a kind; others are passed over. Raises ConnectionClosed."""
        while True:
            message = decode_to_device(await self.connection.recv(decode=False))
            if isinstance(message, kind):
                return message

    async def hello(self, token: str = TOKEN, *, name: str = "Phone", pairing_code: str = "") -> None:
        await self.say(DeviceHello(VERSIONS, name, ENGINE, token, pairing_code))


@contextlib.asynccontextmanager
async def phone_of(url: str) -> AsyncIterator[Phone]:
    connection = await connect(url, proxy=None, compression=None, max_size=None, close_timeout=0.2)
    try:
        yield Phone(connection)
    finally:
        break_off(connection)
        await connection.wait_closed()


class Desk:
    """A hub by hand: says and hears single messages."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection

    async def say(self, message: ToDevice) -> None:
        await self.connection.send(encode(message))

    async def hear(self, kind: type[M]) -> M:
        """The next message of a kind; others are passed over. Raises ConnectionClosed."""
        while True:
            message = decode_from_device(await self.connection.recv(decode=False))
            if isinstance(message, kind):
                return message


@contextlib.asynccontextmanager
async def desk_of(
    serve_device: Callable[[Desk], Coroutine[object, object, None]], **options: int
) -> AsyncIterator[str]:
    """Listens as a hub would, and hands each device to ``serve_device``. Yields the address."""

    async def handle(connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            await serve_device(Desk(connection))

    async with serve(handle, "127.0.0.1", 0, compression=None, max_size=None, close_timeout=0.1, **options) as server:  # type: ignore[arg-type]
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


class Wire:
    """Carries bytes between devices and a hub, until told to stop: a network that fails without a word."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: list[asyncio.StreamWriter] = []
        self._pumping: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Wire":
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.url = f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        for task in self._pumping:
            task.cancel()
        await asyncio.gather(*self._pumping, return_exceptions=True)

    def freeze(self) -> None:
        """Carry nothing any more; all sockets stay open."""
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    def cut(self) -> None:
        """Reset what goes over it."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _join(self, near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        self._writers.append(near_out)
        try:
            far_in, far_out = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            near_out.transport.abort()
            return
        self._writers.append(far_out)
        for source, target in ((near_in, far_out), (far_in, near_out)):
            task = asyncio.create_task(self._pump(source, target))
            self._pumping.add(task)
            task.add_done_callback(self._pumping.discard)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await self._flowing.wait()
                target.write(data)
                await target.drain()
        target.close()
