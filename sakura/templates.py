"""Templates: a picture, the region that edits may change, and what kind of edit it is for.

Each is a folder with ``template.json``, ``picture.png`` and ``mask.png``. Templates of the portrait world also keep the
factors of their portrait, so that the truth of an edit is known.
"""

import dataclasses
import functools
import hashlib
import json
import logging
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from sakura.backbone.config import NanoConfig
from sakura.backbone.inputs import Request, Template
from sakura.errors import UserError
from sakura.pictures import fit_square, fit_square_mask
from sakura.portraits.drawing import render_garment, render_mask, render_portrait
from sakura.portraits.factors import FACE_FACTORS, GARMENT_FACTORS, Portrait, sample_portrait
from sakura.portraits.tasks import (
    SUBJECT_REGIONS,
    Subject,
    Task,
    face_reference,
    sample_request,
    sample_template_person,
    task_of,
)
from sakura.settings import SHIPPED_TEMPLATES, own_templates

PICTURE_PX = NanoConfig().picture_px
log = logging.getLogger(__name__)

IMPORTANCE_REQUESTS = 4
# What reading a broken template can raise.
BROKEN = (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError, Image.DecompressionBombError)


@dataclasses.dataclass(frozen=True)
class TemplateAssets:
    """One template. ``picture`` uint8 (px, px, 3), ``mask`` bool (px, px); ``person`` where we drew it."""

    template_id: str
    title: str
    subject: Subject
    picture: np.ndarray
    mask: np.ndarray
    person: Portrait | None

    @property
    def task(self) -> Task:
        return task_of(self.subject)

    @property
    def has_reference(self) -> bool:
        return self.task != "instruction"

    @property
    def fingerprint(self) -> str:
        """A digest of everything that its cache depends on beside the model."""
        parts = (self.picture.tobytes(), self.mask.tobytes(), self.subject.encode())
        return hashlib.sha256(b"|".join(parts)).hexdigest()[:32]

    def for_editor(self) -> Template:
        return Template(self.picture, self.mask, self.has_reference)

    def typical_requests(self, count: int = IMPORTANCE_REQUESTS) -> list[Request]:
        """Requests like those that users bring, none of them a user's: the cache is captured with them."""
        rng = random.Random(self.template_id)
        person = self.person or sample_portrait(rng)
        size = self.picture.shape[0]
        sampled = [sample_request(self.subject, person, rng, size) for _ in range(count)]
        return [Request(request.words, request.reference, seed) for seed, request in enumerate(sampled)]


def save_template(assets: TemplateAssets, folder: Path) -> None:
    """Write a template's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(assets.picture).save(folder / "picture.png", optimize=True)
    Image.fromarray(assets.mask).save(folder / "mask.png", optimize=True)
    description = {
        "title": assets.title,
        "subject": assets.subject,
        "person": dataclasses.asdict(assets.person) if assets.person else None,
    }
    (folder / "template.json").write_text(json.dumps(description, indent=1) + "\n")


def load_template(folder: Path) -> TemplateAssets:
    """Read a template's folder. Raises UserError naming what is missing or wrong."""
    try:
        description = json.loads((folder / "template.json").read_text())
        picture = np.asarray(Image.open(folder / "picture.png").convert("RGB"))
        mask = np.asarray(Image.open(folder / "mask.png").convert("L")) > 127
        if picture.shape[0] != picture.shape[1] or mask.shape != picture.shape[:2]:
            raise ValueError(f"its picture is {picture.shape[:2]} and its mask {mask.shape}, not one square size")
        if not mask.any():
            raise ValueError("its mask is empty")
        if description["subject"] not in SUBJECT_REGIONS:
            raise ValueError(f"its subject {description['subject']!r} is not one of {', '.join(SUBJECT_REGIONS)}")
        person = description["person"]
        return TemplateAssets(
            template_id=folder.name,
            title=description["title"],
            subject=description["subject"],
            picture=picture,
            mask=mask,
            person=_portrait(person) if person else None,
        )
    except BROKEN as error:
        raise UserError(f"The template in {folder} cannot be read ({error}); restore or remove it.") from error


def _portrait(values: dict[str, object]) -> Portrait:
    return Portrait(**{key: tuple(v) if isinstance(v, list) else v for key, v in values.items()})  # type: ignore[arg-type]


