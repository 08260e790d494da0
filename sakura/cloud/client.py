"""The device's connection to a cloud: descriptions of templates, and streams of shards."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from sakura.cloud.protocol import (
    MAX_MESSAGE_BYTES,
    VERSION,
    AskImportance,
    Building,
    Cancel,
    CloseStream,
    Describe,
    Description,
    EmulateLink,
    Fetch,
    FetchHeader,
    Hello,
    Importance,
    Linked,
    OpenStream,
    Piece,
    Refused,
    ToCloud,
    Welcome,
    decode_from_cloud,
    encode,
)
from sakura.cloud.source import Arrival, ShardDamagedError, SourceLostError
from sakura.errors import UserError
from sakura.network.trace import Trace

ANSWER_TIMEOUT_S = 10.0
BUILD_TIMEOUT_S = 300.0
LINK_TIMEOUT_S = 3.0
MAX_LINK_ROWS = 20_000
LOST = "The connection to the cloud was lost."


class NoAnswerError(UserError):
    """The cloud cannot be reached, or does not answer."""


class CloudClient:
    """One connection to a cloud. Use :meth:`connect`; ``lost`` is set when the connection ends."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._streams: dict[int, CloudStream] = {}
        # What was asked, under the words that the cloud's refusals use; an answer is for all who asked.
        self._waiting: dict[str, set[asyncio.Future[object]]] = {}
        self._progress: dict[str, list[Callable[[float], None]]] = {}
        self._next_stream = 0
        self.lost = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, url: str, model: str) -> "CloudClient":
        """Connect and check that both sides speak the same version about the same model. Raises UserError."""
        try:
            connection = await connect(
                url, max_size=MAX_MESSAGE_BYTES, max_queue=256, compression=None, proxy=None, open_timeout=5
            )
        except (OSError, InvalidHandshake, InvalidURI, TimeoutError) as error:
            raise NoAnswerError(f"No cloud answers at {url} ({error}); start it, or correct the address.") from error
        client = cls(connection)
        try:
            welcome = await client._ask("hello", Hello(VERSION, model))
        except UserError:
            await client.close()
            raise
        assert isinstance(welcome, Welcome)
        if model and welcome.model != model:
            await client.close()
            raise UserError(
                "The cloud's caches are of another model than the device's; use the same checkpoint on both."
            )
        return client

    async def close(self) -> None:
        await self._connection.close()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def describe(
        self, template_id: str, codec: str, progress: Callable[[float], None] = lambda done: None
    ) -> Description:
        """What is needed to edit a template with a codec; waits while its cache is built. Raises UserError."""
        listeners = self._progress.setdefault(template_id, [])
        listeners.append(progress)
        try:
            answer = await self._ask(f"template {template_id} {codec}", Describe(template_id, codec), BUILD_TIMEOUT_S)
        finally:
            listeners.remove(progress)
        assert isinstance(answer, Description)
        return answer

    async def importance(self, template_id: str) -> np.ndarray:
        """Importance a captured request: float32 (requests, steps, blocks, tokens). Raises UserError."""
        answer = await self._ask(f"importance {template_id}", AskImportance(template_id), BUILD_TIMEOUT_S)
        assert isinstance(answer, Importance)
        return np.frombuffer(answer.scores, "<f4").reshape(answer.shape)

    async def emulate_link(self, link_id: str, trace: Trace, rtt_s: float, offset_s: float) -> None:
        """Declare an emulated link in the cloud, or change it. Raises UserError."""
        sent = trace.coarsened(MAX_LINK_ROWS)
        edges, rates = sent.edges_s.tolist(), sent.rates_mbps.tolist()
        link = EmulateLink(link_id, trace.title, edges, rates, rtt_s, offset_s)
        await self._ask(f"link {link_id}", link, LINK_TIMEOUT_S)

    async def open_stream(self, template_id: str, codec: str, link_id: str | None) -> "CloudStream":
        """A stream of a template's segments. Raises SourceLostError."""
        self._next_stream += 1
        stream = CloudStream(self, self._next_stream)
        self._streams[stream.number] = stream
        if self.lost.is_set():
            stream.fail(LOST)
        else:
            await self.send(OpenStream(stream.number, template_id, codec, link_id))
        return stream

    async def send(self, message: ToCloud) -> None:
        """Raises SourceLostError."""
        try:
            await self._connection.send(encode(message))
        except ConnectionClosed as error:
            raise SourceLostError(LOST) from error

    def forget(self, stream: int) -> None:
        self._streams.pop(stream, None)

    async def _ask(self, about: str, message: ToCloud, timeout_s: float = ANSWER_TIMEOUT_S) -> object:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(about, set())
        waiting.add(future)
        try:
            await self.send(message)
            async with asyncio.timeout(timeout_s):  # wait_for would not hear that this is cancelled as the answer comes
                return await future
        except SourceLostError as error:
            raise NoAnswerError(f"{error} Start the cloud again and repeat.") from error
        except TimeoutError as error:
            raise NoAnswerError(
                f"The cloud did not answer within {timeout_s:.0f} s; look at its log, then repeat."
            ) from error
        finally:
            waiting.discard(future)
            if not waiting:
                self._waiting.pop(about, None)

    async def _read(self) -> None:
        try:
            async for data in self._connection:
                self._take(data if isinstance(data, bytes) else data.encode())
        except (ConnectionClosed, msgspec.DecodeError):
            pass
        finally:
            self.lost.set()
            for stream in self._streams.values():
                stream.fail(LOST)
            for about in self._waiting:
                self._answer(about, NoAnswerError(f"{LOST} Start the cloud again and repeat."))
            with contextlib.suppress(Exception):
                await self._connection.close()

    def _take(self, data: bytes) -> None:
        message = decode_from_cloud(data)
        match message:
            case FetchHeader() | Piece():
                stream = self._streams.get(message.stream)
                if stream:
                    stream.take(message, len(data))
            case Welcome():
                self._answer("hello", message)
            case Description():
                self._answer(f"template {message.template_id} {message.codec}", message)
            case Importance():
                self._answer(f"importance {message.template_id}", message)
            case Linked():
                self._answer(f"link {message.link_id}", message)
            case Building():
                for listener in self._progress.get(message.template_id, []):
                    listener(message.done)
            case Refused():
                self._answer(message.about, UserError(message.reason))
                kind, _, number = message.about.partition(" ")
                if kind == "stream" and number.isdecimal() and int(number) in self._streams:
                    self._streams[int(number)].fail(message.reason)

    def _answer(self, about: str, answer: object) -> None:
        for future in self._waiting.get(about, ()):
            if future.done():
                continue
            if isinstance(answer, UserError):
                future.set_exception(answer)
            else:
                future.set_result(answer)


