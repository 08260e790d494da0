"""Engines by name, and which one a device uses where nobody says.

To add one, write a file and name it in :data:`ENGINES`.
"""

import logging
from collections.abc import Callable
from pathlib import Path

import torch

from device_bridge.engines.speed import step_seconds
from device_bridge.protocol import EngineReport
from sakura.backbone.editor import Editor
from sakura.cache.store import BLOCKS_PER_SHARD
from sakura.errors import UserError
from sakura.runtime.engine import Executor, TorchExecutor
from sakura.settings import home

log = logging.getLogger(__name__)
AUTO = "auto"
REPORT_ROUNDS = 3


def shards_folder(editor: Editor, variant: str) -> Path:
    """Where the exported shards of a checkpoint are kept between runs."""
    return home() / "shards" / f"{editor.fingerprint[:16]}-{variant}"


def exported(editor: Editor, progress: Callable[[float], None]) -> Path:
    """The folder of a checkpoint's shards for the CPU, exported where there is none yet. Raises UserError."""
    from device_bridge.export import export_shards, read_manifest, typical_counts

    folder = shards_folder(editor, "cpu")
    try:
        read_manifest(folder, editor.fingerprint)
    except UserError:
        log.warning("Exporting the model's shards for ONNX Runtime; this takes some seconds, once.")
        export_shards(
            editor.model.transformer,
            folder,
            fingerprint=editor.fingerprint,
            blocks_per_shard=BLOCKS_PER_SHARD,
            counts=typical_counts(editor),
            progress=progress,
        )
    return folder


def _torch(editor: Editor, progress: Callable[[float], None]) -> Executor:
    return TorchExecutor()


def _onnxruntime_cpu(editor: Editor, progress: Callable[[float], None]) -> Executor:
    try:
        from device_bridge.engines.onnx import OnnxExecutor
    except ImportError as error:
        raise UserError(f"ONNX Runtime is not installed ({error.name}); use --engine torch-cpu.") from error
    return OnnxExecutor(exported(editor, progress), fingerprint=editor.fingerprint, threads=torch.get_num_threads())


ENGINES: dict[str, Callable[[Editor, Callable[[float], None]], Executor]] = {
    "torch-cpu": _torch,
    "onnxruntime-cpu": _onnxruntime_cpu,
}


def new_executor(name: str, editor: Editor, progress: Callable[[float], None] = lambda done: None) -> Executor:
    """The engine of that name, or for ``auto`` the fastest of those that run on any machine. Raises UserError."""
    if name != AUTO:
        if name not in ENGINES:
            raise UserError(f"There is no engine {name!r}; there are {AUTO}, {', '.join(ENGINES)}.")
        return ENGINES[name](editor, progress)
    return _fastest(editor, progress)


def report(editor: Editor, executor: Executor) -> EngineReport:
    """What people are told about an engine, with its speed measured here."""
    seconds = step_seconds(editor, {"it": executor}, BLOCKS_PER_SHARD, rounds=REPORT_ROUNDS)["it"]
    return EngineReport(
        name=executor.name,
        provider=getattr(executor, "provider", ""),
        placements=list(getattr(executor, "placements", [])),
        active_step_s=seconds.active_s,
        full_step_s=seconds.full_s,
    )


def _fastest(editor: Editor, progress: Callable[[float], None]) -> Executor:
    """ONNX Runtime where it is there and no slower than torch: both are measured."""
    plain = TorchExecutor()
    try:
        exported_shards = _onnxruntime_cpu(editor, progress)
    except UserError as error:
        log.warning("%s The device uses torch.", error)
        return plain
    seconds = step_seconds(editor, {"torch": plain, "onnx": exported_shards}, BLOCKS_PER_SHARD)
    return exported_shards if seconds["onnx"].active_s <= seconds["torch"].active_s else plain
