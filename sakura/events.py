"""What happens during an edit, recorded once as typed events; every view, table, export and test reads these.

Times ``*_s`` are seconds since the run began on the clock of the device. Received bytes are those of whole messages,
headers and checksums included. Events travel as msgpack or JSON maps with a ``kind`` field, so any language can
read them.
"""

from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

import msgspec

# "resident_cache" has the whole cache on the device already: the limit that streaming can reach, not a choice.
System: TypeAlias = Literal["sakura", "intq", "cachegen", "full_cache", "on_device", "resident_cache"]
Lane: TypeAlias = Literal["receive", "reconstruct", "execute"]

SYSTEMS: tuple[System, ...] = ("sakura", "full_cache", "on_device")
RACE_SYSTEMS: tuple[System, ...] = ("sakura", "intq", "cachegen", "full_cache", "on_device")


class Event(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True):
    """Something that happened ``at_s`` seconds into the run."""

    at_s: float


class RunStarted(Event, frozen=True, kw_only=True, tag="run_started"):
    """The device accepted a request and knows its plan.

    ``planned_step_s`` is the predicted duration of one denoising step; views fix their time axis from it.
    """

    run_id: str
    template_id: str
    system: System
    device: str
    steps: int
    shards_per_step: int
    full_cache_bytes: int
    planned_start_s: float
    planned_step_s: float
    rate_budget_bytes: int | None


class BandwidthMeasured(Event, frozen=True, kw_only=True, tag="bandwidth_measured"):
    """The estimator took a sample from a transfer that ended at ``at_s``, and predicts the rate of the next one."""

    shard: int
    measured_mbps: float
    predicted_mbps: float


class RepresentationChosen(Event, frozen=True, kw_only=True, tag="representation_chosen"):
    """The controller decided how finely shard ``shard`` is sent, or refined it for that and later steps, and why.

    ``wanted_bytes`` are those that this asks for. ``slack_s`` is from the link being free for it until execution needs
    it, reconstruction taken off.
    """

    shard: int
    rank: int
    left_bits: int
    right_bits: int
    wanted_bytes: int
    budget_bytes: int
    predicted_mbps: float
    slack_s: float
    reason: str


class ShardUsed(Event, frozen=True, kw_only=True, tag="shard_used"):
    """Shard ``shard`` is rebuilt from what has come: in this representation, losing the share ``distortion``.

    ``slack_s`` is how long before its need that will be done; negative if execution has to wait. ``cut`` if less had
    come by then than was chosen.
    """

    shard: int
    rank: int
    left_bits: int
    right_bits: int
    distortion: float
    slack_s: float
    cut: bool


class LaneFinished(Event, frozen=True, kw_only=True, tag="lane_finished"):
    """A stage finished a shard that it began at ``started_s``.

    On execute, ``on_device`` means that no cache was used for it. A shard may be received in several parts; ``cut``
    means that the rest of a part was not waited for.
    """

    lane: Lane
    shard: int
    started_s: float
    received_bytes: int = 0
    on_device: bool = False
    cut: bool = False


class NetworkWait(Event, frozen=True, kw_only=True, tag="network_wait"):
    """Execution stood still from ``started_s`` to ``at_s`` because shard ``shard`` was not there yet."""

    shard: int
    started_s: float


class StepFinished(Event, frozen=True, kw_only=True, tag="step_finished"):
    """A denoising step (0-based) ended; ``preview_png`` is the clean picture predicted so far."""

    step: int
    preview_png: bytes


class FellBack(Event, frozen=True, kw_only=True, tag="fell_back"):
    """From shard ``shard`` on the device computes without the cache, until a later one is there in time.

    ``reason`` is a sentence for people. ``planned`` if the device only made use of the time that the first bytes take.
    """

    shard: int
    reason: str
    planned: bool = False


class NetworkChanged(Event, frozen=True, kw_only=True, tag="network_changed"):
    """From now on the run goes over another emulated network, called ``title``. Told by the studio, on its clock."""

    title: str


class RunFinished(Event, frozen=True, kw_only=True, tag="run_finished"):
    """The edit is complete. ``latency_s`` counts from the request's arrival at the device to the final picture.

    ``press_to_picture_s`` counts from the press of Edit to the picture's arrival at the studio, which fills it in.
    """

    picture_png: bytes
    latency_s: float
    received_bytes: int
    network_wait_s: float
    press_to_picture_s: float | None = None


class RunFailed(Event, frozen=True, kw_only=True, tag="run_failed"):
    """The run ended without a picture; ``reason`` is one sentence that says what to do."""

    reason: str


class QualityScores(msgspec.Struct, frozen=True):
    """PSNR in dB (capped at 100), SSIM and LPIPS, over the edited region and over the whole picture."""

    mask_psnr_db: float
    mask_ssim: float
    mask_lpips: float
    psnr_db: float
    ssim: float
    lpips: float


class QualityMeasured(Event, frozen=True, kw_only=True, tag="quality_measured"):
    """Scores of the finished picture against the full-cache output and, where it is known, against the truth."""

    against_full_cache: QualityScores | None
    against_truth: QualityScores | None


AnyEvent: TypeAlias = (
    RunStarted
    | BandwidthMeasured
    | RepresentationChosen
    | ShardUsed
    | LaneFinished
    | NetworkWait
    | StepFinished
    | FellBack
    | NetworkChanged
    | RunFinished
    | RunFailed
    | QualityMeasured
)
EventSink: TypeAlias = Callable[[AnyEvent], None]

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(list[AnyEvent])


def events_to_json(events: Iterable[AnyEvent]) -> bytes:
    """A JSON array of events; pictures are base64 strings."""
    return msgspec.json.format(_ENCODER.encode(list(events)), indent=1)


def events_from_json(text: bytes) -> list[AnyEvent]:
    """Read what :func:`events_to_json` wrote. Raises msgspec.ValidationError on anything else."""
    return _DECODER.decode(text)


def is_last(event: AnyEvent) -> bool:
    """Whether the run is over with this event (scores may follow a finished run)."""
    return isinstance(event, RunFinished | RunFailed)
