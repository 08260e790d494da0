"""Exported shards: they do what torch does, with a cache and without, and say what is wrong when they cannot."""

import functools
import shutil
from pathlib import Path

import msgspec
import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from device_bridge.engines import ENGINES, exported, new_executor
from device_bridge.engines.onnx import OnnxExecutor
from device_bridge.engines.speed import step_seconds, typical_request, typical_template
from device_bridge.export import export_shards
from device_bridge.shards import Counts, Precision, read_manifest, self_test
from sakura.backbone.editor import Editor, capture, edit_on_device
from sakura.cache.store import BLOCKS_PER_SHARD
from sakura.errors import UserError
from sakura.runtime.engine import Executor, TorchExecutor

COUNTS = Counts(text=6, picture=20, cached=40)


@pytest.fixture(scope="session")
def shards(tiny_editor: Editor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's shards, in fp32 and with open token counts."""
    folder = tmp_path_factory.mktemp("shards") / "tiny"
    export_shards(
        tiny_editor.model.transformer,
        folder,
        fingerprint=tiny_editor.fingerprint,
        blocks_per_shard=BLOCKS_PER_SHARD,
        counts=COUNTS,
    )
    return folder


def edit(editor: Editor, executor: Executor, kv: np.ndarray | None) -> np.ndarray:
    """An edit of the typical template, with ``kv`` (steps, blocks, 2, rows, columns) or without a cache."""
    state = editor.start(typical_template(editor), typical_request(editor))
    for step in range(editor.steps):
        if kv is None:
            state.begin_full(step)
        else:
            state.begin_active(step)
        for first in range(0, editor.blocks, BLOCKS_PER_SHARD):
            blocks = range(first, first + BLOCKS_PER_SHARD)
            cached = None if kv is None else kv[step, first : blocks.stop].reshape(-1, *kv.shape[-2:])
            executor.run(state, blocks, cached)
        state.end_step()
    return state.picture()


def test_edits_are_those_of_torch(tiny_editor: Editor, shards: Path) -> None:
    executor = OnnxExecutor(shards, fingerprint=tiny_editor.fingerprint, fallback=TorchExecutor())
    assert [each.resolved for each in executor.placements] == ["onnxruntime-cpu"] * len(executor.placements)
    assert executor.name == "ONNX Runtime, CPU"
    template, request = typical_template(tiny_editor), typical_request(tiny_editor)
    kv = capture(tiny_editor, template, [request]).kv
    for cache in (kv, None):
        ours, theirs = edit(tiny_editor, executor, cache), edit(tiny_editor, TorchExecutor(), cache)
        assert np.abs(ours.astype(int) - theirs).max() <= 1
    assert np.abs(theirs.astype(int) - edit_on_device(tiny_editor, template, request)).max() <= 1


def test_a_step_begun_in_full_goes_on_with_the_cache(tiny_editor: Editor, shards: Path) -> None:
    kv = capture(tiny_editor, typical_template(tiny_editor), [typical_request(tiny_editor)]).kv[0]
    after = []
    for executor in (
        TorchExecutor(),
        OnnxExecutor(shards, fingerprint=tiny_editor.fingerprint, fallback=TorchExecutor()),
    ):
        state = tiny_editor.start(typical_template(tiny_editor), typical_request(tiny_editor))
        state.begin_full(0)
        executor.run(state, range(BLOCKS_PER_SHARD), None)
        state.keep_active()
        second = range(BLOCKS_PER_SHARD, 2 * BLOCKS_PER_SHARD)
        executor.run(state, second, kv[second.start : second.stop].reshape(-1, *kv.shape[-2:]))
        after.append(state.step[0].picture)
    torch.testing.assert_close(after[0], after[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_padded_shards_ignore_what_the_bias_hides(tmp_path: Path, tiny_editor: Editor, precision: Precision) -> None:
    folder = tmp_path / "padded"
    manifest = export_shards(
        tiny_editor.model.transformer,
        folder,
        fingerprint="of-a-test",
        blocks_per_shard=tiny_editor.blocks,  # so that one shard has blocks of both kinds
        counts=COUNTS,
        precision=precision,
        padded=True,
    )
    for shard in manifest.shards:
        session = onnxruntime.InferenceSession(folder / shard.file, providers=["CPUExecutionProvider"])
        assert self_test(functools.partial(session.run, shard.outputs), shard, folder) < (
            1e-4 if precision == "fp32" else 2e-2
        )
        stored = load_file(folder / shard.check)
        fed = {each.name: stored[f"in.{each.name}"] for each in shard.inputs}
        plain = session.run(None, fed)
        rows = 8
        fed["cached"] = np.concatenate([fed["cached"], 9 * np.ones_like(fed["cached"][:, :rows])], 1)
        fed["key_bias"] = np.concatenate([fed["key_bias"], np.full(rows, -1e4, fed["key_bias"].dtype)])
        for ours, theirs in zip(session.run(None, fed), plain, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-4 if precision == "fp32" else 2e-2)


def copied(shards: Path, folder: Path) -> Path:
    shutil.copytree(shards, folder)
    return folder


def test_a_shard_that_does_not_load_runs_on_torch(tiny_editor: Editor, shards: Path, tmp_path: Path) -> None:
    folder = copied(shards, tmp_path / "copy")
    (folder / read_manifest(shards, tiny_editor.fingerprint).shards[0].file).write_bytes(b"not a graph")
    executor = OnnxExecutor(folder, fingerprint=tiny_editor.fingerprint, fallback=TorchExecutor())
    assert [each.resolved for each in executor.placements] == ["torch-cpu", "onnxruntime-cpu"]
    assert "does not load" in executor.placements[0].reason
    assert executor.name == "ONNX Runtime, CPU (1 of 2 shards on torch-cpu)"
    theirs = edit(tiny_editor, TorchExecutor(), None)
    assert np.abs(edit(tiny_editor, executor, None).astype(int) - theirs).max() <= 1


def test_a_shard_that_computes_something_else_runs_on_torch(tiny_editor: Editor, shards: Path, tmp_path: Path) -> None:
    folder = copied(shards, tmp_path / "copy")
    check = folder / read_manifest(shards, tiny_editor.fingerprint).shards[1].check
    stored = load_file(check)
    stored["out.tokens_out"] *= 1.01
    save_file(stored, check)
    executor = OnnxExecutor(folder, fingerprint=tiny_editor.fingerprint, fallback=TorchExecutor())
    assert [each.resolved for each in executor.placements] == ["onnxruntime-cpu", "torch-cpu"]
    assert "self-test" in executor.placements[1].reason


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        (None, "holds no exported shards"),
        (b"{", "is damaged"),
        (b'{"version": 1}', "is damaged"),
        (b'{"version": 99}', "is of version 99"),
    ],
)
def test_folders_that_are_no_use_are_refused(tmp_path: Path, manifest: bytes | None, sentence: str) -> None:
    if manifest is not None:
        (tmp_path / "manifest.json").write_bytes(manifest)
    with pytest.raises(UserError, match=sentence):
        read_manifest(tmp_path, "any")


def test_shards_of_another_version_or_model_are_refused(shards: Path, tiny_editor: Editor, tmp_path: Path) -> None:
    manifest = read_manifest(shards, tiny_editor.fingerprint)
    with pytest.raises(UserError, match="not of this checkpoint"):
        read_manifest(shards, "another")
    newer = msgspec.structs.replace(manifest, version=99)
    (tmp_path / "manifest.json").write_bytes(msgspec.json.encode(newer))
    with pytest.raises(UserError, match="version 99"):
        read_manifest(tmp_path, manifest.model)


@given(st.binary(max_size=200))
def test_no_manifest_is_too_odd(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("odd")
    (folder / "manifest.json").write_bytes(data)
    with pytest.raises(UserError):
        read_manifest(folder, "any")


def test_engines_by_name(tiny_editor: Editor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAKURA_HOME", str(tmp_path))
    assert set(ENGINES) >= {"torch-cpu", "onnxruntime-cpu"}
    with pytest.raises(UserError, match=r"no engine 'tpu'; there are auto, .*torch-cpu"):
        new_executor("tpu", tiny_editor)
    told: list[float] = []
    executor = new_executor("onnxruntime-cpu", tiny_editor, told.append)
    assert isinstance(executor, OnnxExecutor)
    assert told[-1] == 1.0
    told.clear()
    assert exported(tiny_editor, told.append).is_relative_to(tmp_path)
    assert told == []  # the second time they are there
    assert new_executor("auto", tiny_editor).name in {"torch, CPU", "ONNX Runtime, CPU"}


def test_where_shards_cannot_be_written_torch_runs(
    tiny_editor: Editor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.write_text("in the way")
    monkeypatch.setenv("SAKURA_HOME", str(home))
    with pytest.raises(UserError, match=r"Shards cannot be written to .*; make room, or use --engine torch-cpu"):
        new_executor("onnxruntime-cpu", tiny_editor)
    assert new_executor("auto", tiny_editor).name == "torch, CPU"


def test_kept_shards_that_are_damaged_are_written_anew(
    tiny_editor: Editor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: Path
) -> None:
    monkeypatch.setenv("SAKURA_HOME", str(tmp_path))
    kept = tmp_path / "shards" / f"{tiny_editor.fingerprint[:16]}-cpu"
    shutil.copytree(shards, kept)
    file = kept / read_manifest(kept, tiny_editor.fingerprint).shards[0].file
    file.write_bytes(file.read_bytes()[:1000])
    assert new_executor("onnxruntime-cpu", tiny_editor).name == "ONNX Runtime, CPU"
    assert file.stat().st_size > 1000


def test_speed_is_measured_for_all_in_turns(tiny_editor: Editor) -> None:
    ran: list[tuple[str, bool]] = []

    class Watched:
        product = None
        resolved = TorchExecutor.resolved

        def __init__(self, name: str) -> None:
            self.name = name

        def run(self, state: object, blocks: range, kv: np.ndarray | None) -> None:
            ran.append((self.name, kv is None))

    seconds = step_seconds(tiny_editor, {"a": Watched("a"), "b": Watched("b")}, BLOCKS_PER_SHARD, rounds=2)
    assert set(seconds) == {"a", "b"}
    per_step = tiny_editor.blocks // BLOCKS_PER_SHARD
    one_round = [(name, full) for name in "ab" for full in (False, True) for _ in range(per_step)]
    assert ran == 3 * one_round
