"""What a controller sees of an edit in progress, and what it answers: which segments to ask for next.

There is one interface for two kinds of controllers. Those that choose a representation before it is sent are rules,
which :class:`~sakura.control.shard_by_shard.ShardByShard` asks once a shard; a controller that knows no such moment,
like :mod:`~sakura.control.progressive`, implements :class:`Controller` itself.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Protocol

from sakura.codec.interface import CacheGeometry, Ladder, Rung


@dataclasses.dataclass
class StreamState:
    """An edit as its pipeline keeps it. Times are seconds since the run began, rates Mbit/s.

    ``begun`` shards have been given to execution; shard ``begun`` can start at ``free_s`` if it is there. ``decided``
    shards have a representation. ``outstanding_bytes`` were asked for and have not come.
    """

    geometry: CacheGeometry
    ladders: Sequence[Ladder]
    ladder_of: Sequence[int]
    segment_bytes: Sequence[int]
    shard_s: float  # executing a shard with the cache
    local_shard_s: float  # executing it without
    reconstruct_s: float
    rtt_s: float
    predicted_mbps: float
    now_s: float = 0.0
    begun: int = 0
    free_s: float = 0.0
    decided: int = 0
    read_s_per_byte: float = 0.0  # reading ahead, as measured so far
    measured: bool = False  # whether this edit has measured its network yet
    requested: set[int] = dataclasses.field(default_factory=set)
    arrived: set[int] = dataclasses.field(default_factory=set)
    outstanding_bytes: int = 0
    first_ready_s: float | None = None  # when the first shard is expected to be rebuilt, once it has been asked for

    def ladder(self, shard: int) -> Ladder:
        return self.ladders[self.ladder_of[shard]]

    def bytes_of(self, segments: Iterable[int]) -> int:
        return sum(self.segment_bytes[segment] for segment in segments)

    def to_request(self, ladder: Ladder, rung: Rung) -> list[int]:
        """Segments of a rung that have not been asked for, in sending order."""
        return [segment for segment in ladder.segments(rung) if segment not in self.requested]

    def cost_bytes(self, ladder: Ladder, rung: Rung) -> int:
        """What a rung would still cost."""
        return self.bytes_of(self.to_request(ladder, rung))

    def transfer_s(self, size_bytes: float) -> float:
        return 8e-6 * size_bytes / self.predicted_mbps

    @property
    def link_free_s(self) -> float:
        """When the first byte of a request made now can arrive."""
        return self.now_s + max(self.rtt_s, self.transfer_s(self.outstanding_bytes))

    def needed_s(self, shard: int) -> float:
        """When execution comes to a shard if nothing makes it wait; the first one waits for its own transfer."""
        start = max(self.now_s, self.free_s)
        if self.begun == 0 and shard > 0:
            start = max(start, self.link_free_s if self.first_ready_s is None else self.first_ready_s)
        return start + (shard - self.begun) * self.shard_s

    def slack_s(self, shard: int) -> float:
        """From the link being free until the shard is needed, reconstruction taken off."""
        return self.needed_s(shard) - self.reconstruct_s - self.link_free_s


@dataclasses.dataclass(frozen=True)
class Order:
    """Ask for what is missing of ``rung`` of a shard's ladder. ``least`` is what its execution waits for.

    ``part`` are the segments to ask for now, if not all that is missing. The first order of a shard decides it; later
    ones refine it. ``budget_bytes`` is what the controller allowed, ``reason`` is for people.
    """

    shard: int
    rung: Rung
    least: Rung
    budget_bytes: int
    reason: str
    part: Sequence[int] | None = None


class Controller(Protocol):
    """Says what to ask for next."""

    def next(self, state: StreamState) -> Order | None:
        """The next order, or None to be asked again when something has changed.

        Shards are decided in order: an order for shard ``state.decided`` decides it, any other one only fetches ahead.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Situation:
    """What a rule knows when it chooses for ``shard``.

    ``rungs`` have the sizes of what would still have to be fetched; earlier shards may have brought a part.
    ``slack_s``: from the moment the link is free until the shard is needed, reconstruction taken off.
    ``shard_s``: how long executing a shard takes.
    """

    shard: int
    rungs: Sequence[Rung]
    slack_s: float
    shard_s: float
    predicted_mbps: float
    measured: bool = True


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of the rungs, the bytes that were allowed, and why (words for people).

    ``least`` is the rung that execution waits for: where it is a smaller one, a late transfer is cut to what has come.
    """

    rung: Rung
    budget_bytes: int
    reason: str
    least: Rung | None = None


class Rule(Protocol):
    """Chooses a rung a shard, in order, before it is sent."""

    def choose(self, situation: Situation) -> Choice: ...
