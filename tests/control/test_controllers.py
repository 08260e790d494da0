import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from sakura.codec.interface import Representation, Rung
from sakura.codec.sakura import lower_hull
from sakura.control.controllers import BudgetController, DeadlineController, Situation

ANY = Representation(4, 4, 4)


@st.composite
def rung_lists(draw: st.DrawFn) -> list[Rung]:
    """Rungs as a codec offers them: on a convex hull."""
    points = draw(st.lists(st.tuples(st.integers(100, 5000), st.floats(0.001, 1)), min_size=1, max_size=8))
    return lower_hull([Rung(ANY, size, loss) for size, loss in points])


def situation(rungs: list[Rung], *, shard: int = 3, slack_s: float = 0.02, mbps: float = 10.0) -> Situation:
    return Situation(shard=shard, rungs=rungs, slack_s=slack_s, shard_s=0.02, predicted_mbps=mbps)


@given(rung_lists(), st.floats(-1, 2), st.floats(0.01, 1000))
def test_deadline_choice_is_the_finest_within_its_budget(rungs: list[Rung], slack_s: float, mbps: float) -> None:
    choice = DeadlineController().choose(situation(rungs, slack_s=slack_s, mbps=mbps))
    finer = rungs[rungs.index(choice.rung) + 1 :]
    assert all(rung.size_bytes > choice.budget_bytes for rung in finer)
    assert choice.rung is rungs[0] or choice.rung.size_bytes <= choice.budget_bytes
    assert choice.budget_bytes <= max(0.0, slack_s) * mbps * 125_000
    assert choice.reason


@given(rung_lists(), st.floats(0, 2), st.floats(0.01, 500))
def test_deadline_choice_never_coarsens_with_more_network(rungs: list[Rung], slack_s: float, mbps: float) -> None:
    slow, fast = (
        DeadlineController().choose(situation(rungs, slack_s=slack_s, mbps=rate)) for rate in (mbps, 2 * mbps)
    )
    assert fast.rung.size_bytes >= slow.rung.size_bytes


@given(rung_lists())
def test_first_shard_is_the_smallest(rungs: list[Rung]) -> None:
    choice = DeadlineController().choose(situation(rungs, shard=0, slack_s=10, mbps=1000))
    assert choice.rung is rungs[0]


@given(st.lists(rung_lists(), min_size=1, max_size=4), st.integers(0, 12_000))
def test_budget_is_kept_and_spent_well(shards: list[list[Rung]], budget_bytes: int) -> None:
    controller = BudgetController(shards, budget_bytes)
    chosen = [rungs[index] for rungs, index in zip(shards, controller.chosen, strict=True)]
    spent = sum(rung.size_bytes for rung in chosen)
    least = sum(rungs[0].size_bytes for rungs in shards)
    assert controller.spent_bytes == spent <= max(budget_bytes, least)
    # No affordable choice is better than what the same price of a byte buys with one more step at most.
    affordable = [
        sum(rung.distortion for rung in choice)
        for choice in itertools.product(*shards)
        if sum(rung.size_bytes for rung in choice) <= budget_bytes
    ]
    if affordable:
        largest_step = max((a.distortion - b.distortion for r in shards for a, b in itertools.pairwise(r)), default=0.0)
        assert sum(rung.distortion for rung in chosen) <= min(affordable) + largest_step + 1e-9


@given(st.lists(rung_lists(), min_size=1, max_size=4))
def test_plenty_of_bytes_buys_the_finest(shards: list[list[Rung]]) -> None:
    controller = BudgetController(shards, 10**9)
    assert all(index == len(rungs) - 1 for rungs, index in zip(shards, controller.chosen, strict=True))
    for shard, rungs in enumerate(shards):
        choice = controller.choose(situation(rungs, shard=shard))
        assert (choice.rung, choice.budget_bytes) == (rungs[-1], rungs[-1].size_bytes)


def test_numbers_stay_finite_on_a_dead_network() -> None:
    choice = DeadlineController().choose(situation([Rung(ANY, 100, 0.5)], slack_s=-math.inf, mbps=1e-9))
    assert choice.budget_bytes == 0
    assert "late already" in choice.reason
