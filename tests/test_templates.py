import dataclasses
import json
import logging
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from worlds import tiny_template

from sakura.backbone.config import NanoConfig
from sakura.errors import UserError
from sakura.portraits.drawing import render_mask, render_portrait
from sakura.portraits.tasks import SUBJECT_REGIONS, TASKS, Task
from sakura.settings import SHIPPED_TEMPLATES
from sakura.templates import (
    SHIPPED,
    TemplateLibrary,
    load_template,
    make_template,
    save_template,
    shipped_references,
)

PX = 128


def test_shipped_templates_are_those_declared(shipped: TemplateLibrary) -> None:
    found = {template.template_id: template for template in shipped}
    assert set(found) == {template_id for template_id, *_ in SHIPPED}
    for template_id, title, subject, index in SHIPPED:
        template, drawn = found[template_id], make_template(template_id, title, subject, index, PX)
        assert (template.title, template.subject, template.person) == (title, subject, drawn.person)
        assert template.person is not None
        # Fonts and smoothing may differ a little from one version of the drawing library to the next.
        assert np.abs(render_portrait(template.person, PX).astype(int) - template.picture).mean() < 1
        assert (render_mask(SUBJECT_REGIONS[subject], template.person, PX) != template.mask).mean() < 0.01
    assert set(Counter(template.task for template in found.values())) == set(TASKS)


def test_templates_round_trip(tmp_path: Path) -> None:
    for template in (tiny_template("tiny-face"), dataclasses.replace(tiny_template("tiny-hat"), person=None)):
        save_template(template, tmp_path / template.template_id)
        loaded = load_template(tmp_path / template.template_id)
        np.testing.assert_array_equal(loaded.picture, template.picture)
        np.testing.assert_array_equal(loaded.mask, template.mask)
        assert (loaded.subject, loaded.person, loaded.title) == (template.subject, template.person, template.title)
        assert loaded.fingerprint == template.fingerprint


def test_typical_requests_repeat_and_fit_the_model() -> None:
    words = set(NanoConfig().words)
    for template_id in ("tiny-face", "tiny-wear", "tiny-hat"):
        template = tiny_template(template_id)
        requests = template.typical_requests()
        assert len(requests) == 4
        for first, second in zip(requests, template.typical_requests(), strict=True):
            assert (first.words, first.seed) == (second.words, second.seed)
            assert set(first.words) <= words
            assert (first.reference is not None) == template.has_reference


@pytest.mark.parametrize("name", ["", ".", "..", "../face-bob", "face-bob/", "/etc", "face-bob\0", "*", "FACE-BOB"])
def test_only_listed_names_lead_to_a_template(shipped: TemplateLibrary, name: str) -> None:
    with pytest.raises(UserError, match="There is no template"):
        shipped.get(name)


def test_later_folders_win(tmp_path: Path) -> None:
    own = dataclasses.replace(tiny_template("tiny-face"), title="My own")
    save_template(own, tmp_path / "face-bob")
    library = TemplateLibrary(SHIPPED_TEMPLATES, tmp_path, tmp_path / "missing")
    assert library.get("face-bob").title == "My own"
    assert [t.title for t in library if t.template_id == "face-bob"] == ["My own"]


def break_template(folder: Path, kind: str) -> None:
    description = json.loads((folder / "template.json").read_text())
    match kind:
        case "picture missing":
            (folder / "picture.png").unlink()
        case "mask is no picture":
            (folder / "mask.png").write_bytes(b"nonsense")
        case "not JSON":
            (folder / "template.json").write_text("{")
        case "mask of another size":
            Image.new("L", (16, 16), 255).save(folder / "mask.png")
        case "not square":
            Image.new("RGB", (32, 16)).save(folder / "picture.png")
        case "empty mask":
            Image.new("L", (32, 32), 0).save(folder / "mask.png")
        case "unknown subject":
            (folder / "template.json").write_text(json.dumps({**description, "subject": "shoes"}))
        case "no title":
            del description["title"]
            (folder / "template.json").write_text(json.dumps(description))
        case "unknown factor":
            description["person"]["wings"] = 2
            (folder / "template.json").write_text(json.dumps(description))


BROKEN = (
    "picture missing",
    "mask is no picture",
    "not JSON",
    "mask of another size",
    "not square",
    "empty mask",
    "unknown subject",
    "no title",
    "unknown factor",
)


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_template_is_named_and_hides_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    for name in ("broken", "whole"):
        save_template(tiny_template("tiny-face"), tmp_path / name)
    break_template(tmp_path / "broken", kind)
    library = TemplateLibrary(tmp_path)
    with pytest.raises(UserError, match=r"broken cannot be read .+; restore or remove it"):
        library.get("broken")
    with caplog.at_level(logging.WARNING):
        assert [template.template_id for template in library] == ["whole"]
    assert "broken cannot be read" in caplog.text


@pytest.mark.parametrize("task", TASKS)
def test_shipped_references_are_distinct_and_drawn_the_same_each_time(task: Task) -> None:
    references = shipped_references(task)
    assert len(references) == (0 if task == "instruction" else 4)
    assert len({reference.picture.tobytes() for reference in references}) == len(references)
    for first, second in zip(references, shipped_references(task), strict=True):
        np.testing.assert_array_equal(first.picture, second.picture)
        assert first.picture.shape == (192, 192, 3)
