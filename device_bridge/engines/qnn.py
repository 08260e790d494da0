"""Exported shards on Qualcomm's NPU (HTP), or on its emulator for x86, through ONNX Runtime's QNN provider.

The provider is a plugin: asking for it by name in ``providers=`` silently gives the CPU. So it is registered, its
devices are handed to the session, falling back to the CPU is forbidden, and the graph's assignment is read back. Its
options hold for the whole process, so a process has one configuration. Token counts must be fixed: a session serves a
bucket of them, and what is missing is padded and hidden by the key bias.

The emulator computes as the NPU does, some hundred times slower than the CPU: it shows that shards compile, are placed
and are right. On a Snapdragon device this has not been run by us.
"""

import importlib.metadata
import logging
import subprocess
import sys
import threading
from pathlib import Path

import onnxruntime

from device_bridge.engines.onnx import OnnxExecutor
from device_bridge.export import Counts, ShardFile, read_any_manifest, stored_counts
from sakura.errors import UserError
from sakura.runtime.engine import Executor

log = logging.getLogger(__name__)

EP_NAME = "QNNExecutionProvider"
# SoC models as QAIRT numbers them. Without one, blocks do not compile or run in fp32.
SOC_MODELS = {"SM8650": 57, "SC8380XP": 60, "SM8750": 69, "SM8850": 87}
DEFAULT_SOC_MODEL = 69
SOC_FILES = (Path("/sys/devices/soc0/machine"), Path("/sys/devices/soc0/soc_id"))
PICTURE_BUCKET, CACHED_BUCKET = 32, 64
COMPILE_S = 3600.0
NPU_TOLERANCE = 2e-2  # fp16 arithmetic: 0.001 to 0.002 measured on the emulator

_lock = threading.Lock()
_configured: dict[str, str] = {}


def qnn_devices() -> list[onnxruntime.OrtEpDevice]:
    """The provider's devices on this machine. Raises UserError where the package is missing."""
    try:
        import onnxruntime_qnn
    except ImportError as error:
        raise UserError("onnxruntime-qnn is not installed; install it, or use --engine onnxruntime-cpu.") from error
    with _lock:
        if not any(each.ep_name == EP_NAME for each in onnxruntime.get_ep_devices()):
            onnxruntime.register_execution_provider_library(EP_NAME, onnxruntime_qnn.get_library_path())
    return [each for each in onnxruntime.get_ep_devices() if each.ep_name == EP_NAME]


def has_npu() -> bool:
    """Whether this machine has an NPU that the provider can use."""
    try:
        return any(each.device.type == onnxruntime.OrtHardwareDeviceType.NPU for each in qnn_devices())
    except (UserError, OSError, RuntimeError):
        return False


def soc_model() -> int | None:
    """What this machine's SoC is to QAIRT, where Linux tells; unverified on hardware."""
    for path in SOC_FILES:
        try:
            told = path.read_text().strip().upper()
        except OSError:
            continue
        for name, number in SOC_MODELS.items():
            if name in told:
                return number
    return None


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
        self.soc = soc or soc_model() or DEFAULT_SOC_MODEL
        self._options = configured(self.soc)
        super().__init__(folder, fingerprint=fingerprint, fallback=fallback)
        if not self.manifest.padded:
            raise UserError(f"The shards in {folder} are for the CPU; export them with --padded for an NPU.")

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


def context_path(folder: Path, soc: int, shard: ShardFile, bucket: Counts) -> Path:
    """Where the binary of a shard is kept. It is good for one SoC and one version of QAIRT, which nothing checks."""
    release = importlib.metadata.version("onnxruntime-qnn")
    name = f"{Path(shard.file).stem}-P{bucket.picture}-R{bucket.cached}.onnx"
    return folder / f"soc-{soc}-qnn-{release}" / name


def compile_for(folder: Path, soc: int) -> list[Path]:
    """Context binaries of a folder's shards for a SoC, at the counts that they were checked with.

    In a process of its own, since the provider takes one configuration a process. Raises UserError.
    """
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(folder), str(soc)], capture_output=True, text=True, timeout=COMPILE_S
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"The shards do not compile for SoC model {soc}: {reason[:300]}")
    return sorted(folder.glob(f"soc-{soc}-*/*.onnx"))


def configured(soc: int) -> dict[str, str]:
    """The provider's options, the same for the whole process. Raises UserError on other ones than before."""
    import onnxruntime_qnn

    options = {
        "backend_path": onnxruntime_qnn.get_qnn_htp_path(),
        "soc_model": str(soc),
        "enable_htp_fp16_precision": "1",
    }
    with _lock:
        if _configured and _configured != options:
            raise UserError(
                f"QNN runs for SoC model {_configured['soc_model']} in this process already; use one a process."
            )
        _configured.update(options)
    return options


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
    session_options = onnxruntime.SessionOptions()
    session_options.log_severity_level = 4  # what fails is raised, and told by us
    for key, value in (
        ("session.disable_cpu_ep_fallback", "1"),
        ("session.record_ep_graph_assignment_info", "1"),
        *(
            (("ep.context_enable", "1"), ("ep.context_file_path", str(context)), ("ep.context_embed_mode", "1"))
            if context
            else ()
        ),
    ):
        session_options.add_session_config_entry(key, value)
    for name in {side for each in shard.inputs for side in each.shape if isinstance(side, str)}:
        session_options.add_free_dimension_override_by_name(name, bucket.of(name))
    session_options.add_provider_for_devices(devices, options)
    session = onnxruntime.InferenceSession(path, session_options)
    elsewhere = {each.ep_name for each in session.get_provider_graph_assignment_info()} - {EP_NAME}
    if elsewhere:
        raise UserError(f"A part of {path.name} would run on {', '.join(sorted(elsewhere))}.")
    return session


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
