import itertools

from hypothesis import given
from hypothesis import strategies as st
from offers import Offer, progressive_offers, shared_offers, situation

from sakura.control.budget import BudgetRule


def rule_for(offer: Offer, budget_bytes: int) -> BudgetRule:
    return BudgetRule(offer.ladders, offer.ladder_of, offer.segment_bytes, budget_bytes)


@given(progressive_offers(), st.integers(0, 12_000))
def test_budget_is_kept_and_spent_well(offer: Offer, budget_bytes: int) -> None:
    rule = rule_for(offer, budget_bytes)
    least = offer.cost([0] * len(offer.ladders))
    assert rule.spent_bytes == offer.cost(rule.chosen) <= max(budget_bytes, least)
    # No affordable choice is better than what the same price of a byte buys with one more step at most.
    choices = itertools.product(*(range(len(ladder.rungs)) for ladder in offer.ladders))
    affordable = [offer.loss(choice) for choice in choices if offer.cost(choice) <= budget_bytes]
    if affordable:
        steps = (
            offer.ladder_of.count(number) * (coarse.distortion - fine.distortion)
            for number, ladder in enumerate(offer.ladders)
            for coarse, fine in itertools.pairwise(ladder.rungs)
        )
        assert offer.loss(rule.chosen) <= min(affordable) + max(steps, default=0.0) + 1e-9


@given(shared_offers(), st.integers(0, 4_000))
def test_shared_segments_are_paid_for_once(offer: Offer, budget_bytes: int) -> None:
    rule = rule_for(offer, budget_bytes)
    least = offer.cost([0] * len(offer.ladders))
    assert rule.spent_bytes == offer.cost(rule.chosen) <= max(budget_bytes, least)
    for number in range(len(offer.ladders)):  # no single rung more is affordable
        finer = [rung + (index == number) for index, rung in enumerate(rule.chosen)]
        if finer[number] < len(offer.ladders[number].rungs):
            assert offer.cost(finer) > budget_bytes


@given(progressive_offers() | shared_offers())
def test_plenty_of_bytes_buys_the_finest(offer: Offer) -> None:
    rule = rule_for(offer, 10**9)
    assert rule.chosen == [len(ladder.rungs) - 1 for ladder in offer.ladders]
    for shard, number in enumerate(offer.ladder_of):
        rungs = offer.ladders[number].rungs
        choice = rule.choose(situation(rungs, shard=shard))
        assert (choice.rung, choice.budget_bytes) == (rungs[-1], rungs[-1].size_bytes)
        assert choice.reason
