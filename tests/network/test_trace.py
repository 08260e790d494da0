import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakura.errors import UserError
from sakura.network.trace import BYTES_PER_MEGABIT, MAX_CHART_POINTS, Trace, checked_trace

pieces = st.lists(
    st.tuples(st.floats(0.01, 10), st.one_of(st.just(0.0), st.floats(0.01, 2000))), min_size=1, max_size=20
).filter(lambda rows: any(rate for _, rate in rows))
times = st.floats(0, 500)


def trace_of(rows: list[tuple[float, float]]) -> Trace:
    lengths_s, rates_mbps = zip(*rows, strict=True)
    return checked_trace("t", np.concatenate([[0], np.cumsum(lengths_s)]), rates_mbps)


TWO_PIECES = trace_of([(1.0, 8.0), (2.0, 16.0)])


def test_summary_is_weighted_by_time() -> None:
    assert TWO_PIECES.duration_s == 3
    assert TWO_PIECES.mean_mbps == pytest.approx(40 / 3)
    assert (TWO_PIECES.min_mbps, TWO_PIECES.max_mbps) == (8, 16)


def test_summary_line() -> None:
    assert TWO_PIECES.summary == "made up, read as Mbit/s: 3 s, mean 13.33 Mbit/s"


def test_time_wraps() -> None:
    assert [TWO_PIECES.rate_mbps_at(t_s) for t_s in (0, 0.999, 1, 2.999, 3, 4, 301)] == [8, 8, 16, 16, 8, 16, 16]


def test_bytes_by_hand() -> None:
    assert TWO_PIECES.bytes_between(0.5, 1.5) == pytest.approx((4 + 8) * BYTES_PER_MEGABIT)
    assert TWO_PIECES.bytes_between(2.5, 33.5) == pytest.approx((8 + 400 + 4) * BYTES_PER_MEGABIT)


@given(pieces, times, times, times)
def test_bytes_add_up(rows: list[tuple[float, float]], a_s: float, b_s: float, c_s: float) -> None:
    trace = trace_of(rows)
    a_s, b_s, c_s = sorted((a_s, b_s, c_s))
    whole = trace.bytes_between(a_s, c_s)
    assert trace.bytes_between(a_s, b_s) + trace.bytes_between(b_s, c_s) == pytest.approx(whole, rel=1e-9, abs=1e-2)


@given(pieces, times, st.floats(1, 1e9))
def test_end_of_transfer_inverts_bytes(rows: list[tuple[float, float]], start_s: float, size_bytes: float) -> None:
    trace = trace_of(rows)
    end_s = trace.end_of_transfer_s(start_s, size_bytes)
    assert end_s >= start_s
    carried = trace.bytes_between(start_s, end_s)
    assert carried == pytest.approx(size_bytes, rel=1e-6, abs=1 + trace.bytes_between(0, end_s) * 1e-9)


def test_transfer_ends_before_the_silence_that_follows_it() -> None:
    trace = trace_of([(1.0, 8.0), (5.0, 0.0)])
    assert trace.end_of_transfer_s(0, 1_000_000) == 1
    assert trace.end_of_transfer_s(0, 2_000_000) == 7
    assert trace.end_of_transfer_s(1.0, 1) == pytest.approx(6.000001)
    assert trace.end_of_transfer_s(2.5, 0) == 2.5


def test_a_trace_without_capacity_never_ends_a_transfer() -> None:
    silent = Trace("silent", "Silent", np.array([0.0, 1.0]), np.array([0.0]), (), "made up", "Mbit/s")
    assert silent.end_of_transfer_s(0.5, 1) == float("inf")


@given(pieces, st.floats(0, 100), st.floats(0.1, 3000))
def test_window_is_small_ordered_and_keeps_the_mean(
    rows: list[tuple[float, float]], start_s: float, length_s: float
) -> None:
    trace = trace_of(rows)
    times_s, rates_mbps = trace.window(start_s, length_s)
    assert 1 <= len(times_s) == len(rates_mbps) <= MAX_CHART_POINTS + 1
    assert times_s[0] == start_s
    assert times_s[-1] < start_s + length_s
    assert (np.diff(times_s) > 0).all()
    drawn = float(rates_mbps @ np.diff(np.append(times_s, start_s + length_s))) * BYTES_PER_MEGABIT
    assert drawn == pytest.approx(trace.bytes_between(start_s, start_s + length_s), rel=1e-6, abs=1)


def test_window_shows_the_pieces_themselves_where_they_are_few() -> None:
    times_s, rates_mbps = TWO_PIECES.window(0.5, 3)
    assert times_s.tolist() == [0.5, 1, 3]
    assert rates_mbps.tolist() == [8, 16, 8]


@pytest.mark.parametrize(
    ("rates_mbps", "words"),
    [
        ([], "holds no rates"),
        ([5.0, -1.0], "line 9: the rate -1 Mbit/s is negative"),
        ([5.0, float("nan")], "line 9: the rate nan is not a finite number"),
        ([5.0, 1e12], r"line 9: the rate 1e\+12 Mbit/s is not plausible"),
        ([0.0, 0.0], "never carries any data"),
    ],
)
def test_bad_rates_are_named(rates_mbps: list[float], words: str) -> None:
    with pytest.raises(UserError, match=f"walk.txt.*{words}"):
        checked_trace("walk.txt", np.arange(len(rates_mbps) + 1), rates_mbps, lines=[8, 9])


def test_edges_must_go_forward() -> None:
    with pytest.raises(UserError, match="rate 2: the time does not go forward"):
        checked_trace("walk.txt", [0, 1, 1, 2], [1, 1, 1])


@pytest.mark.parametrize("duration_s", [1e-9, 1e12])
def test_durations_are_bounded(duration_s: float) -> None:
    with pytest.raises(UserError, match="check its unit of time"):
        checked_trace("walk.txt", [0, duration_s], [1])


def test_arrays_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        TWO_PIECES.rates_mbps[0] = 1
