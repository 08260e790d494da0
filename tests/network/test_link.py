import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import numpy as np
import pytest
from clocks import bounded, run
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from sakura.network.library import constant_trace
from sakura.network.link import LinkClosedError, PacedLink
from sakura.network.trace import BYTES_PER_MEGABIT, Trace, checked_trace


class Receiver:
    """Keeps what arrives, and when on the clock of the loop."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.times_s: list[float] = []

    async def deliver(self, message: bytes) -> None:
        self.messages.append(message)
        self.times_s.append(asyncio.get_running_loop().time())

    async def until(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.messages) < count:
                await asyncio.sleep(0.001)


def run_in_real_time(work: Callable[[], Coroutine[Any, Any, None]], tries: int = 5) -> None:
    """Run on the real clock; again after a failure, for a busy machine delays some tries, a wrong link fails all."""
    for _ in range(tries - 1):
        with contextlib.suppress(AssertionError):
            return asyncio.run(bounded(work()))
    return asyncio.run(bounded(work()))


def link_to(
    deliver: Callable[[bytes], Awaitable[None]], trace: Trace, *, rtt_s: float = 0.02, max_queued_bytes: int = 1 << 18
) -> PacedLink:
    return PacedLink(trace, rtt_s=rtt_s, offset_s=0, deliver=deliver, max_queued_bytes=max_queued_bytes)


def rate_mbps(receiver: Receiver) -> float:
    """Rate from the first arrival to the last."""
    carried_bytes = sum(len(message) for message in receiver.messages[1:])
    return carried_bytes / BYTES_PER_MEGABIT / (receiver.times_s[-1] - receiver.times_s[0])


async def carried_mbps(mbps: float, message_bytes: int) -> float:
    """Rate at which half a second's worth of messages arrives over a constant trace."""
    receiver = Receiver()
    link = link_to(receiver.deliver, constant_trace(mbps))
    count = int(0.5 * mbps * BYTES_PER_MEGABIT / message_bytes)
    for _ in range(count):
        await link.send(bytes(message_bytes))
    await receiver.until(count)
    await link.close()
    return rate_mbps(receiver)


@pytest.mark.parametrize(("mbps", "message_bytes"), [(8, 4096), (80, 16_384), (800, 65_536), (16, 500)])
def test_rate_is_that_of_the_trace(mbps: float, message_bytes: int) -> None:
    async def work() -> None:
        assert await carried_mbps(mbps, message_bytes) == pytest.approx(mbps)

    run(work())


@pytest.mark.parametrize(("mbps", "message_bytes"), [(8, 4096), (800, 65_536)])
def test_rate_in_real_time(mbps: float, message_bytes: int) -> None:
    async def work() -> None:
        assert await carried_mbps(mbps, message_bytes) == pytest.approx(mbps, rel=0.05)

    run_in_real_time(work)


def test_order_is_kept_among_several_senders() -> None:
    async def work() -> None:
        receiver = Receiver()
        link = link_to(receiver.deliver, constant_trace(100), max_queued_bytes=2000)
        messages = [bytes([index]) * 1000 for index in range(20)]
        await asyncio.gather(*(link.send(message) for message in messages))
        await receiver.until(20)
        assert receiver.messages == messages
        await link.close()

    run(work())


def test_every_message_takes_half_a_round_trip_and_waits_for_no_other_ones() -> None:
    async def work() -> None:
        receiver = Receiver()
        link = link_to(receiver.deliver, constant_trace(80), rtt_s=0.1)
        began_s = asyncio.get_running_loop().time()
        for _ in range(5):
            await link.send(bytes(10_000))
        await receiver.until(5)
        delays_s = np.array(receiver.times_s) - began_s
        np.testing.assert_allclose(delays_s, 0.05 + 0.001 * np.arange(1, 6))
        await link.close()

    run(work())


def test_rates_follow_the_trace_from_the_offset_on() -> None:
    async def work() -> None:
        receiver = Receiver()
        trace = checked_trace("t", [0, 10, 10.2, 20], [1, 80, 8])
        link = PacedLink(trace, rtt_s=0, offset_s=10, deliver=receiver.deliver)
        began_s = asyncio.get_running_loop().time()
        await link.send(bytes(1_000_000))
        await link.send(bytes(1_100_000))
        await receiver.until(2)
        np.testing.assert_allclose(np.array(receiver.times_s) - began_s, [0.1, 0.3])
        await link.close()

    run(work())