class TemplateLibrary:
    """The templates of one or more folders, by id; later folders win."""

    def __init__(self, *folders: Path) -> None:
        self.folders = folders

    def __iter__(self) -> Iterator[TemplateAssets]:
        found = {path.parent.name: path.parent for root in self.folders for path in root.glob("*/template.json")}
        for template_id in sorted(found):
            try:
                yield load_template(found[template_id])
            except UserError as error:
                log.warning("%s", error)  # one broken template must not hide the others

    def get(self, template_id: str) -> TemplateAssets:
        """Raises UserError if there is no such template."""
        for root in reversed(self.folders):
            # Ids come over the wire: only a name that is listed can lead to a folder.
            for path in root.glob("*/template.json"):
                if path.parent.name == template_id:
                    return load_template(path.parent)
        raise UserError(f"There is no template {template_id!r}; run `python -m sakura templates list` to see them.")


def add_own_template(title: str, subject: Subject, picture: np.ndarray, mask: np.ndarray) -> str:
    """Keep a template of one's own: ``picture`` uint8 RGB, ``mask`` bool of the same size. Returns its id."""
    square, region = fit_square(picture, PICTURE_PX).pixels, fit_square_mask(mask, PICTURE_PX)
    if not region.any():
        raise UserError("Nothing of the mask is left after cropping the picture to a square; mark its middle part.")
    digest = hashlib.sha256(square.tobytes() + region.tobytes() + subject.encode()).hexdigest()[:10]
    assets = TemplateAssets(f"own-{digest}", title.strip()[:60] or "My template", subject, square, region, None)
    try:
        save_template(assets, own_templates() / assets.template_id)
    except OSError as error:
        raise UserError(
            f"The template cannot be kept in {own_templates()} ({error.strerror}); "
            "make room there, or set SAKURA_HOME to another folder."
        ) from error
    return assets.template_id


# id, title, subject, number of the portrait drawn for it
SHIPPED: tuple[tuple[str, str, Subject, int], ...] = (
    ("face-hoodie", "Silver hair, striped hoodie", "face", 8),
    ("face-afro", "Brown afro, green jumper", "face", 11),
    ("face-bob", "Black bob, pink checks", "face", 12),
    ("face-hills", "Red hair before hills", "face", 15),
    ("wear-afro", "Red afro before hills", "garment", 1),
    ("wear-beard", "White beard, checked jacket", "garment", 4),
    ("wear-window", "White cap by a window", "garment", 9),
    ("wear-beanie", "Pink beanie, grey afro", "garment", 12),
    ("say-hair", "Change the hair", "hair", 3),
    ("say-hat", "Change the hat", "hat", 14),
    ("say-glasses", "Change the glasses", "glasses", 2),
    ("say-mouth", "Change the mouth", "mouth", 5),
    ("say-beard", "Change the beard", "beard", 9),
    ("say-outfit", "Change the outfit", "outfit", 14),
)


@dataclasses.dataclass(frozen=True)
class ReferencePicture:
    """A shipped reference: ``picture`` uint8 (192, 192, 3), and the factors that a truthful edit takes from it."""

    name: str
    task: Task
    picture: np.ndarray
    factors: dict[str, object]


# subject, numbers of the portraits drawn as references
SHIPPED_REFERENCES: dict[Subject, tuple[int, ...]] = {"face": (10, 3, 18, 16), "garment": (0, 6, 13, 17)}
REFERENCE_PX = 192


@functools.cache
def shipped_references(task: Task) -> tuple[ReferencePicture, ...]:
    """The reference pictures offered for a task; none for instructions."""
    references = []
    for subject, numbers in SHIPPED_REFERENCES.items():
        for number in numbers if task_of(subject) == task else ():
            rng = random.Random(f"references/{subject}/{number}")
            person = sample_portrait(rng)
            is_face = subject == "face"
            picture = face_reference(person, rng, REFERENCE_PX) if is_face else render_garment(person, REFERENCE_PX)
            factors = {name: getattr(person, name) for name in (FACE_FACTORS if is_face else GARMENT_FACTORS)}
            references.append(ReferencePicture(f"{subject}-{number}", task, picture, factors))
    return tuple(references)


def make_template(template_id: str, title: str, subject: Subject, index: int, size: int) -> TemplateAssets:
    """A template of the portrait world; ``index`` picks the portrait."""
    person = sample_template_person(subject, random.Random(f"templates/{subject}/{index}"))
    mask = render_mask(SUBJECT_REGIONS[subject], person, size)
    return TemplateAssets(template_id, title, subject, render_portrait(person, size), mask, person)


def write_shipped_templates(folder: Path, size: int) -> None:
    """Draw every shipped template into ``folder``."""
    for template_id, title, subject, index in SHIPPED:
        save_template(make_template(template_id, title, subject, index, size), folder / template_id)


if __name__ == "__main__":
    write_shipped_templates(SHIPPED_TEMPLATES, PICTURE_PX)
