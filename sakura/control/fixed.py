"""Always the same representation."""

from sakura.control.interface import Choice, Situation


class FixedRule:
    """Rung number ``level`` of every shard, counted from the finest (0), or from the coarsest (-1) if negative."""

    def __init__(self, level: int = 0) -> None:
        self.level = level

    def choose(self, situation: Situation) -> Choice:
        rungs = situation.rungs
        last = len(rungs) - 1
        number = max(0, last - self.level) if self.level >= 0 else min(last, -self.level - 1)
        return Choice(rungs[number], rungs[number].size_bytes, "always this one")
