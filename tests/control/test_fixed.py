from hypothesis import given
from hypothesis import strategies as st
from offers import rung_lists, situation

from sakura.codec.interface import Rung
from sakura.control.fixed import FixedRule


@given(rung_lists(), st.integers(0, 9), st.integers(0, 5), st.floats(-1, 2), st.floats(0.01, 1000))
def test_the_same_level_whatever_the_network(
    rungs: list[Rung], level: int, shard: int, slack_s: float, mbps: float
) -> None:
    within = min(level, len(rungs) - 1)
    now = situation(rungs, shard=shard, slack_s=slack_s, mbps=mbps)
    choice = FixedRule(level).choose(now)
    assert choice.rung is rungs[len(rungs) - 1 - within]
    assert FixedRule(-1 - level).choose(now).rung is rungs[within]
    assert (choice.budget_bytes, choice.reason) == (choice.rung.size_bytes, "always this one")
