"""What nano-flux2 says of rate and quality: caches as they are encoded, and what losing a share of them costs.

``nano.json`` holds it for some of the shipped templates; ``python -m sakura.paper_scale.measure`` writes it anew.
"""

import functools
import itertools
import math
from pathlib import Path

import msgspec
import numpy as np

from sakura.codec.interface import CacheGeometry, Ladder
from sakura.errors import UserError
from sakura.events import System
from sakura.metrics import MAX_PSNR_DB

NANO_FILE = Path(__file__).with_name("nano.json")
COMMAND = "python -m sakura.paper_scale.measure"


class CurvePoint(msgspec.Struct, frozen=True, array_like=True):
    """What an edit scored against the full cache's when its shards lost ``distortion`` on average."""

    distortion: float
    psnr_mask_db: float
    ssim_mask: float


class NanoSystem(msgspec.Struct, frozen=True):
    """A template's cache in one system's codec, without its bytes.

    ``curve`` ascends in distortion; a system that loses nothing has none. ``symbols_a_byte``: entropy-coded symbols in
    a stored byte, on average.
    """

    codec: str
    segment_bytes: list[int]
    ladders: list[Ladder]
    ladder_of: list[int]
    curve: list[CurvePoint]
    symbols_a_byte: float = 0.0

    def quality(self, distortion: float) -> CurvePoint:
        """What an edit scores that loses ``distortion``, a mean over its shards.

        Between measured points, dB and SSIM follow the logarithm of the distortion. Below the finest one, the error
        falls with the distortion, 10 dB a decade.
        """
        if distortion <= 0 or not self.curve:
            return CurvePoint(0.0, MAX_PSNR_DB, 1.0)
        first = self.curve[0]
        if distortion < first.distortion:
            share = distortion / first.distortion
            psnr_db = min(MAX_PSNR_DB, first.psnr_mask_db - 10 * math.log10(share))
            return CurvePoint(distortion, psnr_db, 1 - share * (1 - first.ssim_mask))
        at = np.log([point.distortion for point in self.curve])
        psnr_db = np.interp(math.log(distortion), at, [point.psnr_mask_db for point in self.curve])
        ssim = np.interp(math.log(distortion), at, [point.ssim_mask for point in self.curve])
        return CurvePoint(distortion, float(psnr_db), float(ssim))


class NanoTemplate(msgspec.Struct, frozen=True):
    """A template of a workload in all systems that stream."""

    workload: str
    template_id: str
    geometry: CacheGeometry
    systems: dict[System, NanoSystem]


class NanoMeasured(msgspec.Struct, frozen=True):
    """``model`` is the fingerprint of the checkpoint; each template was edited for ``requests`` held-out requests."""

    model: str
    requests: int
    templates: list[NanoTemplate]

    def template(self, workload: str, request: int) -> NanoTemplate:
        """The template of a workload's request: they take turns."""
        known = [template for template in self.templates if template.workload == workload]
        if not known:
            raise UserError(f"Nothing is measured for workload {workload!r}; run `{COMMAND}`.")
        return known[request % len(known)]


def smoothed(points: list[CurvePoint]) -> list[CurvePoint]:
    """Points in ascending distortion, each once, of which none is better than one that loses less."""
    ordered = sorted(points, key=lambda point: point.distortion)
    psnrs_db = np.minimum.accumulate([point.psnr_mask_db for point in ordered])
    ssims = np.minimum.accumulate([point.ssim_mask for point in ordered])
    kept = [
        CurvePoint(point.distortion, float(psnr_db), float(ssim))
        for point, psnr_db, ssim in zip(ordered, psnrs_db, ssims, strict=True)
    ]
    apart = [one for one, other in itertools.pairwise(kept) if one.distortion < other.distortion]
    return [*apart, *kept[-1:]]


@functools.cache
def nano_measured() -> NanoMeasured:
    """What was measured. Raises UserError where the file is missing or damaged."""
    try:
        return msgspec.json.decode(NANO_FILE.read_bytes(), type=NanoMeasured)
    except (OSError, msgspec.DecodeError) as error:
        raise UserError(f"{NANO_FILE.name} cannot be read ({error}); run `{COMMAND}`.") from error
