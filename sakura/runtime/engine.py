"""Engines run the computing stages of the pipeline: reading, rebuilding, executing.

Each stage is a thread of its own with a first-in-first-out queue, like the processors that they stand for; a call
returns an awaitable, so the pipeline can queue work ahead and no stage waits for the event loop.
"""

import asyncio
import dataclasses
import functools
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
import torch

from sakura.backbone.attention import Inject, Plain
from sakura.backbone.editor import Editor, EditState
from sakura.backbone.inputs import Request, Template
from sakura.codec.interface import CacheGeometry, Codec, Decoder
from sakura.codec.sakura_decoder import Product, SakuraDecoder

ShardKv = np.ndarray  # float32 (matrices, rows, columns), contiguous: K and V of each block of a shard
NO_KV = np.empty((0, 0, 0), np.float32)  # of processors that only take time


@dataclasses.dataclass(frozen=True)
class Span:
    """When a piece of work ran, on the event loop's clock (``time.monotonic`` in real time)."""

    start: float
    end: float


class EngineRun(Protocol):
    """One edit on an engine. Work of a kind runs in the order of its calls."""

    def read(self, segments: Mapping[int, bytes]) -> Awaitable[None]:
        """Take in segments ahead of need. Raises ValueError where they do not fit the cache."""
        ...

    def reconstruct(self, shard: int, segments: Mapping[int, bytes]) -> Awaitable[tuple[ShardKv, Span]]:
        """Take in segments and rebuild K and V of a shard from all that came so far.

        Raises ValueError where segments do not fit the cache.
        """
        ...

    def execute(self, shard: int, kv: ShardKv) -> Awaitable[Span]:
        """Run a shard's blocks on the active tokens; begins and ends steps at their first and last shard.

        Of a step that has been computed locally so far, only the active tokens go on.
        """
        ...

    def execute_locally(self, shard: int) -> Awaitable[Span]:
        """Run a shard's blocks on all tokens.

        The first shard of a step begins that step anew; another one must follow on one that was computed locally.
        """
        ...

    def picture(self) -> Awaitable[np.ndarray]:
        """The picture predicted by the last step that ended: uint8 (px, px, 3)."""
        ...


class Executor(Protocol):
    """Runs the blocks of a shard on the processor that it stands for. One thread at a time uses it.

    ``name`` is what people see.
    """

    @property
    def name(self) -> str: ...

    @property
    def product(self) -> Product | None:
        """How it multiplies the factors of a cache, if not as numpy does."""
        ...

    def resolved(self, first: int) -> str:
        """The name of the engine that really runs the shard whose first block this is."""
        ...

    def run(self, state: EditState, blocks: range, kv: ShardKv | None) -> None:
        """Run blocks of the step begun: on the active tokens with ``kv``, or on all tokens without."""
        ...


class TorchExecutor:
    """torch on the CPU."""

    name = "torch, CPU"
    product: Product | None = None

    def resolved(self, first: int) -> str:
        return "torch-cpu"

    def run(self, state: EditState, blocks: range, kv: ShardKv | None) -> None:
        if kv is None:
            state.run_blocks(blocks.start, blocks.stop, Plain())
            return
        heads = torch.from_numpy(kv).unflatten(-1, (state.editor.runner.heads, -1))
        cached = {block: (heads[None, 2 * index], heads[None, 2 * index + 1]) for index, block in enumerate(blocks)}
        state.run_blocks(blocks.start, blocks.stop, Inject(cached))


class Engine:
    """Edits on this machine: one thread executes, another one reads and rebuilds."""

    def __init__(self, editor: Editor, executor: Executor | None = None) -> None:
        self.editor, self.executor = editor, executor or TorchExecutor()
        self.compute = ThreadPoolExecutor(1, thread_name_prefix="execute")
        self.helper = ThreadPoolExecutor(1, thread_name_prefix="reconstruct")

    @property
    def name(self) -> str:
        return self.executor.name

    def start(self, template: Template, request: Request, geometry: CacheGeometry, codec: Codec) -> "LocalRun":
        return LocalRun(self, template, request, geometry, codec)

    def close(self) -> None:
        self.compute.shutdown(wait=False, cancel_futures=True)
        self.helper.shutdown(wait=False, cancel_futures=True)


class LocalRun:
    """One edit on an :class:`Engine`."""

    def __init__(
        self, engine: Engine, template: Template, request: Request, geometry: CacheGeometry, codec: Codec
    ) -> None:
        self.engine, self.geometry = engine, geometry
        self._places = functools.partial(engine.editor.places, template)
        self._codec = codec
        self.loop = asyncio.get_running_loop()
        self._state: EditState | None = None
        self._start: Callable[[], EditState] = lambda: engine.editor.start(template, request)
        self._prepared = self.loop.run_in_executor(engine.compute, self._prepare)
        self.loop.run_in_executor(engine.helper, lambda: self.decoder)

    def _prepare(self) -> None:
        """Embed what is already there, so that it is done before the first shard arrives."""
        self._state = self._start()
        _ = self._state.rotary_active

    @functools.cached_property
    def decoder(self) -> Decoder:
        """Made where it is used, while the first shard is on its way."""
        decoder = self._codec.decoder(self.geometry, self._places())
        product = self.engine.executor.product
        if product and isinstance(decoder, SakuraDecoder):
            decoder.product = product
        return decoder

    @property
    def state(self) -> EditState:
        if self._state is None:  # the preparation failed; running it again raises what it raised
            self._prepare()
        assert self._state is not None
        return self._state

    def read(self, segments: Mapping[int, bytes]) -> Awaitable[None]:
        return self.loop.run_in_executor(self.engine.helper, lambda: self.decoder.add(segments))

    def reconstruct(self, shard: int, segments: Mapping[int, bytes]) -> Awaitable[tuple[ShardKv, Span]]:
        return self.loop.run_in_executor(self.engine.helper, self._reconstruct, shard, segments)

    def execute(self, shard: int, kv: ShardKv) -> Awaitable[Span]:
        return self.loop.run_in_executor(self.engine.compute, self._execute, shard, kv)

    def execute_locally(self, shard: int) -> Awaitable[Span]:
        return self.loop.run_in_executor(self.engine.compute, self._execute, shard, None)

    def picture(self) -> Awaitable[np.ndarray]:
        return self.loop.run_in_executor(self.engine.helper, self.state.picture)

    def _reconstruct(self, shard: int, segments: Mapping[int, bytes]) -> tuple[ShardKv, Span]:
        start = time.monotonic()
        self.decoder.add(segments)
        kv = np.ascontiguousarray(self.decoder.shard(shard))
        return kv, Span(start, time.monotonic())

    def _execute(self, shard: int, kv: ShardKv | None) -> Span:
        start = time.monotonic()
        blocks, step = self.geometry.blocks_of(shard), self.geometry.step_of(shard)
        if blocks.start == 0:
            if kv is None:
                self.state.begin_full(step)
            else:
                self.state.begin_active(step)
        elif kv is not None:
            self.state.keep_active()
        self.engine.executor.run(self.state, blocks, kv)
        if blocks.stop == self.geometry.blocks:
            self.state.end_step()
        return Span(start, time.monotonic())
