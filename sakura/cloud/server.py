"""The cache server: builds templates' caches once and streams their segments over websockets.

Each stream may pass an emulated link, so that a network can be tried on one machine with real bytes on real sockets.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from sakura.cache.container import Container, ContainerError
from sakura.cache.store import CacheStore
from sakura.cloud.protocol import (
    MAX_MESSAGE_BYTES,
    MAX_TRACE_ROWS,
    PIECE_BYTES,
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
    FromCloud,
    Hello,
    Importance,
    Linked,
    OpenStream,
    Piece,
    Refused,
    ToCloud,
    Welcome,
    decode_to_cloud,
    encode,
)
from sakura.errors import UserError
from sakura.network.link import LinkClosedError, PacedLink
from sakura.network.trace import Trace, checked_trace
from sakura.pictures import to_png
from sakura.systems import STREAMED_CODECS, streamed_codec
from sakura.templates import TemplateAssets, TemplateLibrary

log = logging.getLogger(__name__)

MAX_STREAMS = 8
MAX_LINKS = 256
MAX_LINK_ID = 64
MAX_TASKS = 64
MAX_QUEUED_FETCHES = 256
MAX_OFFSET_S = 1_000_000
LINK_QUEUE_BYTES = 2 * PIECE_BYTES
FAILED = "The cloud failed to serve this; its log says why."

Send = Callable[[bytes], Awaitable[None]]


class _Link:
    """An emulated link. Streams that name it share its rate; its trace goes on from where the first of them began."""

    def __init__(self, message: EmulateLink, trace: Trace) -> None:
        self.rtt_s, self.offset_s, self.trace = message.rtt_s, message.offset_s, trace
        self._paced: PacedLink | None = None
        self._users = 0
        self._began_s: float | None = None

    @property
    def in_use(self) -> bool:
        return self._users > 0

    def change(self, message: EmulateLink, trace: Trace) -> None:
        """Go on as the message says. While streams use the link, only its trace can change, which goes on at its time.

        Raises UserError on another round trip then.
        """
        if self._paced:
            if message.rtt_s != self.rtt_s:
                raise UserError(
                    f"Link {message.link_id[:64]!r} is in use with a round trip of {self.rtt_s:g} s, which cannot "
                    "change meanwhile; close its streams first, or declare another link."
                )
            self._paced.set_trace(trace)
        else:
            self.rtt_s, self.offset_s = message.rtt_s, message.offset_s
            if self._began_s is not None:
                self._began_s = asyncio.get_running_loop().time()
        self.trace = trace

    def join(self) -> PacedLink:
        """The link for one more stream, which must :meth:`leave` it in the end."""
        now_s = asyncio.get_running_loop().time()
        self._began_s = now_s if self._began_s is None else self._began_s
        if self._paced is None:
            self._paced = PacedLink(
                self.trace,
                rtt_s=self.rtt_s,
                offset_s=self.offset_s + now_s - self._began_s,
                deliver=_nowhere,
                max_queued_bytes=LINK_QUEUE_BYTES,
            )
        self._users += 1
        return self._paced

    async def leave(self) -> None:
        self._users -= 1
        if not self.in_use and self._paced:
            paced, self._paced = self._paced, None
            await paced.close()


async def _nowhere(message: bytes) -> None:
    """Every message says itself where it goes."""


class _Stream:
    """One device fetching segments of one container, in the order asked, through its link if it has one."""

    def __init__(
        self,
        number: int,
        container: Container,
        link: _Link | None,
        send: Send,
        damaged: Callable[[Container], None],
    ) -> None:
        self.number, self.container, self.link = number, container, link
        self._damaged = damaged
        # Cancelled ones keep their places until it is their turn.
        self.fetches: asyncio.Queue[Fetch] = asyncio.Queue(4 * MAX_QUEUED_FETCHES)
        self.pending: dict[int, Fetch] = {}  # that have been neither sent in whole nor cancelled
        self._paced = link.join() if link else None
        self._send = send
        self._task = asyncio.create_task(self._run())

    @property
    def uplink_delay_s(self) -> float:
        return self.link.rtt_s / 2 if self.link else 0.0

    async def _run(self) -> None:
        try:
            while True:
                fetch = await self.fetches.get()
                if self.pending.get(fetch.fetch_id) is fetch:
                    await self._send_segments(fetch)
                if self.pending.get(fetch.fetch_id) is fetch:
                    del self.pending[fetch.fetch_id]
        except (LinkClosedError, ConnectionClosed):
            pass
        except Exception:
            log.exception("The cloud failed to serve a stream")
            # Not through the link, which may be what failed.
            await self._deliver(encode(Refused(f"stream {self.number}", FAILED)))

    def _read(self, segments: list[int]) -> bytes:
        return b"".join(self.container.read_segment(segment) for segment in segments)

    async def _send_segments(self, fetch: Fetch) -> None:
        ids, index = fetch.segments, self.container.index
        try:
            data = await asyncio.to_thread(self._read, ids)
        except ContainerError as error:
            self._damaged(self.container)
            await self._pass(Refused(f"stream {self.number}", str(error)))
            return
        await self._pass(
            FetchHeader(
                self.number,
                fetch.fetch_id,
                ids,
                [index.segment_bytes[segment] for segment in ids],
                [index.segment_crc32[segment] for segment in ids],
            )
        )
        for start in range(0, len(data), PIECE_BYTES):
            if self.pending.get(fetch.fetch_id) is not fetch:  # cancelled
                return
            await self._pass(Piece(self.number, fetch.fetch_id, data[start : start + PIECE_BYTES]))

    async def _pass(self, message: FromCloud) -> None:
        fetch_id = message.fetch_id if isinstance(message, FetchHeader | Piece) else None
        if self._paced:
            await self._paced.send(encode(message), deliver=self._deliver, owner=(self, fetch_id))
        else:
            await self._send(encode(message))

    async def _deliver(self, message: bytes) -> None:
        """What leaves the link; a device that is gone must not stop the others on it."""
        with contextlib.suppress(ConnectionClosed):
            await self._send(message)

    def cancel(self, fetch_id: int) -> None:
        """Send nothing more of a fetch, not even what waits before the link."""
        self.pending.pop(fetch_id, None)
        if self._paced:
            self._paced.drop_queued(lambda owner: owner == (self, fetch_id))

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._paced and self.link:
            self._paced.drop_queued(lambda owner: isinstance(owner, tuple) and owner[0] is self)
            await self.link.leave()


class CloudServer:
    """Serves the templates of a library from a store. ``async with`` listens; ``port`` 0 picks a free one."""

    def __init__(
        self, store: CacheStore, templates: TemplateLibrary, *, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.store, self.templates = store, templates
        self.host, self.port = host, port
        self._links: dict[str, _Link] = {}
        self._builder = ThreadPoolExecutor(1, thread_name_prefix="cache-builder")

    async def __aenter__(self) -> "CloudServer":
        self._server = await serve(
            self._serve_connection,
            self.host,
            self.port,
            max_size=MAX_MESSAGE_BYTES,
            max_queue=64,
            compression=None,
            origins=[None],  # devices send none; a page of another site would
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()
        self._builder.shutdown(wait=False, cancel_futures=True)

    async def _serve_connection(self, connection: ServerConnection) -> None:
        session = _Session(self, connection)
        try:
            await session.run()
        except ConnectionClosed:
            pass
        finally:
            await session.close()

    async def container(self, template_id: str, codec: str, progress: Callable[[float], None]) -> Container:
        """The template's container, built in a thread if it is missing. Raises UserError."""
        if codec not in STREAMED_CODECS:
            raise UserError(f"There is no codec {codec!r}; this cloud has {', '.join(STREAMED_CODECS)}.")
        template, how = self.templates.get(template_id), streamed_codec(codec)
        known = self.store.opened(template, how)
        if known:
            return known
        loop = asyncio.get_running_loop()

        def report(done: float) -> None:
            loop.call_soon_threadsafe(progress, done)

        return await loop.run_in_executor(self._builder, self.store.get, template, how, report)

    async def importance(self, template_id: str) -> np.ndarray:
        """Importance of the template's tokens, float32 (requests, steps, blocks, tokens). Raises UserError."""
        template = self.templates.get(template_id)
        return await asyncio.get_running_loop().run_in_executor(self._builder, self.store.importance, template)

    def emulate(self, message: EmulateLink) -> None:
        """Declare or change a link. Raises UserError on one that cannot be, or cannot be changed so."""
        if len(message.link_id) > MAX_LINK_ID:
            raise UserError(f"The id of an emulated link has more than {MAX_LINK_ID} characters; use a shorter one.")
        if not 0 <= message.rtt_s <= 5:
            raise UserError(f"A round trip of {message.rtt_s} s is out of range; use 0 to 5 s.")
        if not 0 <= message.offset_s <= MAX_OFFSET_S:
            raise UserError(f"A trace cannot start at {message.offset_s} s; use 0 to {MAX_OFFSET_S:,} s.")
        if len(message.rates_mbps) > MAX_TRACE_ROWS:
            raise UserError(f"The trace has more than {MAX_TRACE_ROWS:,} rows; shorten it.")
        trace = checked_trace(
            name=message.link_id[:64],
            title=message.title[:200],
            edges_s=np.asarray(message.edges_s, np.float64),
            rates_mbps=np.asarray(message.rates_mbps, np.float64),
        )
        known = self._links.get(message.link_id)
        if known:
            known.change(message, trace)
            return
        if len(self._links) >= MAX_LINKS:
            unused = next((link_id for link_id, link in self._links.items() if not link.in_use), None)
            if unused is None:
                raise UserError(
                    f"{MAX_LINKS} emulated links are in use; close the streams of one, then declare another."
                )
            del self._links[unused]
        self._links[message.link_id] = _Link(message, trace)

    def link(self, link_id: str) -> _Link:
        try:
            return self._links[link_id]
        except KeyError:
            raise UserError(f"There is no emulated link {link_id!r}; declare it before opening a stream.") from None


