import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offers import SHARD_S, Offer, equal_offer, progressive_offers, shared_offers
from streams import Stream

from sakura.control.cachegen import CacheGenRule
from sakura.control.choose_before_send import ChooseBeforeSendRule
from sakura.control.deadline import DeadlineRule
from sakura.control.fixed import FixedRule
from sakura.control.interface import Rule
from sakura.control.shard_by_shard import ShardByShard

RULES: list[Rule] = [DeadlineRule(), ChooseBeforeSendRule(), CacheGenRule(), FixedRule(), FixedRule(-1)]


@settings(deadline=None)
@given(st.sampled_from(RULES), progressive_offers() | shared_offers(), st.floats(0.05, 500), st.floats(0.05, 500))
def test_every_shard_is_decided_once_and_in_order(rule: Rule, offer: Offer, mbps: float, predicted_mbps: float) -> None:
    stream = Stream(offer, ShardByShard(rule), mbps=mbps, predicted_mbps=predicted_mbps)
    stream.run()
    assert [order.shard for order in stream.orders] == list(range(len(offer.ladder_of)))


@given(st.sampled_from(RULES), st.integers(1, 6), st.integers(0, 5))
def test_no_more_shards_are_asked_for_than_the_lookahead(rule: Rule, lookahead: int, begun: int) -> None:
    stream = Stream(equal_offer(12), ShardByShard(rule, lookahead), mbps=10, predicted_mbps=10)
    stream.state.measured = True
    stream.state.begun = begun
    stream.ask()
    assert stream.state.decided == begun + lookahead


@pytest.mark.parametrize("round_trips", [0.0, 1.0, 3.0])
def test_little_is_asked_for_until_the_network_has_been_measured(round_trips: float) -> None:
    stream = Stream(equal_offer(12), ShardByShard(FixedRule()), mbps=10, predicted_mbps=10)
    stream.state.rtt_s = round_trips * SHARD_S
    stream.ask()
    assert stream.state.decided == 1 + round_trips


def test_a_rung_costs_only_what_has_not_been_asked_for() -> None:
    stream = Stream(equal_offer(4, ladders=1), ShardByShard(FixedRule()), mbps=10, predicted_mbps=10)
    stream.run()
    assert stream.state.bytes_of(stream.state.arrived) == 18_000
    assert [order.budget_bytes for order in stream.orders] == [18_000, 0, 0, 0]
