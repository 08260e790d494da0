"""Exported shards on Qualcomm's NPU (HTP), or on its emulator for x86, through ONNX Runtime's QNN provider.

Token counts must be fixed: a session serves a bucket of them, and what is missing is padded and hidden by the key bias.
Where each part of the graph was placed is read back, and a session of which a part would run elsewhere is refused.

The emulator computes as the NPU does, some hundred times slower than the CPU: it shows that shards compile, are placed
and are right. On a Snapdragon device this has not been run by us.
"""

import importlib.metadata
import logging
import subprocess
import sys
from pathlib import Path

import onnxruntime

from device_bridge.engines.onnx import OnnxExecutor
from device_bridge.engines.qnn_provider import (
    DEFAULT_SOC_MODEL,
    EP_NAME,
    configured,
    qnn_devices,
    soc_model,
    strict_options,
    strict_session,
)
from device_bridge.engines.rebuild import GraphProduct
from device_bridge.shards import Counts, ShardFile, read_any_manifest, read_manifest, stored_counts
from sakura.errors import UserError
from sakura.runtime.engine import Executor

log = logging.getLogger(__name__)

PICTURE_BUCKET, CACHED_BUCKET = 32, 64
COMPILE_S = 3600.0
NPU_TOLERANCE = 2e-2  # fp16 arithmetic: 0.001 to 0.002 measured on the emulator


class QnnExecutor(OnnxExecutor):
    """Shards on the NPU or its emulator, a session a bucket of token counts."""

    provider = EP_NAME

    def __init__(
        self, folder: Path, *, fingerprint: str, fallback: Executor, emulator: bool, soc: int | None = None
    ) -> None:
        """Raises UserError where there is no NPU to use, or the folder's shards are of no use."""
        devices = qnn_devices()
        npus = [each for each in devices if each.device.type == onnxruntime.OrtHardwareDeviceType.NPU]
        if not emulator and not npus:
            raise UserError(
                "This machine has no NPU that Qualcomm's provider knows; use --engine onnxruntime-cpu, or "
                "qnn-htp-emulator to try it slowly."
            )
        self._devices = (devices if emulator else npus)[:1]
        self.requested = "qnn-htp-emulator" if emulator else "qnn-htp"
        self.label = "QNN, HTP emulator" if emulator else "QNN, HTP"
        # The emulator stands for a common one; a real one that is not known is better not guessed.
        self.soc = soc or soc_model() or (DEFAULT_SOC_MODEL if emulator else None)
        if not read_manifest(folder, fingerprint).padded:
            raise UserError(f"The shards in {folder} are for the CPU; export them with --padded for an NPU.")
        self._options = configured(self.soc)
        super().__init__(folder, fingerprint=fingerprint, fallback=fallback)
        self.product = GraphProduct(self._devices, self._options)

    @property
    def tolerance(self) -> float:
        return NPU_TOLERANCE

    def bucket(self, counts: Counts) -> Counts:
        return bucket_of(counts)

    def open(self, shard: ShardFile, bucket: Counts) -> onnxruntime.InferenceSession:
        """Compile a shard for a bucket, or read the binary of an earlier time; the plain graph stays what counts."""
        context = context_path(self.folder, self.soc, shard, bucket)
        if context.exists():
            try:
                return open_session(context, shard, bucket, self._devices, self._options)
            except Exception as error:  # of another driver, or cut off: compiling makes it anew
                log.warning("%s is of no use (%s); compiling anew.", context, error)
                context.unlink()
        context.parent.mkdir(exist_ok=True)
        return open_session(self.folder / shard.file, shard, bucket, self._devices, self._options, context)


def context_path(folder: Path, soc: int | None, shard: ShardFile, bucket: Counts) -> Path:
    """Where the binary of a shard is kept. It is good for one SoC and one version of QAIRT, which nothing checks."""
    release = importlib.metadata.version("onnxruntime-qnn")
    name = f"{Path(shard.file).stem}-P{bucket.picture}-R{bucket.cached}.onnx"
    return folder / f"soc-{soc or 'unknown'}-qnn-{release}" / name


def compile_for(folder: Path, soc: int) -> list[Path]:
    """Context binaries of a folder's shards for a SoC, at the counts that they were checked with.

    In a process of its own, since the provider takes one configuration a process. Raises UserError.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, str(folder), str(soc)], capture_output=True, text=True, timeout=COMPILE_S
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(f"The shards did not compile for SoC model {soc} within {COMPILE_S:.0f} s.") from error
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"The shards do not compile for SoC model {soc}: {reason[:300]}")
    return sorted(folder.glob(f"soc-{soc}-*/*.onnx"))


def open_session(
    path: Path,
    shard: ShardFile,
    bucket: Counts,
    devices: list[onnxruntime.OrtEpDevice],
    options: dict[str, str],
    context: Path | None = None,
) -> onnxruntime.InferenceSession:
    """A session for a bucket, all of it on the NPU; ``context`` is where to write the compiled binary, if anywhere.

    Raises UserError where a part would run elsewhere, and what ONNX Runtime raises on a graph that does not compile.
    """
    session_options = strict_options()
    if context:
        for key, value in (("enable", "1"), ("file_path", str(context)), ("embed_mode", "1")):
            session_options.add_session_config_entry(f"ep.context_{key}", value)
    for name in {side for each in shard.inputs for side in each.shape if isinstance(side, str)}:
        session_options.add_free_dimension_override_by_name(name, bucket.of(name))
    return strict_session(path, session_options, devices, options)


def bucket_of(counts: Counts) -> Counts:
    """The next larger counts that sessions are made for; text is never padded."""
    return Counts(counts.text, _up(counts.picture, PICTURE_BUCKET), _up(max(1, counts.cached), CACHED_BUCKET))


def _up(count: int, step: int) -> int:
    return -(-count // step) * step


def _compile(folder: Path, soc: int) -> None:
    devices, options = qnn_devices()[:1], configured(soc)
    for shard in read_any_manifest(folder).shards:
        bucket = bucket_of(stored_counts(shard, folder))
        context = context_path(folder, soc, shard, bucket)
        context.parent.mkdir(exist_ok=True)
        context.unlink(missing_ok=True)
        open_session(folder / shard.file, shard, bucket, devices, options, context)


if __name__ == "__main__":
    _compile(Path(sys.argv[1]), int(sys.argv[2]))
