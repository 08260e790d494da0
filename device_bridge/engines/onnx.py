"""Exported shards in ONNX Runtime sessions; on the CPU, one session a shard takes any number of tokens.

A shard that does not load, fails its self-test, or fails in the middle of an edit runs on another engine from then on,
and says why: providers that fall back by themselves do it silently and for single operations.
"""

import logging
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from device_bridge.protocol import Placement
from device_bridge.shards import HIDDEN, MAX_ERROR, Counts, ShardFile, counts_of, read_manifest, self_test
from sakura.backbone.editor import EditState
from sakura.backbone.flux2 import BlockState
from sakura.runtime.engine import Executor, Product, ShardKv

log = logging.getLogger(__name__)

MAX_BUCKETS = 6  # that a shard keeps a session for


class OnnxExecutor:
    """Shards on ONNX Runtime's CPU provider. ``fallback`` runs what it cannot."""

    requested = "onnxruntime-cpu"
    label = "ONNX Runtime, CPU"
    provider = "CPUExecutionProvider"
    product: Product | None = None

    def __init__(self, folder: Path, *, fingerprint: str, fallback: Executor, threads: int = 1) -> None:
        """Load and test the shards of a folder. Raises UserError where they are not there or of another model."""
        self.folder, self.manifest = folder, read_manifest(folder, fingerprint)
        self.threads, self._fallback = threads, fallback
        self._shards = {shard.first: shard for shard in self.manifest.shards}
        self._sessions: dict[tuple[int, Counts], onnxruntime.InferenceSession] = {}
        self._numbers = np.float16 if self.manifest.precision == "fp16" else np.float32
        self._placements = {
            shard.first: Placement(shard.first, shard.last, self.requested, self.requested)
            for shard in self.manifest.shards
        }
        for shard in self.manifest.shards:
            self._test(shard)

    @property
    def placements(self) -> list[Placement]:
        return list(self._placements.values())

    @property
    def name(self) -> str:
        elsewhere = [each for each in self.placements if each.resolved != self.requested]
        if not elsewhere:
            return self.label
        return f"{self.label} ({len(elsewhere)} of {len(self.placements)} shards on {elsewhere[0].resolved})"

    def run(self, state: EditState, blocks: range, kv: ShardKv | None) -> None:
        shard = self._shards.get(blocks.start)
        if shard is None or shard.last != blocks.stop or self._placements[shard.first].reason:
            self._fallback.run(state, blocks, kv)
            return
        try:
            results = self._run(shard, _inputs(shard, state, kv))
        except Exception as error:  # ONNX Runtime raises many kinds; whichever it is, another engine can do it
            log.exception("A shard failed on %s", self.label)
            self._move(shard, f"{shard.file} failed: {_first_line(error)}")
            self._fallback.run(state, blocks, kv)
            return
        activations, _ = state.step
        activations.picture = torch.from_numpy(results[0])
        activations.text = torch.from_numpy(results[1]) if len(results) > 1 else None

    def _test(self, shard: ShardFile) -> None:
        try:
            wrong = self_test(lambda given: self._run(shard, given), shard, self.folder)
        except Exception as error:
            self._move(shard, f"{shard.file} does not load: {_first_line(error)}")
            return
        if not wrong <= self.tolerance:
            self._move(shard, f"{shard.file} fails its self-test: wrong by {100 * wrong:.2g} % of what it adds")

    @property
    def tolerance(self) -> float:
        """Relative error of what a shard adds that is taken for right."""
        return MAX_ERROR[self.manifest.precision]

    def _move(self, shard: ShardFile, reason: str) -> None:
        resolved = self._fallback.resolved(shard.first)
        self._placements[shard.first] = Placement(shard.first, shard.last, self.requested, resolved, reason[:400])

    def resolved(self, first: int) -> str:
        placement = self._placements.get(first)
        return placement.resolved if placement else self._fallback.resolved(first)

    def _run(self, shard: ShardFile, given: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Outputs of a shard, float32 and without padding, for inputs of any counts."""
        counts = counts_of(given)
        bucket = self.bucket(counts)
        session = self._sessions.get((shard.first, bucket))
        if session is None:
            session = self._sessions[shard.first, bucket] = self.open(shard, bucket)
            while len(self._sessions) > MAX_BUCKETS * len(self._shards):
                del self._sessions[next(iter(self._sessions))]
        if self.manifest.padded:
            given = padded(given, counts, bucket)
        results = session.run(
            shard.outputs, {key: value.astype(self._numbers, copy=False) for key, value in given.items()}
        )
        return [_trimmed(value, name, counts) for name, value in zip(shard.outputs, results, strict=True)]

    def bucket(self, counts: Counts) -> Counts:
        """The counts that a session is made for: one for all, here."""
        return ANY

    def open(self, shard: ShardFile, bucket: Counts) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # other stages need the cores
        return onnxruntime.InferenceSession(self.folder / shard.file, options, providers=[self.provider])


ANY = Counts(0, 0, 0)


def padded(given: dict[str, np.ndarray], counts: Counts, bucket: Counts) -> dict[str, np.ndarray]:
    """Inputs with zeros up to a bucket, and a bias that hides these as keys. Text is never padded."""
    found = dict(given)
    rows = bucket.picture - counts.picture
    for name in ("picture", "tokens"):
        if name in found:
            found[name] = np.pad(found[name], ((0, 0), (0, rows), (0, 0)))
    for name in ("cosine", "sine"):
        found[name] = np.pad(found[name], ((0, rows), (0, 0)))
    found["cached"] = np.pad(found["cached"], ((0, 0), (0, bucket.cached - counts.cached), (0, 0)))
    hidden = np.full(bucket.text + bucket.picture + bucket.cached, HIDDEN, np.float32)
    hidden[: counts.text + counts.picture] = 0
    first = bucket.text + bucket.picture
    hidden[first : first + counts.cached] = 0
    found["key_bias"] = hidden
    return found


def _trimmed(value: np.ndarray, name: str, counts: Counts) -> np.ndarray:
    rows = {"picture_out": counts.picture, "text_out": counts.text, "tokens_out": counts.text + counts.picture}[name]
    return np.ascontiguousarray(value[:, :rows], np.float32)


def _inputs(shard: ShardFile, state: EditState, kv: ShardKv | None) -> dict[str, np.ndarray]:
    """A shard's inputs from the activations of the step begun; without ``kv``, an empty cache."""
    activations, (cosine, sine) = state.step
    modulation = state.editor.runner.modulations[activations.step]
    if not shard.double_blocks:
        _join(activations)
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
        elif each.name == "cached":
            matrices, _, columns = each.shape
            given["cached"] = np.empty((int(matrices), 0, int(columns)), np.float32) if kv is None else kv
        elif each.name == "key_bias":
            given["key_bias"] = np.zeros(0, np.float32)  # made when the padding is
    return given


def _join(activations: BlockState) -> None:
    """Single-stream blocks take text and picture as one sequence."""
    if activations.text is not None:
        activations.picture, activations.text = torch.cat([activations.text, activations.picture], 1), None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
