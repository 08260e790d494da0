"""Shards on the emulator of Qualcomm's NPU: real compiler, real arithmetic, no phone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import Flux2Transformer2DModel

pytest.importorskip("onnxruntime_qnn", reason="There is no wheel of onnxruntime-qnn for this system.")

from test_export import edit

from device_bridge.engines import exported, new_executor
from device_bridge.engines.qnn import QnnExecutor, bucket_of, compile_for
from device_bridge.engines.qnn_provider import DEFAULT_SOC_MODEL, configured, has_npu
from device_bridge.export import export_shards
from device_bridge.shards import Counts
from sakura.backbone.editor import Editor, capture
from sakura.errors import UserError
from sakura.metrics import psnr_db
from sakura.runtime.engine import TorchExecutor

TYPICAL = (128, 512)  # a bucket of nano


def emulator(editor: Editor) -> QnnExecutor:
    folder = exported(editor, lambda done: None, padded=True)
    return QnnExecutor(folder, fingerprint=editor.fingerprint, fallback=TorchExecutor(), emulator=True)


def kv_of(editor: Editor) -> np.ndarray:
    from device_bridge.engines.speed import typical_request, typical_template

    return capture(editor, typical_template(editor), [typical_request(editor)]).kv


def test_an_edit_on_the_emulator_is_that_of_the_cpu(tiny_editor: Editor, home: Path) -> None:
    executor = emulator(tiny_editor)
    assert [each.resolved for each in executor.placements] == ["qnn-htp-emulator"] * 2
    kv = kv_of(tiny_editor)
    ours, theirs = edit(tiny_editor, executor, kv), edit(tiny_editor, TorchExecutor(), kv)
    assert not any(each.reason for each in executor.placements)
    assert psnr_db(ours, theirs) > 40
    binaries = sorted(executor.folder.glob("soc-*/*.onnx"))
    assert len(binaries) >= 2
    binaries[0].write_bytes(b"cut off")
    written = binaries[1].stat().st_mtime_ns
    again = emulator(tiny_editor)
    assert not any(each.reason for each in again.placements)
    assert np.array_equal(edit(tiny_editor, again, kv), ours)
    assert binaries[1].stat().st_mtime_ns == written  # read, not compiled anew


def test_what_does_not_compile_runs_elsewhere_and_says_why(
    tiny_editor: Editor, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("graph finalisation failed\nsecond line")

    monkeypatch.setattr("device_bridge.engines.qnn.open_session", refuse)
    for binary in exported(tiny_editor, lambda done: None, padded=True).glob("soc-*/*.onnx"):
        binary.unlink()
    executor = emulator(tiny_editor)
    assert [each.resolved for each in executor.placements] == ["torch-cpu"] * 2
    assert executor.placements[0].reason.endswith("does not load: graph finalisation failed")
    assert executor.name == "QNN, HTP emulator (2 of 2 shards on torch-cpu)"


def test_failure_in_the_middle_of_an_edit_is_survived(
    tiny_editor: Editor, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = emulator(tiny_editor)
    monkeypatch.setattr(executor, "_run", lambda *_: 1 / 0)
    kv = kv_of(tiny_editor)
    assert np.array_equal(edit(tiny_editor, executor, kv), edit(tiny_editor, TorchExecutor(), kv))
    assert all("failed: division by zero" in each.reason for each in executor.placements)


def test_one_configuration_a_process() -> None:
    assert configured(DEFAULT_SOC_MODEL)["soc_model"] == str(DEFAULT_SOC_MODEL)
    with pytest.raises(UserError, match="SoC model 69 in this process already"):
        configured(57)


def test_the_npu_is_refused_where_there_is_none(tiny_editor: Editor, home: Path) -> None:
    if has_npu():
        pytest.skip("This machine has one.")
    with pytest.raises(UserError, match="has no NPU that Qualcomm's provider knows; use --engine onnxruntime-cpu"):
        new_executor("qnn-htp", tiny_editor)


def test_shards_for_the_cpu_are_refused(tiny_editor: Editor, home: Path) -> None:
    folder = exported(tiny_editor, lambda done: None)
    with pytest.raises(UserError, match="export them with --padded"):
        QnnExecutor(folder, fingerprint=tiny_editor.fingerprint, fallback=TorchExecutor(), emulator=True)


def test_buckets_cover_what_they_are_asked_for() -> None:
    assert bucket_of(Counts(6, 102, 474)) == Counts(6, *TYPICAL)
    assert bucket_of(Counts(6, 128, 512)) == Counts(6, *TYPICAL)
    assert bucket_of(Counts(6, 129, 0)) == Counts(6, 160, 64)


def test_binaries_for_another_soc(tiny_editor: Editor, home: Path) -> None:
    found = compile_for(exported(tiny_editor, lambda done: None, padded=True), 57)
    assert [path.parent.name.split("-")[1] for path in found] == ["57"] * 2
    with pytest.raises(UserError, match="do not compile for SoC model 57"):
        compile_for(home, 57)


@pytest.mark.heavy
def test_an_edit_of_nano_on_the_emulator(editor: Editor, home: Path) -> None:
    executor, kv = emulator(editor), kv_of(editor)
    assert psnr_db(edit(editor, executor, kv), edit(editor, TorchExecutor(), kv)) > 40
    assert not any(each.reason for each in executor.placements)


@pytest.mark.heavy
def test_full_width_blocks_of_klein_compile_and_match(tmp_path: Path) -> None:
    """One double-stream and one single-stream block as wide as FLUX.2 klein 4B's, with random weights."""
    torch.manual_seed(0)
    klein = Flux2Transformer2DModel(
        patch_size=1,
        in_channels=128,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=128,
        num_attention_heads=24,
        joint_attention_dim=7680,
        mlp_ratio=3.0,
        axes_dims_rope=(32, 32, 32, 32),
        guidance_embeds=False,
    )
    folder = tmp_path / "klein"
    export_shards(
        klein.eval().requires_grad_(False),
        folder,
        fingerprint="klein",
        blocks_per_shard=1,
        counts=Counts(text=32, picture=64, cached=64),
        precision="fp16",
        padded=True,
    )
    executor = QnnExecutor(folder, fingerprint="klein", fallback=TorchExecutor(), emulator=True)
    assert [(each.resolved, each.reason) for each in executor.placements] == [("qnn-htp-emulator", "")] * 2
