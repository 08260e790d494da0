import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from offers import SHARD_S, Offer, equal_offer, progressive_offers, shared_offers
from streams import Stream

from sakura.control.robust_mpc import STALL_SHARDS, RobustMpcController, Stage, best_first
from sakura.control.shard_by_shard import LOOKAHEAD_SHARDS


def worth(stages: list[Stage], rungs: Sequence[int], slack_s: float, previous_quality: float | None) -> float:
    """Of one sequence of rungs, played out."""
    price = max(stage.quality.max() for stage in stages) / (STALL_SHARDS * SHARD_S)
    total = 0.0
    for stage, rung in zip(stages, rungs, strict=True):
        transfer_s, quality = float(stage.transfer_s[rung]), float(stage.quality[rung])
        total += quality - price * max(0.0, transfer_s - slack_s)
        if previous_quality is not None:
            total -= abs(quality - previous_quality)
        previous_quality = quality
        slack_s = min(LOOKAHEAD_SHARDS * SHARD_S, max(0.0, slack_s - transfer_s) + SHARD_S)
    return total


@st.composite
def stages(draw: st.DrawFn) -> Stage:
    count = draw(st.integers(1, 4))
    transfers = draw(st.lists(st.floats(0, 3 * SHARD_S), min_size=count, max_size=count))
    qualities = draw(st.lists(st.floats(0.2, 3), min_size=count, max_size=count))
    return Stage(np.sort(transfers), np.sort(qualities))


@settings(deadline=None)
@given(st.lists(stages(), min_size=1, max_size=4), st.floats(-0.02, 0.16), st.none() | st.floats(0.2, 3))
def test_no_plan_is_better_by_more_than_the_levels_of_the_slack_are_apart(
    plan: list[Stage], slack_s: float, previous_quality: float | None
) -> None:
    chosen = best_first(plan, slack_s=slack_s, shard_s=SHARD_S, previous_quality=previous_quality)
    sequences = list(itertools.product(*(range(len(stage.quality)) for stage in plan)))
    values = {rungs: worth(plan, rungs, slack_s, previous_quality) for rungs in sequences}
    of_chosen = max(value for rungs, value in values.items() if rungs[0] == chosen)
    best_quality = max(float(stage.quality.max()) for stage in plan)
    assert of_chosen >= max(values.values()) - best_quality / 4


def test_a_stall_of_a_quarter_shard_is_not_worth_the_best_quality() -> None:
    def chosen(stall_s: float) -> int:
        stage = Stage(np.array([0.0, stall_s]), np.array([0.0, 2.0]))
        return best_first([stage], slack_s=0.0, shard_s=SHARD_S, previous_quality=None)

    assert chosen(0.99 * STALL_SHARDS * SHARD_S) == 1
    assert chosen(1.01 * STALL_SHARDS * SHARD_S) == 0


def test_slack_is_spent_within_the_plan_and_no_faster() -> None:
    stage = Stage(SHARD_S * np.array([0.5, 1.0, 1.9]), np.array([1.0, 1.5, 2.0]))
    first = {
        shards: best_first([stage] * 5, slack_s=shards * SHARD_S, shard_s=SHARD_S, previous_quality=None)
        for shards in (1, 2, 7)
    }
    assert first == {1: 1, 2: 1, 7: 2}


@settings(deadline=None)
@given(progressive_offers() | shared_offers(), st.floats(0.05, 500), st.floats(0.05, 500))
def test_every_shard_is_decided_once_and_in_order(offer: Offer, mbps: float, predicted_mbps: float) -> None:
    stream = Stream(offer, RobustMpcController(), mbps=mbps, predicted_mbps=predicted_mbps)
    stream.run()
    assert [order.shard for order in stream.orders] == list(range(len(offer.ladder_of)))


def test_decisions_are_late_but_the_link_does_not_run_dry() -> None:
    stream = Stream(equal_offer(12), RobustMpcController(), mbps=1.0, predicted_mbps=1.0)
    stream.ask()
    assert 1 < stream.state.decided < LOOKAHEAD_SHARDS
    while stream.state.decided < 12:
        before = stream.state.decided
        while stream.state.decided == before:
            assert stream.sent
            stream.arrive()
            stream.ask()


def test_more_network_buys_quality() -> None:
    received = []
    for mbps in (1, 4, 16, 64):
        stream = Stream(equal_offer(12), RobustMpcController(), mbps=mbps, predicted_mbps=mbps)
        stream.run()
        received.append(sum(order.rung.size_bytes for order in stream.orders))
    assert received == sorted(received)
    assert received[0] == 12 * 2_000
    assert received[-1] > 10 * 18_000


def test_what_earlier_steps_brought_is_no_choice_any_more() -> None:
    offer = equal_offer(4, ladders=1)
    state = offer.state(mbps=0.1)
    state.requested.update([0, 1])
    order = RobustMpcController().next(state)
    assert order is not None
    assert order.rung is offer.ladders[0].rungs[1]
