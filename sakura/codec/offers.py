"""Whether what a container or a cloud says of a cache can be: nothing here has been vouched for by a checksum."""

import itertools
import math
from collections.abc import Mapping, Sequence

import msgspec

from sakura.codec import CODECS, new_codec
from sakura.codec.interface import CacheGeometry, Ladder

MAX_SIDE = 1 << 20
MAX_SHARD_NUMBERS = 1 << 29


def offer_fault(
    name: str,
    geometry: CacheGeometry,
    codec: str,
    options: Mapping[str, object],
    segment_bytes: Sequence[int],
    ladders: Sequence[Ladder],
    ladder_of: Sequence[int],
) -> str | None:
    """A sentence about what contradicts itself in the cache called ``name``; None where nothing does."""
    sides = (geometry.steps, geometry.blocks, geometry.blocks_per_shard, geometry.rows, geometry.columns)
    possible = min(sides) >= 1 and max(sides) <= MAX_SIDE and geometry.blocks % geometry.blocks_per_shard == 0
    if not possible or geometry.matrices * geometry.rows * geometry.columns > MAX_SHARD_NUMBERS:
        return f"The geometry in {name} is not one of a cache."
    if codec not in CODECS:
        return f"{name} was encoded with {codec!r}; this program has {', '.join(CODECS)}."
    try:
        new_codec(codec, options)
    except (msgspec.ValidationError, ValueError) as error:
        return f"{name} has options that {codec} does not have: {error}."
    if any(size < 0 for size in segment_bytes):
        return f"{name} has a segment of less than no bytes."
    if len(ladder_of) != geometry.shards:
        return f"{name} holds {len(ladder_of)} shards, which does not fit its geometry."
    if not all(0 <= ladder < len(ladders) for ladder in ladder_of):
        return f"{name} names a ladder that it does not have."
    for number, ladder in enumerate(ladders):
        fault = _ladder_fault(ladder, segment_bytes)
        if fault:
            return f"Ladder {number} of {name} {fault}."
    return None


def _ladder_fault(ladder: Ladder, segment_bytes: Sequence[int]) -> str | None:
    """What is wrong with a ladder, as the end of a sentence."""
    order, rungs = ladder.order, ladder.rungs
    if not all(0 <= segment < len(segment_bytes) for segment in order):
        return "names a segment that there is not"
    if len(set(order)) != len(order):
        return "names a segment twice"
    if not rungs or any(not 0 <= rung.start < rung.stop <= len(order) for rung in rungs):
        return "has rungs that do not fit it"
    reached = list(itertools.accumulate((segment_bytes[segment] for segment in order), initial=0))
    if any(rung.size_bytes != reached[rung.stop] - reached[rung.start] for rung in rungs):
        return "has a rung whose size is not that of its segments"
    if any(not 0 <= rung.distortion < math.inf for rung in rungs):
        return "has a rung whose distortion is no share"
    steps = itertools.pairwise(rungs)
    if not all(coarse.size_bytes < fine.size_bytes and coarse.distortion > fine.distortion for coarse, fine in steps):
        return "has rungs that do not grow and improve"
    return None
