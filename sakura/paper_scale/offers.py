"""What a cloud would offer at paper scale: nano's ladders with the sizes of a released model's cache.

Rungs keep their share of the uncompressed bytes and their distortion. Every four steps of a model are offered what
nano's four are. Where a step has more shards than nano's, several take the place of one: they divide what is its own
and share what it shares.
"""

import collections
import dataclasses
import functools

import msgspec

from sakura.codec.interface import CacheGeometry, Ladder
from sakura.errors import UserError
from sakura.events import System
from sakura.paper_scale.models import ModelCase
from sakura.paper_scale.nano import NanoSystem, NanoTemplate, nano_measured


@dataclasses.dataclass(frozen=True)
class Offer:
    """A cache as a cloud describes it. ``own[segment]`` if only one shard, or the same one of each step, needs it.

    ``rank_factor``: how many times a rung's rank the model's matrices have at the same share of the bytes.
    """

    geometry: CacheGeometry
    segment_bytes: list[int]
    own: list[bool]
    ladders: list[Ladder]
    ladder_of: list[int]
    rank_factor: float

    @property
    def shard_bytes(self) -> float:
        """Uncompressed fp16 bytes of a shard."""
        return self.geometry.full_cache_bytes / self.geometry.shards


@functools.lru_cache(64)
def shipped_offer(template_id: str, system: System, case: ModelCase) -> Offer:
    """:func:`scaled_offer` of one of the templates that were measured."""
    template = next(template for template in nano_measured().templates if template.template_id == template_id)
    return scaled_offer(template, system, case)


def scaled_offer(template: NanoTemplate, system: System, case: ModelCase) -> Offer:
    """A template's cache in a system's codec at the size of a case. Raises UserError where shards do not divide."""
    nano, small, large = template.systems[system], template.geometry, case.geometry
    groups, odd_steps = divmod(large.steps, small.steps)
    parts, odd_shards = divmod(large.shards_per_step, small.shards_per_step)
    if odd_steps or odd_shards:
        raise UserError(
            f"{case.title} needs steps and shards in multiples of {small.steps} and {small.shards_per_step}, "
            f"not {large.steps} and {large.shards_per_step}."
        )
    scale = large.full_cache_bytes / groups / small.full_cache_bytes
    shared = _shared(nano)
    segment_bytes: list[int] = []
    own: list[bool] = []
    ladders: list[Ladder] = []
    ladder_of: list[int] = []
    for _ in range(groups):
        numbers: dict[tuple[int, int], int] = {}
        for segment, size in enumerate(nano.segment_bytes):
            for part in range(1 if segment in shared else parts):
                numbers[segment, part] = len(segment_bytes)
                own.append(segment not in shared)
                segment_bytes.append(max(1, round(size * scale / (1 if segment in shared else parts))))
        first = len(ladders)
        for ladder in nano.ladders:
            for part in range(parts):
                order = [numbers[segment, 0 if segment in shared else part] for segment in ladder.order]
                ladders.append(_resized(ladder, order, segment_bytes))
        for number in nano.ladder_of:
            ladder_of += [first + number * parts + part for part in range(parts)]
    return Offer(large, segment_bytes, own, ladders, ladder_of, _half_sum(large) / _half_sum(small))


def _shared(nano: NanoSystem) -> set[int]:
    """Segments that more than one ladder needs."""
    users = collections.Counter(segment for ladder in nano.ladders for segment in set(ladder.order))
    return {segment for segment, count in users.items() if count > 1}


def _resized(ladder: Ladder, order: list[int], segment_bytes: list[int]) -> Ladder:
    rungs = [
        msgspec.structs.replace(
            rung, size_bytes=sum(segment_bytes[segment] for segment in order[rung.start : rung.stop])
        )
        for rung in ladder.rungs
    ]
    return Ladder(order, rungs)


def _half_sum(geometry: CacheGeometry) -> float:
    """Rank at which two factors would hold as many numbers as a step's matrices side by side."""
    rows, columns = geometry.rows, 2 * geometry.blocks * geometry.columns
    return rows * columns / (rows + columns)
