"""Controllers: which representation of a shard to send, chosen before it is sent."""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from sakura.codec.interface import Rung

SLACK_SHARE = 0.25


@dataclasses.dataclass(frozen=True)
class Situation:
    """What a controller knows when it chooses for ``shard``.

    ``slack_s``: from the moment the link is free until the shard is needed, reconstruction taken off.
    ``shard_s``: how long executing a shard takes.
    """

    shard: int
    rungs: Sequence[Rung]
    slack_s: float
    shard_s: float
    predicted_mbps: float


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
    """The finest rung whose transfer hides behind the execution of the shards before it.

    A shard may take as long as executing one takes, plus a quarter of what has been saved up beyond that, so that a
    buffer remains for a drop of the rate. Nothing hides the first shard's transfer, so
    it is sent at the coarsest rung.
    """

    def choose(self, situation: Situation) -> Choice:
        rungs, rate = situation.rungs, situation.predicted_mbps
        if situation.shard == 0:
            return Choice(rungs[0], 0, "nothing can start before it is there, so the smallest representation")
        slack_s = situation.slack_s
        allowed_s = min(slack_s, situation.shard_s) + SLACK_SHARE * max(0.0, slack_s - situation.shard_s)
        budget_bytes = int(max(0.0, allowed_s) * rate * 125_000)
        fitting = [rung for rung in rungs if rung.size_bytes <= budget_bytes]
        if not fitting:
            return Choice(rungs[0], budget_bytes, "late already, so the smallest representation")
        reason = "the finest there is" if fitting[-1] is rungs[-1] else "the finest that arrives in time"
        return Choice(fitting[-1], budget_bytes, reason)


class BudgetController:
    """Spends a number of bytes on the whole template so that the summed distortion is least.

    All shards are taken to the same price of a byte; each rung list is a convex hull, so taking the steepest next
    step until the budget is spent is optimal but for the last step.
    """

    def __init__(self, rungs_per_shard: Sequence[Sequence[Rung]], budget_bytes: int) -> None:
        chosen = [0] * len(rungs_per_shard)
        spent = sum(rungs[0].size_bytes for rungs in rungs_per_shard)
        steps = [
            (
                (rungs[index + 1].distortion - rungs[index].distortion)
                / (rungs[index + 1].size_bytes - rungs[index].size_bytes),
                shard,
                index + 1,
            )
            for shard, rungs in enumerate(rungs_per_shard)
            for index in range(len(rungs) - 1)
        ]
        for _, shard, index in sorted(steps):
            cost = rungs_per_shard[shard][index].size_bytes - rungs_per_shard[shard][index - 1].size_bytes
            if index == chosen[shard] + 1 and spent + cost <= budget_bytes:
                chosen[shard] = index
                spent += cost
        self.chosen = chosen
        self.spent_bytes = spent

    def choose(self, situation: Situation) -> Choice:
        rung = situation.rungs[self.chosen[situation.shard]]
        return Choice(rung, rung.size_bytes, "its share of the bytes to spend")
