"""What this machine can run edits on: found, tested and measured."""

import platform
from collections.abc import Callable
from pathlib import Path

import msgspec
import onnxruntime

from device_bridge.engines import ENGINES
from device_bridge.engines.qnn_provider import has_npu, qnn_devices, soc_model
from device_bridge.protocol import DeviceStatus, EngineReport
from device_bridge.role import load
from device_bridge.telemetry import read_status
from sakura.errors import UserError


class Findings(msgspec.Struct, frozen=True):
    """``providers`` are ONNX Runtime's, with the kind of processor behind each; ``notes`` say what is unverified."""

    machine: str
    providers: list[str]
    npu: bool
    soc_model: int | None
    engines: list[str]
    used: EngineReport
    status: DeviceStatus
    notes: list[str]

    def json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def examine(
    engine: str, model: Path | None, threads: int, soc: int | None, progress: Callable[[str], None]
) -> Findings:
    """Look at this machine, load the engine, test each shard, and measure a step. Raises UserError."""
    progress("Looking for providers")
    notes = ["The QNN GPU backend needs an Adreno GPU and is not used: it could not be tried."]
    providers = [f"{each.ep_name} ({each.device.type.name})" for each in onnxruntime.get_ep_devices()]
    try:
        providers += [f"{each.ep_name} ({each.device.type.name})" for each in qnn_devices()]
    except (UserError, OSError, RuntimeError) as error:
        notes.append(f"Qualcomm's provider is not available: {error}")
    npu = has_npu()
    if npu:
        notes.append("Before this machine, the NPU engine was tried on the HTP emulator only.")
    progress("Loading the model, testing its shards, measuring")
    _, _, used = load(engine, model, threads, soc)
    return Findings(
        machine=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        providers=list(dict.fromkeys(providers)),
        npu=npu,
        soc_model=soc_model(),
        engines=list(ENGINES),
        used=used,
        status=read_status(),
        notes=notes,
    )


def told(found: Findings) -> str:
    """The findings for a terminal."""
    used, status = found.used, found.status
    lines = [
        f"Machine    {found.machine}",
        f"Providers  {', '.join(found.providers) or 'none'}",
        f"NPU        {'yes' if found.npu else 'none that Qualcomm’s provider knows'}"
        + (f", SoC model {found.soc_model}" if found.soc_model else ""),
        f"Engines    {', '.join(found.engines)}" + ("" if found.npu else " (qnn-htp not here)"),
        f"Used       {used.name}",
    ]
    for each in used.placements:
        outcome = "passed its self-test" if not each.reason else f"runs on {each.resolved}: {each.reason}"
        lines.append(f"           blocks {each.first} to {each.last - 1}: {outcome}")
    lines.append(
        f"Speed      a step takes {1000 * used.active_step_s:.1f} ms with the cache, "
        f"{1000 * used.full_step_s:.1f} ms without"
    )
    if status.temperature_c is not None:
        lines.append(f"Heat       {status.temperature_c:.0f} °C")
    if status.battery_percent is not None:
        lines.append(f"Battery    {status.battery_percent:.0f} %{', charging' if status.charging else ''}")
    lines += [f"Note       {note}" for note in found.notes]
    return "\n".join(lines)
