"""The commands on network traces, as a person calls them."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sakura.cli import app

KEYS = ["format", "unit", "duration_s", "mean_mbps", "min_mbps", "max_mbps", "notes"]
DRIVING = "protocol,seq_num,A_throughput_mbps,B_throughput_mbps\nTCP,0,10,30\nTCP,1,20,50\n"


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["traces", *map(str, words)])


def test_what_was_read_is_printed_and_written(tmp_path: Path) -> None:
    trace, out = tmp_path / "walk.txt", tmp_path / "facts.json"
    trace.write_text("50\t10\n51\t20\n52\t60\n")
    result = call("inspect", trace, "--json", out)
    assert result.exit_code == 0
    facts = json.loads(out.read_text())
    assert list(facts) == KEYS
    assert facts == {
        "format": "time and Mbit/s",
        "unit": "Mbit/s",
        "duration_s": 3.0,
        "mean_mbps": 30.0,
        "min_mbps": 10.0,
        "max_mbps": 60.0,
        "notes": ["Times begin at 50 s; they are moved to begin at 0."],
    }
    for words in ("time and Mbit/s", "mean_mbps   30", "Times begin at 50 s"):
        assert words in result.stdout


def test_of_several_rates_one_has_to_be_chosen(tmp_path: Path) -> None:
    trace = tmp_path / "drive.csv"
    trace.write_text(DRIVING)
    result = call("inspect", trace)
    assert result.exit_code == 1
    assert "choose one of A_throughput_mbps, B_throughput_mbps with --column." in result.stderr
    result = call("inspect", trace, "--column", "B_throughput_mbps")
    assert result.exit_code == 0
    assert "mean_mbps   40" in result.stdout


def test_a_shipped_trace_is_inspected_by_its_id() -> None:
    result = call("inspect", "5g-walking")
    assert result.exit_code == 0
    assert "duration_s  600" in result.stdout


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "walk.txt is empty"),
        (b"0 10\n1 -4\n", "walk.txt, line 2: the rate -4 Mbit/s is negative"),
        (b"\x1f\x8b\x08rest", "walk.txt is compressed (gzip)"),
        (b"\xff\x00\x01", "walk.txt is not a text file"),
    ],
)
def test_a_bad_file_gets_one_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "walk.txt").write_bytes(content)
    result = call("inspect", tmp_path / "walk.txt")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert words in result.stderr
    assert result.stderr.strip().count("\n") == 0
    assert result.stdout == ""


def test_what_is_no_file_gets_one_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("gone.txt", "There is no file gone.txt"), (".", "is a folder"), ("pipe", "pipe is a pipe")):
        result = call("inspect", tmp_path / name)
        assert (result.exit_code, result.stdout) == (1, "")
        assert words in result.stderr


def test_json_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    result = call("inspect", "5g-walking", "--json", tmp_path / "no" / "folder.json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "folder.json cannot be written" in result.stderr


def test_the_shipped_traces_are_listed() -> None:
    result = call("list")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) == 7
    assert any(line.startswith("4g-driving") and "4G, driving" in line and "600" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [(("",), "Name a trace file, or one of 5g-walking"), (("5g-static", "--column", "A"), "leave --column out")],
)
def test_what_makes_no_sense_gets_one_sentence(words: tuple[str, ...], sentence: str) -> None:
    result = call("inspect", *words)
    assert result.exit_code == 1
    assert sentence in result.stderr
