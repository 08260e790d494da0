import contextlib
import csv
import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakura.errors import UserError
from sakura.network.formats import MAX_FILE_BYTES, MAX_ROWS, ColumnNeededError, load_trace
from sakura.network.trace import Trace

SHARED = Path(__file__).parents[3] / "shared"
CASES = SHARED / "cases"
MEASURED = SHARED / "traces"

UCC = "Timestamp,NetworkMode,DL_bitrate\n"
DRIVING = "protocol,seq_num,A_throughput_mbps,B_throughput_mbps\nTCP,0,10,30\nTCP,1,20,50\n"
LUMOS = "run_num,seq_num,Throughput\n1,1,10\n1,2,20\n2,1,70\n"


def load(text: str, *, column: str | None = None) -> Trace:
    return load_trace(text.encode(), "walk.txt", column=column)


# --- time and Mbit/s -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "0\t10\n1\t20\n2\t30\n",
        "0 10\n1   20\n2 30",
        "\ufeff0.0\t10\r\n1.0\t20\r\n2.0\t30\r\n",
        "0\t10\r1\t20\r2\t30\r",
        "\n# drive\n0\t10\n\n1\t20\n2\t30\n\n",
        "1\t10\n2\t20\n3\t30\n",
        "1577836800.0\t10\n1577836801.0\t20\n1577836802.0\t30\n",
        "1577836800000 10\n1577836801000 20\n1577836802000 30\n",
        "0,0\t10,0\n1,0\t20,0\n2,0\t30,0\n",
        "time(secs)\tTput(Mbps)\n0\t10\n1\t20\n2\t30\n",
        "time,Mbps\n0,10\n1,20\n2,30\n",
        "Time (s);Rate (Mbit/s)\n0;10,0\n1;20,0\n2;30,0\n",
    ],
)
def test_ways_to_write_time_and_mbps(text: str) -> None:
    trace = load(text)
    assert trace.edges_s.tolist() == [0, 1, 2, 3]
    assert trace.rates_mbps.tolist() == [10, 20, 30]
    assert (trace.format, trace.unit) == ("time and Mbit/s", "Mbit/s")


def test_utf_16_with_its_mark_is_text() -> None:
    assert load_trace("0\t10\n1\t20\n".encode("utf-16"), "walk.txt").mean_mbps == 15


def test_a_path_is_read(tmp_path: Path) -> None:
    (tmp_path / "walk.txt").write_text("0 10\n1 20\n")
    assert load_trace(tmp_path / "walk.txt", "walk").duration_s == 2
    with pytest.raises(UserError, match="gone cannot be read"):
        load_trace(tmp_path / "gone.txt", "gone")


def test_irregular_steps_hold_until_the_next_time() -> None:
    trace = load("0 10\n0.5 20\n3 30\n4 40\n")
    assert trace.edges_s.tolist() == [0, 0.5, 3, 4, 5]
    assert trace.mean_mbps == pytest.approx((5 + 50 + 30 + 40) / 5)


def test_times_that_begin_after_a_step_end_their_pieces() -> None:
    trace = load("0.5 10\n0.9 20\n2 30\n")
    assert trace.edges_s.tolist() == [0, 0.5, 0.9, 2]


def test_one_line_is_a_constant_trace() -> None:
    assert load("0 12.5").mean_mbps == 12.5


def test_a_moved_start_a_repeated_time_and_a_gap_are_noted() -> None:
    notes = " ".join(load("50 10\n51 20\n51 30\n52 40\n99 50\n").notes)
    assert "begin at 50 s" in notes
    assert "after them: 1" in notes
    assert "gap between lines is 47 s" in notes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 10\n2 20\n1 30\n", "line 3: the time goes back from 2 s to 1 s"),
        ("0 10\n1 1e12\n", r"line 2: the rate 1e\+12 Mbit/s is not plausible"),
        ("0 10\n1 -4\n", "line 2: the rate -4 Mbit/s is negative"),
        ("0 10\n1 nan\n", "line 2: the rate nan"),
        ("0 10\ninf 20\n", "line 2: the time inf is not plausible"),
        ("0 10\n1 ten\n", "line 2: 'ten' is not a number"),
        ("0 10\n1 1_0\n", "line 2: '1_0' is not a number"),
        ("0 10\n1 10\n2 10\n3 1,250\n", "line 4: '1,250' may be thousands or a decimal"),
        ("\n".join(f"{t} 10" for t in range(30)) + "\n30 10 10\n", "line 31: 3 fields"),
        ("0 0\n1 0\n", "never carries any data"),
        ("time,Mbps\n", "holds no rates"),
        ("", "is empty"),
        (" \r\n\n", "is empty"),
        ("hello\nworld\n", "in no trace format known here .*'hello'.*Mahimahi.*Ghent 4G"),
        ("rate\n10.5\n11.5\n", "in no trace format known here"),
    ],
)
def test_trouble_is_named(text: str, words: str) -> None:
    with pytest.raises(UserError, match=rf"(?s)walk\.txt.*{words}"):
        load(text)


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(UserError, match="not a text file"):
        load_trace(bytes(range(256)) * 8, "junk.csv")
    with pytest.raises(UserError, match="not a text file"):
        load_trace(b"0 10\n\x001 20\n", "junk.csv")


