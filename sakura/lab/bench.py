"""The lab's work on real caches: capture, encode, decode, edit, compare. Loads torch."""

import dataclasses
import hashlib
import itertools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import msgspec
import numpy as np
import torch

from sakura.backbone.editor import Editor, edit_with_cache
from sakura.cache.store import CacheStore
from sakura.codec import new_codec
from sakura.codec.distortion import weighted_distortion
from sakura.codec.interface import CacheArrays, Codec, EncodedCache, Representation
from sakura.codec.sakura import SakuraCodec
from sakura.codec.sakura_layout import HEADER, Layout
from sakura.events import QualityScores
from sakura.lab.importance import ImportanceFacts, importance_facts
from sakura.lab.points import CODEC_NAMES, Measurement, Point, Stored
from sakura.lab.settings import DEFAULT_CODEC, RANKS, Setting
from sakura.metrics import compare
from sakura.reproduce.quality import (
    container_bytes,
    levels,
    receive,
    score,
    segments_for_budget,
    segments_of_level,
)
from sakura.reproduce.workloads import Case, held_out_request, make_case
from sakura.settings import MODEL_FOLDER, cache_folder
from sakura.systems import strongest
from sakura.templates import TemplateAssets

# Raised whenever points are measured in another way: kept measurements are not read then.
LAB_VERSION = 2
CHART_REQUESTS = 2
PAIRS = ((4, 4), (6, 4), (6, 6), (8, 6), (10, 8))
EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
BUDGET_SHARES = (0.3, 0.6)  # of what the finest cache takes
DIFFERENCE_GAIN = 8
CASES_KEPT, CACHES_KEPT = 2, 6

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Parts:
    """What the bytes of a setting are spent on."""

    basis_bytes: int
    coefficients_bytes: int
    means_bytes: int
    index_bytes: int


@dataclasses.dataclass(frozen=True)
class TriedEdit:
    """A held-out request with a setting's cache and with the full one; pictures are uint8 (px, px, 3).

    ``difference`` uint8 (px, px) is that of the two, averaged over channels, times ``DIFFERENCE_GAIN``. ``chart_db`` is
    the PSNR in the edited region over the charts' requests.
    """

    words: tuple[str, ...]
    reference: np.ndarray | None
    picture: np.ndarray
    full: np.ndarray
    difference: np.ndarray
    scores: QualityScores
    chart_db: float


@dataclasses.dataclass(frozen=True)
class Tried:
    """What a setting costs and does. ``left_planes`` and ``right_planes`` are all that the first components have.

    ``distortion`` is the share of importance-weighted energy that is lost. ``edit`` is None where the template's
    factors are not known, so that there are no held-out requests.
    """

    received_bytes: int
    full_cache_bytes: int
    parts: Parts
    left_planes: int
    right_planes: int
    distortion: float
    edit: TriedEdit | None


def open_bench() -> "Bench":
    """A bench with the shipped model and the user's caches."""
    return Bench(CacheStore(cache_folder(), Editor.load(MODEL_FOLDER)))


