"""The bridge's commands, as a person calls them wrongly."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from device_bridge.cli import app


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("agent", "--connect", "http://127.0.0.1:1", "--pair", "ABC234"), "is no address of a hub"),
        (("agent", "--connect", "ws://127.0.0.1:99999", "--pair", "ABC234"), "is no address of a hub"),
        (("agent", "--connect", "ws://127.0.0.1:1"), "is not paired with ws://127.0.0.1:1; add --pair"),
        (("doctor", "--json", "/nowhere/x.json"), "There is no folder /nowhere"),
        (("doctor", "--engine", "tpu"), "There is no engine 'tpu'"),
        (("export", "--out", "/proc/shards"), "/proc/shards cannot be written"),
        (("export", "--out", "shards", "--precision", "int3"), "There is no precision 'int3'"),
    ],
)
def test_what_makes_no_sense_gets_one_sentence(
    words: tuple[str, ...], sentence: str, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 1
    assert sentence in result.stderr
    assert len(result.stderr.strip().splitlines()) <= 3