class CloudStream:
    """A :class:`~sakura.cloud.source.ShardSource` on a cloud connection."""

    def __init__(self, client: CloudClient, number: int) -> None:
        self.number = number
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._arrivals: dict[int, Arrival] = {}
        self._cancelled: set[int] = set()
        # Each arrival waits at most once, so that a reader sees it complete only once.
        self._news: asyncio.Queue[Arrival | None] = asyncio.Queue()
        self._announced: Arrival | None = None
        self._failure: str | None = None

    async def fetch(self, fetch_id: int, segments: Sequence[int]) -> None:
        await self._client.send(Fetch(self.number, fetch_id, list(segments)))

    async def cancel(self, fetch_id: int) -> None:
        self._cancelled.add(fetch_id)
        await self._client.send(Cancel(self.number, fetch_id))

    async def next(self) -> Arrival:
        arrival = await self._news.get()
        if arrival is self._announced:
            self._announced = None
        if arrival is None:
            self._news.put_nowait(None)
            raise SourceLostError(self._failure or LOST)
        return arrival

    async def close(self) -> None:
        self._client.forget(self.number)
        with contextlib.suppress(SourceLostError):
            await self._client.send(CloseStream(self.number))

    def fail(self, reason: str) -> None:
        self._failure = self._failure or reason  # what came first is the cause
        self._news.put_nowait(None)

    def take(self, message: FetchHeader | Piece, wire_bytes: int) -> None:
        """Take in a message of the stream; malformed ones end it."""
        now = self._loop.time()
        if message.fetch_id in self._cancelled:  # what it brings serves nobody, even where its header was dropped
            arrival = self._arrivals.setdefault(message.fetch_id, Arrival(message.fetch_id, (), (), (), now))
            arrival.finished_s = now
        elif isinstance(message, FetchHeader):
            arrival = Arrival(message.fetch_id, message.segment_ids, message.segment_bytes, message.segment_crc32, now)
            self._arrivals[message.fetch_id] = arrival
        else:
            known = self._arrivals.get(message.fetch_id)
            if known is None:
                self.fail("The cloud sent a piece of something that it had not announced.")
                return
            arrival = known
            try:
                arrival.add(message.data, now)
            except ShardDamagedError as error:
                self.fail(str(error))
                return
        if arrival.complete and message.fetch_id not in self._cancelled:
            del self._arrivals[message.fetch_id]
        arrival.wire_bytes += wire_bytes
        if arrival is not self._announced:
            self._announced = arrival
            self._news.put_nowait(arrival)
