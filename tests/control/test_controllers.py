import dataclasses
import itertools
import math
from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from sakura.codec.distortion import lower_hull
from sakura.codec.interface import Ladder, Representation, Rung
from sakura.control.controllers import WORTH_SENDING, WORTH_SHARDS, BudgetController, DeadlineController, Situation

ANY = Representation(4, 4, 4)
SHARD_S = 0.02


@st.composite
def rung_lists(draw: st.DrawFn) -> list[Rung]:
    """Rungs as a codec offers them: on a convex hull."""
    points = draw(st.lists(st.tuples(st.integers(100, 5000), st.floats(0.001, 1)), min_size=1, max_size=8))
    return lower_hull([Rung(ANY, 0, 1, size, loss) for size, loss in points])


def situation(rungs: list[Rung], *, shard: int = 3, slack_s: float = 0.02, mbps: float = 10.0) -> Situation:
    return Situation(shard=shard, rungs=rungs, slack_s=slack_s, shard_s=SHARD_S, predicted_mbps=mbps)


def smallest(rungs: list[Rung], mbps: float) -> Rung:
    """What is sent where nothing hides it: what keeps most of what matters, if that is quick to send."""
    worth = next((rung for rung in rungs if rung.distortion <= WORTH_SENDING), rungs[-1])
    return worth if 8e-6 * worth.size_bytes / mbps <= WORTH_SHARDS * SHARD_S else rungs[0]


@given(rung_lists(), st.floats(-1, 2), st.floats(0.01, 1000))
def test_deadline_choice_is_the_finest_within_its_budget(rungs: list[Rung], slack_s: float, mbps: float) -> None:
    choice = DeadlineController().choose(situation(rungs, slack_s=slack_s, mbps=mbps))
    finer = rungs[rungs.index(choice.rung) + 1 :]
    assert all(rung.size_bytes > choice.budget_bytes for rung in finer)
    assert choice.rung is smallest(rungs, mbps) or choice.rung.size_bytes <= choice.budget_bytes
    assert choice.rung.size_bytes >= smallest(rungs, mbps).size_bytes
    assert choice.budget_bytes <= max(0.0, slack_s) * mbps * 125_000
    assert choice.reason


@given(rung_lists(), st.floats(0, 2), st.floats(0.01, 500))
def test_deadline_choice_never_coarsens_with_more_network(rungs: list[Rung], slack_s: float, mbps: float) -> None:
    slow, fast = (
        DeadlineController().choose(situation(rungs, slack_s=slack_s, mbps=rate)) for rate in (mbps, 2 * mbps)
    )
    assert fast.rung.size_bytes >= slow.rung.size_bytes


@given(rung_lists(), st.floats(0.01, 1000))
def test_first_shard_is_small(rungs: list[Rung], mbps: float) -> None:
    choice = DeadlineController().choose(situation(rungs, shard=0, slack_s=10, mbps=mbps))
    assert choice.rung is smallest(rungs, mbps)


@dataclasses.dataclass(frozen=True)
class Offer:
    """Ladders over one pool of segments, as a template's cache has them."""

    segment_bytes: list[int]
    ladders: list[Ladder]
    ladder_of: list[int]

    def cost(self, choice: Sequence[int]) -> int:
        """Bytes of what a rung of each ladder needs, where shared segments count once."""
        wanted = {
            s for ladder, rung in zip(self.ladders, choice, strict=True) for s in ladder.segments(ladder.rungs[rung])
        }
        return sum(self.segment_bytes[segment] for segment in wanted)

    def loss(self, choice: Sequence[int]) -> float:
        """Summed over shards."""
        return sum(self.ladders[ladder].rungs[choice[ladder]].distortion for ladder in self.ladder_of)


@st.composite
def progressive_offers(draw: st.DrawFn) -> Offer:
    """Prefix ladders without shared segments: the rungs are on convex hulls."""
    segment_bytes: list[int] = []
    ladders = []
    for rungs in draw(st.lists(rung_lists(), min_size=1, max_size=4)):
        order, stops, before_bytes = [], [], 0
        for rung in rungs:
            order.append(len(segment_bytes))
            segment_bytes.append(rung.size_bytes - before_bytes)
            stops.append(len(order))
            before_bytes = rung.size_bytes
        placed = [msgspec.structs.replace(rung, stop=stop) for rung, stop in zip(rungs, stops, strict=True)]
        ladders.append(Ladder(order, placed))
    extra = draw(st.lists(st.integers(0, len(ladders) - 1), max_size=3))
    return Offer(segment_bytes, ladders, [*range(len(ladders)), *extra])


