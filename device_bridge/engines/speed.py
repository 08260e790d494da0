"""How fast engines run a step of a model, measured in turns so that what else the machine does meets all alike."""

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sakura.backbone.editor import Editor
from sakura.backbone.inputs import Request, Template
from sakura.runtime.engine import Executor

ROUNDS = 7
MASKED_SHARE = 0.15


@dataclass(frozen=True)
class StepSeconds:
    """Medians of a step on the active tokens with a cache, and on all tokens without one."""

    active_s: float
    full_s: float


def typical_template(editor: Editor) -> Template:
    """A grey template with a square mask of the usual size and a reference."""
    side = editor.config.picture_px
    mask = np.zeros((side, side), bool)
    edge = round(side * MASKED_SHARE**0.5)
    mask[:edge, :edge] = True
    return Template(np.full((side, side, 3), 128, np.uint8), mask, has_reference=True)


def typical_request(editor: Editor) -> Request:
    side = editor.config.reference_px
    return Request((), np.full((side, side, 3), 90, np.uint8), 0)


def step_seconds(
    editor: Editor, executors: Mapping[str, Executor], blocks_per_shard: int, rounds: int = ROUNDS
) -> dict[str, StepSeconds]:
    """Time of one step on each executor, from random K/V; the first round only warms up."""
    template, request = typical_template(editor), typical_request(editor)
    state = editor.start(template, request)
    rows, columns = len(state.layout.reusable), editor.runner.heads * editor.runner.head_dim
    kv = np.random.default_rng(0).standard_normal((2 * blocks_per_shard, rows, columns), np.float32)
    times: dict[tuple[str, bool], list[float]] = {}
    for _ in range(rounds + 1):
        for name, executor in executors.items():
            for full in (False, True):
                if full:
                    state.begin_full(0)
                else:
                    state.begin_active(0)
                began_s = time.perf_counter()
                for first in range(0, editor.blocks, blocks_per_shard):
                    executor.run(state, range(first, first + blocks_per_shard), None if full else kv)
                times.setdefault((name, full), []).append(time.perf_counter() - began_s)
    return {
        name: StepSeconds(statistics.median(times[name, False][1:]), statistics.median(times[name, True][1:]))
        for name in executors
    }
