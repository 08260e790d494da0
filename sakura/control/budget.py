"""Spending a given number of bytes on a whole template."""

from collections import Counter
from collections.abc import Sequence

from sakura.codec.interface import Ladder
from sakura.control.interface import Choice, Situation


class BudgetRule:
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
