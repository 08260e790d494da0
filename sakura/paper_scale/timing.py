"""From a device profile and a model case to seconds: executing, decoding and rebuilding a shard."""

from collections.abc import Collection

from sakura.events import System
from sakura.paper_scale.devices import DeviceProfile
from sakura.paper_scale.models import ModelCase
from sakura.paper_scale.nano import NanoSystem
from sakura.paper_scale.offers import Offer
from sakura.runtime.modelled import Durations

FP16_BYTES = 2


def active_shard_s(case: ModelCase, profile: DeviceProfile) -> float:
    """Executing a shard with the cache, at rest."""
    return _execution_s(case.active_step_flop, case, profile)


def full_shard_s(case: ModelCase, profile: DeviceProfile) -> float:
    """Executing a shard without the cache, at rest."""
    return _execution_s(case.full_step_flop, case, profile)


def _execution_s(step_flop: float, case: ModelCase, profile: DeviceProfile) -> float:
    arithmetic_s = step_flop / case.shards_per_step / (1e12 * profile.npu_tflops.value)
    return arithmetic_s + 1e-3 * profile.dispatch_ms.value


def durations(case: ModelCase, profile: DeviceProfile) -> Durations:
    """Of an edit that streams nothing."""
    return Durations(
        active_shard_s(case, profile),
        full_shard_s(case, profile),
        read_s=lambda segments: 0.0,
        rebuild_s=lambda shard, known: 0.0,
        speed_share=profile.speed_share,
        concurrent=profile.concurrent,
    )


def streaming_durations(
    case: ModelCase, profile: DeviceProfile, system: System, nano: NanoSystem, offer: Offer
) -> Durations:
    """Of an edit that streams a system's cache."""
    decoding = [_decode_s(profile, nano, offer, segment) for segment in range(len(offer.segment_bytes))]

    def read_s(segments: Collection[int]) -> float:
        return sum(decoding[segment] for segment in segments)

    def rebuild_s(shard: int, known: Collection[int]) -> float:
        rank = rank_known(offer, shard, known) if system == "sakura" else 0.0
        return 1e-9 * offer.shard_bytes / rebuild_gb_per_s(profile, system, rank)

    return Durations(
        active_shard_s(case, profile),
        full_shard_s(case, profile),
        read_s,
        rebuild_s,
        speed_share=profile.speed_share,
        concurrent=profile.concurrent,
    )


def _decode_s(profile: DeviceProfile, nano: NanoSystem, offer: Offer, segment: int) -> float:
    """Entropy decoding of a segment: of all numbers of a shard in CacheGen, of the planes' symbols in SAKURA."""
    symbols = nano.symbols_a_byte * offer.segment_bytes[segment]
    if nano.codec == "cachegen" and offer.own[segment]:
        symbols = offer.shard_bytes / FP16_BYTES
    return 1e-9 * FP16_BYTES * symbols / profile.entropy_decode_gb_per_s.value


def rank_known(offer: Offer, shard: int, known: Collection[int]) -> float:
    """The rank of the finest rung of a shard that is there, at the model's size."""
    ladder = offer.ladders[offer.ladder_of[shard]]
    for rung in reversed(ladder.rungs):
        if all(segment in known for segment in ladder.segments(rung)):
            return rung.representation.rank * offer.rank_factor
    return ladder.rungs[0].representation.rank * offer.rank_factor


def rebuild_gb_per_s(profile: DeviceProfile, system: System, rank: float) -> float:
    """How fast fp16 keys and values are rebuilt once decoded; ``rank`` operations a byte where they are products."""
    if system == "sakura":
        products_gb_per_s = 1e3 * profile.gpu_tflops.value / rank if rank else profile.gpu_write_gb_per_s.value
        return min(profile.gpu_write_gb_per_s.value, products_gb_per_s)
    return profile.gpu_write_gb_per_s.value if system == "full_cache" else profile.dequantise_gb_per_s.value
