"""Edits over several devices while their network, their processes and strangers do their worst."""

import asyncio
import collections
import contextlib
import dataclasses
import gc
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import psutil
from bridges import TOKEN, Wire, job_of, phone_of
from websockets.exceptions import ConnectionClosed
from worlds import cloud_of, device_of, tiny_model, url_of

from device_bridge.agent import Agent
from device_bridge.hub import ConnectedDevice, Hub
from device_bridge.pairing import PairedDevice
from device_bridge.protocol import MAX_MESSAGE_BYTES, Accepted, Rejected, encode
from sakura.backbone.editor import Editor
from sakura.cache.store import CacheStore
from sakura.cloud.client import CloudClient
from sakura.errors import UserError
from sakura.events import RunFailed, RunFinished, is_last
from sakura.network.library import constant_trace
from sakura.templates import TemplateLibrary

DEVICES = 3
EDIT_LIMIT_S = 40.0  # of an edit, waiting for its device to come back included
QUIET_S, SETTLE_S = 1.0, 15.0
MOST_FROZEN_S = 6.0  # longer than it takes to be noticed
SLOW_READ_S = 0.05
SLOW_LINK, SLOW_LINK_MBPS = "slow", 1.0


@dataclasses.dataclass(frozen=True)
class Footprint:
    """What this process holds."""

    memory_bytes: int
    handles: int
    tasks: int


@dataclasses.dataclass
class Outcome:
    """How edits ended, what was done to them, and what the process held after the warm-up and at the end."""

    pictures: int = 0
    sentences: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    trouble: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    warm: Footprint | None = None
    end: Footprint | None = None
    faults: list[str] = dataclasses.field(default_factory=list)

    @property
    def edits(self) -> int:
        return self.pictures + self.sentences.total()

    def told(self) -> str:
        lines = [f"{self.edits} edits: {self.pictures} pictures, {self.sentences.total()} sentences"]
        lines += [f"  {count} x {sentence}" for sentence, count in self.sentences.most_common()]
        lines.append("trouble: " + ", ".join(f"{count} x {kind}" for kind, count in self.trouble.most_common()))
        for name, held in (("after the warm-up", self.warm), ("at the end", self.end)):
            assert held is not None
            mib = held.memory_bytes / 2**20
            lines.append(f"{name}: {mib:.1f} MiB, {held.handles} file handles, {held.tasks} tasks")
        return "\n".join(lines)


def footprint() -> Footprint:
    gc.collect()
    process = psutil.Process()
    return Footprint(process.memory_info().rss, process.num_fds(), len(asyncio.all_tasks()))


class Place:
    """A paired device behind a network of its own, which can be killed and started again."""

    def __init__(self, wire: Wire, device_id: str, token: str) -> None:
        self.wire, self.device_id, self.token = wire, device_id, token
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        # A model of its own, as a process has it: the last one's thread may still be computing.
        async with device_of(Editor(tiny_model(), "tiny")) as device:
            await Agent(device, self.wire.url, self.token).run()

    async def kill(self) -> None:
        assert self._task
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def restart(self) -> None:
        await self.kill()
        self.start()


