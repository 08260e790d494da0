"""The paper's controller, as we read it: before a shard is sent, choose what will arrive by the time it is needed."""

from sakura.control.interface import Choice, Situation


class ChooseBeforeSendRule:
    """The finest rung whose transfer, at the predicted rate, hides behind the execution of the shards before it.

    Nothing hides the first shard: it gets the coarsest rung, as does any that is late already. Reconstruction and the
    round trip are taken off the time that there is. Source: our reading of the paper's online adaptive streaming.
    """

    def choose(self, situation: Situation) -> Choice:
        rungs = situation.rungs
        if situation.shard == 0:
            return Choice(rungs[0], 0, "nothing can start before it is there, so the smallest")
        budget_bytes = int(max(0.0, situation.slack_s) * situation.predicted_mbps * 125_000)
        fitting = [rung for rung in rungs if rung.size_bytes <= budget_bytes]
        if not fitting:
            return Choice(rungs[0], budget_bytes, "late already, so the smallest")
        return Choice(fitting[-1], budget_bytes, "the finest that arrives in time")
