"""Controllers: which representation of a shard to send, chosen before it is sent."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from sakura.codec.interface import Ladder, Rung

SLACK_SHARE = 0.25
# What a shard should not lose more than, if that takes no longer than so many shards take to execute: where nothing can
# hide a transfer, a little waiting spares the picture much.
WORTH_SENDING = 0.1
WORTH_SHARDS = 3
ENOUGH = 0.03  # a shard that loses no more than this differs in nothing that one could see


@dataclasses.dataclass(frozen=True)
class Situation:
    """What a controller knows when it chooses for ``shard``.

    ``rungs`` have the sizes of what would still have to be fetched; earlier shards may have brought a part.
    ``slack_s``: from the moment the link is free until the shard is needed, reconstruction taken off.
    ``shard_s``: how long executing a shard takes.
    """

    shard: int
    rungs: Sequence[Rung]
    slack_s: float
    shard_s: float
    predicted_mbps: float
    measured: bool = True  # whether this edit has measured its network yet


@dataclasses.dataclass(frozen=True)
class Choice:
    """The chosen rung, the bytes that were allowed, and why (words for people)."""

    rung: Rung
    budget_bytes: int
    reason: str


class Controller(Protocol):
    """Chooses a rung a shard, in order."""

    def choose(self, situation: Situation) -> Choice: ...


class DeadlineController:
    """The finest useful rung whose transfer hides behind the execution of the shards before it.

    A shard may take as long as executing one takes, plus a quarter of what has been saved up beyond that, so that a
    buffer remains for a drop of the rate. Where nothing hides a transfer, as for the first shard, the coarsest rung is
    sent that keeps most of what matters, or the coarsest of all if the network is too slow for that.
    """

    def choose(self, situation: Situation) -> Choice:
        rungs, rate = situation.rungs, situation.predicted_mbps
        if situation.shard == 0:
            return Choice(self._smallest(situation), 0, "nothing can start before it is there, so a small one")
        slack_s = situation.slack_s
        allowed_s = min(slack_s, situation.shard_s) + SLACK_SHARE * max(0.0, slack_s - situation.shard_s)
        budget_bytes = int(max(0.0, allowed_s) * rate * 125_000)
        smallest = self._smallest(situation)
        last = next((number for number, rung in enumerate(rungs) if rung.distortion <= ENOUGH), len(rungs) - 1)
        useful = rungs[: last + 1]
        fitting = [rung for rung in useful if rung.size_bytes <= budget_bytes]
        if not fitting or fitting[-1].size_bytes < smallest.size_bytes:
            return Choice(smallest, budget_bytes, "late already, so a small one")
        if fitting[-1].size_bytes == 0 and fitting[-1] is not useful[-1] and not situation.measured:
            return Choice(useful[len(fitting)], budget_bytes, "the next finer one, to learn how fast the network is")
        if fitting[-1].size_bytes == 0:
            return Choice(fitting[-1], budget_bytes, "what earlier steps brought serves this one too")
        reason = "as fine as is of use" if fitting[-1] is useful[-1] else "the finest that arrives in time"
        return Choice(fitting[-1], budget_bytes, reason)

    def _smallest(self, situation: Situation) -> Rung:
        worth = next((rung for rung in situation.rungs if rung.distortion <= WORTH_SENDING), situation.rungs[-1])
        transfer_s = 8e-6 * worth.size_bytes / situation.predicted_mbps
        return worth if transfer_s <= WORTH_SHARDS * situation.shard_s else situation.rungs[0]


class BudgetController:
    """Spends a number of bytes on the whole template so that the summed distortion is least.

    Ladders are raised one rung at a time, each time the one that gains most for a byte that is not paid for yet. Rungs
    are on convex hulls, so this is optimal but for the last steps and for what ladders share.
    """

    def __init__(
        self, ladders: Sequence[Ladder], ladder_of: Sequence[int], segment_bytes: Sequence[int], budget_bytes: int
    ) -> None:
        self._ladder_of = ladder_of
        shards_of = Counter(ladder_of)
        chosen = [0] * len(ladders)
        users = Counter(segment for ladder in ladders for segment in ladder.segments(ladder.rungs[0]))
        spent = sum(segment_bytes[segment] for segment in users)
        while True:
            best: tuple[float, int, int] | None = None
            for number, ladder in enumerate(ladders):
                if chosen[number] + 1 == len(ladder.rungs):
                    continue
                current, rung = ladder.rungs[chosen[number] : chosen[number] + 2]
                old, new = set(ladder.segments(current)), set(ladder.segments(rung))
                extra = sum(segment_bytes[segment] for segment in new - old if users[segment] == 0)
                extra -= sum(segment_bytes[segment] for segment in old - new if users[segment] == 1)
                if spent + extra > budget_bytes:
                    continue
                gain = shards_of[number] * (current.distortion - rung.distortion) / max(1, extra)
                if best is None or gain > best[0]:
                    best = (gain, number, extra)
            if best is None:
                break
            _, number, extra = best
            ladder = ladders[number]
            users.subtract(ladder.segments(ladder.rungs[chosen[number]]))
            chosen[number] += 1
            users.update(ladder.segments(ladder.rungs[chosen[number]]))
            spent += extra
        self.chosen = chosen  # rung of each ladder
        self.spent_bytes = spent

    def choose(self, situation: Situation) -> Choice:
        rung = situation.rungs[self.chosen[self._ladder_of[situation.shard]]]
        return Choice(rung, rung.size_bytes, "its share of the bytes to spend")
