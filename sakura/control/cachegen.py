"""CacheGen's rule, as its paper describes it, with shards as its chunks."""

from sakura.control.interface import Choice, Situation


class CacheGenRule:
    """The least lossy level that meets the deadline at the throughput of the previous chunk.

    Before there is a throughput, as for the first chunk, the middle level is sent. Where no level meets its deadline,
    the most lossy one is sent; the pipeline computes on the device if that takes less time, which is CacheGen's last
    level. Source: the SIGCOMM'24 paper, section on adaptation; its deadline is when execution needs the shard.
    """

    def choose(self, situation: Situation) -> Choice:
        rungs = situation.rungs
        if not situation.measured:
            return Choice(rungs[(len(rungs) - 1) // 2], 0, "the middle level, as no throughput is known yet")
        budget_bytes = int(max(0.0, situation.slack_s) * situation.predicted_mbps * 125_000)
        fitting = [rung for rung in rungs if rung.size_bytes <= budget_bytes]
        if not fitting:
            return Choice(rungs[0], budget_bytes, "no level meets the deadline, so the most lossy one")
        return Choice(fitting[-1], budget_bytes, "the least lossy level that meets the deadline")