class Soak:
    """One hub, one cloud, three devices; :meth:`edit` as often as wanted."""

    def __init__(self, hub: Hub, cloud_url: str, places: list[Place], seed: int) -> None:
        self.hub, self.cloud_url, self.places = hub, cloud_url, places
        self.outcome = Outcome()
        self._rng = random.Random(seed)
        self._troubles: list[Callable[[Place], Awaitable[None]]] = [
            self.killed,
            self.half_open,
            self.reset,
            self.replaced_by_nonsense,
            self.oversized,
            self.malformed,
            self.wrong_token,
        ]

    async def edit(self, number: int | str, place: Place, trouble: Callable[[Place], Awaitable[None]] | None) -> None:
        """An edit that ends in a picture or a sentence; with trouble in its midst, if there is any."""
        slow_reader = self._rng.random() < 0.15
        job = job_of(f"run-{number}", self.cloud_url, SLOW_LINK if trouble else None)
        making = None
        if trouble:
            self.outcome.trouble[trouble.__name__] += 1
            making = asyncio.create_task(self._soon(trouble, place))
        try:
            async with asyncio.timeout(EDIT_LIMIT_S):
                device = await self.device(place)
                async for event in self.hub.run(device, job):
                    if slow_reader:
                        await asyncio.sleep(SLOW_READ_S)
                    if isinstance(event, RunFailed):
                        self.outcome.sentences[event.reason] += 1
                    elif isinstance(event, RunFinished):
                        self.outcome.pictures += 1
                    assert not is_last(event) or isinstance(event, RunFailed | RunFinished)
        except UserError as error:
            self.outcome.sentences[str(error)] += 1
        except TimeoutError:
            self.outcome.faults.append(f"edit {number} with {getattr(trouble, '__name__', 'no trouble')} hung")
        finally:
            if making:
                await making

    async def _soon(self, trouble: Callable[[Place], Awaitable[None]], place: Place) -> None:
        await asyncio.sleep(self._rng.random() * 0.3)
        await trouble(place)

    async def device(self, place: Place) -> ConnectedDevice:
        while place.device_id not in self.hub.devices:
            await asyncio.sleep(0.01)
        return self.hub.devices[place.device_id]

    async def run(self, edits: int, first: int = 0, *, each_trouble: bool = False) -> None:
        """Edits on all devices at once, one after another on each. ``each_trouble``: every kind in turn."""
        numbers = iter(range(first, first + edits))

        async def work(place: Place) -> None:
            for number in numbers:
                trouble = None
                if each_trouble and number % 2 == 0:
                    trouble = self._troubles[number // 2 % len(self._troubles)]
                elif not each_trouble and self._rng.random() < 0.35:
                    trouble = self._rng.choice(self._troubles)
                await self.edit(number, place, trouble)

        await asyncio.gather(*(work(place) for place in self.places))

    # What goes wrong

    async def killed(self, place: Place) -> None:
        await place.restart()

    async def half_open(self, place: Place) -> None:
        """The network stops without a word; the device comes back over another connection, or when it works again."""
        place.wire.freeze()
        if self._rng.random() < 0.5:
            await place.kill()
            place.wire.cut()
            place.wire.thaw()
            place.start()
        else:
            await asyncio.sleep(self._rng.random() * MOST_FROZEN_S)
            place.wire.thaw()

    async def reset(self, place: Place) -> None:
        place.wire.cut()

    async def _as_stranger(self, first: bytes, *more: bytes | str) -> None:
        """Somebody connects, says this, and is put out."""
        async with phone_of(self.hub.url) as phone:
            with contextlib.suppress(ConnectionClosed):
                await phone.connection.send(first)
                for data in more:
                    await phone.hear(Accepted)
                    await phone.connection.send(data)
                async with asyncio.timeout(5):
                    await phone.connection.wait_closed()

    def _hello(self, token: str) -> bytes:
        hello = {"kind": "device_hello", "versions": [3], "name": "Stranger", "engine": {"name": ""}, "token": token}
        return msgspec.msgpack.encode(hello)

    async def oversized(self, place: Place) -> None:
        await self._as_stranger(self._hello(TOKEN), bytes(MAX_MESSAGE_BYTES + 1))

    async def malformed(self, place: Place) -> None:
        nonsense: list[bytes | str] = [self._rng.randbytes(64), b"\x91" * 50_000, "text", b"", encode(Rejected("me"))]
        await self._as_stranger(self._hello(TOKEN), self._rng.choice(nonsense))

    async def wrong_token(self, place: Place) -> None:
        await self._as_stranger(self._hello("wrong"))

    async def replaced_by_nonsense(self, place: Place) -> None:
        """Somebody with the device's own token puts it out, says nonsense, and is put out; the device is restarted."""
        await self._as_stranger(self._hello(place.token), b"\xc1")
        await place.restart()


async def _settled(running: Soak, most_tasks: int | None = None) -> Footprint:
    """What is held when each device has made an edit in peace; waits for there to be no more than ``most_tasks``."""
    before = running.outcome.pictures
    for place in running.places:
        await running.edit("in peace", place, None)
    if running.outcome.pictures != before + DEVICES:
        running.outcome.faults.append("a device makes no pictures any more")
    await asyncio.sleep(QUIET_S)
    for _ in range(int(SETTLE_S / QUIET_S)):
        if most_tasks is None or len(asyncio.all_tasks()) <= most_tasks:
            break
        await asyncio.sleep(QUIET_S)
    return footprint()


@contextlib.asynccontextmanager
async def soak_of(store: CacheStore, templates: TemplateLibrary, seed: int) -> AsyncIterator[Soak]:
    async with contextlib.AsyncExitStack() as stack:
        cloud = await stack.enter_async_context(cloud_of(store, templates))
        hub = await stack.enter_async_context(Hub(TOKEN))
        client = await CloudClient.connect(url_of(cloud), "")
        await client.emulate_link(SLOW_LINK, constant_trace(SLOW_LINK_MBPS), 0, 0)
        stack.push_async_callback(client.close)
        places = []
        for number in range(DEVICES):
            paired, token = _pair(hub, f"Device {number}")
            wire = await stack.enter_async_context(Wire(hub.port))
            place = Place(wire, paired.device_id, token)
            place.start()
            stack.push_async_callback(place.kill)
            places.append(place)
        yield Soak(hub, url_of(cloud), places, seed)


def _pair(hub: Hub, name: str) -> tuple[PairedDevice, str]:
    return hub.pairing.pair(hub.pairing.new_code().code, name)


async def soak(
    store: CacheStore, templates: TemplateLibrary, edits: int, *, warm_up: int, each_trouble: bool = False
) -> Outcome:
    """A warm-up of ``warm_up`` edits with trouble, then ``edits`` more; after each, one in peace on each device."""
    failures: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(str(context)))
    async with soak_of(store, templates, seed=0) as running:
        await running.run(warm_up, each_trouble=each_trouble)
        warm = await _settled(running)
        await running.run(edits, warm_up, each_trouble=each_trouble)
        outcome = running.outcome
        outcome.warm, outcome.end = warm, await _settled(running, warm.tasks)
        outcome.faults += failures
        return outcome
