"""Training at tiny size: resuming, the plan, and the examples that each split sees."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from worlds import TINY_CONFIG, TINY_PX

from sakura.backbone import training
from sakura.backbone.config import NanoConfig
from sakura.backbone.nano import NanoFlux2, load_model, new_model
from sakura.backbone.training import Batch, TrainingPlan, train, training_loss
from sakura.portraits.tasks import make_example

PLAN = TrainingPlan(samples=24, batch=4, warmup_samples=8)
CONFIG = NanoConfig(name="tiny", picture_px=TINY_PX)


@pytest.fixture
def tiny_training(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small models, no compiler, and a clock on which every update is due for saving."""
    clock = itertools.count(0, 1000)
    monkeypatch.setattr(training, "new_model", lambda config: new_model(CONFIG, **TINY_CONFIG))
    monkeypatch.setattr(training.time, "monotonic", lambda: next(clock))
    torch.compiler.set_stance("force_eager")
    yield
    torch.compiler.set_stance("default")


def test_resumed_training_is_the_uninterrupted_one(
    tiny_training: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(PLAN, tmp_path / "whole", log_every=2)

    calls = itertools.count()

    def failing(*arguments: object, **options: object) -> torch.Tensor:
        if next(calls) == 3:
            raise KeyboardInterrupt
        return training_loss(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(training, "training_loss", failing)
    with pytest.raises(KeyboardInterrupt):
        train(PLAN, tmp_path / "parts")
    assert torch.load(tmp_path / "parts" / "state.pt")["seen"] == 12
    train(PLAN, tmp_path / "parts")

    whole, parts = (torch.load(tmp_path / name / "state.pt") for name in ("whole", "parts"))
    assert whole["seen"] == parts["seen"] == PLAN.samples
    assert whole["updates"] == parts["updates"] == 6
    for kind in ("model", "average"):
        for name, value in whole[kind].items():
            torch.testing.assert_close(parts[kind][name], value, atol=1e-6, rtol=1e-5)

    lines = [json.loads(line) for line in (tmp_path / "whole" / "log.jsonl").read_text().splitlines()]
    assert [line["seen"] for line in lines] == [8, 16, 24]
    assert all(np.isfinite(line["loss"]) for line in lines)
    assert load_model(tmp_path / "whole").config == CONFIG


def test_plan_has_warm_up_decay_and_stages() -> None:
    plan = TrainingPlan(samples=1000, warmup_samples=100)
    rates = [plan.rate(seen) for seen in range(0, 1001, 10)]
    assert rates[0] < 0.02
    assert rates[15:60] == [1.0] * 45
    assert rates[-1] == 0
    assert rates[61:] == sorted(rates[61:], reverse=True)
    assert [plan.is_small(seen) for seen in (0, 299, 300)] == [True, True, False]
    assert [plan.is_full(seen) for seen in (699, 700, 999)] == [False, True, True]


def some_batch() -> Batch:
    examples = [make_example("train", index, TINY_PX, "hat") for index in range(2)]
    return Batch(
        seen=0,
        templates=np.stack([example.template for example in examples]),
        truths=np.stack([example.truth for example in examples]),
        masks=np.stack([example.mask for example in examples]),
        references=None,
        words=[example.request.words for example in examples],
    )


def test_a_few_updates_lower_the_loss() -> None:
    torch.manual_seed(0)
    model: NanoFlux2 = new_model(CONFIG, **TINY_CONFIG)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(12):
        loss = training_loss(model, some_batch(), full=True, seed=0)
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < 0.7 * losses[0]


def test_loss_sees_only_masked_tokens() -> None:
    torch.manual_seed(0)
    model = new_model(CONFIG, **TINY_CONFIG)
    batch = some_batch()
    everywhere = batch.truths.copy()
    touched = np.kron(
        np.stack([m.reshape(4, 8, 4, 8).any((1, 3)) for m in batch.masks]), np.ones((1, 8, 8), bool)
    ).astype(bool)
    everywhere[~touched] = 255 - everywhere[~touched]
    changed = Batch(0, batch.templates, everywhere, batch.masks, None, batch.words)
    losses = [training_loss(model, each, full=True, seed=1).item() for each in (batch, changed)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