def _about(message: ToCloud) -> str:
    """The words under which a refusal of a message reaches whoever waits for its answer."""
    match message:
        case Hello():
            return "hello"
        case Describe():
            return f"template {message.template_id} {message.codec}"
        case AskImportance():
            return f"importance {message.template_id}"
        case EmulateLink():
            return f"link {message.link_id}"
        case OpenStream() | Fetch() | Cancel() | CloseStream():
            return f"stream {message.stream}"


def _describe(template: TemplateAssets, container: Container) -> Description:
    index = container.index
    return Description(
        template_id=template.template_id,
        codec=index.codec,
        subject=template.subject,
        has_reference=template.has_reference,
        picture_png=to_png(template.picture),
        mask_png=to_png(np.repeat(np.uint8(255) * template.mask[..., None], 3, axis=2)),
        model=index.model,
        template=index.template,
        geometry=index.geometry,
        options=index.options,
        segment_bytes=index.segment_bytes,
        ladders=index.ladders,
        ladder_of=index.ladder_of,
    )


class _Session:
    """One connection: reads messages, answers each, owns its streams."""

    def __init__(self, cloud: CloudServer, connection: ServerConnection) -> None:
        self.cloud, self.connection = cloud, connection
        self.streams: dict[int, _Stream] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.greeted = False
        self.crossing = 0  # messages on the emulated way to the cloud

    async def send(self, message: FromCloud) -> None:
        await self.connection.send(encode(message))

    async def run(self) -> None:
        async for data in self.connection:
            try:
                message = decode_to_cloud(data if isinstance(data, bytes) else data.encode())
            except msgspec.DecodeError:
                await self.send(Refused("", "The cloud could not read a message; both sides need the same version."))
                await self.connection.close(1002, "unreadable message")
                return
            await self._handle(message)

    async def _handle(self, message: ToCloud) -> None:
        about = _about(message)
        if not self.greeted and not isinstance(message, Hello):
            await self.send(Refused("hello", "The first message must be hello."))
            return
        busy = len(self.tasks) >= MAX_TASKS or self.crossing >= MAX_QUEUED_FETCHES
        if busy and not isinstance(message, CloseStream):
            await self.send(Refused(about, "Too much was asked at once; wait for answers before asking more."))
            return
        match message:
            case Hello():
                self.greeted = True
                if message.version == VERSION:
                    await self.send(Welcome(VERSION, self.cloud.store.editor.fingerprint))
                    return
                reason = f"The device speaks version {message.version}, the cloud version {VERSION}; update one."
                await self.send(Refused(about, reason))
                await self.connection.close(1002, "version")
            case Describe():
                self._spawn(self._guarded(about, self._describe(message)))
            case AskImportance():
                self._spawn(self._guarded(about, self._importance(message)))
            case EmulateLink():
                await self._guarded(about, self._emulate(message))
            case OpenStream():
                await self._guarded(about, self._open(message))
            case Fetch() if self._asks_too_much(message):
                reason = f"Stream {message.stream} asks for more segments than there are."
                await self.send(Refused(f"stream {message.stream}", reason))
            case Fetch():
                self._later(message.stream, functools.partial(self._fetch, message))
            case Cancel():
                self._later(message.stream, functools.partial(self._cancel, message))
            case CloseStream():
                stream = self.streams.pop(message.stream, None)
                if stream:
                    await stream.close()

    def _asks_too_much(self, message: Fetch) -> bool:
        """Said before the message crosses the link: a long list is not worth keeping."""
        stream = self.streams.get(message.stream)
        return stream is not None and len(message.segments) > len(stream.container.index.segment_bytes)

    def _later(self, stream: int, act: Callable[[], None]) -> None:
        """Do something when the message has crossed the emulated link to the cloud."""
        known = self.streams.get(stream)
        if known is None:
            self._spawn(self.send(Refused(f"stream {stream}", f"Stream {stream} is not open.")))
            return
        self.crossing += 1
        asyncio.get_running_loop().call_later(known.uplink_delay_s, self._arrive, stream, known, act)

    def _arrive(self, number: int, stream: _Stream, act: Callable[[], None]) -> None:
        """Act on the stream that was open when the message was sent, if it still is."""
        self.crossing -= 1
        if self.streams.get(number) is stream:
            act()

    def _fetch(self, message: Fetch) -> None:
        stream = self.streams.get(message.stream)
        if stream is None:
            return
        segments, sizes = message.segments, stream.container.index.segment_bytes
        known = all(0 <= segment < len(sizes) for segment in segments) and len(set(segments)) == len(segments)
        reason = None
        if not known:
            reason = "asks for a segment that there is not, or for one twice"
        elif message.fetch_id in stream.pending:
            reason = f"asks for two things under the number {message.fetch_id}"
        elif len(stream.pending) >= MAX_QUEUED_FETCHES or stream.fetches.full():
            reason = "asks for too much at once"
        if reason:
            self._spawn(self.send(Refused(f"stream {message.stream}", f"Stream {message.stream} {reason}.")))
            return
        stream.pending[message.fetch_id] = message
        stream.fetches.put_nowait(message)

    def _cancel(self, message: Cancel) -> None:
        stream = self.streams.get(message.stream)
        if stream:
            stream.cancel(message.fetch_id)

    async def _guarded(self, about: str, work: Awaitable[None]) -> None:
        try:
            await work
        except UserError as error:
            await self.send(Refused(about, str(error)))
        except ConnectionClosed:
            pass
        except Exception:
            log.exception("The cloud failed to serve a message")
            await self.send(Refused(about, FAILED))

    async def _describe(self, message: Describe) -> None:
        def progress(done: float) -> None:
            self._spawn(self.send(Building(message.template_id, done)))

        template = self.cloud.templates.get(message.template_id)
        container = await self.cloud.container(message.template_id, message.codec, progress)
        await self.send(_describe(template, container))

    async def _importance(self, message: AskImportance) -> None:
        scores = await self.cloud.importance(message.template_id)
        await self.send(Importance(message.template_id, scores.shape, scores.astype("<f4").tobytes()))

    async def _emulate(self, message: EmulateLink) -> None:
        self.cloud.emulate(message)
        await self.send(Linked(message.link_id))

    async def _open(self, message: OpenStream) -> None:
        if len(self.streams) >= MAX_STREAMS:
            raise UserError(f"A device may have {MAX_STREAMS} streams open at once; close one.")
        container = await self.cloud.container(message.template_id, message.codec, lambda done: None)
        link = self.cloud.link(message.link_id) if message.link_id is not None else None
        if message.stream in self.streams:
            raise UserError(f"Stream {message.stream} is open already.")
        damaged = self.cloud.store.forget
        self.streams[message.stream] = _Stream(message.stream, container, link, self.connection.send, damaged)

    def _spawn(self, work: Awaitable[None]) -> None:
        async def quietly() -> None:
            with contextlib.suppress(ConnectionClosed):
                await work

        task = asyncio.create_task(quietly())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def close(self) -> None:
        for task in list(self.tasks):
            task.cancel()
        for stream in self.streams.values():
            await stream.close()
