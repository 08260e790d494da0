"""The pipeline in virtual time, over modelled links and processors."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import numpy as np
import pytest
from edits import (
    DISTORTIONS,
    GEOMETRY,
    LOCAL_SHARD_S,
    ON_DEVICE_S,
    RTT_S,
    SHARD_S,
    SIZES,
    Offer,
    Told,
    WatchedRun,
    WatchedSource,
    apart,
    check,
    continued,
    edit,
    shared_by_steps,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from sakura.codec.interface import Ladder, Representation, Rung
from sakura.control import CONTROLLERS
from sakura.control.interface import Choice, Order, Situation, StreamState
from sakura.control.shard_by_shard import ShardByShard
from sakura.events import BandwidthMeasured, FellBack, NetworkWait, RepresentationChosen, ShardUsed
from sakura.network.library import constant_trace
from sakura.network.trace import Trace, checked_trace
from sakura.runtime.engine import ShardKv, Span
from sakura.runtime.pipeline import MAX_OPEN_FETCHES, REOPEN_PATIENCE_S

OVERHEAD = 1.05  # of headers, on a link


def trace_of(*parts: tuple[float, float]) -> Trace:
    """Rates in Mbit/s, each for so many seconds; the trace goes on with the last one for long."""
    durations, rates = zip(*parts, strict=True)
    edges = np.concatenate([[0.0], np.cumsum([*durations[:-1], 10_000.0])])
    return checked_trace("made up", edges, np.array(rates))


def least_s(mbps: float) -> float:
    """How long the smallest representation takes on the wire."""
    return OVERHEAD * 8e-6 * SIZES[0] / mbps


# A good network


def test_fast_network_is_hidden_behind_execution() -> None:
    told = edit(constant_trace(200))
    check(told)
    assert not told.of(FellBack)
    # One round trip and the first shard cannot be hidden; nothing else may be left to see.
    assert told.end_s <= RTT_S + least_s(200) + 0.002 + GEOMETRY.shards * SHARD_S
    assert told.of(RepresentationChosen)[-1].rank == 32


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_every_controller_gets_by_on_a_fair_network(controller: str) -> None:
    told = edit(constant_trace(20), offer=shared_by_steps(), controller=controller)
    check(told)
    assert not told.outcome.fell_back
    assert told.end_s < ON_DEVICE_S / 2
    decided = [event.shard for event in told.of(RepresentationChosen)]
    assert set(decided) == set(range(GEOMETRY.shards))
    if controller != "deadline-progressive":  # which refines
        assert decided == sorted(set(decided))


def test_slow_engine_is_not_blamed_on_the_network() -> None:
    told = edit(constant_trace(200), shard_s=3 * SHARD_S)
    check(told)
    assert told.outcome.network_wait_s <= RTT_S + least_s(200) + 0.002


def test_slow_network_is_given_the_smallest_representation() -> None:
    told = edit(constant_trace(3), controller="choose-before-send", prior_mbps=3)
    check(told)
    assert {event.rank for event in told.of(RepresentationChosen)} == {8}


def test_rate_is_measured_within_ten_percent() -> None:
    rates = [event.measured_mbps for event in edit(constant_trace(30)).of(BandwidthMeasured)]
    assert rates
    assert rates[-1] == pytest.approx(30, rel=0.1)


@pytest.mark.parametrize("mbps", [3, 20, 200])
def test_what_one_step_brought_serves_the_next_ones(mbps: float) -> None:
    told = edit(constant_trace(mbps), offer=shared_by_steps())
    check(told)
    assert not told.outcome.fell_back
    assert len(told.of(ShardUsed)) + told.outcome.local_shards >= GEOMETRY.shards
    used = {event.shard: event.rank for event in told.of(ShardUsed)}
    for column in range(GEOMETRY.shards_per_step):
        ranks = [used[shard] for shard in range(column, GEOMETRY.shards, GEOMETRY.shards_per_step) if shard in used]
        assert ranks == sorted(ranks), "a later step is never coarser than an earlier one"
    if mbps >= 20:
        assert used[GEOMETRY.shards - 1] == 32


def test_a_shard_that_fetches_nothing_waits_for_what_others_fetch() -> None:
    """All shards need the same segments, which the first one asks for."""
    rungs = shared_by_steps().ladders[0].rungs[:1]
    offer = Offer([Ladder([0], rungs)], [0] * GEOMETRY.shards, [SIZES[0]])
    told = edit(constant_trace(1), offer=offer, patient=True)
    check(told)
    assert told.source.asked == [0]
    (arrived,) = told.lane("receive")
    assert all(event.started_s >= arrived.at_s for event in told.lane("reconstruct"))
    assert len(told.lane("execute")) == GEOMETRY.shards
    assert [event.wanted_bytes for event in told.of(RepresentationChosen)][1:] == [0] * (GEOMETRY.shards - 1)


# Computing while waiting


def test_first_shard_is_computed_where_the_round_trip_is_longer() -> None:
    told = edit(constant_trace(200), rtt_s=0.2, offer=shared_by_steps())
    check(told)
    (fallback,) = told.of(FellBack)
    assert (fallback.shard, fallback.planned, fallback.at_s) == (0, True, 0.0)
    assert not told.outcome.fell_back, "a head start is no failure"
    # Four shards fit into the round trip; from then on the cache is used.
    assert [shard for shard, on_device in told.executed if on_device] == list(range(told.outcome.local_shards))
    assert told.outcome.local_shards in (3, 4)
    assert told.executed[-1] == (GEOMETRY.shards - 1, False)
    assert told.end_s < 0.2 + LOCAL_SHARD_S + GEOMETRY.shards * SHARD_S


def test_nothing_is_computed_twice_for_a_round_trip_that_is_short() -> None:
    told = edit(constant_trace(200), rtt_s=0.5 * LOCAL_SHARD_S)
    assert told.outcome.local_shards == 0
    assert not told.of(FellBack)


@pytest.mark.parametrize("offer", [apart(), continued(), shared_by_steps()], ids=["apart", "continued", "shared"])
@pytest.mark.parametrize("silent_s", [0.4, 10.0])
def test_silence_in_mid_step_is_bridged_by_computing(offer: Offer, silent_s: float) -> None:
    controller = "deadline-progressive" if offer.ladders[0].rungs[1].start == 0 else "deadline"
    # At 6 Mbit/s a shard takes nearly as long as executing one, so little is there in advance.
    fair_s = 0.03 if len(offer.ladders) < GEOMETRY.shards else 0.06
    told = edit(trace_of((fair_s, 6), (silent_s, 0), (1, 50)), offer=offer, controller=controller, prior_mbps=6)
    check(told)
    (fallback, *more) = told.of(FellBack)
    assert told.outcome.fell_back
    assert not fallback.planned
    assert fallback.reason.startswith("The network would take ")
    assert "so the device computes on by itself" in fallback.reason
    local = [shard for shard, on_device in told.executed if on_device]
    if silent_s > ON_DEVICE_S:
        assert told.executed[-1] == (GEOMETRY.shards - 1, True)
        assert local[-1] - local[0] + 1 == len(local), "nothing is asked of the cache any more"
    else:
        assert told.executed[-1] == (GEOMETRY.shards - 1, False), "once the network is back, its cache is used"
    assert told.end_s <= 2 * ON_DEVICE_S
    assert len(more) < GEOMETRY.steps


def test_what_came_too_late_does_not_hold_up_what_follows() -> None:
    """After a silence, what shards needed that have been computed meanwhile is not sent any more."""
    told = edit(trace_of((0.05, 10), (0.35, 0), (1, 4)), offer=apart(), controller="fixed:-1", prior_mbps=10)
    check(told)
    local = {shard for shard, on_device in told.executed if on_device}
    assert len(local) >= 4
    back = min(event.started_s for event in told.lane("execute") if not event.on_device and event.shard > min(local))
    # One round trip for what is on the wire, and what the next shard itself takes.
    assert back <= 0.4 + 2 * RTT_S + 3 * least_s(4)
    stale = {fetch_id for _, fetch_id, segments in told.source.fetched if {s // 3 for s in segments} <= local}
    assert {fetch_id for _, fetch_id in told.source.cancelled} & stale


def test_lost_network_is_finished_on_the_device() -> None:
    told = edit(constant_trace(50), lost_s=0.06)
    check(told)
    assert told.outcome.fell_back
    fallback = told.of(FellBack)[-1]
    assert fallback.reason == "The line is cut, so the device computes the rest itself."
    assert not fallback.planned
    local = [shard for shard, on_device in told.executed if on_device]
    assert local == list(range(local[0], GEOMETRY.shards))
    assert local[0] % GEOMETRY.shards_per_step == 0


def test_lost_network_takes_the_shards_that_wait_with_it() -> None:
    told = edit(constant_trace(1), offer=shared_by_steps(), lost_s=0.05, patient=True)
    check(told)
    assert told.outcome.fell_back
    assert told.of(FellBack)[0].reason.startswith("The line is cut")
    assert told.executed == [(shard, True) for shard in range(GEOMETRY.shards)]


def test_stream_that_is_opened_anew_goes_on_at_the_segment() -> None:
    async def again(lost: WatchedSource) -> WatchedSource:
        await asyncio.sleep(0.02)
        return WatchedSource(constant_trace(50), lost.segment_bytes)

    told = edit(
        constant_trace(10), offer=shared_by_steps(), controller="deadline-progressive", lost_s=0.08, again=again
    )
    check(told)
    first, second = told.sources
    # What had come in whole is not asked for again, and everything else is.
    unfinished = [s for s in first.asked if s not in told.run.given or s in second.asked]
    assert second.asked[: len(unfinished)] == unfinished
    assert len(set(second.asked)) == len(second.asked)
    came = set(first.asked) - set(unfinished)
    assert came
    assert came.isdisjoint(second.asked)
    assert told.executed[-1] == (GEOMETRY.shards - 1, False)
    assert told.of(ShardUsed)[-1].rank > told.of(ShardUsed)[0].rank


@pytest.mark.parametrize("lost_s", [0.005, 0.02, 0.03, 0.06, 0.09])
@pytest.mark.parametrize("mbps", [3, 10, 40])
def test_asking_goes_on_while_a_stream_is_opened_anew(
    caplog: pytest.LogCaptureFixture, mbps: float, lost_s: float
) -> None:
    async def again(lost: WatchedSource) -> WatchedSource:
        await asyncio.sleep(0.05)
        return WatchedSource(constant_trace(mbps), lost.segment_bytes)

    for controller, offer in (
        ("deadline-progressive", shared_by_steps()),
        ("deadline", continued()),
        ("fixed:-1", apart()),
    ):
        told = edit(constant_trace(mbps), offer=offer, controller=controller, lost_s=lost_s, again=again)
        check(told)
        assert told.executed[-1] == (GEOMETRY.shards - 1, False)
        for source in told.sources:
            assert len(set(source.asked)) == len(source.asked), "a stream is asked for a segment once"
    assert not caplog.records, "nothing fails in the background"


def test_stream_that_is_lost_over_and_over_is_survived() -> None:
    async def again(lost: WatchedSource) -> WatchedSource:
        await asyncio.sleep(0.001)
        return WatchedSource(constant_trace(50), lost.segment_bytes, lost_s=0.03)

    told = edit(constant_trace(50), offer=shared_by_steps(), lost_s=0.03, again=again)
    check(told)
    assert len(told.sources) > 3
    assert told.executed[-1] == (GEOMETRY.shards - 1, False)


# Never worse than the device alone


def test_hopeless_network_costs_little_more_than_having_none() -> None:
    told = edit(constant_trace(0.05))
    check(told)
    assert told.outcome.local_shards == GEOMETRY.shards
    assert told.end_s <= ON_DEVICE_S + LOCAL_SHARD_S


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    rates = st.sampled_from([0.0, 0.05, 0.5, 2.0, 5.0, 20.0, 100.0, 1000.0])
    parts = draw(st.lists(st.tuples(st.floats(0.005, 0.3), rates), min_size=1, max_size=12))
    edges = np.concatenate([[0.0], np.cumsum([duration for duration, _ in parts])])
    return checked_trace("drawn", np.append(edges, edges[-1] + 0.05), np.array([*(rate for _, rate in parts), 10.0]))


CASES = st.tuples(st.sampled_from(sorted(CONTROLLERS)), st.sampled_from(["apart", "continued", "shared"])).filter(
    lambda case: case != ("deadline-progressive", "apart")
)
OFFERS = {"apart": apart(), "continued": continued(), "shared": shared_by_steps()}


@settings(max_examples=60, deadline=None)
@given(traces(), CASES, st.sampled_from([0.0, 0.02, 0.3]), st.sampled_from([0.5, 10.0, 200.0]))
def test_no_network_makes_an_edit_much_longer_than_the_device_alone(
    trace: Trace, case: tuple[str, str], rtt_s: float, prior_mbps: float
) -> None:
    controller, offer = case
    told = edit(trace, offer=OFFERS[offer], controller=controller, rtt_s=rtt_s, prior_mbps=prior_mbps)
    check(told)
    check_all_bytes_are_told(told)
    assert told.end_s <= 2 * ON_DEVICE_S + LOCAL_SHARD_S


@settings(max_examples=20, deadline=None)
@given(traces(), st.sampled_from(["deadline-progressive", "deadline"]), st.data())
def test_lost_streams_and_damage_are_survived_anywhere(trace: Trace, controller: str, data: st.DataObject) -> None:
    lost_s = data.draw(st.floats(0, 0.5))
    damaged = data.draw(st.dictionaries(st.integers(0, 11), st.integers(1, 2), max_size=3))
    pause_s = data.draw(st.floats(0.01, 0.3))

    async def again(lost: WatchedSource) -> WatchedSource:
        await asyncio.sleep(pause_s)
        return WatchedSource(trace, lost.segment_bytes, lost_s=lost_s, damaged=lost.damaged)

    told = edit(trace, offer=shared_by_steps(), controller=controller, lost_s=lost_s, damaged=damaged, again=again)
    check(told)
    check_all_bytes_are_told(told)
    assert told.end_s <= 2 * ON_DEVICE_S + LOCAL_SHARD_S


def test_slow_device_waits_longer_for_the_network_than_a_fast_one() -> None:
    """A device ten times slower than planned notices, and computes by itself only where that is quicker still."""
    told = edit(constant_trace(1), offer=shared_by_steps(), controller="deadline-progressive", shard_s=10 * SHARD_S)
    check(told)
    assert told.executed[-1] == (GEOMETRY.shards - 1, False)
    assert told.end_s < 10 * ON_DEVICE_S / 2


# Patience


def test_patient_run_waits_for_a_slow_network() -> None:
    told = edit(constant_trace(0.5), patient=True, controller="fixed")
    check(told)
    assert not told.of(FellBack)
    assert {event.rank for event in told.of(ShardUsed)} == {32}
    sent_s = 8e-6 * SIZES[2] * GEOMETRY.shards / 0.5
    assert sent_s <= told.end_s <= OVERHEAD * sent_s + 1


def test_patient_run_gives_up_on_a_dead_network() -> None:
    told = edit(trace_of((0.1, 5), (1000, 0)), patient=True, controller="fixed")
    check(told)
    fallback = told.of(FellBack)[-1]
    assert fallback.reason == "Nothing came for 60 s, so the device computes on by itself."
    assert 60 < told.end_s < 60 + 2 * ON_DEVICE_S + 5


def opened_after(pause_s: float) -> Callable[[WatchedSource], Awaitable[WatchedSource]]:
    async def again(lost: WatchedSource) -> WatchedSource:
        await asyncio.sleep(pause_s)
        return WatchedSource(constant_trace(50), lost.segment_bytes, rtt_s=lost._rtt_s)

    return again


@pytest.mark.parametrize("pause_s", [0.02, 1.0, 4.0])
def test_patient_run_waits_for_a_stream_that_is_opened_anew(pause_s: float) -> None:
    told = edit(constant_trace(50), patient=True, controller="fixed", lost_s=0.06, again=opened_after(pause_s))
    check(told)
    check_all_bytes_are_told(told)
    assert not told.of(FellBack)
    assert told.end_s > pause_s


def test_patient_run_waits_no_longer_than_its_patience_for_another_stream() -> None:
    told = edit(constant_trace(50), patient=True, controller="fixed", lost_s=0.06, again=opened_after(1000.0))
    check(told)
    assert told.of(FellBack)[0].reason == "The line is cut, so the device computes on by itself meanwhile."
    assert REOPEN_PATIENCE_S < told.of(FellBack)[0].at_s < REOPEN_PATIENCE_S + 1


def test_silence_of_a_lost_stream_is_not_held_against_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sakura.runtime.pipeline.PATIENCE_S", 0.3)
    again = opened_after(0.25)
    told = edit(constant_trace(50), patient=True, controller="fixed", rtt_s=0.2, lost_s=0.26, again=again)
    check(told)
    assert not told.of(FellBack)


# Whole transfers are timed with less care; with the outage in it one would be of 1 Mbit/s.
@pytest.mark.parametrize(("controller", "least_mbps"), [("deadline", 40), ("robust-mpc", 5)])
@pytest.mark.parametrize("lost_s", [0.03, 0.04, 0.05, 0.06])
def test_an_outage_is_no_sample_of_the_rate(controller: str, least_mbps: float, lost_s: float) -> None:
    told = edit(
        constant_trace(50),
        offer=shared_by_steps(),
        patient=True,
        controller=controller,
        lost_s=lost_s,
        again=opened_after(0.2),
        prior_mbps=50,
    )
    check(told)
    rates = [event.measured_mbps for event in told.of(BandwidthMeasured)]
    assert min(rates) > least_mbps


# What is used of what was chosen


def test_late_transfer_is_cut_to_what_has_come() -> None:
    """The rate falls after shards were chosen: execution does not wait for the rest of them."""
    told = edit(trace_of((0.06, 40), (1, 2)), offer=continued(), controller="deadline", prior_mbps=40)
    check(told)
    cut = [event for event in told.of(ShardUsed) if event.cut]
    assert cut
    chosen = {event.shard: event.rank for event in told.of(RepresentationChosen)}
    for event in cut:
        assert event.rank < chosen[event.shard]
    whole = [event for event in told.of(ShardUsed) if not event.cut]
    assert all(event.rank >= chosen[event.shard] for event in whole)
    # What was left of a transfer that is over is not sent.
    assert told.source.cancelled
    assert [event.shard for event in told.lane("receive") if event.cut]


def test_transfer_of_representations_that_do_not_continue_is_not_cut() -> None:
    told = edit(trace_of((0.06, 40), (1, 2)), offer=apart(), controller="deadline", prior_mbps=40)
    check(told)
    assert not any(event.cut for event in told.of(ShardUsed))


def test_late_segments_are_cancelled_and_not_counted_as_used() -> None:
    told = edit(trace_of((0.06, 40), (1, 2)), offer=continued(), controller="deadline", prior_mbps=40)
    cancelled = {fetch_id for _, fetch_id in told.source.cancelled}
    asked = sum(told.offer.bytes_of(segments) for _, _, segments in told.source.fetched)
    late = sum(told.offer.bytes_of(s) for _, fetch_id, s in told.source.fetched if fetch_id in cancelled)
    assert late > 0
    # Of what was cancelled, no more than what was on the wire comes.
    assert told.outcome.received_bytes < OVERHEAD * (asked - late / 2)


@pytest.mark.parametrize("offer", [continued(), shared_by_steps()], ids=["continued", "shared"])
def test_progressive_quality_is_never_worse_than_the_least_and_grows_with_the_rate(offer: Offer) -> None:
    distortions = []
    for mbps in (0.7, 2, 8, 40, 300):
        told = edit(constant_trace(mbps), offer=offer, controller="deadline-progressive", prior_mbps=mbps)
        check(told)
        used = [event.distortion for event in told.of(ShardUsed)]
        assert max(used, default=0.0) <= DISTORTIONS[0]
        if mbps >= 8:
            assert len(used) == GEOMETRY.shards
            distortions.append(sum(used))
    assert distortions == sorted(distortions, reverse=True)
    assert distortions[-1] < 0.5 * distortions[0]


def test_shards_are_rebuilt_when_they_are_due_from_all_that_came_by_then() -> None:
    told = edit(constant_trace(20), offer=shared_by_steps(), controller="deadline-progressive")
    check(told)
    begun = {event.shard: event.started_s for event in told.lane("execute")}
    for event in told.lane("reconstruct"):
        assert event.shard < 2 or event.started_s >= begun[event.shard - 1] - 1e-6, "not earlier than it must be"
    ranks = [event.rank for event in told.of(ShardUsed)]
    assert ranks[-1] == 32 > ranks[0]


def check_all_bytes_are_told(told: Told) -> None:
    assert sum(event.received_bytes for event in told.lane("receive")) == told.outcome.received_bytes


def test_what_was_on_the_wire_of_cancelled_transfers_is_counted_and_measured() -> None:
    told = edit(trace_of((0.06, 40), (1, 2)), offer=continued(), controller="deadline", prior_mbps=40, rtt_s=0.1)
    check(told)
    check_all_bytes_are_told(told)
    assert told.source.cancelled
    came = sum(arrival.wire_bytes for arrival in told.source._arrivals.values())
    assert told.outcome.received_bytes == came
    # Whatever its bytes belong to, the link is as fast as it is.
    slow = [event.measured_mbps for event in told.of(BandwidthMeasured) if event.at_s > 0.3]
    assert slow == pytest.approx([2.0] * len(slow), rel=0.05)


def test_bytes_of_what_is_open_at_the_end_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def blocked(source: WatchedSource, fetch_id: int) -> None:
        source.cancelled.append((source._now(), fetch_id))
        await asyncio.Event().wait()  # as a socket that takes nothing more

    monkeypatch.setattr(WatchedSource, "cancel", blocked)
    told = edit(trace_of((0.06, 40), (1, 2)), offer=continued(), controller="deadline", prior_mbps=40)
    check(told)
    check_all_bytes_are_told(told)
    assert len(told.source.cancelled) == 1
    assert len([event for event in told.lane("receive") if event.cut]) == 2


class InSmallOrders:
    """Asks for every segment by itself, as many at once as it may."""

    def __init__(self) -> None:
        self._next = 0

    def next(self, state: StreamState) -> Order | None:
        segment, self._next = self._next, self._next + 1
        if segment == len(state.segment_bytes):
            return None
        shard = segment // SEGMENTS_A_SHARD
        rung = state.ladder(shard).rungs[0]
        return Order(shard, rung, rung, 0, "", [segment])


SEGMENTS_A_SHARD = 20


def test_requests_under_way_are_bounded() -> None:
    rung = Rung(Representation(8, 4, 4), 0, SEGMENTS_A_SHARD, SEGMENTS_A_SHARD * 200, 0.1)
    segments = SEGMENTS_A_SHARD * GEOMETRY.shards
    firsts = range(0, segments, SEGMENTS_A_SHARD)
    ladders = [Ladder(list(range(first, first + SEGMENTS_A_SHARD)), [rung]) for first in firsts]
    offer = Offer(ladders, list(range(GEOMETRY.shards)), [200] * segments)
    told = edit(constant_trace(1000), offer=offer, controller=InSmallOrders(), rtt_s=0.5, patient=True)
    check(told)
    assert len([at_s for at_s, _, _ in told.source.fetched if at_s < 0.5]) == MAX_OPEN_FETCHES
    assert sorted(told.source.asked) == list(range(segments))


def test_bytes_of_a_transfer_that_never_ends_are_counted() -> None:
    told = edit(constant_trace(0.5), controller="fixed", patient=True, lost_s=0.6)
    check(told)
    assert told.outcome.local_shards == GEOMETRY.shards
    (part,) = told.lane("receive")
    assert part.cut
    assert 0.5 * SIZES[2] < told.outcome.received_bytes == part.received_bytes < SIZES[2]


# Damage and mistakes


def check_given_up(told: Told) -> None:
    """Once the cache is lost, nothing is asked for any more, and what was open is cancelled."""
    (lost_s,) = {at_s for at_s, _ in told.source.cancelled}
    assert told.source.fetched[-1][0] <= lost_s <= told.of(FellBack)[-1].at_s
    finished = {fetch_id for fetch_id, arrival in told.source._arrivals.items() if arrival.complete}
    left = {fetch_id for _, fetch_id, _ in told.source.fetched} - finished
    assert left
    assert left <= {fetch_id for _, fetch_id in told.source.cancelled}
    check_all_bytes_are_told(told)


def test_damaged_segment_is_asked_for_once_more() -> None:
    told = edit(constant_trace(20), offer=shared_by_steps(), controller="fixed:-1", damaged={0: 1, 6: 1})
    check(told)
    assert not told.outcome.fell_back
    counts = {segment: told.source.asked.count(segment) for segment in set(told.source.asked)}
    assert counts == {segment: 2 if segment in (0, 6) else 1 for segment in counts}


def test_segment_damaged_twice_ends_the_use_of_the_cache() -> None:
    told = edit(constant_trace(20), offer=shared_by_steps(), controller="fixed:-1", damaged={3: 2})
    check(told)
    assert told.source.asked.count(3) == 2
    assert told.outcome.fell_back
    assert told.of(FellBack)[-1].reason == (
        "Segment 3 of the cache came damaged twice, so the device computes the rest itself."
    )
    check_given_up(told)
    assert told.executed[-1] == (GEOMETRY.shards - 1, True)


class FailingRule:
    def choose(self, situation: Situation) -> Choice:
        if situation.shard == 2:
            raise RuntimeError("a mistake of ours")
        return Choice(situation.rungs[0], 0, "")


@pytest.mark.parametrize("patient", [False, True])
def test_mistake_in_the_background_ends_in_a_sentence(patient: bool) -> None:
    told = edit(constant_trace(50), controller=ShardByShard(FailingRule()), patient=patient)
    check(told)
    assert told.outcome.fell_back
    assert "RuntimeError" in told.of(FellBack)[-1].reason


class RefusingRun(WatchedRun):
    """Cannot rebuild shard 2."""

    async def reconstruct(self, shard: int, segments: Mapping[int, bytes]) -> tuple[ShardKv, Span]:
        if shard == 2:
            raise ValueError("Segment 9 does not fit the cache.")
        return await super().reconstruct(shard, segments)


@pytest.mark.parametrize("patient", [False, True])
def test_shard_that_cannot_be_rebuilt_ends_the_use_of_the_cache(patient: bool) -> None:
    told = edit(constant_trace(50), patient=patient, new_run=RefusingRun)
    check_given_up(told)
    assert told.outcome.fell_back
    assert told.of(FellBack)[-1].reason == "Segment 9 does not fit the cache, so the device computes the rest itself."
    assert told.executed == [
        (0, False),
        (1, False),
        *((shard, True) for shard in range(GEOMETRY.shards)),
    ]


class BrokenRun(WatchedRun):
    """Its processor fails at shard 5."""

    async def execute(self, shard: int, kv: ShardKv) -> Span:
        span = await super().execute(shard, kv)
        if shard == 5:
            raise RuntimeError("out of memory")
        return span


def test_failure_of_the_engine_ends_the_edit() -> None:
    with pytest.raises(RuntimeError, match="out of memory"):
        edit(constant_trace(50), new_run=BrokenRun)


def test_waits_are_told_by_shard() -> None:
    told = edit(constant_trace(5), controller="fixed:-1")
    check(told)
    waits = told.of(NetworkWait)
    assert waits[0].shard == 0
    assert waits[0].started_s == 0
    assert [wait.shard for wait in waits] == sorted({wait.shard for wait in waits})


def test_an_outage_before_an_edit_is_not_believed_of_it_for_long() -> None:
    """An estimate of next to nothing on a fast network: what is worth having still comes within the edit."""
    told = edit(constant_trace(200), offer=shared_by_steps(), controller="deadline-progressive", prior_mbps=0.05)
    check(told)
    fresh = edit(constant_trace(200), offer=shared_by_steps(), controller="deadline-progressive", prior_mbps=40)
    assert told.outcome.received_bytes > 0.6 * fresh.outcome.received_bytes


@pytest.mark.parametrize("controller", ["cachegen", "robust-mpc"])
def test_rates_of_whole_transfers_are_those_of_the_link(controller: str) -> None:
    told = edit(constant_trace(50), offer=apart(), controller=controller, prior_mbps=40)
    measured = [event.measured_mbps for event in told.of(BandwidthMeasured)]
    assert max(measured) == pytest.approx(50, rel=0.15)
