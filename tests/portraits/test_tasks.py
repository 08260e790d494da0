import dataclasses
from collections import Counter
from typing import get_args

import numpy as np
import pytest

from sakura.portraits.drawing import render_mask, render_portrait
from sakura.portraits.tasks import (
    INSTRUCTION_SUBJECTS,
    SUBJECT_REGIONS,
    TASKS,
    Example,
    Split,
    Subject,
    make_example,
    render_truth,
    task_of,
)
from sakura.templates import TemplateLibrary, shipped_references

SUBJECTS: tuple[Subject, ...] = get_args(Subject)
SPLITS: tuple[Split, ...] = get_args(Split)
PX = 64


def digest(example: Example) -> tuple[object, ...]:
    request = example.request
    reference = None if request.reference is None else request.reference.tobytes()
    return example.person, example.template.tobytes(), example.mask.tobytes(), request.words, reference


@pytest.mark.parametrize("subject", SUBJECTS)
def test_example_is_a_function_of_split_and_index(subject: Subject) -> None:
    for index in range(3):
        first, second = (make_example("held_out", index, PX, subject) for _ in range(2))
        assert digest(first) == digest(second)
        np.testing.assert_array_equal(first.truth, second.truth)
        assert (first.subject, first.task) == (subject, task_of(subject))


def test_splits_are_disjoint() -> None:
    seen = Counter(make_example(split, index, PX).person for split in SPLITS for index in range(100))
    assert max(seen.values()) == 1


@pytest.mark.parametrize("subject", SUBJECTS)
def test_truth_equals_template_outside_the_mask(subject: Subject) -> None:
    for index in range(12):
        example = make_example("held_out", index, PX, subject)
        outside = ~example.mask
        np.testing.assert_array_equal(example.truth[outside], example.template[outside])
        assert example.mask.any()
        assert outside.any()
        truth = render_truth(example.person, subject, example.request.factors, PX)
        np.testing.assert_array_equal(truth, example.truth)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_most_edits_change_something(subject: Subject) -> None:
    examples = [make_example("held_out", index, PX, subject) for index in range(20)]
    changed = sum((example.truth != example.template).any() for example in examples)
    assert changed >= 10


@pytest.mark.parametrize("subject", SUBJECTS)
def test_references_are_half_size_and_only_where_the_task_has_one(subject: Subject) -> None:
    reference = make_example("held_out", 0, PX, subject).request.reference
    if task_of(subject) == "instruction":
        assert reference is None
    else:
        assert reference is not None
        assert reference.shape == (PX // 2, PX // 2, 3)
        assert reference.dtype == np.uint8


@pytest.mark.parametrize(("task", "share"), [("face_swap", 0.11), ("try_on", 0.26), ("instruction", 0.19)])
def test_mean_mask_areas_are_those_of_the_workloads(task: str, share: float) -> None:
    weights: dict[Subject, float] = {"face": 1.0} if task == "face_swap" else {"garment": 1.0}
    if task == "instruction":
        weights = INSTRUCTION_SUBJECTS
    found = [
        weight * np.mean([make_example("held_out", index, PX, subject).mask.mean() for index in range(200)])
        for subject, weight in weights.items()
    ]
    assert sum(found) == pytest.approx(share, abs=0.015)


def test_tasks_come_equally_often() -> None:
    counts = Counter(make_example("train", index, 16).task for index in range(300))
    assert set(counts) == set(TASKS)
    assert min(counts.values()) > 70


def test_factors_stay_apart_from_pixels() -> None:
    """The same portrait at twice the size is the same picture."""
    person = make_example("held_out", 1, PX).person
    small, large = render_portrait(person, PX), render_portrait(person, 2 * PX)
    halved = large.reshape(PX, 2, PX, 2, 3).mean((1, 3))
    assert np.abs(halved - small).mean() < 6
    mask = render_mask("face", person, 2 * PX).reshape(PX, 2, PX, 2).mean((1, 3))
    assert (np.abs(mask - render_mask("face", person, PX)) > 0.8).mean() < 0.02


# What falls outside the mask is lost: small overhangs are accepted, cut-off garments or hats are not.
MAX_LOST_SHARE = 0.12


def test_masks_cover_what_edits_of_shipped_templates_change(shipped: TemplateLibrary) -> None:
    lost_shares = {}
    for template in shipped:
        if template.person is None:
            continue
        changed = inside = 0
        for request in _possible_factors(template.subject):
            after = render_portrait(dataclasses.replace(template.person, **request), 128)  # type: ignore[arg-type]
            difference = np.abs(after.astype(int) - template.picture).max(-1) > 24
            changed += int(difference.sum())
            inside += int((difference & template.mask).sum())
        lost_shares[template.template_id] = 1 - inside / changed
    assert {name: share for name, share in lost_shares.items() if share > MAX_LOST_SHARE} == {}


def _possible_factors(subject: Subject) -> list[dict[str, object]]:
    if task_of(subject) != "instruction":
        return [reference.factors for reference in shipped_references(task_of(subject))]
    return [make_example("held_out", index, 16, subject).request.factors for index in range(20)]


@pytest.mark.parametrize("subject", SUBJECT_REGIONS)
def test_masks_have_a_size_at_every_resolution(subject: Subject) -> None:
    person = make_example("held_out", 0, PX, subject).person
    shares = [render_mask(SUBJECT_REGIONS[subject], person, px).mean() for px in (32, 64, 128, 256)]
    assert max(shares) - min(shares) < 0.03
