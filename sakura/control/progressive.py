"""Deadline-progressive: segments stream in order of usefulness until a shard is needed, then the sender moves on.

For codecs whose rungs continue one another. There is nothing to predict: a shard is executed with whatever has come by
then, so a wrong estimate of the network costs neither a stall nor bytes. The estimate only decides how much may be
under way, and whether there is time for refinements before the next shard that has nothing yet. Our own rule.
"""

import bisect
import dataclasses
import itertools
import math
from collections.abc import Sequence

from sakura.codec.interface import Ladder, Rung
from sakura.control.interface import Order, StreamState

# Under way at once: what a round trip carries, and so much more that the link does not run dry between two requests.
WINDOW_BYTES = 24 * 1024
WINDOW_S = 0.010
# Of the time that is left before the next shard that has nothing yet, refinements may take so much.
SPARE_SHARE = 0.5
ENOUGH = 0.015  # a shard that loses no more than this is not refined
NEXT_RUNGS = 3  # how many finer rungs of a ladder are compared
# Refinements are asked for in pieces of at least so much, and of what the link carries in so long: messages cost time.
ORDER_BYTES = 2 * 1024
ORDER_S = 0.001
# What a shard should not lose more than, if that takes no longer than so many shards take to execute: where nothing can
# hide a transfer, a little waiting spares the picture much.
WORTH_SENDING = 0.1
WORTH_SHARDS = 2
QUICK_SHARDS = 0.25  # what arrives in so much of a shard's time is waited for without a thought
HORIZON_STEPS = 4  # so far ahead it is seen to that what shards cannot do without will be there in time
AHEAD_SHARDS = 2  # a shard is decided at the latest so long before execution comes to it


def least_worth_sending(
    rungs: Sequence[Rung], predicted_mbps: float, shard_s: float, read_s_per_byte: float = 0.0
) -> Rung:
    """The coarsest rung that keeps most of what matters, or the coarsest of all if that one takes too long.

    A finer one where it costs next to no time. Reading overlaps the transfer, so the slower of the two counts.
    """

    def transfer_s(rung: Rung) -> float:
        return rung.size_bytes * max(8e-6 / predicted_mbps, read_s_per_byte)

    worth = next((rung for rung in rungs if rung.distortion <= WORTH_SENDING), rungs[-1])
    least = worth if transfer_s(worth) <= WORTH_SHARDS * shard_s else rungs[0]
    quick = [rung for rung in rungs if transfer_s(rung) <= QUICK_SHARDS * shard_s and rung.stop > least.stop]
    return quick[-1] if quick else least


@dataclasses.dataclass(frozen=True)
class _Refinement:
    shard: int  # the first that it serves
    rung: Rung
    segments: list[int]  # of what is missing of the rung, as far as may be asked for at once
    size_bytes: int
    gain: float  # distortion that it takes from all shards that it is in time for, a byte


