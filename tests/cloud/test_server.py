"""The cloud as its users meet it: real websockets on loopback, real caches of a tiny model."""

import asyncio
import contextlib
import math
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

import msgspec
import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from worlds import SHIPPED_BY_TASK, Relay, cloud_of, tiny_template, url_of

from sakura.backbone.editor import Editor
from sakura.cache.container import Container
from sakura.cache.store import CacheStore
from sakura.cloud.client import CloudClient
from sakura.cloud.protocol import (
    VERSION,
    Cancel,
    CloseStream,
    Describe,
    EmulateLink,
    Fetch,
    FetchHeader,
    FromCloud,
    Hello,
    Linked,
    OpenStream,
    Piece,
    Refused,
    ToCloud,
    Welcome,
    decode_from_cloud,
    decode_to_cloud,
    encode,
)
from sakura.cloud.server import MAX_QUEUED_FETCHES, MAX_STREAMS, STREAMED_CODECS, CloudServer
from sakura.cloud.source import Arrival, SourceLostError
from sakura.codec import new_codec
from sakura.errors import UserError
from sakura.network.library import constant_trace
from sakura.network.trace import Trace, checked_trace
from sakura.systems import streamed_codec
from sakura.templates import TemplateLibrary

FACE = SHIPPED_BY_TASK["face_swap"]
Scenario = Callable[[CloudServer], Coroutine[object, object, None]]
Play = Callable[[Scenario], None]


@pytest.fixture
def play(tiny_store: CacheStore, tiny_templates: TemplateLibrary) -> Play:
    """Runs a scenario against a cloud of the tiny model."""

    def run(scenario: Scenario) -> None:
        async def main() -> None:
            async with asyncio.timeout(60), cloud_of(tiny_store, tiny_templates) as cloud:
                await scenario(cloud)

        asyncio.run(main())

    return run


@contextlib.asynccontextmanager
async def client_of(cloud: CloudServer, model: str = "tiny") -> AsyncIterator[CloudClient]:
    client = await CloudClient.connect(url_of(cloud), model)
    try:
        yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def raw_connection(cloud: CloudServer, *, greet: bool = True) -> AsyncIterator[ClientConnection]:
    async with connect(url_of(cloud), compression=None, proxy=None) as connection:
        if greet:
            await say(connection, Hello(VERSION, ""))
            await hear(connection)
        yield connection


async def say(connection: ClientConnection, *messages: ToCloud) -> None:
    for message in messages:
        await connection.send(encode(message))


async def hear(connection: ClientConnection) -> FromCloud:
    return decode_from_cloud(await connection.recv(decode=False))


async def whole(client_stream: object) -> Arrival:
    """The next shard to arrive in full."""
    while True:
        arrival: Arrival = await client_stream.next()  # type: ignore[attr-defined]
        if arrival.complete:
            return arrival


def test_describe_builds_and_reports_progress(
    tmp_path: Path, tiny_editor: Editor, tiny_templates: TemplateLibrary
) -> None:
    async def main() -> None:
        async with cloud_of(CacheStore(tmp_path, tiny_editor), tiny_templates) as cloud, client_of(cloud) as client:
            progress: list[float] = []
            described = await client.describe("tiny-face", "sakura", progress.append)
            template = tiny_template("tiny-face")
            assert progress[0] == 0
            assert progress[-1] == pytest.approx(1)
            assert progress == sorted(progress)
            assert (described.model, described.template) == ("tiny", template.fingerprint)
            assert (described.subject, described.has_reference) == ("face", True)
            for codec in STREAMED_CODECS:
                offer = await client.describe("tiny-face", codec)
                index = cloud.store.get(template, streamed_codec(codec)).index
                assert (offer.codec, offer.geometry) == (codec, described.geometry)
                assert (offer.options, offer.segment_bytes) == (index.options, index.segment_bytes)
                assert (offer.ladders, offer.ladder_of) == (index.ladders, index.ladder_of)
                assert len(offer.ladder_of) == described.geometry.shards

            again: list[float] = []
            assert await client.describe("tiny-face", "sakura", again.append) == described
            assert not again

    asyncio.run(main())


