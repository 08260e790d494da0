"""The controller that asks a rule for one shard after the other, some way ahead of execution."""

import msgspec

from sakura.control.interface import Order, Rule, Situation, StreamState

# Our reading: the paper says that the transfer of later shards hides behind earlier ones, not how far ahead.
LOOKAHEAD_SHARDS = 8


class ShardByShard:
    """Decides every shard once, in order."""

    def __init__(self, rule: Rule, lookahead: int = LOOKAHEAD_SHARDS) -> None:
        self.rule, self.lookahead = rule, lookahead

    def next(self, state: StreamState) -> Order | None:
        shard = state.decided
        if shard >= min(state.geometry.shards, state.begun + self._lookahead(state)):
            return None
        ladder = state.ladder(shard)
        rungs = [msgspec.structs.replace(rung, size_bytes=state.cost_bytes(ladder, rung)) for rung in ladder.rungs]
        choice = self.rule.choose(
            Situation(
                shard=shard,
                rungs=rungs,
                slack_s=state.slack_s(shard),
                shard_s=state.shard_s,
                predicted_mbps=state.predicted_mbps,
                measured=state.measured,
            )
        )
        return Order(shard, choice.rung, choice.least or choice.rung, choice.budget_bytes, choice.reason)

    def _lookahead(self, state: StreamState) -> int:
        """How many shards to ask for ahead of execution: few until this run has measured its network."""
        if state.measured:
            return self.lookahead
        return min(self.lookahead, 1 + int(state.rtt_s / state.shard_s))
