"""The three editing tasks of the portrait world, each with its mask, request and exact truth.

- ``face_swap``: the template's head takes the facial features of a reference picture (image + image).
- ``try_on``: the template's person wears the garment of a reference picture (image + image).
- ``instruction``: the template changes as a few words say (image + text).

An example is a function of (split, index): splits never share a seed.
"""

import dataclasses
import random
from collections.abc import Callable
from typing import Literal

import numpy as np

from sakura.portraits.drawing import Region, render_garment, render_mask, render_portrait
from sakura.portraits.factors import (
    BEARDS,
    CLOTH_COLORS,
    FACE_FACTORS,
    GARMENT_FACTORS,
    GARMENTS,
    GLASSES,
    HAIR_COLORS,
    HATS,
    MOUTHS,
    PATTERNS,
    HairStyle,
    Portrait,
    sample_portrait,
)

Task = Literal["face_swap", "try_on", "instruction"]
Split = Literal["train", "held_out", "templates", "references"]
Subject = Literal["face", "garment", "hair", "hat", "glasses", "mouth", "beard", "outfit"]

TASKS: tuple[Task, ...] = ("face_swap", "try_on", "instruction")
# Styles that stay inside the edited hair region.
EDITABLE_HAIR_STYLES: tuple[HairStyle, ...] = ("bald", "short", "side", "bun")

# subject: the region that its edit may change
SUBJECT_REGIONS: dict[Subject, Region] = {
    "face": "face",
    "garment": "garment",
    "hair": "hair",
    "hat": "hair",
    "glasses": "eyes",
    "mouth": "mouth",
    "beard": "mouth",
    "outfit": "garment",
}
# How often an instruction is about a subject; chosen so that the mean edited region is near 19 %.
INSTRUCTION_SUBJECTS: dict[Subject, float] = {
    "hair": 0.22,
    "hat": 0.22,
    "outfit": 0.26,
    "glasses": 0.15,
    "mouth": 0.08,
    "beard": 0.07,
}


@dataclasses.dataclass(frozen=True)
class TaskRequest:
    """What one user brings: canonical words for the model, and a reference picture where the task has one."""

    words: tuple[str, ...]
    reference: np.ndarray | None  # uint8 (size/2, size/2, 3)
    factors: dict[str, object]  # the factors that the edit sets on the template's portrait


@dataclasses.dataclass(frozen=True)
class Example:
    """One edit with its truth. Pictures are uint8 RGB of shape (size, size, 3); the mask is bool (size, size)."""

    task: Task
    subject: Subject
    person: Portrait
    template: np.ndarray
    mask: np.ndarray
    request: TaskRequest
    truth: np.ndarray


def task_of(subject: Subject) -> Task:
    """The task whose edits change this subject."""
    if subject == "face":
        return "face_swap"
    return "try_on" if subject == "garment" else "instruction"


def sample_subject(rng: random.Random) -> Subject:
    """Each task equally often; within the instruction task by :data:`INSTRUCTION_SUBJECTS`."""
    task = rng.choice(TASKS)
    if task == "face_swap":
        return "face"
    if task == "try_on":
        return "garment"
    return rng.choices(tuple(INSTRUCTION_SUBJECTS), tuple(INSTRUCTION_SUBJECTS.values()))[0]


def sample_template_person(subject: Subject, rng: random.Random) -> Portrait:
    """A portrait that an edit of this subject can be applied to."""
    person = sample_portrait(rng)
    if subject == "hair":
        style = rng.choice(EDITABLE_HAIR_STYLES)
        return dataclasses.replace(person, hair_style=style, hat="none", beard="none")
    return person


def face_reference(person: Portrait, rng: random.Random, size: int) -> np.ndarray:
    """A picture of a face as a user would bring it: upright within a few degrees, roughly framed."""
    upright = dataclasses.replace(person, shift_x=0.0, shift_y=0.0, tilt_deg=rng.uniform(-4, 4))
    side = rng.uniform(124, 148)
    left, top = 128 - side / 2 + rng.uniform(-4, 4), 121 - side / 2 + rng.uniform(-4, 4)
    return render_portrait(upright, size, (left, top, side))


def _factors(person: Portrait, names: tuple[str, ...]) -> dict[str, object]:
    return {name: getattr(person, name) for name in names}


