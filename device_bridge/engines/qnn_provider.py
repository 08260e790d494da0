"""Qualcomm's provider of ONNX Runtime: registering it, its devices, and options for the whole process.

It is a plugin: asking for it by name in ``providers=`` silently gives the CPU. So it is registered, its devices are
handed to sessions, and falling back to the CPU is forbidden. Its options hold for the whole process, so a process has
one configuration.
"""

import threading
from pathlib import Path

import onnxruntime

from sakura.errors import UserError

EP_NAME = "QNNExecutionProvider"
# SoC models as QAIRT numbers them. Without one, blocks do not compile or run in fp32.
SOC_MODELS = {"SM8650": 57, "SC8380XP": 60, "SM8750": 69, "SM8850": 87}
DEFAULT_SOC_MODEL = 69
SOC_FILE = Path("/sys/devices/soc0/machine")

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
    try:
        told = SOC_FILE.read_text().strip().upper()
    except OSError:
        return None
    return next((number for name, number in SOC_MODELS.items() if name in told), None)


def configured(soc: int | None) -> dict[str, str]:
    """The provider's options, the same for the whole process. Raises UserError on other ones than before."""
    import onnxruntime_qnn

    options = {
        "backend_path": onnxruntime_qnn.get_qnn_htp_path(),
        "enable_htp_fp16_precision": "1",
        **({"soc_model": str(soc)} if soc else {}),
    }
    with _lock:
        if _configured and _configured != options:
            before = _configured.get("soc_model", "unknown")
            raise UserError(f"QNN runs for SoC model {before} in this process already; use one a process.")
        _configured.update(options)
    return options


def strict_options() -> onnxruntime.SessionOptions:
    """Options under which ONNX Runtime gives nothing to the CPU, and tells where it put what."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what fails is raised, and told by us
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return options


def strict_session(
    graph: Path | bytes,
    session_options: onnxruntime.SessionOptions,
    devices: list[onnxruntime.OrtEpDevice],
    options: dict[str, str],
) -> onnxruntime.InferenceSession:
    """A session all of which runs on ``devices``, for ``session_options`` of :func:`strict_options`.

    Raises UserError where a part would run elsewhere, and what ONNX Runtime raises on a graph that does not compile.
    """
    session_options.add_provider_for_devices(devices, options)
    # Without enable_fallback=0 the Python wrapper makes a failing session anew on the CPU, also in the middle of a run.
    session = onnxruntime.InferenceSession(graph, session_options, enable_fallback=0)
    elsewhere = {each.ep_name for each in session.get_provider_graph_assignment_info()} - {EP_NAME}
    if elsewhere:
        what = graph.name if isinstance(graph, Path) else "the graph"
        raise UserError(f"A part of {what} would run on {', '.join(sorted(elsewhere))}.")
    return session