class ProgressiveController:
    """Sends what shards cannot do without in time, and in between what improves the coming ones most for a byte."""

    def __init__(self, enough: float = ENOUGH) -> None:
        self.enough = enough
        self._sent: dict[int, int] = {}  # the finest rung asked for, of each ladder

    def next(self, state: StreamState) -> Order | None:
        due = state.decided < min(state.geometry.shards, state.begun + AHEAD_SHARDS)
        if due and state.cost_bytes(state.ladder(state.decided), self._least(state, state.decided)) == 0:
            return self._base(state, state.decided)
        window_bytes = WINDOW_BYTES + 125_000 * state.predicted_mbps * (state.rtt_s + WINDOW_S)
        if state.outstanding_bytes >= window_bytes:
            return None
        spare_s = self._spare_s(state)
        refinement = self._best_refinement(state, window_bytes)
        if refinement and (spare_s is None or state.transfer_s(refinement.size_bytes) <= SPARE_SHARE * spare_s):
            return self._refine(state, refinement)
        if state.decided < state.geometry.shards:
            return self._base(state, state.decided)
        return self._probe(state)

    def _probe(self, state: StreamState) -> Order | None:
        """Where the link is idle because all seems too late: a little, since an estimate that is too low stays so.

        It costs the shards nothing, and if it comes soon the estimate rises.
        """
        if state.outstanding_bytes or state.begun >= state.geometry.shards - 1:
            return None
        shard = state.begun + 1
        number, ladder = state.ladder_of[shard], state.ladder(shard)
        sent = self._sent.get(number)
        if sent is None or sent + 1 == len(ladder.rungs) or ladder.rungs[sent].distortion <= self.enough:
            return None
        rung = ladder.rungs[sent + 1]
        missing = state.to_request(ladder, rung)
        sizes = itertools.accumulate(state.segment_bytes[segment] for segment in missing)
        part = missing[: 1 + sum(size_bytes <= ORDER_BYTES for size_bytes in sizes)]
        return self._refine(state, _Refinement(shard, rung, part, state.bytes_of(part), 0.0)) if part else None

    def _base(self, state: StreamState, shard: int) -> Order:
        rung = self._least(state, shard)
        if state.cost_bytes(state.ladder(shard), rung) == 0:
            reason = "what earlier steps brought serves this one too"
        else:
            reason = "what it cannot do without"
        return self._order(state, shard, rung, reason)

    def _order(self, state: StreamState, shard: int, rung: Rung, reason: str) -> Order:
        ladder, number = state.ladder(shard), state.ladder_of[shard]
        self._sent[number] = max(self._sent.get(number, -1), ladder.rungs.index(rung))
        sent = ladder.rungs[self._sent[number]]
        return Order(
            shard, sent, min(self._least(state, shard), sent, key=_stop), state.cost_bytes(ladder, sent), reason
        )

    def _refine(self, state: StreamState, refinement: _Refinement) -> Order:
        """Ask for a refinement, as far as it goes at once."""
        shard, ladder = refinement.shard, state.ladder(refinement.shard)
        number, asked = state.ladder_of[shard], state.requested.union(refinement.segments)
        while self._sent[number] + 1 < len(ladder.rungs):
            finer = ladder.rungs[self._sent[number] + 1]
            if not asked.issuperset(ladder.order[ladder.rungs[self._sent[number]].stop : finer.stop]):
                break
            self._sent[number] += 1
        # It may decide its shard before more is worth waiting for: what nobody asked for would never come.
        least = min(self._least(state, shard), ladder.rungs[self._sent[number]], key=_stop)
        useful = "the link is free, and this is the most useful"
        reason = useful if refinement.gain else "to see if the network is faster"
        return Order(shard, refinement.rung, least, refinement.size_bytes, reason, refinement.segments)

    def _least(self, state: StreamState, shard: int) -> Rung:
        """What a shard waits for: little, unless the network is so fast that more costs next to nothing."""
        rungs = state.ladder(shard).rungs
        return least_worth_sending(rungs, state.predicted_mbps, state.shard_s, state.read_s_per_byte)

    def _spare_s(self, state: StreamState) -> float | None:
        """How long the link may do something else before a shard would be late; None if all are decided."""
        spare_s: float | None = None
        needed: dict[int, None] = {}
        seen: set[int] = set()
        last = min(state.geometry.shards, state.decided + HORIZON_STEPS * state.geometry.shards_per_step)
        for shard in range(state.decided, last):
            number = state.ladder_of[shard]
            if number in seen:  # later shards of a ladder need no more than its first one
                continue
            seen.add(number)
            needed.update(dict.fromkeys(state.to_request(state.ladder(shard), self._least(state, shard))))
            left_s = state.slack_s(shard) - state.transfer_s(state.bytes_of(needed))
            spare_s = left_s if spare_s is None else min(spare_s, left_s)
        return spare_s

    def _best_refinement(self, state: StreamState, window_bytes: float) -> _Refinement | None:
        """Of the next rungs of the ladders that are in use already, the one that gains most for a byte."""
        least_bytes = max(ORDER_BYTES, 125_000 * state.predicted_mbps * ORDER_S)
        # Half of what may be under way, or of what comes while a shard is executed where that takes much longer.
        largest_bytes = max(window_bytes, 125_000 * state.predicted_mbps * state.shard_s) / 2
        uses: dict[int, list[int]] = {}
        for shard in range(state.begun, state.geometry.shards):
            uses.setdefault(state.ladder_of[shard], []).append(shard)
        best: _Refinement | None = None
        for number, sent in self._sent.items():
            ladder = state.ladders[number]
            if number not in uses or ladder.rungs[sent].distortion <= self.enough:
                continue
            missing: list[int] = []
            compared = 0
            for finer in range(sent + 1, len(ladder.rungs)):
                added = ladder.order[ladder.rungs[finer - 1].stop : ladder.rungs[finer].stop]
                missing += [segment for segment in added if segment not in state.requested]
                size_bytes = state.bytes_of(missing)
                if size_bytes < least_bytes and finer + 1 < len(ladder.rungs):
                    continue
                candidate = self._refinement(state, uses[number], ladder, sent, finer, missing, largest_bytes)
                compared += 1
                if candidate is None or compared > NEXT_RUNGS:
                    break
                if best is None or candidate.gain > best.gain:
                    best = candidate
                if size_bytes > largest_bytes:
                    break
        return best

    def _refinement(
        self,
        state: StreamState,
        shards: list[int],
        ladder: Ladder,
        sent: int,
        finer: int,
        missing: list[int],
        largest_bytes: float,
    ) -> _Refinement | None:
        """What refining a ladder would bring to ``shards``; None where it would come too late for every one."""
        sizes = list(itertools.accumulate(state.segment_bytes[segment] for segment in missing))
        whole_bytes = sizes[-1] if sizes else 0
        count = max(1, bisect.bisect_right(sizes, largest_bytes))
        part_bytes = sizes[min(count, len(sizes)) - 1] if sizes else 0
        ready_s = state.link_free_s + state.transfer_s(part_bytes) + state.reconstruct_s
        late = math.ceil((ready_s - state.needed_s(state.begun)) / state.shard_s)
        first = bisect.bisect_left(shards, state.begun + late)
        if first == len(shards):
            return None
        better = ladder.rungs[sent].distortion - ladder.rungs[finer].distortion
        gain = (len(shards) - first) * better / max(1, whole_bytes)
        return _Refinement(shards[first], ladder.rungs[finer], missing[:count], part_bytes, gain)


def _stop(rung: Rung) -> int:
    """How far a rung reaches in its ladder."""
    return rung.stop