@st.composite
def shared_offers(draw: st.DrawFn) -> Offer:
    """Ladders that share leading segments, in prefixes or in representations of their own."""
    shared = draw(st.integers(1, 3))
    segment_bytes = draw(st.lists(st.integers(1, 500), min_size=shared, max_size=shared))
    ladders = []
    for _ in range(draw(st.integers(1, 3))):
        own = draw(st.lists(st.integers(1, 500), min_size=1, max_size=4))
        order = [*range(shared), *range(len(segment_bytes), len(segment_bytes) + len(own))]
        segment_bytes += own
        starts = [0] * len(own) if draw(st.booleans()) else list(range(len(own)))
        sizes = [sum(segment_bytes[s] for s in order[start : shared + 1 + i]) for i, start in enumerate(starts)]
        rungs = [Rung(ANY, start, shared + 1 + i, sizes[i], 1 / (2 + i)) for i, start in enumerate(starts)]
        ladders.append(Ladder(order, rungs))
    return Offer(segment_bytes, ladders, draw(st.permutations(2 * list(range(len(ladders))))))


def controller_for(offer: Offer, budget_bytes: int) -> BudgetController:
    return BudgetController(offer.ladders, offer.ladder_of, offer.segment_bytes, budget_bytes)


@given(progressive_offers(), st.integers(0, 12_000))
def test_budget_is_kept_and_spent_well(offer: Offer, budget_bytes: int) -> None:
    controller = controller_for(offer, budget_bytes)
    least = offer.cost([0] * len(offer.ladders))
    assert controller.spent_bytes == offer.cost(controller.chosen) <= max(budget_bytes, least)
    # No affordable choice is better than what the same price of a byte buys with one more step at most.
    choices = itertools.product(*(range(len(ladder.rungs)) for ladder in offer.ladders))
    affordable = [offer.loss(choice) for choice in choices if offer.cost(choice) <= budget_bytes]
    if affordable:
        steps = (
            offer.ladder_of.count(number) * (coarse.distortion - fine.distortion)
            for number, ladder in enumerate(offer.ladders)
            for coarse, fine in itertools.pairwise(ladder.rungs)
        )
        assert offer.loss(controller.chosen) <= min(affordable) + max(steps, default=0.0) + 1e-9


@given(shared_offers(), st.integers(0, 4_000))
def test_shared_segments_are_paid_for_once(offer: Offer, budget_bytes: int) -> None:
    controller = controller_for(offer, budget_bytes)
    least = offer.cost([0] * len(offer.ladders))
    assert controller.spent_bytes == offer.cost(controller.chosen) <= max(budget_bytes, least)
    for number in range(len(offer.ladders)):  # no single rung more is affordable
        finer = [rung + (index == number) for index, rung in enumerate(controller.chosen)]
        if finer[number] < len(offer.ladders[number].rungs):
            assert offer.cost(finer) > budget_bytes


@given(progressive_offers() | shared_offers())
def test_plenty_of_bytes_buys_the_finest(offer: Offer) -> None:
    controller = controller_for(offer, 10**9)
    assert controller.chosen == [len(ladder.rungs) - 1 for ladder in offer.ladders]
    for shard, number in enumerate(offer.ladder_of):
        rungs = offer.ladders[number].rungs
        choice = controller.choose(situation(rungs, shard=shard))
        assert (choice.rung, choice.budget_bytes) == (rungs[-1], rungs[-1].size_bytes)


def test_what_came_already_is_taken() -> None:
    rungs = [Rung(ANY, 0, 1, 0, 0.5), Rung(ANY, 0, 2, 0, 0.09), Rung(ANY, 0, 3, 900, 0.01)]
    choice = DeadlineController().choose(situation(rungs, slack_s=0.0))
    assert choice.rung is rungs[1]
    assert "earlier steps" in choice.reason


def test_numbers_stay_finite_on_a_dead_network() -> None:
    choice = DeadlineController().choose(situation([Rung(ANY, 0, 1, 100, 0.5)], slack_s=-math.inf, mbps=1e-9))
    assert choice.budget_bytes == 0
    assert "late already" in choice.reason
