"""Imports go down the layers of ARCHITECTURE.md only."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = [
    ["sakura.events", "sakura.errors", "sakura.settings", "sakura.processes"],
    ["sakura.codec"],
    ["sakura.systems"],
    ["sakura.network"],
    ["sakura.pictures", "sakura.metrics", "sakura.metrics_weights"],
    ["sakura.portraits", "sakura.prompts"],
    ["sakura.backbone"],
    ["sakura.templates"],
    ["sakura.cache"],
    ["sakura.cloud"],
    ["sakura.control"],
    ["sakura.runtime"],
    ["device_bridge"],
    ["sakura.charts", "sakura.reproduce"],
    ["sakura.lab", "sakura.paper_scale"],
    ["sakura.studio", "sakura.race", "sakura.report"],
    ["sakura.streaming"],
    ["sakura.figures"],
    ["sakura.benchmarks", "sakura.cli", "sakura.cli_traces", "sakura.__main__"],
    ["ui"],
    ["app"],
]


def level(module: str) -> int:
    for number, names in enumerate(LAYERS):
        if any(module == name or module.startswith(name + ".") for name in names):
            return number
    raise AssertionError(f"{module} is in no layer: add it to ARCHITECTURE.md and here")


def modules() -> list[Path]:
    files = [ROOT / "app.py"]
    for package in ("sakura", "device_bridge", "ui"):
        files.extend(sorted((ROOT / package).rglob("*.py")))
    return [file for file in files if file != ROOT / "sakura" / "__init__.py"]


@pytest.mark.parametrize("file", modules(), ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_go_down(file: Path) -> None:
    name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for node in ast.walk(ast.parse(file.read_text())):
        imported = []
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported = [node.module] if node.module != "sakura" else [f"sakura.{alias.name}" for alias in node.names]
        for target in imported:
            if target.split(".")[0] in ("sakura", "device_bridge", "ui"):
                assert level(target) <= level(name), f"{name} imports {target}, which is above it"
