from hypothesis import given, settings
from hypothesis import strategies as st
from offers import ANY, SHARD_S, Offer, equal_offer, progressive_offers, rung_lists
from streams import Stream

from sakura.codec.interface import Ladder, Rung
from sakura.control.interface import StreamState
from sakura.control.progressive import (
    WINDOW_BYTES,
    WINDOW_S,
    WORTH_SENDING,
    WORTH_SHARDS,
    ProgressiveController,
    least_worth_sending,
)


def window_bytes(state: StreamState) -> float:
    return WINDOW_BYTES + 125_000 * state.predicted_mbps * (state.rtt_s + WINDOW_S)


@settings(deadline=None)
@given(progressive_offers(), st.floats(0.05, 500), st.floats(0.05, 500))
def test_shards_are_decided_in_order_and_nothing_is_asked_for_twice(
    offer: Offer, mbps: float, predicted_mbps: float
) -> None:
    stream = Stream(offer, ProgressiveController(), mbps=mbps, predicted_mbps=predicted_mbps)
    stream.run()
    assert stream.state.decided == len(offer.ladder_of)
    assert ProgressiveController().next(stream.state) is None, "nothing is left for any controller"


@settings(deadline=None)
@given(progressive_offers(), st.floats(0.05, 500), st.floats(0.05, 500))
def test_bytes_under_way_stay_bounded(offer: Offer, mbps: float, predicted_mbps: float) -> None:
    stream = Stream(offer, ProgressiveController(), mbps=mbps, predicted_mbps=predicted_mbps)
    largest = max(max(rung.size_bytes for rung in ladder.rungs) for ladder in offer.ladders)
    while stream.state.begun < stream.state.geometry.shards:
        stream.ask()
        assert stream.state.outstanding_bytes <= window_bytes(stream.state) + largest
        stream.arrive()


def test_the_window_is_full_while_something_is_left_to_send() -> None:
    stream = Stream(equal_offer(16, (2_000, 20_000, 60_000)), ProgressiveController(), mbps=10, predicted_mbps=10)
    stream.ask()
    assert stream.state.outstanding_bytes >= window_bytes(stream.state) / 2


@given(st.floats(0.05, 0.4))
def test_short_time_goes_to_what_shards_cannot_do_without(mbps: float) -> None:
    """Sending the least of a shard takes longer than executing two: nothing is refined before all have it."""
    stream = Stream(equal_offer(8), ProgressiveController(), mbps=mbps, predicted_mbps=mbps)
    while stream.state.decided < 8:
        stream.ask()
        stream.arrive()
    assert [order.shard for order in stream.orders[:8]] == list(range(8))


def test_spare_time_goes_to_refinements_before_the_last_shard_is_decided() -> None:
    stream = Stream(equal_offer(16), ProgressiveController(), mbps=20, predicted_mbps=20)
    while stream.state.decided < 16:
        stream.ask()
        stream.arrive()
    decided, refined = 0, 0
    for order in stream.orders:
        refined += order.shard < decided
        decided = max(decided, order.shard + 1)
    assert refined > 0


def test_a_refinement_serves_every_later_step() -> None:
    """One ladder for all steps is refined to the end; what one shard alone would use is not sent for a few bytes."""
    stream = Stream(equal_offer(8, ladders=1), ProgressiveController(), mbps=20, predicted_mbps=20)
    stream.run()
    assert stream.state.arrived == {0, 1, 2}


@given(rung_lists(), st.floats(0.01, 1000))
def test_what_is_worth_sending_is_soon_there(rungs: list[Rung], mbps: float) -> None:
    least = least_worth_sending(rungs, mbps, SHARD_S)
    if least is not rungs[0]:
        assert 8e-6 * least.size_bytes / mbps <= WORTH_SHARDS * SHARD_S
        coarser = rungs[rungs.index(least) - 1]
        assert coarser.distortion > WORTH_SENDING


def test_a_refinement_larger_than_what_may_be_under_way_is_asked_for_in_parts() -> None:
    large = 40 * WINDOW_BYTES
    sizes = [1_000, *[large // 20] * 20]
    rungs = [Rung(ANY, 0, 1, 1_000, 0.09), Rung(ANY, 0, 21, 1_000 + large, 0.001)]
    offer = Offer(sizes, [Ladder(list(range(21)), rungs)], [0] * 8)
    stream = Stream(offer, ProgressiveController(), mbps=20, predicted_mbps=20)
    stream.run()
    parts = [order for order in stream.orders if order.part is not None]
    assert len(parts) > 2
    assert all(stream.state.bytes_of(order.part or ()) <= window_bytes(stream.state) for order in parts)
    asked = [segment for order in parts for segment in order.part or ()]
    assert asked == sorted(asked), "in the order of usefulness"


def test_an_estimate_that_is_too_low_does_not_stay_so() -> None:
    """After an outage the estimate may be next to nothing: small requests on the idle link bring it up again."""
    offer = equal_offer(16, ladders=4)
    stream = Stream(offer, ProgressiveController(), mbps=200, predicted_mbps=0.01)
    stream.run()
    assert any("faster" in order.reason for order in stream.orders)
