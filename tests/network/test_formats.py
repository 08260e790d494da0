import bz2
import contextlib
import csv
import gzip
import io
import lzma
import os
import re
import time
import zipfile
from collections.abc import Callable
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


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # to open it would wait for a writer
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for place, words in (
        (tmp_path / "gone.txt", "There is no file x: check the path"),
        (tmp_path, "x is a folder: choose a trace file in it"),
        (tmp_path / "pipe", "x is a pipe or a device"),
        (Path("/dev/zero"), "x is a pipe or a device"),
        (tmp_path / "loop", "x cannot be read"),
        (tmp_path / "n\0ul", "x cannot be read"),
        (tmp_path / ("long" * 100), "x cannot be read"),
    ):
        with pytest.raises(UserError, match=words):
            load_trace(place, "x")


def zipped(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("walk.txt", data)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("pack", "kind"), [(gzip.compress, "gzip"), (zipped, "zip"), (bz2.compress, "bzip2"), (lzma.compress, "xz")]
)
def test_a_compressed_file_is_named_as_such(pack: Callable[[bytes], bytes], kind: str) -> None:
    with pytest.raises(UserError, match=rf"x is compressed \({kind}\): unpack it"):
        load_trace(pack(b"0 10\n1 20\n"), "x")


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
    assert "more than once: of these the last line counts, 1 are left out" in notes
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
        ("0;10,5\n1;20,5\n", "put the header 'time;Mbps' above"),
        ("0\t10\n1\t1e400\n", "line 2: the rate inf is not a finite number"),
        ("time,Mbps\n0,10\n1,-inf\n", "line 3: the rate -inf is not a finite number"),
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
    with pytest.raises(UserError, match="line 2 has more than 10,000 characters"):
        load_trace(b"0 1\n" + b"1," * 6000, "long.txt")


def test_a_file_on_disk_is_read_no_further_than_allowed(tmp_path: Path) -> None:
    with (tmp_path / "long.txt").open("wb") as file:
        file.truncate(10**12)  # a hole: nothing is stored
    with pytest.raises(UserError, match="larger than 20 MB"):
        load_trace(tmp_path / "long.txt", "long.txt")


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


# --- tables with names, and what is no trace --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "unit", "mbps"),
    [
        ("time_s,kbps,cell", "kbit/s", [1, 2]),
        ("time_s,rate (Mbit/s),cell", "Mbit/s", [1000, 2000]),
        ("Time (s),DL MB/s,cell", "MB/s", [8000, 16000]),
        ("seconds,bytes_per_second,cell", "bytes/s", [0.008, 0.016]),
        ("epoch,Throughput [bps],cell", "bit/s", [0.001, 0.002]),
    ],
)
def test_a_table_says_its_unit_in_the_header(header: str, unit: str, mbps: list[float]) -> None:
    trace = load(f"{header}\n0,1000,a\n1,2000,a\n")
    assert (trace.format, trace.unit, trace.duration_s) == ("table with named columns", unit, 2)
    assert trace.rates_mbps.tolist() == pytest.approx(mbps)


def test_milliseconds_in_the_header_of_a_table() -> None:
    trace = load("time_ms;rate_mbps;cell\n0;10,5;a\n500;20,5;b\n")
    assert (trace.duration_s, trace.rates_mbps.tolist()) == (1, [10.5, 20.5])