def test_a_new_trace_counts_at_once_for_the_message_on_its_way() -> None:
    async def work() -> None:
        receiver = Receiver()
        link = link_to(receiver.deliver, constant_trace(0.0001), rtt_s=0)
        await link.send(bytes(10_000))
        await asyncio.sleep(0.1)
        began_s = asyncio.get_running_loop().time()
        link.set_trace(constant_trace(80))
        await receiver.until(1)
        assert receiver.times_s[0] - began_s == pytest.approx(0.001, abs=2e-6)
        await link.close()

    run(work())


def test_a_slower_trace_keeps_what_has_been_sent() -> None:
    async def work() -> None:
        receiver = Receiver()
        link = link_to(receiver.deliver, constant_trace(8), rtt_s=0)
        began_s = asyncio.get_running_loop().time()
        await link.send(bytes(200_000))
        await asyncio.sleep(0.1)
        link.set_trace(constant_trace(4))
        await receiver.until(1)
        assert receiver.times_s[0] - began_s == pytest.approx(0.3)
        await link.close()

    run(work())


def test_an_outage_holds_messages_until_it_ends() -> None:
    async def work() -> None:
        receiver = Receiver()
        link = link_to(receiver.deliver, checked_trace("t", [0, 0.2, 10], [0, 80]), rtt_s=0)
        began_s = asyncio.get_running_loop().time()
        await link.send(b"late")
        await receiver.until(1)
        assert receiver.times_s[0] - began_s == pytest.approx(0.2, abs=1e-6)
        await link.close()

    run(work())


def test_a_link_without_capacity_waits_for_another_trace() -> None:
    async def work() -> None:
        receiver = Receiver()
        silent = Trace("silent", "Silent", np.array([0.0, 1.0]), np.array([0.0]), (), "made up", "Mbit/s")
        link = link_to(receiver.deliver, silent, rtt_s=0)
        await link.send(b"held")
        await asyncio.sleep(0.05)
        assert receiver.messages == []
        link.set_trace(constant_trace(8))
        await receiver.until(1)
        await link.close()

    run(work())


def test_a_full_queue_holds_the_sender_back() -> None:
    async def work() -> None:
        receiver = Receiver()
        link = link_to(receiver.deliver, constant_trace(8), max_queued_bytes=20_000)
        most_bytes = 0
        for _ in range(20):
            await link.send(bytes(5000))
            most_bytes = max(most_bytes, link.queued_bytes)
        assert most_bytes == 20_000
        await receiver.until(20)
        assert link.queued_bytes == 0
        assert rate_mbps(receiver) == pytest.approx(8)
        await link.close()

    run(work())


def test_a_message_larger_than_the_queue_passes_alone() -> None:
    async def work() -> None:
        receiver = Receiver()
        link = link_to(receiver.deliver, constant_trace(80), max_queued_bytes=1000)
        await link.send(bytes(5000))
        await link.send(bytes(5000))
        await receiver.until(2)
        await link.close()

    run(work())


def test_dropping_spares_the_message_on_its_way() -> None:
    async def work() -> None:
        receiver = Receiver()
        link = link_to(receiver.deliver, constant_trace(8), rtt_s=0)
        for letter in (b"a", b"a", b"b", b"a"):
            await link.send(letter * 20_000, owner=letter)
        await asyncio.sleep(0.005)
        assert link.drop_queued(lambda owner: owner == b"a") == 40_000
        assert link.queued_bytes == 40_000
        await receiver.until(2)
        assert [message[:1] for message in receiver.messages] == [b"a", b"b"]
        assert link.queued_bytes == 0
        await link.close()

    run(work())


def test_senders_of_a_shared_link_get_equal_shares_each_at_its_own_end() -> None:
    async def work() -> None:
        receivers = [Receiver() for _ in range(4)]
        link = link_to(Receiver().deliver, constant_trace(8), rtt_s=0, max_queued_bytes=2000)

        async def produce(receiver: Receiver) -> None:
            while True:
                await link.send(bytes(1000), deliver=receiver.deliver, owner=receiver)

        producers = [asyncio.create_task(produce(receiver)) for receiver in receivers]
        await asyncio.sleep(0.4)
        assert [len(receiver.messages) for receiver in receivers] == pytest.approx([100] * 4, abs=3)
        # One that leaves gives its share to the others, and nothing of its own comes any more.
        producers[0].cancel()
        link.drop_queued(lambda owner: owner is receivers[0])
        came = len(receivers[0].messages)
        await asyncio.sleep(0.3)
        assert len(receivers[0].messages) <= came + 1
        assert [len(receiver.messages) for receiver in receivers[1:]] == pytest.approx([200] * 3, abs=4)
        for producer in producers:
            producer.cancel()
        await link.close()

    run(work())