def test_who_asks_can_be_stopped_as_the_answer_comes(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with client_of(cloud) as client:
            description = await client.describe("tiny-face", "sakura")
            asking = asyncio.create_task(client.describe("tiny-face", "sakura"))
            while not client._waiting:
                await asyncio.sleep(0)
            client._answer("template tiny-face sakura", description)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking

    play(scenario)


def test_two_ask_for_the_same_template_at_once(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with client_of(cloud) as client:
            asked = [asyncio.create_task(client.describe("tiny-face", "sakura")) for _ in range(3)]
            await asyncio.sleep(0)
            asked[0].cancel()  # one gives up; the others must not notice
            first, second = await asyncio.gather(*asked[1:])
            assert first == second

    play(scenario)


@pytest.mark.parametrize("codec", STREAMED_CODECS)
def test_every_rung_of_a_shard_arrives_byte_exact(play: Play, codec: str) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with client_of(cloud) as client:
            offer = await client.describe("tiny-face", codec)
            container = cloud.store.get(tiny_template("tiny-face"), streamed_codec(codec))
            stream = await client.open_stream("tiny-face", codec, None)
            for shard in (0, len(offer.ladder_of) - 1):
                ladder = offer.ladders[offer.ladder_of[shard]]
                for rung in ladder.rungs:
                    await stream.fetch(shard, ladder.segments(rung))
                    arrival = await whole(stream)
                    expected = {segment: container.read_segment(segment) for segment in ladder.segments(rung)}
                    assert arrival.fetch_id == shard
                    assert arrival.take() == expected
                    assert sum(map(len, expected.values())) == rung.size_bytes < arrival.wire_bytes
            await stream.close()

    play(scenario)


def test_any_segments_come_in_the_order_asked(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with client_of(cloud) as client:
            container = cloud.store.get(tiny_template("tiny-face"), streamed_codec("sakura"))
            stream = await client.open_stream("tiny-face", "sakura", None)
            asked = [7, 0, 3]
            await stream.fetch(2, asked)
            segments = (await whole(stream)).take()
            assert list(segments) == asked
            assert segments == {segment: container.read_segment(segment) for segment in asked}

    play(scenario)


def test_segments_can_be_taken_before_the_rest_is_there(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with client_of(cloud) as client:
            container = cloud.store.get(tiny_template("tiny-face"), streamed_codec("uncompressed"))
            await client.emulate_link("slow", constant_trace(0.5), 0, 0)
            stream = await client.open_stream("tiny-face", "uncompressed", "slow")
            await stream.fetch(7, [4, 1, 2])
            taken: list[tuple[int, bool]] = []
            while True:
                arrival = await stream.next()
                for segment, data in arrival.take().items():
                    assert data == container.read_segment(segment)
                    taken.append((segment, arrival.complete))
                if arrival.complete:
                    break
            assert taken == [(4, False), (1, False), (2, True)]

    play(scenario)


def test_what_is_on_the_wire_of_a_cancelled_fetch_is_counted(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with Relay(url_of(cloud)) as relay:
            sent_bytes: list[int] = []

            def watch(data: bytes) -> bytes:
                if isinstance(decode_from_cloud(data), FetchHeader | Piece):
                    sent_bytes.append(len(data))
                return data

            relay.alter = watch
            client = await CloudClient.connect(relay.url, "tiny")
            await client.emulate_link("slow", constant_trace(2), 0.05, 0)
            stream = await client.open_stream("tiny-face", "uncompressed", "slow")
            for fetch_id, segments in ((0, [0, 1, 2]), (1, [3]), (2, [4])):
                await stream.fetch(fetch_id, segments)
            arrivals = [await stream.next()]
            assert (arrivals[0].fetch_id, len(sent_bytes)) == (0, 1)
            await stream.cancel(0)
            await stream.cancel(1)
            while not (arrivals[-1].fetch_id == 2 and arrivals[-1].complete):
                arrivals.append(await stream.next())
            assert list(arrivals[-1].take()) == [4]
            told = {id(arrival): arrival for arrival in arrivals}
            assert sum(arrival.wire_bytes for arrival in told.values()) == sum(sent_bytes)
            assert arrivals[0].wire_bytes > sent_bytes[0]
            assert not arrivals[0].take(), "what came too late is not kept"
            await client.close()

    play(scenario)


def test_failure_of_a_stream_is_told_on_it(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(container: Container, segment: int) -> bytes:
        raise OSError("the disk is gone")

    async def scenario(cloud: CloudServer) -> None:
        async with client_of(cloud) as client:
            stream = await client.open_stream("tiny-face", "uncompressed", None)
            monkeypatch.setattr(Container, "read_segment", fails)
            await stream.fetch(0, [0])
            with pytest.raises(SourceLostError, match="The cloud failed to serve this; its log says why"):
                await asyncio.wait_for(stream.next(), 5)

    play(scenario)


def test_slow_disk_holds_up_nobody_else(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    in_time: list[bool] = []
    read = Container.read_segment

    def slowly(container: Container, segment: int) -> bytes:
        in_time.append(answered.wait(5))
        return read(container, segment)

    async def scenario(cloud: CloudServer) -> None:
        async with client_of(cloud) as client:
            await client.describe("tiny-face", "uncompressed")
            stream = await client.open_stream("tiny-face", "uncompressed", None)
            monkeypatch.setattr(Container, "read_segment", slowly)
            await stream.fetch(0, [0])
            await client.emulate_link("other", constant_trace(1), 0, 0)
            answered.set()
            assert list((await whole(stream)).take()) == [0]
            assert in_time == [True]

    play(scenario)


def test_fetch_too_many_is_refused_on_its_stream(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with client_of(cloud) as client:
            await client.emulate_link("long", constant_trace(1), 5, 0)
            stream = await client.open_stream("tiny-face", "uncompressed", "long")
            for fetch_id in range(MAX_QUEUED_FETCHES + 1):
                await stream.fetch(fetch_id, [0])
            with pytest.raises(SourceLostError, match="Too much was asked at once"):
                await asyncio.wait_for(stream.next(), 2)
            await stream.close()  # which is never too much
            async with asyncio.timeout(5):
                while cloud.link("long").in_use:
                    await asyncio.sleep(0.01)

    play(scenario)


def test_shards_come_in_the_order_asked(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with client_of(cloud) as client:
            stream = await client.open_stream("tiny-face", "uncompressed", None)
            order = [3, 0, 5, 1]
            for shard in order:
                await stream.fetch(shard, [shard])
            assert [(await whole(stream)).fetch_id for _ in order] == order

    play(scenario)


def test_importance_travels(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with client_of(cloud) as client:
            scores = await client.importance("tiny-face")
            np.testing.assert_array_equal(scores, cloud.store.importance(tiny_template("tiny-face")))

    play(scenario)


def test_what_is_unknown_is_refused_and_the_connection_stays(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with client_of(cloud) as client:
            for unknown in ("nowhere", "../tiny-face", "", "x" * 1000):
                with pytest.raises(UserError, match="no template"):
                    await client.describe(unknown, "sakura")
            with pytest.raises(UserError, match="no template 'nowhere'"):
                await asyncio.wait_for(client.importance("nowhere"), 5)
            for template_id, codec, link, reason in (
                ("nowhere", "sakura", None, "no template"),
                ("tiny-face", "zip", None, "no codec 'zip'"),
                ("tiny-face", "sakura", "nowhere", "no emulated link"),
            ):
                stream = await client.open_stream(template_id, codec, link)
                with pytest.raises(SourceLostError, match=reason):
                    await asyncio.wait_for(stream.next(), 5)
            with pytest.raises(UserError, match="no codec 'zip'; this cloud has sakura"):
                await client.describe("tiny-face", "zip")
            for segments in ([99], [-1], [0, 0], [0, 6]):
                stream = await client.open_stream("tiny-face", "uncompressed", None)
                await stream.fetch(0, segments)
                with pytest.raises(SourceLostError, match=r"Stream \d+ asks for"):
                    await asyncio.wait_for(stream.next(), 5)
                await stream.close()
            assert (await client.describe("tiny-face", "sakura")).template_id == "tiny-face"

    play(scenario)


def test_nothing_is_served_before_hello(store: CacheStore, shipped: TemplateLibrary) -> None:
    async def scenario() -> None:
        async with (
            asyncio.timeout(60),
            cloud_of(store, shipped) as cloud,
            raw_connection(cloud, greet=False) as connection,
        ):
            await say(connection, Describe("face-bob", "sakura"))
            assert await hear(connection) == Refused("hello", "The first message must be hello.")

    asyncio.run(scenario())


def test_streams_are_bounded_and_numbers_unique(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with raw_connection(cloud) as connection:
            opens = [OpenStream(number, "tiny-face", "uncompressed", None) for number in range(MAX_STREAMS)]
            await say(connection, *opens, OpenStream(99, "tiny-face", "uncompressed", None))
            assert await hear(connection) == Refused(
                "stream 99", "A device may have 8 streams open at once; close one."
            )
            await say(connection, CloseStream(0), OpenStream(1, "tiny-face", "uncompressed", None))
            assert await hear(connection) == Refused("stream 1", "Stream 1 is open already.")
            await say(connection, Fetch(0, 0, [0]))
            assert await hear(connection) == Refused("stream 0", "Stream 0 is not open.")

    play(scenario)


def test_cancel_stops_what_is_left_of_a_shard(store: CacheStore, shipped: TemplateLibrary) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), cloud_of(store, shipped) as cloud, raw_connection(cloud) as connection:
            await say(connection, emulated("link", constant_trace(40.0)))
            assert await hear(connection) == Linked("link")
            await say(connection, OpenStream(1, FACE, "uncompressed", "link"))
            await say(connection, *(Fetch(1, shard, [shard]) for shard in range(3)))
            assert isinstance(await hear(connection), FetchHeader)
            await say(connection, Cancel(1, 0), Cancel(1, 1))
            size = store.get(shipped.get(FACE), streamed_codec("uncompressed")).index.segment_bytes[2]
            received = {0: 0, 1: 0, 2: 0}
            while received[2] < size:
                message = await hear(connection)
                if isinstance(message, Piece):
                    received[message.fetch_id] += len(message.data)
            assert received[0] < size / 2
            assert received[1] == 0
            # A shard that was cancelled can be asked for again.
            await say(connection, Fetch(1, 1, [1]))
            assert isinstance(await hear(connection), FetchHeader)

    asyncio.run(main())


@pytest.mark.parametrize(
    "frame", [b"", b"\xc1", b"{}", msgspec.msgpack.encode({"kind": "describe"}), "text", b"\x81" * 500]
)
def test_malformed_frame_ends_the_connection_with_a_sentence(play: Play, frame: bytes | str) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with raw_connection(cloud) as connection:
            await connection.send(frame)
            refusal = await hear(connection)
            assert isinstance(refusal, Refused)
            assert refusal.reason == "The cloud could not read a message; both sides need the same version."
            with pytest.raises(ConnectionClosed):
                await connection.recv()
            assert connection.close_code == 1002
        async with client_of(cloud) as client:
            assert await client.describe("tiny-face", "sakura")

    play(scenario)


def test_client_survives_a_cloud_that_talks_nonsense() -> None:
    from websockets.asyncio.server import ServerConnection, serve

    async def nonsense(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send(encode(Welcome(VERSION, "tiny")))
        await connection.send(b"\xc1nonsense")
        await connection.wait_closed()

    async def main() -> None:
        async with asyncio.timeout(20), serve(nonsense, "127.0.0.1", 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            client = await CloudClient.connect(f"ws://127.0.0.1:{port}", "tiny")
            await client.lost.wait()
            with pytest.raises(UserError, match="connection to the cloud was lost"):
                await client.describe("tiny-face", "sakura")
            stream = await client.open_stream("tiny-face", "sakura", None)
            with pytest.raises(SourceLostError, match="lost"):
                await stream.next()
            await client.close()

    asyncio.run(main())


def test_other_versions_and_models_are_refused(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with raw_connection(cloud, greet=False) as connection:
            await say(connection, Hello(VERSION + 1, "tiny"))
            refusal = await hear(connection)
            assert isinstance(refusal, Refused)
            assert f"speaks version {VERSION + 1}, the cloud version {VERSION}" in refusal.reason
        with pytest.raises(UserError, match="another model"):
            async with client_of(cloud, "other"):
                pass

    play(scenario)


@pytest.mark.parametrize("url", ["ws://127.0.0.1:9", "http://127.0.0.1:9", "nonsense", "ws://"])
def test_no_cloud_is_told_with_the_address(url: str) -> None:
    with pytest.raises(UserError, match="No cloud answers at"):
        asyncio.run(CloudClient.connect(url, "tiny"))


# Emulated links


TRIES = 5


def emulated(link_id: str, trace: Trace, rtt_s: float = 0.0, offset_s: float = 0.0) -> EmulateLink:
    return EmulateLink(link_id, trace.title, trace.edges_s.tolist(), trace.rates_mbps.tolist(), rtt_s, offset_s)


def test_emulated_link_paces_a_shard(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with client_of(cloud) as client:
            loop = asyncio.get_running_loop()
            await client.describe("tiny-wear", "sakura")
            for mbps, rtt_s in ((2.0, 0.0), (2.0, 0.2), (0.5, 0.0)):
                await client.emulate_link(f"{mbps}-{rtt_s}", constant_trace(mbps), rtt_s, 0)
                for chance in range(TRIES):
                    stream = await client.open_stream("tiny-wear", "uncompressed", f"{mbps}-{rtt_s}")
                    began_s = loop.time()
                    for shard in range(6):
                        await stream.fetch(shard, [shard])
                    arrivals = [await whole(stream) for _ in range(6)]
                    took_s = loop.time() - began_s
                    await stream.close()
                    expected_s = 8e-6 * sum(arrival.wire_bytes for arrival in arrivals) / mbps + rtt_s
                    assert took_s > 0.95 * expected_s
                    # A busy machine delays some tries; a link that is too slow delays them all.
                    if took_s < 1.15 * expected_s + 0.05:
                        break
                    assert chance < TRIES - 1, f"{took_s:.2f} s instead of {expected_s:.2f} s"

    play(scenario)


def test_change_of_the_link_takes_effect_during_a_transfer(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with client_of(cloud) as client:
            loop = asyncio.get_running_loop()
            await client.emulate_link("changing", constant_trace(0.02), 0, 0)
            stream = await client.open_stream("tiny-face", "uncompressed", "changing")
            began_s = loop.time()
            await stream.fetch(0, [0])
            assert not (await stream.next()).complete
            # At 0.02 Mbit/s the shard would take seconds more.
            await client.emulate_link("changing", constant_trace(50.0), 0, 0)
            arrival = await whole(stream)
            at_first_rate_s = 8e-6 * arrival.wire_bytes / 0.02
            assert loop.time() - began_s < 0.5 * at_first_rate_s

    play(scenario)


def test_round_trip_of_a_link_changes_only_while_nobody_uses_it(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with client_of(cloud) as client:
            await client.emulate_link("way", constant_trace(1), 0.02, 0)
            await client.emulate_link("way", constant_trace(2), 0.2, 3)
            link = cloud.link("way")
            assert (link.rtt_s, link.offset_s, link.trace.rates_mbps[0]) == (0.2, 3, 2)
            stream = await client.open_stream("tiny-face", "uncompressed", "way")
            await stream.fetch(0, [0])
            await whole(stream)
            with pytest.raises(UserError, match=r"Link 'way' is in use with a round trip of 0\.2 s"):
                await client.emulate_link("way", constant_trace(4), 0.1, 0)
            await client.emulate_link("way", constant_trace(4), 0.2, 0)
            assert link.trace.rates_mbps[0] == 4
            await stream.close()
            await client.emulate_link("way", constant_trace(4), 0.1, 0)
            assert link.rtt_s == 0.1

    play(scenario)


def test_links_in_use_are_not_forgotten(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sakura.cloud.server.MAX_LINKS", 2)

    async def scenario(cloud: CloudServer) -> None:
        async with client_of(cloud) as client:
            for link_id in ("first", "second"):
                await client.emulate_link(link_id, constant_trace(50), 0, 0)
            stream = await client.open_stream("tiny-face", "uncompressed", "first")
            await stream.fetch(0, [0])
            await whole(stream)
            await client.emulate_link("third", constant_trace(50), 0, 0)
            assert cloud.link("first").in_use
            with pytest.raises(UserError, match="no emulated link 'second'"):
                cloud.link("second")
            other = await client.open_stream("tiny-face", "uncompressed", "third")
            await other.fetch(0, [0])
            await whole(other)
            with pytest.raises(UserError, match="2 emulated links are in use"):
                await client.emulate_link("fourth", constant_trace(50), 0, 0)

    play(scenario)


def test_two_changes_of_a_link_at_once_both_reach_the_cloud(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with client_of(cloud) as client:
            changes = (client.emulate_link("twice", constant_trace(rate), 0, 0) for rate in (1.0, 7.0))
            await asyncio.gather(*changes)
            assert cloud.link("twice").trace.rates_mbps[0] == 7.0

    play(scenario)


def test_two_devices_have_links_of_their_own(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with client_of(cloud) as slow, client_of(cloud) as fast:
            await slow.emulate_link("slow", constant_trace(0.1), 0, 0)
            await fast.emulate_link("fast", constant_trace(50), 0, 0)
            slow_stream = await slow.open_stream("tiny-face", "uncompressed", "slow")
            fast_stream = await fast.open_stream("tiny-wear", "uncompressed", "fast")
            await slow_stream.fetch(0, [0])
            for shard in range(6):
                await fast_stream.fetch(shard, [shard])
            fast_arrivals = [await whole(fast_stream) for _ in range(6)]
            assert [arrival.fetch_id for arrival in fast_arrivals] == list(range(6))
            assert not (await slow_stream.next()).complete
            container = cloud.store.get(tiny_template("tiny-face"), streamed_codec("uncompressed"))
            assert (await whole(slow_stream)).take() == {0: container.read_segment(0)}

    play(scenario)


def test_streams_that_name_one_link_share_its_rate(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(client_of(cloud)) for _ in range(4)]
            await clients[0].emulate_link("shared", constant_trace(4), 0.02, 0)
            streams = [await client.open_stream("tiny-face", "uncompressed", "shared") for client in clients]
            received = [0] * len(streams)

            async def take(number: int) -> None:
                while True:
                    if (await streams[number].next()).complete:
                        received[number] += 1

            for stream in streams:
                for fetch_id in range(60):
                    await stream.fetch(fetch_id, [fetch_id % 6])
            takers = [asyncio.create_task(take(number)) for number in range(len(streams))]
            while sum(received) < 80:
                await asyncio.sleep(0.01)
            # Whoever asks first fills the queue before the link once.
            assert all(15 <= count <= 26 for count in received)
            # Two leave; the others have the link to themselves.
            for taker, stream in zip(takers[:2], streams[:2], strict=True):
                taker.cancel()
                await stream.close()
            before = list(received)
            while sum(received) - sum(before) < 40:
                await asyncio.sleep(0.01)
            assert [count - known for count, known in zip(received[2:], before[2:], strict=True)] == pytest.approx(
                [20, 20], abs=3
            )
            for taker in takers[2:]:
                taker.cancel()

    play(scenario)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rtt_s": -0.1}, "round trip"),
        ({"rtt_s": 6.0}, "round trip"),
        ({"rtt_s": math.nan}, "round trip"),
        ({"offset_s": math.nan}, "start at"),
        ({"offset_s": -1.0}, "start at"),
        ({"offset_s": math.inf}, "start at"),
        ({"rates_mbps": [-1.0]}, ""),
        ({"rates_mbps": [math.inf]}, ""),
        ({"rates_mbps": [0.0]}, ""),
        ({"rates_mbps": []}, ""),
        ({"edges_s": [0.0]}, ""),
        ({"edges_s": [0.0, math.nan]}, ""),
        ({"edges_s": [1.0, 0.0]}, ""),
        ({"rates_mbps": [1.0] * 100_001}, "rows"),
    ],
)
def test_links_that_cannot_be_are_refused_with_a_sentence(play: Play, changes: dict[str, object], named: str) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with raw_connection(cloud) as connection:
            await say(connection, msgspec.structs.replace(emulated("bad", constant_trace(1.0)), **changes))
            refusal = await hear(connection)
            assert isinstance(refusal, Refused)
            assert refusal.about == "link bad"
            assert named in refusal.reason
            assert "its log says why" not in refusal.reason

    play(scenario)


def test_outage_at_the_start_of_a_trace_is_kept(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        outage = checked_trace("outage", np.array([0.0, 0.4, 60.0]), np.array([0.0, 50.0]))
        async with client_of(cloud) as client:
            await client.emulate_link("outage", outage, 0, 0)
            began_s = asyncio.get_running_loop().time()
            stream = await client.open_stream("tiny-face", "uncompressed", "outage")
            await stream.fetch(0, [0])
            await whole(stream)
            assert asyncio.get_running_loop().time() - began_s >= 0.39

    play(scenario)


def test_pieces_match_the_checksums_announced(play: Play) -> None:
    async def scenario(cloud: CloudServer) -> None:
        async with raw_connection(cloud) as connection:
            await say(connection, OpenStream(1, "tiny-face", "uncompressed", None), Fetch(1, 2, [2]))
            header = await hear(connection)
            assert isinstance(header, FetchHeader)
            data = b""
            while len(data) < sum(header.segment_bytes):
                piece = await hear(connection)
                assert isinstance(piece, Piece)
                data += piece.data
            assert [zlib.crc32(data)] == header.segment_crc32

    play(scenario)


def test_damage_on_disk_is_told_on_the_stream(
    tmp_path: Path, tiny_editor: Editor, tiny_templates: TemplateLibrary
) -> None:
    store = CacheStore(tmp_path, tiny_editor)
    template = tiny_template("tiny-face")
    store.get(template, new_codec("uncompressed"))
    path = Path(store.url(template, new_codec("uncompressed")))
    with path.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x55")

    async def main() -> None:
        async with asyncio.timeout(20), cloud_of(store, tiny_templates) as cloud, client_of(cloud) as client:
            stream = await client.open_stream("tiny-face", "uncompressed", None)
            await stream.fetch(5, [5])
            with pytest.raises(SourceLostError, match=r"Segment 5 of tiny-face-uncompressed-\w+\.sakura is damaged"):
                await whole(stream)

    asyncio.run(main())


def test_decoders_refuse_messages_of_the_other_direction() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_to_cloud(encode(Linked("x")))
    with pytest.raises(msgspec.ValidationError):
        decode_from_cloud(encode(CloseStream(1)))
