"""`python -m sakura bench engines`: how long each engine of this machine takes for a step of a typical edit."""

from collections.abc import Callable, Sequence

from device_bridge.engines import new_executor
from device_bridge.engines.speed import step_seconds
from sakura.backbone.editor import Editor
from sakura.cache.store import BLOCKS_PER_SHARD
from sakura.runtime.engine import Executor

REFERENCE = "torch-cpu"
CPU_ENGINES = (REFERENCE, "onnxruntime-cpu")
ROUNDS = 41


def bench_engines(
    editor: Editor, names: Sequence[str], rounds: int = ROUNDS, progress: Callable[[str], None] = lambda what: None
) -> list[dict[str, object]]:
    """A row an engine: medians of a step in seconds, and their ratio to torch's. All take turns. Raises UserError."""
    executors: dict[str, Executor] = {}
    for name in dict.fromkeys((REFERENCE, *names)):
        progress(f"loading {name}")
        executors[name] = new_executor(name, editor)
    progress("measuring")
    seconds = step_seconds(editor, executors, BLOCKS_PER_SHARD, rounds)
    plain = seconds[REFERENCE]
    return [
        {
            "engine": name,
            "active_step_s": each.active_s,
            "full_step_s": each.full_s,
            "active_ratio_to_torch": each.active_s / plain.active_s,
            "full_ratio_to_torch": each.full_s / plain.full_s,
            "placements": [f"{p.first}-{p.last - 1}: {p.resolved}" for p in getattr(executors[name], "placements", [])],
        }
        for name, each in seconds.items()
    ]
