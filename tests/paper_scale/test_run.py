"""Edits at paper scale: the product's pipeline keeps its promises at hundreds of megabytes a shard."""

import pytest

from sakura.errors import UserError
from sakura.events import BandwidthMeasured, LaneFinished, NetworkWait, ShardUsed, System
from sakura.network.library import constant_trace
from sakura.paper_scale.devices import device_profile
from sakura.paper_scale.models import CASES
from sakura.paper_scale.networks import network_trace
from sakura.paper_scale.run import CaseResult, run_case

KLEIN, PROFILE, RTT_S = CASES["klein-1024"], device_profile("8-elite-gen-5"), 0.04


def run(system: System, mbps: float, controller: str = "", **options: int) -> CaseResult:
    return run_case(KLEIN, PROFILE, system, controller, constant_trace(mbps), 0.0, RTT_S, **options)  # type: ignore[arg-type]


def test_without_a_stream_only_arithmetic_counts() -> None:
    alone, resident = run("on_device", 100), run("resident_cache", 100)
    assert alone.latency_s == alone.on_device_s == pytest.approx(4 * 88.74 / 8.7 / 0.9, rel=0.01)
    assert resident.latency_s + RTT_S == resident.limit_s == pytest.approx(4 * 21.22 / 8.7 / 0.9 + RTT_S, rel=0.01)
    assert (alone.local_shards, resident.local_shards) == (16, 0)
    assert alone.psnr_mask_db == resident.psnr_mask_db == 100
    assert alone.received_bytes == resident.received_bytes == 0


@pytest.mark.parametrize("mbps", [80, 300])
def test_sakura_is_near_the_limit(mbps: float) -> None:
    result = run("sakura", mbps)
    assert result.limit_s < result.latency_s < 1.15 * result.limit_s
    assert result.local_shards == 0
    assert 0 < result.distortion < 0.1
    assert result.psnr_mask_db > 35
    assert result.compute_s + result.network_wait_s == pytest.approx(result.latency_s, rel=0.05)


def test_more_bandwidth_is_better_quality_not_more_waiting() -> None:
    slow, fast = run("sakura", 60), run("sakura", 600)
    assert fast.received_bytes > 1.5 * slow.received_bytes
    assert fast.psnr_mask_db > slow.psnr_mask_db
    assert fast.latency_s == pytest.approx(slow.latency_s, rel=0.1)


def test_refinements_larger_than_a_round_trip_carries_are_sent() -> None:
    """Segments are megabytes here, a round trip carries one or two."""
    assert run("sakura", 300).received_bytes > 80e6


def test_no_shard_waits_for_what_was_never_asked_for() -> None:
    """What is worth waiting for grows with the rate, beyond what a shard was decided with: here it does."""
    result = run_case(KLEIN, PROFILE, "sakura", "", network_trace("5g-130"), 217.014, RTT_S)
    assert result.local_shards == 0
    assert result.latency_s < 1.1 * result.limit_s


def test_the_full_cache_waits_for_all_of_it() -> None:
    result = run("full_cache", 130)
    assert result.latency_s == pytest.approx(560, rel=0.05)
    assert result.received_bytes == pytest.approx(KLEIN.geometry.full_cache_bytes, rel=0.001)
    assert result.psnr_mask_db == 100
    assert len(result.events) < 5000


def test_without_a_network_the_device_computes() -> None:
    result = run("sakura", 0.01)
    assert result.local_shards == 16
    assert result.latency_s < 1.25 * result.on_device_s
    assert result.psnr_mask_db == 100


@pytest.mark.parametrize("controller", ["deadline", "choose-before-send", "robust-mpc", "fixed:-1"])
def test_any_controller_can_be_tried(controller: str) -> None:
    result = run("sakura", 200, controller)
    assert result.latency_s < result.on_device_s
    assert any(isinstance(event, BandwidthMeasured) for event in result.events)


def test_events_tell_of_every_shard() -> None:
    events = run("cachegen", 200).events
    executed = [event for event in events if isinstance(event, LaneFinished) and event.lane == "execute"]
    assert sorted({event.shard for event in executed}) == list(range(16))
    assert all(event.at_s >= event.started_s for event in events if isinstance(event, LaneFinished | NetworkWait))
    assert any(isinstance(event, ShardUsed) for event in events)


def test_cachegen_decodes_beside_execution() -> None:
    quick = PROFILE.changed("entropy_decode_gb_per_s", 100.0)
    slow = PROFILE.changed("entropy_decode_gb_per_s", 0.2)
    trace = constant_trace(5000)
    times_s = [
        run_case(KLEIN, profile, "cachegen", "fixed:-1", trace, 0, RTT_S).latency_s
        for profile in (quick, PROFILE, slow)
    ]
    assert times_s[0] < times_s[1] < times_s[2]
    assert times_s[1] < 1.25 * times_s[0] < times_s[2] / 2


def test_the_same_run_is_the_same() -> None:
    assert run("sakura", 90, request=1).events == run("sakura", 90, request=1).events


def test_unknown_names_are_said() -> None:
    with pytest.raises(UserError, match="There is no system 'zip'; use one of sakura"):
        run("zip", 100)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="There is no controller 'best'"):
        run("sakura", 100, "best")
    with pytest.raises(UserError, match="Nothing is measured for workload 'XX'"):
        run_case(KLEIN, PROFILE, "sakura", "", constant_trace(10), 0, RTT_S, workload="XX")
