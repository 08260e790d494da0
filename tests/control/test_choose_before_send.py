from hypothesis import given
from hypothesis import strategies as st
from offers import rung_lists, situation

from sakura.codec.interface import Rung
from sakura.control.choose_before_send import ChooseBeforeSendRule


@given(rung_lists(), st.floats(-1, 2), st.floats(0.01, 1000))
def test_the_finest_whose_transfer_hides(rungs: list[Rung], slack_s: float, mbps: float) -> None:
    choice = ChooseBeforeSendRule().choose(situation(rungs, slack_s=slack_s, mbps=mbps))
    assert choice.budget_bytes <= max(0.0, slack_s) * mbps * 125_000
    fitting = [rung for rung in rungs if rung.size_bytes <= choice.budget_bytes]
    assert choice.rung is (fitting[-1] if fitting else rungs[0])
    assert ("in time" in choice.reason) == bool(fitting)
    assert choice.least is None, "all of it is waited for"


@given(rung_lists(), st.floats(0, 2), st.floats(0.01, 500))
def test_never_coarser_with_more_network(rungs: list[Rung], slack_s: float, mbps: float) -> None:
    rule = ChooseBeforeSendRule()
    slow, fast = (rule.choose(situation(rungs, slack_s=slack_s, mbps=rate)).rung for rate in (mbps, 2 * mbps))
    assert fast.size_bytes >= slow.size_bytes


@given(rung_lists())
def test_the_first_shard_is_the_smallest(rungs: list[Rung]) -> None:
    choice = ChooseBeforeSendRule().choose(situation(rungs, shard=0, slack_s=10, mbps=1000))
    assert choice.rung is rungs[0]
    assert "smallest" in choice.reason