class Bench:
    """Answers one question at a time; one thread may use it. Keeps what the next question is likely to need."""

    def __init__(self, store: CacheStore) -> None:
        torch.set_num_threads(1)
        self.store = store
        self._cases: OrderedDict[Hashable, Case] = OrderedDict()
        self._caches: OrderedDict[Hashable, EncodedCache] = OrderedDict()

    def importance(self, template: TemplateAssets) -> ImportanceFacts:
        """How important the template's tokens are."""
        return importance_facts(self.store.importance(template), template.mask, self.store.editor.config.patch_px)

    def fingerprint(self, template: TemplateAssets) -> str:
        """Names everything that a measurement of the template depends on."""
        codecs = [self.store.url(template, new_codec(name, strongest(name))) for name in ("sakura", "intq", "cachegen")]
        parts = [*codecs, LAB_VERSION, CHART_REQUESTS, PAIRS, EXPONENTS, BUDGET_SHARES]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]

    def try_setting(self, template: TemplateAssets, setting: Setting, request: int) -> Tried:
        """Send the template's cache with a setting, and edit held-out request number ``request`` with it."""
        case, codec = self._case(template), setting.codec
        encoded = self._encoded(case, codec)
        segments = codec.segments_of(case.geometry, encoded, setting.representation)
        received = receive(codec, case.geometry, case.arrays.places, encoded, segments)
        layout = codec.layout(case.geometry, encoded.segments[HEADER])
        return Tried(
            received.received_bytes,
            case.geometry.full_cache_bytes,
            _parts(layout, encoded, segments, received.received_bytes),
            layout.planes[0],
            max(layout.planes[layout.right(column, 0)] for column in range(layout.columns)),
            _distortion(case.arrays, received.kv),
            self._edit(case, received.kv, request) if case.requests else None,
        )

    def _edit(self, case: Case, kv: np.ndarray, number: int) -> TriedEdit:
        editor, template = self.store.editor, case.template
        pictures = list(case.edits(editor, kv))
        chart = [compare(*pair, template.mask) for pair in zip(pictures, case.full, strict=True)]
        request = held_out_request(template, number)
        if number < len(pictures):
            picture, full, scores = pictures[number], case.full[number], chart[number]
        else:
            picture, full = (edit_with_cache(editor, template.for_editor(), request, k) for k in (kv, case.arrays.kv))
            scores = compare(picture, full, template.mask)
        apart = np.abs(picture.astype(np.float32) - full.astype(np.float32)).mean(-1) * DIFFERENCE_GAIN
        return TriedEdit(
            request.words,
            request.reference,
            picture,
            full,
            apart.clip(0, 255).astype(np.uint8),
            scores,
            float(np.mean([scored.mask_psnr_db for scored in chart])),
        )

    def plan(self, template: TemplateAssets) -> Measurement:
        """All points of a drawn template's charts with their sizes, none of them measured."""
        case = self._case(template)
        points, stored = [], []
        for name in CODEC_NAMES:
            codec = new_codec(name, strongest(name))
            encoded = self._encoded(case, codec)
            planned = [Point(name, "rung", 0, level, q=DEFAULT_CODEC.q) for level in range(levels(encoded))]
            whole, _ = container_bytes(codec, case.geometry, encoded)
            if name == "sakura":
                pairs = itertools.product(PAIRS, RANKS)
                planned += [Point(name, "pair", 0, 0, DEFAULT_CODEC.q, rank, *bits) for bits, rank in pairs]
                stored.append(Stored(name, [whole]))
                finest_bytes = whole
            else:
                apart = [_size(encoded, segments_of_level(encoded, level)) for level in range(levels(encoded))]
                stored.append(Stored(name, [*apart, whole - sum(apart)]))
            points += [self._sized(case, point) for point in planned]
        stored.append(Stored("uncompressed", [case.geometry.full_cache_bytes]))
        for q, share in itertools.product(EXPONENTS, BUDGET_SHARES):
            budget_bytes = _rounded(share * finest_bytes)
            points.append(Point("sakura", "exponent", budget_bytes, q=q, budget_bytes=budget_bytes))
        return Measurement(case.geometry.full_cache_bytes, points, stored)

    def _sized(self, case: Case, point: Point) -> Point:
        codec, encoded, segments = self._sent(case, point)
        _, overhead = container_bytes(codec, case.geometry, encoded)
        return msgspec.structs.replace(point, received_bytes=overhead + _size(encoded, segments))

    def measure(self, template: TemplateAssets, point: Point) -> Point:
        """The point with its quality, and with the size that it really has."""
        case = self._case(template)
        codec, encoded, segments = self._sent(case, point)
        received = receive(codec, case.geometry, case.arrays.places, encoded, segments)
        scores = list(score(self.store.editor, case, received.kv))
        return msgspec.structs.replace(
            point,
            received_bytes=received.received_bytes,
            psnr_db=float(np.mean([scored.mask_psnr_db for scored in scores])),
            ssim=float(np.mean([scored.mask_ssim for scored in scores])),
        )

    def _sent(self, case: Case, point: Point) -> tuple[Codec, EncodedCache, list[int]]:
        """The segments that a point sends, with what they are of."""
        codec = new_codec(point.codec, {"q": point.q} if point.codec == "sakura" else strongest(point.codec))
        encoded = self._encoded(case, codec)
        if point.kind == "rung":
            return codec, encoded, segments_of_level(encoded, point.level)
        if point.kind == "exponent":
            _, index_bytes = container_bytes(codec, case.geometry, encoded)
            return codec, encoded, segments_for_budget(encoded, point.budget_bytes - index_bytes)
        assert isinstance(codec, SakuraCodec)
        representation = Representation(point.rank, point.left_bits, point.right_bits)
        return codec, encoded, codec.segments_of(case.geometry, encoded, representation)

    def _case(self, template: TemplateAssets) -> Case:
        """The template with the charts' requests; with none where its factors are not known."""
        requests = CHART_REQUESTS if template.person else 0
        return _kept(
            self._cases,
            (template.template_id, template.fingerprint, requests),
            CASES_KEPT,
            lambda: make_case(self.store, template, requests),
        )

    def _encoded(self, case: Case, codec: Codec) -> EncodedCache:
        key = (case.template.fingerprint, codec.name, msgspec.json.encode(codec))
        return _kept(self._caches, key, CACHES_KEPT, lambda: codec.encode(case.geometry, case.arrays))


def _kept(kept: OrderedDict[Hashable, T], key: Hashable, most: int, make: Callable[[], T]) -> T:
    """What is kept under a key, made if it is missing; the one that was used longest ago goes first."""
    if key not in kept:
        kept[key] = make()
        while len(kept) > most:
            kept.popitem(last=False)
    kept.move_to_end(key)
    return kept[key]


def _size(encoded: EncodedCache, segments: Sequence[int]) -> int:
    return sum(len(encoded.segments[segment]) for segment in segments)


def _rounded(size_bytes: float) -> int:
    """Two significant digits."""
    return int(float(f"{size_bytes:.1e}"))


def _parts(layout: Layout, encoded: EncodedCache, segments: Sequence[int], received_bytes: int) -> Parts:
    basis = coefficients = means = 0
    for segment in segments:
        if segment == HEADER:
            continue
        part = layout.part_of(segment)
        if part < layout.groups:
            basis += len(encoded.segments[segment])
        elif layout.is_means(part):
            means += len(encoded.segments[segment])
        else:
            coefficients += len(encoded.segments[segment])
    return Parts(basis, coefficients, means, received_bytes - basis - coefficients - means)


def _distortion(arrays: CacheArrays, kv: np.ndarray) -> float:
    steps, blocks = kv.shape[:2]
    return float(
        np.mean(
            [
                weighted_distortion(arrays.kv[at], kv[at], arrays.importance[at][None].repeat(2, 0))
                for at in np.ndindex(steps, blocks)
            ]
        )
    )
