"""Seconds from operations and rates, checked against numbers worked out by hand."""

import pytest

from sakura.paper_scale.devices import device_profile
from sakura.paper_scale.models import CASES
from sakura.paper_scale.nano import nano_measured
from sakura.paper_scale.offers import scaled_offer
from sakura.paper_scale.timing import active_shard_s, full_shard_s, rank_known, rebuild_gb_per_s, streaming_durations

KLEIN, PROFILE = CASES["klein-1024"], device_profile("8-elite-gen-5")
TEMPLATE = nano_measured().templates[0]


def test_execution_is_arithmetic_and_dispatch() -> None:
    assert active_shard_s(KLEIN, PROFILE) == pytest.approx(21.22 / 8.7 / 4 + 0.0011, rel=1e-3)
    assert full_shard_s(KLEIN, PROFILE) == pytest.approx(88.74 / 8.7 / 4 + 0.0011, rel=1e-3)
    twice = PROFILE.changed("npu_tflops", 17.4).changed("dispatch_ms", 2.2)
    assert active_shard_s(KLEIN, twice) == pytest.approx(21.22 / 17.4 / 4 + 0.0022, rel=1e-3)


def test_low_rank_products_are_fast_until_the_rank_is_high() -> None:
    assert rebuild_gb_per_s(PROFILE, "sakura", 0) == rebuild_gb_per_s(PROFILE, "sakura", 140) == 25
    assert rebuild_gb_per_s(PROFILE, "sakura", 256) == pytest.approx(13.7, abs=0.05)
    assert (rebuild_gb_per_s(PROFILE, "intq", 0), rebuild_gb_per_s(PROFILE, "full_cache", 0)) == (20, 25)


def test_the_rank_is_that_of_what_has_come() -> None:
    offer = scaled_offer(TEMPLATE, "sakura", KLEIN)
    ladder = offer.ladders[offer.ladder_of[0]]
    assert rank_known(offer, 0, set()) == ladder.rungs[0].representation.rank * offer.rank_factor
    for rung in ladder.rungs:
        known = set(ladder.segments(rung))
        assert rank_known(offer, 0, known) == rung.representation.rank * offer.rank_factor


def test_entropy_decoding_costs_what_each_system_codes() -> None:
    shard_gb = KLEIN.geometry.full_cache_bytes / KLEIN.geometry.shards / 1e9
    for system, low_s, high_s in (("cachegen", shard_gb, shard_gb), ("sakura", 1e-3, 0.5), ("intq", 0.0, 0.0)):
        nano, offer = TEMPLATE.systems[system], scaled_offer(TEMPLATE, system, KLEIN)  # type: ignore[index, arg-type]
        durations = streaming_durations(KLEIN, PROFILE, system, nano, offer)  # type: ignore[arg-type]
        ladder = offer.ladders[offer.ladder_of[0]]
        read_s = durations.read_s(ladder.segments(ladder.rungs[-1]))
        assert low_s * 0.999 <= read_s <= high_s * 1.001


def test_what_is_decoded_twice_as_fast_takes_half_the_time() -> None:
    nano, offer = TEMPLATE.systems["cachegen"], scaled_offer(TEMPLATE, "cachegen", KLEIN)
    fast = PROFILE.changed("entropy_decode_gb_per_s", 2.0)
    segments = offer.ladders[0].segments(offer.ladders[0].rungs[0])
    slow_s, fast_s = (
        streaming_durations(KLEIN, profile, "cachegen", nano, offer).read_s(segments) for profile in (PROFILE, fast)
    )
    assert slow_s == pytest.approx(2 * fast_s)
