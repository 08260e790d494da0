"""Engines by name, and which one a device uses where nobody says.

To add one, write a file and name it in :data:`ENGINES`.
"""

import functools
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch

from device_bridge.engines.speed import step_seconds
from device_bridge.protocol import EngineReport
from device_bridge.shards import read_manifest
from sakura.backbone.editor import Editor
from sakura.cache.store import BLOCKS_PER_SHARD
from sakura.errors import UserError
from sakura.runtime.engine import Executor, TorchExecutor
from sakura.settings import home

log = logging.getLogger(__name__)
AUTO = "auto"
Progress = Callable[[float], None]
REPORT_ROUNDS = 3


def exported(editor: Editor, progress: Progress, *, padded: bool = False) -> Path:
    """The folder of a checkpoint's shards for the CPU or, padded, for an NPU; exported where there is none yet.

    Raises UserError.
    """
    folder = home() / "shards" / f"{editor.fingerprint[:16]}-{'npu' if padded else 'cpu'}"
    if not _is_there(folder, editor):
        from device_bridge.export import export_shards, typical_counts  # slow to load, and rarely needed

        log.warning("Exporting the model's shards as ONNX files; this takes some seconds, once.")
        try:
            export_shards(
                editor.model.transformer,
                folder,
                fingerprint=editor.fingerprint,
                blocks_per_shard=BLOCKS_PER_SHARD,
                counts=typical_counts(editor),
                precision="fp16" if padded else "fp32",
                padded=padded,
                progress=progress,
            )
        except OSError as error:
            if not _is_there(folder, editor):  # unless another device of this machine was quicker
                raise UserError(
                    f"Shards cannot be written to {folder} ({error}); make room, or use --engine torch-cpu."
                ) from error
    return folder


def _is_there(folder: Path, editor: Editor) -> bool:
    try:
        read_manifest(folder, editor.fingerprint)
    except UserError:
        return False
    return True


def _torch(editor: Editor, progress: Progress, soc: int | None) -> Executor:
    return TorchExecutor()


def _onnxruntime_cpu(editor: Editor, progress: Progress, soc: int | None = None) -> Executor:
    try:
        from device_bridge.engines.onnx import OnnxExecutor
    except ImportError as error:
        raise UserError(f"{error.name} is not installed; install it, or use --engine torch-cpu.") from error

    def load() -> OnnxExecutor:
        return OnnxExecutor(
            exported(editor, progress),
            fingerprint=editor.fingerprint,
            fallback=TorchExecutor(),
            threads=torch.get_num_threads(),
        )

    executor = load()
    if any(each.reason for each in executor.placements):  # damaged since they were written: they were tested then
        log.warning("%s; exporting the shards anew.", next(each.reason for each in executor.placements if each.reason))
        shutil.rmtree(executor.folder, ignore_errors=True)
        executor = load()
    return executor


def _qnn(editor: Editor, progress: Progress, soc: int | None, *, emulator: bool) -> Executor:
    try:
        from device_bridge.engines.qnn import QnnExecutor
    except ImportError as error:
        raise UserError(f"{error.name} is not installed; install it, or use --engine torch-cpu.") from error
    return QnnExecutor(
        exported(editor, progress, padded=True),
        fingerprint=editor.fingerprint,
        fallback=_onnxruntime_cpu(editor, progress),
        emulator=emulator,
        soc=soc,
    )


ENGINES: dict[str, Callable[[Editor, Progress, int | None], Executor]] = {
    "torch-cpu": _torch,
    "onnxruntime-cpu": _onnxruntime_cpu,
    "qnn-htp": functools.partial(_qnn, emulator=False),
    "qnn-htp-emulator": functools.partial(_qnn, emulator=True),
}


def new_executor(name: str, editor: Editor, progress: Progress = lambda done: None, soc: int | None = None) -> Executor:
    """The engine of that name; ``auto`` is the NPU where there is one, else the faster engine of the CPU.

    ``soc`` is QAIRT's number of this machine's SoC, where it cannot be found out. Raises UserError.
    """
    if name != AUTO:
        if name not in ENGINES:
            raise UserError(f"There is no engine {name!r}; there are {AUTO}, {', '.join(ENGINES)}.")
        return ENGINES[name](editor, progress, soc)
    return _best(editor, progress, soc)


def report(editor: Editor, executor: Executor) -> EngineReport:
    """What people are told about an engine, with its speed measured here."""
    seconds = step_seconds(editor, {"it": executor}, BLOCKS_PER_SHARD, rounds=REPORT_ROUNDS)["it"]
    measured = EngineReport("", active_step_s=seconds.active_s, full_step_s=seconds.full_s)
    return renewed(measured, executor)


def renewed(told: EngineReport, executor: Executor) -> EngineReport:
    """A report with where shards run by now, which changes when one fails in the middle of an edit."""
    provider, placements = getattr(executor, "provider", ""), getattr(executor, "placements", [])
    return msgspec.structs.replace(told, name=executor.name, provider=provider, placements=list(placements))


def _best(editor: Editor, progress: Progress, soc: int | None) -> Executor:
    try:
        from device_bridge.engines.qnn_provider import has_npu

        if has_npu():
            return _qnn(editor, progress, soc, emulator=False)
    except (ImportError, UserError) as error:
        log.warning("The NPU cannot be used: %s", error)
    plain = TorchExecutor()
    try:
        shards = _onnxruntime_cpu(editor, progress)
    except UserError as error:
        log.warning("%s The device uses torch.", error)
        return plain
    seconds = step_seconds(editor, {"torch": plain, "onnx": shards}, BLOCKS_PER_SHARD)
    return shards if seconds["onnx"].active_s <= seconds["torch"].active_s else plain