def test_a_stalled_receiver_stops_the_bottleneck() -> None:
    async def work() -> None:
        released = asyncio.Event()

        async def deliver(message: bytes) -> None:
            await released.wait()

        link = link_to(deliver, constant_trace(80), rtt_s=0, max_queued_bytes=50_000)
        sent_bytes = 0

        async def produce() -> None:
            nonlocal sent_bytes
            while True:
                await link.send(bytes(10_000))
                sent_bytes += 10_000

        producer = asyncio.create_task(produce())
        await asyncio.sleep(0.8)
        assert sent_bytes < 0.35 * 80 * BYTES_PER_MEGABIT + 50_000
        producer.cancel()
        await link.close()

    run(work())


def test_an_error_of_the_receiver_reaches_the_next_sender() -> None:
    async def work() -> None:
        async def deliver(message: bytes) -> None:
            raise ConnectionResetError("gone")

        link = link_to(deliver, constant_trace(80), rtt_s=0, max_queued_bytes=1000)
        await link.send(bytes(1000))
        with pytest.raises(ConnectionResetError):
            for _ in range(3):
                await link.send(bytes(1000))
        assert link.queued_bytes == 0
        await link.close()
        with pytest.raises(ConnectionResetError):
            await link.send(b"more")

    run(work())


def test_close_frees_waiting_senders_and_leaves_no_tasks() -> None:
    async def work() -> None:
        link = link_to(Receiver().deliver, constant_trace(0.001), max_queued_bytes=1000)
        await link.send(bytes(1000))
        sender = asyncio.create_task(link.send(bytes(1000)))
        await asyncio.sleep(0.01)
        await link.close()
        with pytest.raises(LinkClosedError):
            await sender
        with pytest.raises(LinkClosedError):
            await link.send(b"more")
        await link.close()
        assert {asyncio.current_task()} == asyncio.all_tasks()

    run(work())


def test_a_new_trace_counts_at_once_in_real_time() -> None:
    async def work() -> None:
        receiver = Receiver()
        link = link_to(receiver.deliver, constant_trace(0.001), rtt_s=0)
        await link.send(bytes(10_000))
        await asyncio.sleep(0.1)
        began_s = asyncio.get_running_loop().time()
        link.set_trace(constant_trace(80))
        await receiver.until(1)
        await link.close()
        assert receiver.times_s[0] - began_s < 0.05

    run_in_real_time(work)


def test_work_per_message_is_small() -> None:
    async def work() -> None:
        receiver = Receiver()
        link = link_to(receiver.deliver, constant_trace(100_000), rtt_s=0)
        began_s = time.process_time()
        for _ in range(2000):
            await link.send(b"x" * 100)
        await receiver.until(2000)
        await link.close()
        assert time.process_time() - began_s < 2000 * 0.0005

    run_in_real_time(work)


def test_over_a_real_websocket() -> None:
    async def work() -> None:
        rtt_s, mbps, message_bytes, count = 0.06, 200.0, 32_768, 380

        async def handler(connection: ServerConnection) -> None:
            link = PacedLink(constant_trace(mbps), rtt_s=rtt_s, offset_s=0, deliver=connection.send)
            try:
                await connection.recv()
                for _ in range(count):
                    await link.send(bytes(message_bytes))
                await connection.recv()
            finally:
                await link.close()

        receiver = Receiver()
        async with serve(handler, "127.0.0.1", 0, compression=None) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            async with connect(f"ws://127.0.0.1:{port}", compression=None) as client:
                asked_s = asyncio.get_running_loop().time()
                await client.send(b"go")
                for _ in range(count):
                    message = await client.recv(decode=False)
                    await receiver.deliver(message)
                await client.send(b"done")
        assert rate_mbps(receiver) == pytest.approx(mbps, rel=0.05)
        assert receiver.times_s[0] - asked_s == pytest.approx(rtt_s / 2 + 0.0013, abs=0.015)

    run_in_real_time(work)
