"""Inspecting a stored cache: the numbers add up, and what cannot be read ends in one sentence."""

import dataclasses
import json
from pathlib import Path

import pytest
from containers import GEOMETRY, served, some_container
from typer.testing import CliRunner

from sakura.cache.container import Container, write_file
from sakura.cache.inspect import describe, open_container, summarise
from sakura.cli import app
from sakura.codec import CODECS
from sakura.errors import UserError

WHOLE = some_container()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "some.sakura"
    write_file(str(path), WHOLE.data)
    return path


@pytest.mark.parametrize("name", sorted(CODECS))
def test_sizes_add_up_to_the_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / "some.sakura"
    sample = some_container(name)
    write_file(str(path), sample.data)
    summary = summarise(Container(path))
    assert summary.index_bytes + sum(summary.segment_kinds.values()) == summary.file_bytes == len(sample.data)
    assert sorted(shard for ladder in summary.ladders for shard in ladder.shards) == list(range(GEOMETRY.shards))
    for ladder, told in zip(sample.encoded.ladders, summary.ladders, strict=True):
        assert [rung.size_bytes for rung in told.rungs] == [rung.size_bytes for rung in ladder.rungs]
    assert f"{len(sample.data):,} bytes" in describe(summary)


def test_kinds_of_sakura_are_told_apart(path: Path) -> None:
    summary = summarise(Container(path))
    header, *others = WHOLE.encoded.segments
    assert list(summary.segment_kinds) == [
        "header",
        "token basis",
        "means",
        "coefficients of blocks 1 to 2",
        "coefficients of blocks 3 to 4",
    ]
    assert summary.segment_kinds["header"] == len(header)
    assert all(size_bytes > 0 for size_bytes in summary.segment_kinds.values())
    assert sum(summary.segment_kinds.values()) == len(header) + sum(map(len, others))


def test_command_tells_and_writes_the_same(path: Path, tmp_path: Path) -> None:
    written = tmp_path / "summary.json"
    result = CliRunner().invoke(app, ["cache", "inspect", str(path), "--json", str(written)])
    assert result.exit_code == 0
    for text in ("a model", "a template", "2 steps x 4 blocks", "24 tokens x 8 channels", "segments are whole"):
        assert text in result.stdout
    summary = json.loads(written.read_text())
    assert summary == json.loads(json.dumps(dataclasses.asdict(summarise(Container(path)))))
    with served(path.parent) as (address, _):
        over_http = CliRunner().invoke(app, ["cache", "inspect", f"{address}/{path.name}"])
    assert (over_http.exit_code, over_http.stdout) == (0, result.stdout)


def test_damage_is_told_beside_what_is_whole(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[WHOLE.index_end] ^= 1
    data[-1] ^= 1
    path.write_bytes(data)
    last, many = len(WHOLE.encoded.segments) - 1, len(WHOLE.encoded.segments)
    result = CliRunner().invoke(app, ["cache", "inspect", str(path)])
    assert result.exit_code == 1
    assert f"2 of {many} segments are damaged: 0, {last}" in result.stdout
    assert result.stderr == "Error: some.sakura is damaged; build or copy the cache again.\n"


def test_what_cannot_be_read_ends_in_one_sentence(path: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.sakura"
    wrong.write_bytes(b"PNG" * 100)
    with served(path.parent) as (address, _):
        for url, sentence in (
            (str(wrong), "wrong.sakura is not a SAKURA cache; build or copy the cache again."),
            (str(tmp_path / "none.sakura"), "No cache can be read at "),
            (str(tmp_path), "cannot be read"),
            (f"{address}/none.sakura", "No cache can be read at http"),
            ("http://127.0.0.1:9/x.sakura", "No cache can be read at http://127.0.0.1:9/x.sakura"),
            ("nonsense://x.sakura", "use a path, or a URL that fsspec can read"),
        ):
            with pytest.raises(UserError, match=r"\.$") as caught:
                open_container(url)
            assert sentence in str(caught.value)
            result = CliRunner().invoke(app, ["cache", "inspect", url])
            assert result.exit_code == 1
            assert result.stderr.startswith("Error: ")
            assert result.stderr.count("\n") == 1
