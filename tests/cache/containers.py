"""Small real containers, ways to damage them, and a server that has them."""

import asyncio
import contextlib
import dataclasses
import random
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
from aiohttp import web

from sakura.cache.container import MAGIC, PREFIX, VERSION, ContainerIndex, pack_container
from sakura.codec import new_codec
from sakura.codec.interface import CacheArrays, CacheGeometry, Codec, EncodedCache, TokenPlaces

GEOMETRY = CacheGeometry(steps=2, blocks=4, blocks_per_shard=2, rows=24, columns=8)
HEAD_DIM = 4


def some_places(geometry: CacheGeometry = GEOMETRY) -> TokenPlaces:
    """One picture of tokens, six a row."""
    index = np.arange(geometry.rows)
    positions = np.stack([0 * index, index // 6, index % 6], 1).astype(np.int32)
    angle = (positions @ [0.0, 0.7, 1.1])[:, None] * np.array([1.0, 1.0, 0.1, 0.1])
    return TokenPlaces(positions, np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32))


def some_arrays(geometry: CacheGeometry = GEOMETRY, seed: int = 0) -> CacheArrays:
    rng = np.random.default_rng(seed)
    shape = (geometry.steps, geometry.blocks, 2)
    left = rng.normal(size=(geometry.rows, 3))
    kv = left @ rng.normal(size=(*shape, 3, geometry.columns)) + 0.1 * rng.normal(
        size=(*shape, geometry.rows, geometry.columns)
    )
    importance = rng.lognormal(0, 1, (*shape[:2], geometry.rows))
    importance /= importance.mean(-1, keepdims=True)
    sensitivity = rng.lognormal(0, 0.5, (geometry.blocks, 2)).astype(np.float32)
    return CacheArrays(kv.astype(np.float32), importance.astype(np.float32), sensitivity, some_places(geometry))


@dataclasses.dataclass(frozen=True)
class Sample:
    """An encoded cache and its container."""

    codec: Codec
    encoded: EncodedCache
    data: bytes

    @property
    def index_end(self) -> int:
        return PREFIX.size + PREFIX.unpack_from(self.data)[2]

    @property
    def index(self) -> ContainerIndex:
        return msgspec.msgpack.decode(self.data[PREFIX.size : self.index_end], type=ContainerIndex)


def some_container(name: str = "sakura") -> Sample:
    codec = new_codec(name)
    encoded = codec.encode(GEOMETRY, some_arrays())
    return Sample(codec, encoded, packed(codec, encoded))


def packed(codec: Codec, encoded: EncodedCache, geometry: CacheGeometry = GEOMETRY) -> bytes:
    return pack_container(encoded, model="a model", template="a template", codec=codec, geometry=geometry)


def with_index(index: bytes, segments: bytes) -> bytes:
    """A container of these index and segment bytes, whose prefix fits them."""
    return PREFIX.pack(MAGIC, VERSION, len(index), zlib.crc32(index)) + index + segments


def mutated(data: bytes, rng: random.Random) -> bytes:
    """``data`` with a few bytes changed, cut, repeated or added; never the same."""
    changed = bytearray(data)
    kind = rng.choice(("flip", "set", "cut", "extend", "insert", "delete"))
    start = rng.randrange(len(changed))
    if kind == "flip":
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    elif kind == "set":
        changed[start : start + 4] = rng.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", rng.randbytes(4)))
        del changed[len(data) :]
    elif kind == "cut":
        del changed[start:]
    elif kind == "extend":
        changed += rng.randbytes(rng.randint(1, 50))
    elif kind == "insert":
        changed[start:start] = rng.randbytes(rng.randint(1, 5))
    else:
        del changed[start : start + rng.randint(1, 5)]
    return bytes(changed) if changed != data else mutated(data, rng)


@contextlib.contextmanager
def served(folder: Path, *, ranges: bool = True) -> Iterator[tuple[str, list[str]]]:
    """The files of a folder over HTTP: the address, and the Range header of each GET as it comes."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        path = folder / request.match_info["name"]
        if request.method == "GET":
            asked.append(request.headers.get("Range", ""))
        if not path.exists():
            raise web.HTTPNotFound
        return web.FileResponse(path) if ranges else web.Response(body=path.read_bytes())

    application = web.Application()
    application.router.add_get("/{name}", answer)
    runner = web.AppRunner(application)
    loop = asyncio.new_event_loop()

    async def start() -> int:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return int(runner.addresses[0][1])

    port = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, name="file server")
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}", asked
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
