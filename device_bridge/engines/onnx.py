"""Exported shards on ONNX Runtime's CPU provider.

One session a shard serves both the active tokens with a cache and all tokens without: token counts are open.
"""

from pathlib import Path

import numpy as np
import onnxruntime
import torch

from device_bridge.export import MAX_ERROR, ShardFile, read_manifest, self_test
from device_bridge.protocol import Placement
from sakura.backbone.editor import EditState
from sakura.runtime.engine import ShardKv, TorchExecutor


def cpu_session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    """A session on the CPU. Raises what ONNX Runtime raises on a file that is no such graph."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # other stages need the cores
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


class OnnxExecutor:
    """Shards on ONNX Runtime, CPU; a shard that does not load or fails its self-test runs on torch instead."""

    requested = "onnxruntime-cpu"

    def __init__(self, folder: Path, *, fingerprint: str, threads: int = 1) -> None:
        """Load the shards of a folder. Raises UserError where they are not there or of another model."""
        self.manifest = read_manifest(folder, fingerprint)
        self.placements: list[Placement] = []
        self._torch = TorchExecutor()
        self._sessions: dict[int, tuple[ShardFile, onnxruntime.InferenceSession]] = {}
        for shard in self.manifest.shards:
            reason = self._load(folder, shard, threads)
            resolved = "torch-cpu" if reason else self.requested
            self.placements.append(Placement(shard.first, shard.last, self.requested, resolved, reason))

    @property
    def name(self) -> str:
        elsewhere = sum(each.resolved != self.requested for each in self.placements)
        return "ONNX Runtime, CPU" + (f" ({elsewhere} of {len(self.placements)} shards on torch)" if elsewhere else "")

    def _load(self, folder: Path, shard: ShardFile, threads: int) -> str:
        """Make a shard's session; returns why that is not to be used, if so."""
        try:
            session = cpu_session(folder / shard.file, threads)
            wrong = self_test(session, shard, folder)
        except Exception as error:  # ONNX Runtime raises many kinds; whichever it is, torch can do it
            return f"{shard.file} does not load: {str(error).splitlines()[0][:200]}"
        if not wrong <= MAX_ERROR[self.manifest.precision]:
            return f"{shard.file} fails its self-test: wrong by {100 * wrong:.2g} % of what it adds"
        self._sessions[shard.first] = shard, session
        return ""

    def run(self, state: EditState, blocks: range, kv: ShardKv | None) -> None:
        found = self._sessions.get(blocks.start)
        if found is None or found[0].last != blocks.stop:
            self._torch.run(state, blocks, kv)
            return
        shard, session = found
        run_shard(session, shard, state, kv)


def run_shard(session: onnxruntime.InferenceSession, shard: ShardFile, state: EditState, kv: ShardKv | None) -> None:
    """Run a shard on the activations of the step begun; ``kv`` is float32 (matrices, rows, columns)."""
    activations, (cosine, sine) = state.step
    modulation = state.editor.runner.modulations[activations.step]
    if activations.text is not None and not shard.double_blocks:
        activations.picture, activations.text = torch.cat([activations.text, activations.picture], 1), None
    tensors = {
        "picture": activations.picture,
        "text": activations.text,
        "tokens": activations.picture,
        "modulation_picture": modulation.double_picture,
        "modulation_text": modulation.double_text,
        "modulation_single": modulation.single,
        "cosine": cosine,
        "sine": sine,
    }
    given: dict[str, np.ndarray] = {}
    for each in shard.inputs:
        tensor = tensors.get(each.name)
        if tensor is not None:
            given[each.name] = tensor.numpy()
    if kv is None:
        matrices, _, columns = next(each.shape for each in shard.inputs if each.name == "cached")
        kv = np.empty((int(matrices), 0, int(columns)), np.float32)
    given["cached"] = kv
    results = [torch.from_numpy(result) for result in session.run(shard.outputs, given)]
    activations.picture = results[0]
    activations.text = results[1] if len(results) > 1 else None