def test_a_table_with_several_rates_asks() -> None:
    rates = "time,down_mbps,up_mbps\n0,10,1\n1,20,2\n"
    with pytest.raises(ColumnNeededError, match="choose one of down_mbps, up_mbps"):
        load(rates)
    assert load(rates, column="up_mbps").rates_mbps.tolist() == [1, 2]
    with pytest.raises(ColumnNeededError, match="no column 'cell'"):
        load(rates, column="cell")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Tput(Mbps)\tconfig\n10.5\tA\n20.5\tA\n", "has rates but no times"),
        ("\tTput(Mbps)\n0\t10.5\n1\t20.5\n", "has rates but no times"),
        ("\tTput\n0\t10.5\n1\t20.5\n", "has rates but no times"),
        ("rate\n10.5\n11.5\n", "has rates but no times"),
        ("10.5\n11.5\n", "has rates but no times.*put a column 'time_s'"),
        ("time,throughput\n0,10\n", "in which unit its column 'throughput' is.*'throughput_mbps'"),
        (
            "downstream_bandwidth,bitrate(kbps),app_throughput(kbps),delivery_time(s),chunk_index\n50,300,4000,1.2,1\n",
            "idle time between them is not in it: choose a trace that gives a time",
        ),
        ("Throughput of a walk, measured with a phone at noon in May\nfoo\n", "in no trace format known"),
    ],
)
def test_what_is_missing_is_said(text: str, words: str) -> None:
    with pytest.raises(UserError, match=rf"walk\.txt .*{words}"):
        load(text)


def test_tab_with_a_header_and_tenths_of_seconds() -> None:
    trace = load("time(secs)\tTput(Mbps)\n0.0\t10\n0.1\t20\n0.2\t30\n")
    assert trace.duration_s == pytest.approx(0.3)
    assert trace.mean_mbps == pytest.approx(20)


def test_megabytes_are_not_megabits() -> None:
    assert load("time,MBps\n0,10\n1,20\n").mean_mbps == 120


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


def test_lumos5g_as_it_is_distributed() -> None:
    header = "run_num,seq_num,abstractSignalStr,latitude,longitude,nrStatus,Throughput,mobility_mode,tower_id\n"
    rows = "".join(
        f"{run},{second},2,0,0,CONNECTED,{100 * run + second},walking,NA\n" for run in (1, 2) for second in (1, 2)
    )
    with pytest.raises(ColumnNeededError) as error:
        load(header + rows)
    assert error.value.choices == ("run_num=1", "run_num=2")
    trace = load(header + rows, column="run_num=2")
    assert (trace.format, trace.rates_mbps.tolist()) == ("Lumos5G", [201, 202])
    with pytest.raises(ColumnNeededError, match="no column 'run_num=7'"):
        load(header + rows, column="run_num=7")


def test_ucc_dips_of_the_download_test_stay_and_are_explained() -> None:
    stamps = [f"2020.01.31_10.{second // 60:02}.{second % 60:02}" for second in range(60)]
    trace = load(UCC + "".join(f"{stamp},5G,{0 if i % 14 == 13 else 90_000}\n" for i, stamp in enumerate(stamps)))
    assert trace.duration_s == 60
    assert np.count_nonzero(trace.rates_mbps == 0) == 4
    assert any("dips of 1 to 2 s are no outages" in note for note in trace.notes)


def test_ucc_keeps_the_last_of_a_second_and_skips_missing_rates() -> None:
    stamp = "2020.01.31_23.59."
    trace = load(f"{UCC}{stamp}58,5G,1000\n{stamp}58,5G,2000\n{stamp}59,5G,-\n2020.02.01_00.00.00,LTE,4000\n")
    assert trace.edges_s.tolist() == [0, 2, 4]
    assert trace.rates_mbps.tolist() == [2, 4]
    assert trace.unit == "kbit/s"
    assert any("without a rate: 1" in note for note in trace.notes)
    assert any("last line counts, 1 are left out" in note for note in trace.notes)
    assert any("every 14 s" in note and "no outages" in note for note in trace.notes)


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


def test_ghent_example_of_four_lines() -> None:
    stamps = [
        (686, 39287, 2493100, "1000"),
        (687, 40288, 2763504, "1001"),
        (686, 41287, 2728896, "0999"),
        (686, 42287, 1954600, "1000"),
    ]
    lines = [f"145312179{i}{ms} {since} 51.0 3.7 {size} {step}\r\n" for i, (ms, since, size, step) in enumerate(stamps)]
    trace = load("".join(lines).rstrip())
    assert trace.duration_s == pytest.approx(4)
    assert trace.mean_mbps == pytest.approx(8e-6 * (2493100 + 2763504 + 2728896 + 1954600) / 4)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=80).map(sorted).filter(lambda at_ms: at_ms[-1] > 0))
