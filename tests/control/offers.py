"""Ladders and situations for tests of controllers."""

import dataclasses
from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st

from sakura.codec.distortion import lower_hull
from sakura.codec.interface import CacheGeometry, Ladder, Representation, Rung
from sakura.control.interface import Situation, StreamState

ANY = Representation(4, 4, 4)
SHARD_S = 0.02


@st.composite
def rung_lists(draw: st.DrawFn) -> list[Rung]:
    """Rungs as a codec offers them: on a convex hull."""
    points = draw(st.lists(st.tuples(st.integers(100, 5000), st.floats(0.001, 1)), min_size=1, max_size=8))
    return lower_hull([Rung(ANY, 0, 1, size, loss) for size, loss in points])


def situation(
    rungs: Sequence[Rung],
    *,
    shard: int = 3,
    slack_s: float = 0.02,
    mbps: float = 10.0,
    measured: bool = True,
) -> Situation:
    return Situation(shard=shard, rungs=rungs, slack_s=slack_s, shard_s=SHARD_S, predicted_mbps=mbps, measured=measured)


@dataclasses.dataclass(frozen=True)
class Offer:
    """Ladders over one pool of segments, as a template's cache has them."""

    segment_bytes: list[int]
    ladders: list[Ladder]
    ladder_of: list[int]

    def cost(self, choice: Sequence[int]) -> int:
        """Bytes of what a rung of each ladder needs, where shared segments count once."""
        wanted = {
            s for ladder, rung in zip(self.ladders, choice, strict=True) for s in ladder.segments(ladder.rungs[rung])
        }
        return sum(self.segment_bytes[segment] for segment in wanted)

    def loss(self, choice: Sequence[int]) -> float:
        """Summed over shards."""
        return sum(self.ladders[ladder].rungs[choice[ladder]].distortion for ladder in self.ladder_of)

    def state(self, mbps: float, rtt_s: float = 0.02) -> StreamState:
        """An edit that is about to begin, with one shard a step."""
        return StreamState(
            geometry=CacheGeometry(steps=len(self.ladder_of), blocks=1, blocks_per_shard=1, rows=4, columns=4),
            ladders=self.ladders,
            ladder_of=self.ladder_of,
            segment_bytes=self.segment_bytes,
            shard_s=SHARD_S,
            local_shard_s=4 * SHARD_S,
            reconstruct_s=0.001,
            rtt_s=rtt_s,
            predicted_mbps=mbps,
        )


@st.composite
def progressive_offers(draw: st.DrawFn) -> Offer:
    """Prefix ladders without shared segments: the rungs are on convex hulls."""
    segment_bytes: list[int] = []
    ladders = []
    for rungs in draw(st.lists(rung_lists(), min_size=1, max_size=4)):
        order, stops, before_bytes = [], [], 0
        for rung in rungs:
            order.append(len(segment_bytes))
            segment_bytes.append(rung.size_bytes - before_bytes)
            stops.append(len(order))
            before_bytes = rung.size_bytes
        placed = [msgspec.structs.replace(rung, stop=stop) for rung, stop in zip(rungs, stops, strict=True)]
        ladders.append(Ladder(order, placed))
    extra = draw(st.lists(st.integers(0, len(ladders) - 1), max_size=3))
    return Offer(segment_bytes, ladders, [*range(len(ladders)), *extra])


@st.composite
def shared_offers(draw: st.DrawFn) -> Offer:
    """Ladders that share leading segments, in prefixes or in representations of their own."""
    shared = draw(st.integers(1, 3))
    segment_bytes = draw(st.lists(st.integers(1, 500), min_size=shared, max_size=shared))
    ladders = []
    for _ in range(draw(st.integers(1, 3))):
        own = draw(st.lists(st.integers(1, 500), min_size=1, max_size=4))
        order = [*range(shared), *range(len(segment_bytes), len(segment_bytes) + len(own))]
        segment_bytes += own
        starts = [0] * len(own) if draw(st.booleans()) else list(range(len(own)))
        sizes = [sum(segment_bytes[s] for s in order[start : shared + 1 + i]) for i, start in enumerate(starts)]
        rungs = [Rung(ANY, start, shared + 1 + i, sizes[i], 1 / (2 + i)) for i, start in enumerate(starts)]
        ladders.append(Ladder(order, rungs))
    return Offer(segment_bytes, ladders, draw(st.permutations(2 * list(range(len(ladders))))))


def equal_offer(shards: int, sizes: Sequence[int] = (2_000, 6_000, 18_000), ladders: int | None = None) -> Offer:
    """As many equal prefix ladders, whose rungs grow to ``sizes``; ``ladders`` of them serve the shards in turn."""
    count = ladders or shards
    steps = [size - before for size, before in zip(sizes, [0, *sizes], strict=False)]
    rungs = [Rung(ANY, 0, number + 1, size, 0.2 / 4**number) for number, size in enumerate(sizes)]
    order = range(len(sizes))
    return Offer(
        steps * count,
        [Ladder([len(sizes) * number + segment for segment in order], rungs) for number in range(count)],
        [shard % count for shard in range(shards)],
    )