def _request_face(template: Portrait, rng: random.Random, size: int) -> TaskRequest:
    other = sample_portrait(rng)
    if rng.random() < 0.5:
        other = dataclasses.replace(other, skin=template.skin, hair_color=template.hair_color)
    return TaskRequest(("swap", "face"), face_reference(other, rng, size // 2), _factors(other, FACE_FACTORS))


def _request_garment(template: Portrait, rng: random.Random, size: int) -> TaskRequest:
    other = sample_portrait(rng)
    return TaskRequest(("wear", "garment"), render_garment(other, size // 2), _factors(other, GARMENT_FACTORS))


def _request_hair(template: Portrait, rng: random.Random, size: int) -> TaskRequest:
    color, style = rng.choice(tuple(HAIR_COLORS)), rng.choice(EDITABLE_HAIR_STYLES[1:])
    return TaskRequest(("hair", color, style), None, {"hair_color": color, "hair_style": style})


def _request_hat(template: Portrait, rng: random.Random, size: int) -> TaskRequest:
    hat, color = rng.choice(HATS), rng.choice(tuple(CLOTH_COLORS))
    words = ("hat", hat) if hat == "none" else ("hat", hat, color)
    return TaskRequest(words, None, {"hat": hat, "hat_color": color})


def _request_outfit(template: Portrait, rng: random.Random, size: int) -> TaskRequest:
    garment, pattern = rng.choice(GARMENTS), rng.choice(PATTERNS)
    cloth, accent = rng.choice(tuple(CLOTH_COLORS)), rng.choice(tuple(CLOTH_COLORS))
    words: tuple[str, ...] = (garment, cloth, pattern)
    factors: dict[str, object] = {"garment": garment, "cloth_color": cloth, "pattern": pattern, "accent_color": accent}
    if pattern != "plain" or garment == "jacket":
        words = (*words, accent)
    return TaskRequest(words, None, factors)


def _request_choice(word: str, factor: str, options: tuple[str, ...]) -> Callable[..., TaskRequest]:
    def request(template: Portrait, rng: random.Random, size: int) -> TaskRequest:
        option = rng.choice(options)
        return TaskRequest((word, option), None, {factor: option})

    return request


_REQUESTS: dict[Subject, Callable[[Portrait, random.Random, int], TaskRequest]] = {
    "face": _request_face,
    "garment": _request_garment,
    "hair": _request_hair,
    "hat": _request_hat,
    "outfit": _request_outfit,
    "glasses": _request_choice("eyes", "glasses", GLASSES),
    "mouth": _request_choice("mouth", "mouth", MOUTHS),
    "beard": _request_choice("beard", "beard", BEARDS),
}


def sample_request(subject: Subject, template: Portrait, rng: random.Random, size: int) -> TaskRequest:
    """A typical request for a template of this subject, at picture size ``size``."""
    return _REQUESTS[subject](template, rng, size)


def apply_factors(template: Portrait, factors: dict[str, object]) -> Portrait:
    """The template's portrait after the edit."""
    return dataclasses.replace(template, **factors)  # type: ignore[arg-type]


def render_truth(template: Portrait, subject: Subject, factors: dict[str, object], size: int) -> np.ndarray:
    """The exact result of an edit: the edited portrait inside the mask, the template outside."""
    mask = render_mask(SUBJECT_REGIONS[subject], template, size)
    before = render_portrait(template, size)
    return np.where(mask[..., None], render_portrait(apply_factors(template, factors), size), before)


def make_example(split: Split, index: int, size: int, subject: Subject | None = None) -> Example:
    """The example number ``index`` of a split, at ``size`` pixels; ``subject`` restricts what it is about."""
    rng = random.Random(f"{split}/{subject or 'any'}/{index}")
    subject = subject or sample_subject(rng)
    person = sample_template_person(subject, rng)
    request = sample_request(subject, person, rng, size)
    template = render_portrait(person, size)
    mask = render_mask(SUBJECT_REGIONS[subject], person, size)
    after = render_portrait(apply_factors(person, request.factors), size)
    truth = np.where(mask[..., None], after, template)
    return Example(task_of(subject), subject, person, template, mask, request, truth)
