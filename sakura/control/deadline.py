"""The deadline rule: the finest representation whose transfer hides, cut to what has come where it is late."""

from sakura.control.interface import Choice, Situation

SLACK_SHARE = 0.25


class DeadlineRule:
    """The finest rung whose transfer hides behind the execution of the shards before it.

    A shard may take as long as executing one takes, and a quarter of the time that has been saved up beyond that, so
    that a buffer remains for a drop of the rate. Nothing hides the first shard: it gets the smallest rung, as does any
    that is late already. Where the rung continues the smallest, execution waits for that alone: of a late transfer it
    uses what has come.
    """

    def choose(self, situation: Situation) -> Choice:
        rungs, slack_s, shard_s = situation.rungs, situation.slack_s, situation.shard_s
        # What the round trip and reconstruction take is not in the slack.
        allowed_s = min(slack_s, shard_s) + SLACK_SHARE * max(0.0, slack_s - shard_s)
        budget_bytes = int(max(0.0, allowed_s) * situation.predicted_mbps * 125_000)
        fitting = [number for number, rung in enumerate(rungs) if rung.size_bytes <= budget_bytes]
        number = fitting[-1] if fitting else 0
        if situation.shard == 0:
            number, budget_bytes, reason = 0, 0, "nothing can start before it is there, so the smallest"
        elif not fitting:
            reason = "late already, so the smallest"
        elif rungs[number].size_bytes > 0:
            reason = "the finest that arrives in time"
        elif situation.measured or rungs[number] is rungs[-1]:
            reason = "what earlier steps brought serves this one too"
        else:  # an estimate that is too low would else stay so
            number, reason = number + 1, "the next finer one, to learn how fast the network is"
        rung = rungs[number]
        return Choice(rung, budget_bytes, reason, least=rungs[0] if rung.start == rungs[0].start else rung)
