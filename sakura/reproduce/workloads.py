"""Workloads: held-out requests on the shipped templates, with the outputs that quality is measured against."""

import dataclasses
import random
from collections.abc import Iterator

import numpy as np

from sakura.backbone.editor import Editor, edit_with_cache
from sakura.backbone.inputs import Request
from sakura.cache.store import CacheStore, Progress
from sakura.codec.interface import CacheArrays, CacheGeometry
from sakura.errors import UserError
from sakura.portraits.tasks import Task, sample_request
from sakura.templates import TemplateAssets, TemplateLibrary

FIRST_HELD_OUT_SEED = 1000  # captured requests have seeds from 0
DRAWS = 100  # tries at a request with new content
# The paper's names, in its order.
WORKLOADS: dict[str, Task] = {"FS": "face_swap", "VTON": "try_on", "MB": "instruction"}


@dataclasses.dataclass(frozen=True)
class Case:
    """A template with its captured cache, requests that the cache has not seen, and their full-cache outputs.

    ``full`` are uint8 pictures (px, px, 3), one a request.
    """

    workload: str
    template: TemplateAssets
    geometry: CacheGeometry
    arrays: CacheArrays
    requests: list[Request]
    full: list[np.ndarray]

    def edits(self, editor: Editor, kv: np.ndarray) -> Iterator[np.ndarray]:
        """The requests' outputs with another version of the cache: ``kv`` like ``arrays.kv``."""
        for request in self.requests:
            yield edit_with_cache(editor, self.template.for_editor(), request, kv)


def held_out_requests(template: TemplateAssets, count: int) -> list[Request]:
    """Requests that the cache was not captured with, always the same ones. Needs a drawn template.

    Content (words and reference) is neither that of a captured request nor repeated, as long as the template's task has
    other content: a few instructions are all there is for beards or mouths. Seeds, and so the noise, are new always.
    """
    assert template.person is not None, f"{template.template_id} has no factors to sample requests from"
    rng = random.Random(f"held out/{template.template_id}")
    known = {_content(request) for request in template.typical_requests()}
    found: list[Request] = []
    for number in range(count):
        for _ in range(DRAWS):
            sampled = sample_request(template.subject, template.person, rng, template.picture.shape[0])
            request = Request(sampled.words, sampled.reference, FIRST_HELD_OUT_SEED + number)
            if _content(request) not in known:
                break
        known.add(_content(request))
        found.append(request)
    return found


def held_out_request(template: TemplateAssets, number: int) -> Request:
    """Number ``number`` of :func:`held_out_requests`."""
    return held_out_requests(template, number + 1)[number]


def _content(request: Request) -> tuple[tuple[str, ...], bytes]:
    return request.words, b"" if request.reference is None else request.reference.tobytes()


def make_case(store: CacheStore, template: TemplateAssets, requests: int, workload: str = "") -> Case:
    """Capture the template if need be, and edit ``requests`` held-out requests with the full cache."""
    geometry, arrays = store.arrays(template)
    asked = held_out_requests(template, requests) if requests else []
    editor = store.editor
    full = [edit_with_cache(editor, template.for_editor(), request, arrays.kv) for request in asked]
    return Case(workload, template, geometry, arrays, asked, full)


@dataclasses.dataclass(frozen=True)
class Plan:
    """A template of a workload, and how many of its requests fall to it."""

    workload: str
    template: TemplateAssets
    requests: int


def plan_cases(library: TemplateLibrary, requests: int) -> list[Plan]:
    """``requests`` requests a workload, dealt out to its drawn templates in turn; those that get none are left out."""
    plans = []
    for workload, task in WORKLOADS.items():
        templates = [template for template in library if template.task == task and template.person is not None]
        for index, template in enumerate(templates):
            share = len(range(index, requests, len(templates)))
            if share:
                plans.append(Plan(workload, template, share))
    if not plans:
        raise UserError("There are no drawn templates to sample requests for; restore the data/templates folder.")
    return plans


def each_case(
    store: CacheStore, library: TemplateLibrary, requests: int, progress: Progress
) -> Iterator[tuple[Case, Progress]]:
    """The cases one after the other, so that one is in memory at a time, each with what to tell its progress to."""
    plans = plan_cases(library, requests)
    for number, plan in enumerate(plans):

        def inside(done: float, number: int = number) -> None:
            progress((number + done) / len(plans))

        yield make_case(store, plan.template, plan.requests, plan.workload), inside
        inside(1.0)
