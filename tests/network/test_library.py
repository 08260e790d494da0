import pytest

from sakura.errors import UserError
from sakura.network.library import constant_trace, load_library_trace, trace_ids


@pytest.mark.parametrize(
    ("trace_id", "title", "mean_mbps"),
    [
        ("5g-walking", "5G, walking", 559),
        ("5g-driving", "5G, driving", 336),
        ("5g-static", "5G, standing still", 82),
        ("4g-5g-mix", "4G and 5G mix, driving", 29),
        ("4g-driving", "4G, driving", 38),
        ("wifi-walking", "WiFi, walking", 31),
    ],
)
def test_shipped_traces(trace_id: str, title: str, mean_mbps: float) -> None:
    trace = load_library_trace(trace_id)
    assert trace_id in trace_ids()
    assert (trace.name, trace.title) == (trace_id, title)
    assert trace.duration_s == 600
    assert trace.mean_mbps == pytest.approx(mean_mbps, rel=0.1)


def test_an_unknown_id_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"no trace '6g'.*5g-walking, .*wifi-walking"):
        load_library_trace("6g")


def test_constant_trace() -> None:
    trace = constant_trace(48)
    assert trace.title == "Constant 48 Mbit/s"
    assert {trace.rate_mbps_at(t_s) for t_s in (0, 10, 1e4)} == {48}
    assert trace.end_of_transfer_s(1, 6_000_000) == pytest.approx(2)
    with pytest.raises(UserError, match="constant-0 never carries"):
        constant_trace(0)
