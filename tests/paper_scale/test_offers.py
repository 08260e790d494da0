"""Scaled offers keep the ratios of nano's: bytes for the uncompressed byte, distortions, and what is shared."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sakura.codec.offers import offer_fault
from sakura.errors import UserError
from sakura.events import System
from sakura.paper_scale.models import CASES, ModelCase
from sakura.paper_scale.nano import nano_measured
from sakura.paper_scale.offers import scaled_offer
from sakura.systems import STREAMED

TEMPLATE = nano_measured().templates[0]
KLEIN, SD = CASES["klein-1024"], CASES["sd35-1024"]


@settings(deadline=None, max_examples=20)
@given(
    system=st.sampled_from(list(STREAMED)),
    case=st.sampled_from([KLEIN, SD, CASES["klein-512"]]),
    parts=st.integers(1, 3),
)
def test_compression_ratios_are_those_of_nano(system: System, case: ModelCase, parts: int) -> None:
    case = dataclasses.replace(case, shards_per_step=4 * parts)
    nano, offer = TEMPLATE.systems[system], scaled_offer(TEMPLATE, system, case)
    small, large = TEMPLATE.geometry.full_cache_bytes, case.geometry.full_cache_bytes
    assert sum(offer.segment_bytes) / large == pytest.approx(sum(nano.segment_bytes) / small, rel=1e-3)
    assert len(offer.ladder_of) == case.geometry.shards
    assert len(offer.own) == len(offer.segment_bytes)
    for shard in range(case.geometry.shards):
        step, column = divmod(shard, case.shards_per_step)
        ours = offer.ladders[offer.ladder_of[shard]]
        theirs = nano.ladders[nano.ladder_of[step % 4 * 4 + column // parts]]
        assert [rung.distortion for rung in ours.rungs] == [rung.distortion for rung in theirs.rungs]
    fault = offer_fault("it", case.geometry, nano.codec, {}, offer.segment_bytes, offer.ladders, offer.ladder_of)
    assert fault in (None, "The geometry in it is not one of a cache.")  # shards may be larger than a device takes


def test_the_first_shards_share_what_nano_shares() -> None:
    offer = scaled_offer(TEMPLATE, "sakura", dataclasses.replace(KLEIN, shards_per_step=8))
    first, second, third = (offer.ladders[offer.ladder_of[shard]] for shard in range(3))
    nano = TEMPLATE.systems["sakura"]
    shared = set(nano.ladders[0].order) & set(nano.ladders[1].order)
    assert len(set(first.order) & set(second.order)) == len(shared) == len(set(first.order) & set(third.order))
    assert all(not offer.own[segment] for segment in set(first.order) & set(third.order))


def test_steps_share_in_groups_of_four() -> None:
    offer = scaled_offer(TEMPLATE, "sakura", SD)
    per_step = SD.shards_per_step
    assert offer.ladder_of[0] == offer.ladder_of[3 * per_step] != offer.ladder_of[4 * per_step]
    assert not set(offer.ladders[offer.ladder_of[0]].order) & set(offer.ladders[offer.ladder_of[4 * per_step]].order)


def test_ranks_grow_with_the_matrices() -> None:
    assert 10 < scaled_offer(TEMPLATE, "sakura", KLEIN).rank_factor < 25


@pytest.mark.parametrize("shards_per_step", [3, 6])
def test_shards_that_do_not_divide_are_refused(shards_per_step: int) -> None:
    with pytest.raises(UserError, match="in multiples of 4 and 4, not 4 and"):
        scaled_offer(TEMPLATE, "sakura", dataclasses.replace(KLEIN, shards_per_step=shards_per_step))
