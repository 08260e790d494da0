"""RobustMPC, adapted from chunks of a video to shards of a cache."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from sakura.codec.interface import Ladder
from sakura.control.interface import Order, StreamState
from sakura.control.shard_by_shard import LOOKAHEAD_SHARDS

HORIZON_SHARDS = 5
# The paper weighs a second of stall like the finest rung of one chunk, and its chunks last 4 s.
STALL_SHARDS = 0.25
CHANGE_WEIGHT = 1.0
LEAST_DISTORTION = 1e-3  # what loses less looks the same
SLACK_LEVELS = 49  # of the slack in planning, as the paper's table has levels of the buffer
WINDOW_S = 0.010

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Stage:
    """Rungs of one shard in a plan: how long each takes to send, and its quality; both (rungs,)."""

    transfer_s: Floats
    quality: Floats


def best_first(stages: list[Stage], *, slack_s: float, shard_s: float, previous_quality: float | None) -> int:
    """The rung of the first shard in the sequence of rungs that is worth most.

    A sequence is worth the sum of its qualities, less the changes between them, less its stalls. ``slack_s`` is how
    long the first transfer may take without a stall. Every further shard has what was left of it and the ``shard_s``
    that executing the one before takes; more than ``LOOKAHEAD_SHARDS`` times that cannot be saved up.
    """
    stall_price = max(float(stage.quality.max()) for stage in stages) / (STALL_SHARDS * shard_s)
    step_s = LOOKAHEAD_SHARDS * shard_s / (SLACK_LEVELS - 1)
    levels_s = np.linspace(0.0, LOOKAHEAD_SHARDS * shard_s, SLACK_LEVELS)
    after: Floats | None = None  # (rungs of this shard, slack levels): what the later shards are worth then
    for before, stage in zip(stages[-2::-1], stages[:0:-1], strict=True):
        worth = _worth(stage, levels_s, after, shard_s, step_s, stall_price)
        changes = np.abs(stage.quality[:, None] - before.quality)
        after = (worth[:, None, :] - CHANGE_WEIGHT * changes[:, :, None]).max(axis=0)
    worth = _worth(stages[0], np.array([slack_s]), after, shard_s, step_s, stall_price)[:, 0]
    if previous_quality is not None:
        worth = worth - CHANGE_WEIGHT * np.abs(stages[0].quality - previous_quality)
    return int(worth.argmax())


def _worth(
    stage: Stage, slack_s: Floats, after: Floats | None, shard_s: float, step_s: float, stall_price: float
) -> Floats:
    """What each rung is worth with all that follows, changes from the shard before left out: (rungs, slacks)."""
    left_s = slack_s - stage.transfer_s[:, None]
    saved_s = np.maximum(left_s, 0.0)
    worth = stage.quality[:, None] + stall_price * (left_s - saved_s)
    if after is None:
        return worth
    # Between the levels of the slack, interpolate.
    place = np.minimum((saved_s + shard_s) / step_s, SLACK_LEVELS - 1.001)
    level = place.astype(np.intp)
    rung = np.arange(len(stage.quality))[:, None]
    low = after[rung, level]
    return worth + low + (place - level) * (after[rung, level + 1] - low)


class RobustMpcController:
    """Before each shard, plans the next five and asks for the first of the plan.

    Quality is -log10 of a rung's distortion, the stall's price is the paper's, and the rate is that of ``state``, which
    :class:`~sakura.control.estimators.RobustEstimator` is made for. The wait for the first shard is a stall like any
    other. As in the paper a decision is made late: when little more than the shard before is still to come. What steps
    share is paid for by the first of them, so a plan ends before a ladder comes up again. Source: Yin et al., SIGCOMM
    2015.
    """

    def __init__(self) -> None:
        self._quality: float | None = None  # of the shard decided last
        self._last_bytes = 0  # asked for with it
        self._tables: dict[int, tuple[NDArray[np.int64], NDArray[np.int64], Floats]] = {}

    def next(self, state: StreamState) -> Order | None:
        shard = state.decided
        if shard >= min(state.geometry.shards, state.begun + LOOKAHEAD_SHARDS):
            return None
        window_bytes = 125_000 * state.predicted_mbps * (state.rtt_s + WINDOW_S)
        if state.outstanding_bytes > self._last_bytes + window_bytes:
            return None
        numbers: list[int] = []
        for number in state.ladder_of[shard : min(shard + HORIZON_SHARDS, state.geometry.shards)]:
            if number in numbers:
                break
            numbers.append(number)
            if number not in self._tables:
                self._tables[number] = _table(state.ladders[number])
        costs = [self._cost_bytes(state, number) for number in numbers]
        # Rungs of which all has been asked for cost nothing: the coarser ones of them are no choice.
        firsts = [int(np.flatnonzero(cost == 0).max(initial=0)) for cost in costs]
        slack_s = state.slack_s(shard)
        chosen = firsts[0] + best_first(
            [
                Stage(cost[first:] * 8e-6 / state.predicted_mbps, self._tables[number][2][first:])
                for number, cost, first in zip(numbers, costs, firsts, strict=True)
            ],
            slack_s=slack_s,
            shard_s=state.shard_s,
            previous_quality=self._quality,
        )
        self._quality = float(self._tables[numbers[0]][2][chosen])
        self._last_bytes = int(costs[0][chosen])
        rung = state.ladders[numbers[0]].rungs[chosen]
        budget_bytes = int(max(0.0, slack_s) * state.predicted_mbps * 125_000)
        return Order(shard, rung, rung, budget_bytes, f"begins the best plan for {len(numbers)} shards")

    def _cost_bytes(self, state: StreamState, number: int) -> Floats:
        """What each rung of a ladder would still cost, (rungs,)."""
        ladder = state.ladders[number]
        starts, stops, _ = self._tables[number]
        missing = [0 if segment in state.requested else state.segment_bytes[segment] for segment in ladder.order]
        before = np.concatenate([[0.0], np.cumsum(missing)])
        return before[stops] - before[starts]


def _table(ladder: Ladder) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Starts, stops and qualities of the rungs of a ladder, each (rungs,)."""
    distortions = np.array([rung.distortion for rung in ladder.rungs])
    starts, stops = np.array([(rung.start, rung.stop) for rung in ladder.rungs]).T
    return starts, stops, -np.log10(np.maximum(distortions, LEAST_DISTORTION))
