"""What is drawn of the network of a run that was switched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakura.network.library import constant_trace
from sakura.network.trace import checked_trace
from ui.networks import networks_view
from ui.setup import trace_label, trace_line, trace_told
from ui.views import trace_view

RAMP = checked_trace("ramp", [0, 1, 2, 3, 4], [1, 2, 3, 4], title="A ramp")


def test_a_run_that_was_never_switched_has_the_view_of_its_trace() -> None:
    assert networks_view([(0.0, RAMP)], 1.5) == trace_view(RAMP, 1.5)


def test_a_switched_run_has_the_traces_of_before_and_after() -> None:
    later = constant_trace(9)
    view = networks_view([(0.0, RAMP), (2.5, later)], 0.0)
    assert view["switches"] == [(2.5, "Constant 9 Mbit/s")]
    held = dict(zip(view["times"], view["rates"], strict=True))
    assert [held[at_s] for at_s in (0, 1, 2, 2.5, 4)] == [1, 2, 3, 9, 9]


def test_a_switched_run_has_the_keys_of_all_its_networks() -> None:
    later = constant_trace(9)
    keys = networks_view([(0.0, RAMP), (2.5, later)], 1.0)["keys"]
    assert keys == [*trace_view(RAMP, 1.0)["keys"], *trace_view(later, 1.0)["keys"]]
    keys += networks_view([(0.0, RAMP), (2.5, later)], 0.0)["keys"]
    assert len(set(keys)) == 4  # where a run begins on a trace counts too


def test_a_switch_keeps_the_time_that_has_passed() -> None:
    """The link goes on with the second of the new trace at which it is, not with its first one."""
    view = networks_view([(0.0, constant_trace(9)), (1.0, RAMP)], 0.0)
    held = dict(zip(view["times"], view["rates"], strict=True))
    assert [held[at_s] for at_s in (0, 1, 2, 3)] == [9, 2, 3, 4]


@given(st.lists(st.floats(0, 100), max_size=5).map(sorted), st.floats(0, 10))
def test_times_go_forward_whatever_the_switches(switches_s: list[float], start_s: float) -> None:
    view = networks_view([(0.0, RAMP), *((at_s, RAMP) for at_s in switches_s)], start_s)
    assert view["times"][0] == 0
    assert view["times"] == sorted(view["times"])
    assert len(view["times"]) == len(view["rates"])


@pytest.mark.parametrize(
    ("mbps", "words"), [(48, "mean 48"), (0.25, "mean 0.25"), (0.04, "mean 0.04"), (1234.4, "mean 1,234")]
)
def test_the_field_tells_the_mean(mbps: float, words: str) -> None:
    assert words in trace_label(constant_trace(mbps))
    assert words in trace_line(constant_trace(mbps))


def test_the_drawing_tells_the_range_and_what_is_drawn() -> None:
    assert "<span>1 to 4 Mbit/s</span>" in trace_line(RAMP)
    assert '<span class="drawn">4 s</span>' in trace_line(RAMP)
    long = checked_trace("<b>", [0, 50, 100], [1, 2], title="<b>")
    assert '<span class="drawn">first 60 of 100 s</span>' in trace_line(long)
    assert "<b>" not in trace_line(long)


def test_irregular_steps_are_drawn_by_their_length() -> None:
    """A rate that holds for most of the time fills most of the drawing."""
    drawing = trace_line(checked_trace("short dip", [0, 0.4, 0.8, 60], [0, 0, 10]))
    assert drawing.count("V4.0") >= 70


def test_a_file_is_told_back_with_what_was_assumed() -> None:
    told = trace_told(checked_trace("x", [0, 2], [10], notes=("One line.",), format="Mahimahi", unit="ms of packets"))
    assert "Mahimahi, read as ms of packets: 2 s, mean 10 Mbit/s." in told
    assert "One line." in told
