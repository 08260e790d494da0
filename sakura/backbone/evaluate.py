"""How well a checkpoint edits: masked-region PSNR against the exact truth, on held-out examples."""

import dataclasses
from collections.abc import Callable

import numpy as np

from sakura.backbone.editor import Editor, edit_on_device
from sakura.backbone.inputs import Request, Template
from sakura.metrics import psnr_db
from sakura.portraits.tasks import INSTRUCTION_SUBJECTS, TASKS, Example, Subject, Task, make_example


@dataclasses.dataclass(frozen=True)
class TaskScore:
    """Mean and standard error of the masked PSNR over ``samples`` held-out examples of a task."""

    task: Task
    samples: int
    mask_psnr_db: float
    standard_error_db: float


def held_out_example(task: Task, index: int, size: int) -> Example:
    """Held-out example ``index`` of a task; instruction examples go through all subjects as often as in use."""
    if task == "instruction":
        subjects = tuple(INSTRUCTION_SUBJECTS)
        rng = np.random.default_rng(index)
        subject: Subject = subjects[int(rng.choice(len(subjects), p=tuple(INSTRUCTION_SUBJECTS.values())))]
    else:
        subject = "face" if task == "face_swap" else "garment"
    return make_example("held_out", index, size, subject)


def evaluate(editor: Editor, samples: int, progress: Callable[[int], None] = lambda done: None) -> list[TaskScore]:
    """Edit ``samples`` held-out examples a task, every token computed, and score them."""
    scores = []
    done = 0
    for task in TASKS:
        values = []
        for index in range(samples):
            example = held_out_example(task, index, editor.config.picture_px)
            template = Template(example.template, example.mask, example.request.reference is not None)
            picture = edit_on_device(editor, template, Request(example.request.words, example.request.reference))
            values.append(psnr_db(picture[example.mask], example.truth[example.mask]))
            done += 1
            progress(done)
        error = float(np.std(values, ddof=1) / np.sqrt(samples)) if samples > 1 else 0.0
        scores.append(TaskScore(task, samples, float(np.mean(values)), error))
    return scores