def test_mahimahi_carries_each_packet_once_a_period(at_ms: list[int]) -> None:
    trace = load("".join(f"{ms}\n" for ms in at_ms))
    assert trace.duration_s == pytest.approx(at_ms[-1] / 1000)
    for periods in (1, 3):
        assert trace.bytes_between(0, periods * trace.duration_s) == pytest.approx(1500 * periods * len(at_ms))


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


LISTED = re.compile(r"^\| (?P<file>\w+/\S+) \| (?P<network>.*) \| (?P<dur>\d+) \| (?P<mean>[\d.]+) \|")
FORMAT_NAMES = {
    "ucc5g": "UCC G-NetTrack",
    "lumos5g_sigcomm21": "time and Mbit/s",
    "5gophers": "5Gophers",
    "mahimahi_lte": "Mahimahi",
    "multipath_wifi_cell": "second and bytes",
    "pensieve_cooked": "time and Mbit/s",
    "ghent4g": "Ghent 4G",
}


def listed_traces() -> list[tuple[str, str | None, int, float]]:
    """File, column, duration and mean of each row of the description that comes with the measured traces."""
    if not (MEASURED / "README.md").exists():
        return []
    found = []
    for line in (MEASURED / "README.md").read_text().splitlines():
        row = LISTED.match(line)
        if row and (MEASURED / row["file"]).exists():
            column = re.search(r"column (\w+)", row["network"])
            found.append((row["file"], column and column[1], int(row["dur"]), float(row["mean"])))
    return found


def mean_as_listed(trace: Trace) -> float:
    """The mean as the description defines it: over lines, of packet traces over seconds."""
    if trace.format == "Mahimahi":
        seconds = [trace.bytes_between(second, second + 1) for second in range(int(trace.duration_s))]
        return float(np.mean(seconds)) * 8e-6
    return float(trace.rates_mbps.mean())


@pytest.mark.skipif(not MEASURED.exists(), reason="the measured traces are not here")
@pytest.mark.parametrize(("file", "column", "duration_s", "mean_mbps"), listed_traces())
def test_measured_files(file: str, column: str | None, duration_s: int, mean_mbps: float) -> None:
    trace = load_trace(MEASURED / file, file, column=column)
    assert trace.format == FORMAT_NAMES[file.split("/")[0]]
    # Lines and their times are counted there, the length of the last step is not; the driving set skips 6 s.
    assert trace.duration_s == pytest.approx(duration_s, abs=6 if column else 1.2)
    # Repeated times drop out of ours, and the first line of packet traces is partly before their first second.
    assert mean_as_listed(trace) == pytest.approx(mean_mbps, rel=0.02)
    assert trace.mean_mbps == pytest.approx(mean_mbps, rel=0.13)
    assert np.isfinite(trace.rates_mbps).all()


@pytest.mark.skipif(not MEASURED.exists(), reason="the measured traces are not here")
def test_every_measured_file_is_a_trace_or_refused() -> None:
    refused = set()
    for path in (path for path in MEASURED.rglob("*") if path.is_file()):
        try:
            load_trace(path, path.name)
        except UserError as error:
            refused.add(path.name)
            assert str(error).startswith(path.name)
            assert "\n" not in str(error)
    texts = {"LICENSE.txt", "README.md", "Lumos5G-v1.0.README.md", "README.upstream", "README.upstream.md"}
    assert refused == {*texts, "car-driving-trace-1.csv"}


@pytest.mark.skipif(not MEASURED.exists(), reason="the measured traces are not here")
def test_measured_example_of_ghent() -> None:
    trace = load_trace(MEASURED / "ghent4g" / "documentation_example.log", "example")
    assert (trace.format, trace.duration_s) == ("Ghent 4G", pytest.approx(4))
    assert trace.mean_mbps == pytest.approx(19.88, rel=0.001)
