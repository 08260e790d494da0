"""`python -m sakura bench codec`: how long encoding and reconstruction take, and how much memory."""

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from sakura.cache.store import CacheStore
from sakura.codec import CODECS, new_codec
from sakura.codec.interface import CacheArrays, CacheGeometry, Codec, EncodedCache, TokenPlaces
from sakura.codec.sakura import SakuraCodec
from sakura.templates import TemplateAssets

# One block of FLUX.2 klein 4B, K and V, at 1024 px with a small mask.
KLEIN = CacheGeometry(steps=4, blocks=1, blocks_per_shard=1, rows=1900, columns=3072)
KLEIN_HEAD_DIM = 128
RANKS = (4, 8, 16, 32, 48, 64)
REPEATS = 5
Row = dict[str, object]


def drawn_arrays(geometry: CacheGeometry, head_dim: int, seed: int = 0) -> CacheArrays:
    """A cache with the spectrum of a real one: components that fall off, steps that resemble each other, noise."""
    rng = np.random.default_rng(seed)
    rank = min(128, geometry.rows)
    left = rng.normal(size=(geometry.rows, rank)).astype(np.float32) * np.float32(0.93) ** np.arange(rank)
    kv = np.empty((geometry.steps, geometry.blocks, 2, geometry.rows, geometry.columns), np.float32)
    for block, part in np.ndindex(geometry.blocks, 2):
        shared = rng.normal(size=(rank, geometry.columns)).astype(np.float32)
        for step in range(geometry.steps):
            own = rng.normal(size=shared.shape).astype(np.float32)
            np.matmul(left, shared + 0.1 * own, out=kv[step, block, part])
    importance = rng.lognormal(0, 1.5, (geometry.steps, geometry.blocks, geometry.rows)).astype(np.float32)
    importance /= importance.mean(-1, keepdims=True)
    angles = rng.uniform(0, 6.28, (geometry.rows, head_dim // 2)).repeat(2, axis=1)
    positions = np.zeros((geometry.rows, 3), np.int32)
    positions[:, 2] = np.arange(geometry.rows)
    places = TokenPlaces(positions, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))
    return CacheArrays(kv, importance, np.ones((geometry.blocks, 2), np.float32), places)


def bench_codec(
    store: CacheStore, template: TemplateAssets, progress: Callable[[str], None] = lambda what: None
) -> dict[str, list[Row]]:
    """All measurements, in seconds and bytes. ``progress`` is told what comes next."""
    geometry, arrays = store.arrays(template)
    encoding: list[Row] = []
    for name in CODECS:
        progress(f"encoding with {name}")
        codec = new_codec(name)
        seconds = _median(lambda codec=codec: codec.encode(geometry, arrays), 3)  # type: ignore[misc]
        encoding.append({"codec": name, "template": template.template_id, "encode_s": seconds})
    progress("reconstructing at nano size")
    reconstruction = [_reconstruction("nano shard", geometry, arrays)]
    progress("encoding a klein-size block in a process of its own")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        memory = pool.apply(_klein_memory)
    progress("reconstructing at klein size")
    reconstruction.append(_reconstruction("FLUX.2 klein 4B block", KLEIN, drawn_arrays(KLEIN, KLEIN_HEAD_DIM)))
    growth: list[Row] = []
    for rows in (256, 512, 1024, 1900):
        for rank in (16, 32, 64):
            progress(f"{rows} tokens, rank {rank}")
            size = CacheGeometry(4, 1, 1, rows, 1024)
            growth.append(_growth(size, rank, drawn_arrays(size, KLEIN_HEAD_DIM)))
    return {"encoding": encoding, "reconstruction": reconstruction, "memory": [memory], "growth": growth}


def _median(work: Callable[[], object], repeats: int = REPEATS) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _everything(codec: Codec, geometry: CacheGeometry, arrays: CacheArrays, encoded: EncodedCache) -> float:
    """Seconds for a fresh decoder to read all segments (what the device does while it receives)."""
    segments = dict(enumerate(encoded.segments))
    return _median(lambda: codec.decoder(geometry, arrays.places).add(segments), 3)


def _reconstruction(what: str, geometry: CacheGeometry, arrays: CacheArrays) -> Row:
    """Rebuilding a shard from factors that have arrived, against the plain product of the same shapes."""
    codec = SakuraCodec(ranks=RANKS)
    encoded = codec.encode(geometry, arrays)
    decoder = codec.decoder(geometry, arrays.places)
    decoder.add(dict(enumerate(encoded.segments)))
    rng = np.random.default_rng(0)
    left = rng.normal(size=(geometry.rows, RANKS[-1])).astype(np.float32)
    right = rng.normal(size=(RANKS[-1], geometry.matrices * geometry.columns)).astype(np.float32)
    shards = range(geometry.shards)
    for shard in shards:  # factors are put together once, when the last of them has arrived
        decoder.shard(shard)
    rebuilt, plain = [], []
    for _ in range(REPEATS):  # in turn, so that both see the machine in the same mood
        rebuilt.append(_median(lambda: [decoder.shard(shard) for shard in shards], 1) / len(shards))
        plain.append(_median(lambda: [left @ right for _ in shards], 1) / len(shards))
    reading = _everything(codec, geometry, arrays, encoded)
    return {
        "what": what,
        "tokens": geometry.rows,
        "channels": geometry.columns,
        "matrices": geometry.matrices,
        "rank": RANKS[-1],
        "shard_s": statistics.median(rebuilt),
        "plain_matmul_s": statistics.median(plain),
        "ratio": statistics.median(rebuilt) / statistics.median(plain),
        "reading_all_segments_s": reading,
        "reading_a_shard_s": reading / len(shards),
    }


def _growth(geometry: CacheGeometry, rank: int, arrays: CacheArrays) -> Row:
    codec = SakuraCodec(ranks=tuple(known for known in RANKS if known <= rank))
    encode_s = _median(lambda: codec.encode(geometry, arrays), 1)
    encoded = codec.encode(geometry, arrays)
    decoder = codec.decoder(geometry, arrays.places)
    decoder.add(dict(enumerate(encoded.segments)))
    decoder.shard(0)
    return {
        "tokens": geometry.rows,
        "rank": rank,
        "encode_s": encode_s,
        "read_s": _everything(codec, geometry, arrays, encoded),
        "shard_s": _median(lambda: decoder.shard(0)),
    }


def _klein_memory() -> Row:
    """Encode a klein-size block here, in a process that does nothing else, and read its high-water mark."""
    arrays = drawn_arrays(KLEIN, KLEIN_HEAD_DIM)
    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    start = time.perf_counter()
    SakuraCodec(ranks=RANKS).encode(KLEIN, arrays)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {
        "what": "encoding a FLUX.2 klein 4B block (4 steps)",
        "cache_bytes": arrays.kv.nbytes,
        "peak_process_bytes": peak,
        "peak_before_bytes": before,
        "encode_s": seconds,
    }
