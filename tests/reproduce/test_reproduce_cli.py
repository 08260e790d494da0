"""``python -m sakura reproduce`` prints a table and its claims, and writes what it was asked for."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner
from worlds import tiny_model

from sakura.backbone.nano import save_model
from sakura.cli import app
from sakura.templates import TemplateLibrary


@pytest.fixture
def tiny_setup(tmp_path: Path, tiny_templates: TemplateLibrary, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model's folder, with the tiny templates as the shipped ones and caches of its own."""
    monkeypatch.setattr("sakura.settings.SHIPPED_TEMPLATES", tiny_templates.folders[0])
    monkeypatch.setenv("SAKURA_HOME", str(tmp_path / "home"))
    save_model(tiny_model(), tmp_path / "model")
    return tmp_path / "model"


def test_a_figure_is_printed_and_written(tiny_setup: Path, tmp_path: Path) -> None:
    out, json_file = tmp_path / "out", tmp_path / "made" / "fig2.json"
    arguments = [
        "reproduce",
        "fig2",
        "--quick",
        "--model",
        str(tiny_setup),
        "--out",
        str(out),
        "--json",
        str(json_file),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in out.iterdir()) == ["fig2.csv", "fig2.png", "fig2.svg"]
    saved = json.loads(json_file.read_text())
    assert saved["figure"] == "fig2" and len(saved["scope"]["model"]) == 8
    for claim in saved["claims"]:
        assert claim["claim"] in result.stdout
        assert str(claim["ours"]) in result.stdout
    assert "correlation" in result.stdout


def test_an_unknown_figure_ends_in_a_sentence() -> None:
    result = CliRunner().invoke(app, ["reproduce", "fig1"])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: There is no figure 'fig1'; use one of fig2, fig3")
    assert "Traceback" not in result.output
