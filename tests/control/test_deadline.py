import math

from hypothesis import given
from hypothesis import strategies as st
from offers import ANY, SHARD_S, rung_lists, situation

from sakura.codec.interface import Rung
from sakura.control.deadline import DeadlineRule


@given(rung_lists(), st.floats(-1, 2), st.floats(0.01, 1000))
def test_the_finest_within_its_budget(rungs: list[Rung], slack_s: float, mbps: float) -> None:
    choice = DeadlineRule().choose(situation(rungs, slack_s=slack_s, mbps=mbps))
    finer = rungs[rungs.index(choice.rung) + 1 :]
    assert all(rung.size_bytes > choice.budget_bytes for rung in finer)
    assert choice.rung is rungs[0] or choice.rung.size_bytes <= choice.budget_bytes
    assert choice.budget_bytes <= max(0.0, slack_s) * mbps * 125_000
    assert choice.reason


@given(rung_lists(), st.floats(0, 2), st.floats(0.01, 500))
def test_never_coarser_with_more_network(rungs: list[Rung], slack_s: float, mbps: float) -> None:
    slow, fast = (DeadlineRule().choose(situation(rungs, slack_s=slack_s, mbps=rate)) for rate in (mbps, 2 * mbps))
    assert fast.rung.size_bytes >= slow.rung.size_bytes


def test_a_quarter_of_what_has_been_saved_up_may_be_spent() -> None:
    rungs = [Rung(ANY, 0, 1, 100, 0.5)]
    saved_s = 0.08
    choice = DeadlineRule().choose(situation(rungs, slack_s=SHARD_S + saved_s, mbps=8.0))
    assert choice.budget_bytes == 1_000_000 * (SHARD_S + 0.25 * saved_s)
    assert DeadlineRule().choose(situation(rungs, slack_s=SHARD_S, mbps=8.0)).budget_bytes == 1_000_000 * SHARD_S


@given(rung_lists(), st.floats(0.01, 1000))
def test_the_first_shard_is_the_smallest(rungs: list[Rung], mbps: float) -> None:
    assert DeadlineRule().choose(situation(rungs, shard=0, slack_s=10, mbps=mbps)).rung is rungs[0]


def test_a_late_transfer_is_cut_where_what_has_come_can_be_used() -> None:
    prefixes = [Rung(ANY, 0, 1, 100, 0.5), Rung(ANY, 0, 2, 200, 0.1)]
    apart = [Rung(ANY, 0, 1, 100, 0.5), Rung(ANY, 1, 2, 200, 0.1)]
    cut, whole = (DeadlineRule().choose(situation(rungs)) for rungs in (prefixes, apart))
    assert (cut.rung, cut.least) == (prefixes[1], prefixes[0])
    assert (whole.rung, whole.least) == (apart[1], apart[1])


def test_what_came_already_is_taken() -> None:
    rungs = [Rung(ANY, 0, 1, 0, 0.5), Rung(ANY, 0, 2, 0, 0.09), Rung(ANY, 0, 3, 900, 0.01)]
    choice = DeadlineRule().choose(situation(rungs, slack_s=0.0))
    assert choice.rung is rungs[1]
    assert "earlier steps" in choice.reason
    tried = DeadlineRule().choose(situation(rungs, slack_s=0.0, measured=False))
    assert tried.rung is rungs[2]
    assert "to learn" in tried.reason


def test_numbers_stay_finite_on_a_dead_network() -> None:
    choice = DeadlineRule().choose(situation([Rung(ANY, 0, 1, 100, 0.5)], slack_s=-math.inf, mbps=1e-9))
    assert choice.budget_bytes == 0
    assert "late already" in choice.reason
