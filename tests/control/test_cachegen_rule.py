from hypothesis import given
from hypothesis import strategies as st
from offers import rung_lists, situation

from sakura.codec.interface import Rung
from sakura.control.cachegen import CacheGenRule


@given(rung_lists(), st.integers(0, 5), st.floats(-1, 2), st.floats(0.01, 1000))
def test_the_least_lossy_level_that_meets_the_deadline(
    rungs: list[Rung], shard: int, slack_s: float, mbps: float
) -> None:
    choice = CacheGenRule().choose(situation(rungs, shard=shard, slack_s=slack_s, mbps=mbps))
    fitting = [rung for rung in rungs if rung.size_bytes <= choice.budget_bytes]
    assert choice.budget_bytes <= max(0.0, slack_s) * mbps * 125_000
    assert choice.rung is (fitting[-1] if fitting else rungs[0])
    assert ("most lossy" in choice.reason) == (not fitting)


@given(rung_lists(), st.floats(0, 2), st.floats(0.01, 500))
def test_never_more_lossy_with_more_network(rungs: list[Rung], slack_s: float, mbps: float) -> None:
    slow, fast = (CacheGenRule().choose(situation(rungs, slack_s=slack_s, mbps=rate)).rung for rate in (mbps, 2 * mbps))
    assert fast.size_bytes >= slow.size_bytes


@given(rung_lists())
def test_the_middle_level_before_anything_is_known(rungs: list[Rung]) -> None:
    choice = CacheGenRule().choose(situation(rungs, shard=0, slack_s=10, measured=False))
    below = rungs.index(choice.rung)
    assert len(rungs) - 1 - below - below in (0, 1)
    assert "middle" in choice.reason
