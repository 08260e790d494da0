"""Tables at paper scale have the fields that figures read, and answers that move the way they must."""

import pytest

from sakura.errors import UserError
from sakura.paper_scale.devices import device_profile
from sakura.paper_scale.models import CASES, model_case
from sakura.paper_scale.nano import nano_measured
from sakura.paper_scale.networks import NETWORKS, network_trace
from sakura.paper_scale.sweep import bandwidth_near_limit, level_near, mean_of, measure_paper_scale, sensitivity

FIELDS = [
    "scale", "workload", "network", "system", "controller", "request", "latency_s", "limit_s", "on_device_s",
    "received_bytes", "network_wait_s", "first_wait_s", "compute_s", "local_shards", "psnr_mask_db", "ssim_mask",
]  # fmt: skip
SYSTEMS = {"sakura", "intq", "cachegen", "full_cache", "on_device", "active_only"}
MEANS_MBPS = {"5g-330": 332, "5g-130": 130, "mix": 29, "wifi": 31}


@pytest.mark.parametrize("network", NETWORKS)
def test_networks_carry_what_they_say(network: str) -> None:
    assert network_trace(network).mean_mbps == pytest.approx(MEANS_MBPS[network], rel=0.02)
    assert f"{MEANS_MBPS[network]} Mbit/s" in NETWORKS[network]


def test_an_unknown_network_is_said() -> None:
    with pytest.raises(UserError, match="There is no network '6g'; use one of 5g-330"):
        network_trace("6g")


def test_rows_have_all_fields_of_all_systems() -> None:
    told: list[float] = []
    rows = measure_paper_scale(workloads=["FS"], networks=["5g-130"], requests=2, progress=told.append)
    assert all(list(row) == FIELDS for row in rows)
    assert {row["system"] for row in rows} == SYSTEMS
    controllers = {row["controller"] for row in rows if row["system"] == "cachegen"}
    assert {"cachegen", "fixed:-1"} <= controllers
    assert len(controllers) <= 3
    assert told[-1] == 1
    for name in SYSTEMS - {"cachegen"}:
        assert sorted(row["request"] for row in rows if row["system"] == name) == [0, 1]
    sakura_s, device_s = mean_of(rows, "sakura", "latency_s"), mean_of(rows, "on_device", "latency_s")
    assert mean_of(rows, "active_only", "latency_s") < sakura_s < device_s
    assert mean_of(rows, "cachegen", "latency_s", "fixed:-1") > sakura_s


def test_the_level_near_a_quality() -> None:
    system = nano_measured().template("FS", 0).systems["cachegen"]
    assert level_near(system, 0) == 0
    assert level_near(system, 90) == len(system.ladders[0].rungs) - 1


def test_sensitivity_moves_the_right_way() -> None:
    rows = sensitivity(networks=["5g-330"], requests=1)
    assert len(rows) == 15
    found = {(row["changed"], row["factor"]): row for row in rows}
    speeds = [found["npu_tflops", factor]["sakura_s"] for factor in (0.5, 1.0, 2.0)]
    assert speeds == sorted(speeds, reverse=True)
    assert found["npu_tflops", 1.0]["sakura_s"] == found["rtt", 1.0]["sakura_s"] == found["bandwidth", 1.0]["sakura_s"]
    assert found["bandwidth", 2.0]["sakura_s"] < 1.02 * found["bandwidth", 0.5]["sakura_s"]
    decoding = [found["entropy_decode_gb_per_s", factor]["over_cachegen"] for factor in (0.5, 2.0)]
    assert decoding[0] > decoding[1], "CacheGen depends more on it"


def test_bandwidth_near_the_limit() -> None:
    near = bandwidth_near_limit(CASES["klein-512"], device_profile("8-elite-gen-5"))
    assert 1 < near["mbps"] < 500
    slow_decoder = device_profile("8-elite-gen-5").changed("entropy_decode_gb_per_s", 0.05)
    never = bandwidth_near_limit(model_case("klein-512"), slow_decoder, system="cachegen")
    assert never["mbps"] == float("inf")