def test_size_is_bounded() -> None:
    with pytest.raises(UserError, match="larger than 20 MB"):
        load_trace(b"0 1\n" * (MAX_FILE_BYTES // 4 + 1), "long.txt")
    with pytest.raises(UserError, match="more than 1,000,000 lines"):
        load_trace(b"0\n" * (MAX_ROWS + 1), "long.txt")


@given(st.binary(max_size=300))
def test_any_bytes_give_a_trace_or_a_user_error(data: bytes) -> None:
    with contextlib.suppress(UserError):
        assert load_trace(data, "any").mean_mbps > 0


@given(st.text(alphabet='0123456789.,;-+e\t\n "#msbptime', max_size=200))
def test_any_text_of_numbers_gives_a_trace_or_a_user_error(text: str) -> None:
    with contextlib.suppress(UserError):
        assert load(text).mean_mbps > 0


@given(st.lists(st.floats(0, 5000).map(lambda rate: round(rate, 3)), min_size=1, max_size=50).filter(any))
def test_what_is_written_is_read(rates_mbps: list[float]) -> None:
    trace = load("".join(f"{second}\t{rate}\n" for second, rate in enumerate(rates_mbps)))
    assert trace.rates_mbps.tolist() == rates_mbps
    assert trace.duration_s == len(rates_mbps)


# --- other formats ---------------------------------------------------------------------------------------------------


def test_mahimahi() -> None:
    trace = load("0\n1\n1\n5\n10\n")
    assert trace.format == "Mahimahi"
    assert trace.duration_s == pytest.approx(0.010)
    assert trace.bytes_between(0, 0.010) == pytest.approx(5 * 1500)
    assert trace.bytes_between(0, 0.001) == pytest.approx(3 * 1500)
    assert trace.rate_mbps_at(0.003) == 0
    assert trace.rate_mbps_at(0.0045) == pytest.approx(12)
    assert trace.end_of_transfer_s(0, 4 * 1500) == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3\n2\n", "line 2: the milliseconds go back"),
        ("0\n0\n", "ends at 0 ms"),
        ("1\n" * 25 + "x\n", "line 26: 'x' is not a whole number"),
        ("0\n" * 100_000 + "1\n", "not plausible"),
    ],
)
def test_mahimahi_trouble(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        load(text)


def test_second_and_bytes() -> None:
    trace = load('1,"1,250,000"\r\n2,2500000\r\n3,0')
    assert (trace.format, trace.unit, trace.duration_s) == ("second and bytes", "bytes/s", 3)
    assert trace.rates_mbps.tolist() == [10, 20, 0]


@pytest.mark.parametrize("text", ["0,48.5\n1,50.25\n", "0,48\n1,50\n"])
def test_mbps_after_a_comma_is_not_taken_for_bytes(text: str) -> None:
    with pytest.raises(UserError, match=r"does not look like bytes a second.*'time,Mbps'"):
        load(text)


def test_five_gophers_asks_for_the_column() -> None:
    with pytest.raises(ColumnNeededError, match="choose one of A_throughput_mbps, B_throughput_mbps") as error:
        load(DRIVING)
    assert error.value.choices == ("A_throughput_mbps", "B_throughput_mbps")
    assert load(DRIVING, column="B_throughput_mbps").rates_mbps.tolist() == [30, 50]
    with pytest.raises(ColumnNeededError, match="no column 'C'"):
        load(DRIVING, column="C")


def test_european_spreadsheet() -> None:
    trace = load("protocol;seq_num;throughput_mbps\nTCP;1;350,3\nTCP;2;398,9\n")
    assert trace.rates_mbps.tolist() == [350.3, 398.9]


def test_a_short_row_of_a_table_is_named() -> None:
    with pytest.raises(UserError, match="line 3: 2 fields where the header names 4"):
        load("protocol,seq_num,A_throughput_mbps,x\nTCP,0,10,3\nTCP,1\n")


def test_lumos5g_asks_for_the_run() -> None:
    with pytest.raises(ColumnNeededError, match="run_num=1, run_num=2"):
        load(LUMOS)
    assert load(LUMOS, column="run_num=1").rates_mbps.tolist() == [10, 20]


def test_ucc_keeps_the_last_of_a_second_and_skips_missing_rates() -> None:
    stamp = "2020.01.31_23.59."
    trace = load(f"{UCC}{stamp}58,5G,1000\n{stamp}58,5G,2000\n{stamp}59,5G,-\n2020.02.01_00.00.00,LTE,4000\n")
    assert trace.edges_s.tolist() == [0, 2, 4]
    assert trace.rates_mbps.tolist() == [2, 4]
    assert trace.unit == "kbit/s"
    assert any("without a rate: 1" in note for note in trace.notes)
    assert any("after them: 1" in note for note in trace.notes)


@pytest.mark.parametrize(
    ("rows", "words"), [("noon,5G,1000\n", "line 2: 'noon' is not a time"), ("2020.01.31_23.59.58,5G,-\n", "no rates")]
)
def test_ucc_trouble(rows: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        load(UCC + rows)


def test_ghent_reads_padded_milliseconds_in_base_ten() -> None:
    trace = load("1577836800999 999 0.0 0.0 1249000 0999\n1577836801999 1999 0.0 0.0 2500000 1000\n")
    assert trace.edges_s.tolist() == pytest.approx([0, 0.999, 1.999])
    assert trace.rates_mbps.tolist() == pytest.approx([1249 * 8 / 999, 20])
    with pytest.raises(UserError, match="line 1: 0 ms since the line before"):
        load("1 1 0 0 5 0\n")


# --- files from outside, where present -------------------------------------------------------------------------------


def listed_cases() -> list[tuple[str, str]]:
    manifest = CASES / "manifest.csv"
    if not manifest.exists():
        return []
    with manifest.open(newline="") as file:
        return [(row["file"], row["expected_behaviour"]) for row in csv.DictReader(file) if row["kind"] == "trace"]


@pytest.mark.skipif(not CASES.exists(), reason="the collection of awkward files is not here")
@pytest.mark.parametrize(("file", "expected"), listed_cases())
def test_awkward_files(file: str, expected: str) -> None:
    began_s = time.monotonic()
    if expected.startswith(("error", "asks")):
        with pytest.raises(UserError) as error:
            load_trace(CASES / file, file)
        if place := re.search(r"names (line \d+)", expected):
            assert place[1] in str(error.value)
    else:
        trace = load_trace(CASES / file, file)
        if duration := re.search(r"([\d.]+) s\b", expected.split("within 2 s")[-1]):
            assert trace.duration_s == pytest.approx(float(duration[1]), abs=1.01 if "to 154 s" in expected else 0.05)
        if mean := re.search(r"(?:mean|about) ([\d.]+) Mbit/s", expected):
            assert trace.mean_mbps == pytest.approx(float(mean[1]), rel=0.001)
    assert time.monotonic() - began_s < 20


@pytest.mark.skipif(not MEASURED.exists(), reason="the measured traces are not here")
@pytest.mark.parametrize(
    ("file", "column", "format", "duration_s", "mean_mbps"),
    [
        ("ucc5g/driving_B_2020.01.16_09.56.56.head1400.csv", None, "UCC G-NetTrack", 1466, 31.56),
        ("ucc5g/static_B_2020.02.14_13.21.26.csv", None, "UCC G-NetTrack", 1102, 128.46),
        ("lumos5g_sigcomm21/4g_trace_walking_50007_c", None, "time and Mbit/s", 800, 97.44),
        ("lumos5g_sigcomm21/5g_trace_100_walking", None, "time and Mbit/s", 800, 498.55),
        ("5gophers/car-driving-trace-1.csv", "Sprint_throughput_mbps", "5Gophers", 126, 264.89),
        ("5gophers/walking-trace.csv", None, "5Gophers", 603, 332.89),
        ("mahimahi_lte/Verizon-LTE-short.down", None, "Mahimahi", 93, 4.20),
        ("multipath_wifi_cell/13_2_wifi.csv", None, "second and bytes", 100, 24.52),
        ("pensieve_cooked/oboe_trace_0.txt", None, "time and Mbit/s", 176, 2.63),
        ("ghent4g/documentation_example.log", None, "Ghent 4G", 4, 19.88),
    ],
)
def test_measured_files(file: str, column: str | None, format: str, duration_s: float, mean_mbps: float) -> None:
    trace = load_trace(MEASURED / file, file, column=column)
    assert trace.format == format
    assert trace.duration_s == pytest.approx(duration_s, abs=1.1)
    assert trace.mean_mbps == pytest.approx(mean_mbps, rel=0.05)
    assert np.isfinite(trace.rates_mbps).all()
