"""Train nano-flux2 on the portrait world. Resumable; every example is a function of its number.

The objective is x0 prediction with velocity weighting on masked tokens only. Each batch is about one subject, so that
its masks nearly coincide: until the last stage, most unmasked tokens can then be left out of a batch (they repeat what
their neighbours say), which makes a step about 1.7 times cheaper; the last stage sees every token, as inference does.
"""

import copy
import dataclasses
import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from sakura.backbone.config import NanoConfig
from sakura.backbone.inputs import masked_tokens
from sakura.backbone.nano import NanoFlux2, new_model, save_model
from sakura.backbone.tokens import TokenLayout, pictures_to_patches
from sakura.portraits.tasks import INSTRUCTION_SUBJECTS, Subject, make_example

# Faces need the most examples (see the model card), so they come more often than a third of the time.
SUBJECT_WEIGHTS: dict[Subject, float] = {
    "face": 0.45,
    "garment": 0.25,
    **{subject: 0.30 * share for subject, share in INSTRUCTION_SUBJECTS.items()},
}
KEPT_NOISY_SHARE = 0.5
KEPT_TEMPLATE_SHARE = 0.6
MIN_WEIGHT_TIME = 0.3


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    """``samples`` examples in all: the first ``small_share`` at half size, the last ``full_share`` with all tokens.

    The learning rate warms up, stays, and falls to zero over the last ``decay_share``.
    """

    samples: int = 200_000
    batch: int = 16
    small_share: float = 0.3
    full_share: float = 0.3
    decay_share: float = 0.4
    learning_rate: float = 1e-3
    warmup_samples: int = 3_000
    ema_decay: float = 0.998
    muon: bool = True

    def rate(self, seen: int) -> float:
        """The learning rate's factor after ``seen`` examples."""
        left = (self.samples - seen) / (self.samples * self.decay_share)
        return max(0.0, min(1.0, (seen + 1) / self.warmup_samples, left))

    def is_small(self, seen: int) -> bool:
        return seen < self.small_share * self.samples

    def is_full(self, seen: int) -> bool:
        return seen >= (1 - self.full_share) * self.samples


@dataclasses.dataclass(frozen=True)
class Batch:
    """Examples of one subject at one size, as uint8 arrays (batch first)."""

    seen: int
    templates: np.ndarray
    truths: np.ndarray
    masks: np.ndarray
    references: np.ndarray | None
    words: list[tuple[str, ...]]


class _Examples(IterableDataset[Batch]):
    """Batches from example number ``start`` on; what a batch holds depends on its number alone."""

    def __init__(self, plan: TrainingPlan, picture_px: int, start: int) -> None:
        self.plan, self.picture_px, self.start = plan, picture_px, start

    def __iter__(self) -> Iterator[Batch]:
        for seen in range(self.start, self.plan.samples, self.plan.batch):
            rng = random.Random(f"batch/{seen}")
            subject = rng.choices(tuple(SUBJECT_WEIGHTS), tuple(SUBJECT_WEIGHTS.values()))[0]
            size = self.picture_px // 2 if self.plan.is_small(seen) else self.picture_px
            examples = [make_example("train", seen + offset, size, subject) for offset in range(self.plan.batch)]
            pictures = [example.request.reference for example in examples]
            yield Batch(
                seen=seen,
                templates=np.stack([example.template for example in examples]),
                truths=np.stack([example.truth for example in examples]),
                masks=np.stack([example.mask for example in examples]),
                references=None if pictures[0] is None else np.stack([p for p in pictures if p is not None]),
                words=[example.request.words for example in examples],
            )


def _keep(always: set[int], total: int, share: float, rng: random.Random) -> torch.Tensor:
    """``share`` of the positions below ``total``, with ``always`` among them, sorted."""
    others = [position for position in range(total) if position not in always]
    count = max(0, round(total * share) - len(always))
    return torch.tensor(sorted([*always, *rng.sample(others, min(count, len(others)))]))


def training_loss(model: NanoFlux2, batch: Batch, *, full: bool, seed: int) -> torch.Tensor:
    """Mean over masked tokens of (e**2 + 0.15 |e|) / max(t, 0.3)**2, where e is the error of x0 at noise level t."""
    patch = model.config.patch_px
    size = batch.templates.shape[1]
    grid, reference_grid = size // patch, 0 if batch.references is None else size // 2 // patch
    layout = TokenLayout(model.config.text_tokens, grid, grid, reference_grid, reference_grid, ())
    template = pictures_to_patches(batch.templates, patch)
    truth = pictures_to_patches(batch.truths, patch)
    masked = torch.zeros(template.shape[:2], dtype=torch.bool)
    for row, mask in enumerate(batch.masks):
        masked[row, list(masked_tokens(mask, patch))] = True

    generator = torch.Generator().manual_seed(seed)
    count = template.shape[0]
    # Logit-normal times leaning to noise; a share at pure noise, where few-step sampling starts.
    times = torch.sigmoid(torch.randn(count, generator=generator) + 0.4)
    times = torch.where(torch.rand(count, generator=generator) < 0.2, torch.ones(count), times).clamp(0.02, 1)
    noise = torch.randn(template.shape, generator=generator)
    t = times[:, None, None]
    noisy = (1 - t) * torch.where(masked[..., None], truth, template) + t * noise

    ids = layout.picture_ids()
    if full:
        keep_noisy = keep_template = torch.arange(grid * grid)
    else:
        rng = random.Random(seed)
        union = set(torch.nonzero(masked.any(0))[:, 0].tolist())
        keep_noisy = _keep(union, grid * grid, max(KEPT_NOISY_SHARE, len(union) / grid**2), rng)
        keep_template = _keep(set(), grid * grid, KEPT_TEMPLATE_SHARE, rng)
    parts = [noisy[:, keep_noisy], template[:, keep_template]]
    if batch.references is not None:
        parts.append(pictures_to_patches(batch.references, patch))
    first_reference = 2 * grid * grid
    positions = [keep_noisy, grid * grid + keep_template, torch.arange(first_reference, len(ids))]

    device = next(model.parameters()).device
    word_ids = torch.tensor([model.word_ids(words) for words in batch.words], device=device)
    tokens = torch.cat(parts, 1).to(device)
    with torch.autocast(device.type, torch.bfloat16):
        clean = model(
            tokens, ids[torch.cat(positions)].to(device), word_ids, layout.text_ids().to(device), times.to(device)
        )
    clean = clean[:, : len(keep_noisy)].float()
    error = clean - truth[:, keep_noisy].to(device)
    weight = (masked[:, keep_noisy, None] / t.clamp(min=MIN_WEIGHT_TIME) ** 2).to(device)
    return ((error.square() + 0.15 * error.abs()) * weight).sum() / (masked.sum() * error.shape[-1])


def _optimizers(model: NanoFlux2, plan: TrainingPlan) -> list[torch.optim.Optimizer]:
    blocks = [model.transformer.transformer_blocks, model.transformer.single_transformer_blocks]
    matrices = [p for group in blocks for p in group.parameters() if p.ndim == 2] if plan.muon else []
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(rest, lr=plan.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    ]
    if matrices:
        # Muon (Jordan et al., 2024) with its update scaled to AdamW's root mean square (Liu et al., 2025).
        optimizers.append(
            torch.optim.Muon(
                matrices, lr=plan.learning_rate, weight_decay=0.01, momentum=0.95, adjust_lr_fn="match_rms_adamw"
            )
        )
    return optimizers


def train(plan: TrainingPlan, folder: Path, *, start_from: Path | None = None, log_every: int = 50) -> None:
    """Train into ``folder``: state.pt to resume from, log.jsonl, and the averaged model as a checkpoint.

    ``start_from`` is a checkpoint folder whose weights begin the training; a state in ``folder`` comes first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = new_model(NanoConfig())
    if start_from:
        model.load_state_dict({k: v.float() for k, v in load_file(start_from / "model.safetensors").items()})
    model.to(device)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizers = _optimizers(model, plan)
    base_rates = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    seen, updates = 0, 0
    state_file = folder / "state.pt"
    if state_file.exists():
        state = torch.load(state_file, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        average.load_state_dict(state["average"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        seen, updates = state["seen"], state["updates"]

    model.transformer.compile(dynamic=False)
    loader = DataLoader(_Examples(plan, model.config.picture_px, seen), batch_size=None, num_workers=1)
    losses: list[float] = []
    began, began_seen = time.monotonic(), seen

    def save() -> None:
        state = {
            "model": model.state_dict(),
            "average": average.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in optimizers],
            "seen": seen,
            "updates": updates,
        }
        partial = state_file.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(state_file)
        save_model(average, folder)

    saved_at = time.monotonic()
    for batch in loader:
        rates = plan.rate(seen)
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        for group, rate in zip(groups, base_rates, strict=True):
            group["lr"] = rate * rates
        loss = training_loss(model, batch, full=plan.is_full(seen), seed=seen)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        decay = min(plan.ema_decay, (updates + 1) / (updates + 10))
        torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)
        seen, updates = seen + plan.batch, updates + 1
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            raise FloatingPointError(f"The loss is {losses[-1]} after {seen} examples; resume with a lower rate.")
        if updates % log_every == 0:
            line = {
                "seen": seen,
                "loss": round(float(np.mean(losses)), 4),
                "rate": round(rates, 4),
                "samples_per_s": round((seen - began_seen) / (time.monotonic() - began), 2),
            }
            print(json.dumps(line), flush=True)
            with (folder / "log.jsonl").open("a") as log:
                log.write(json.dumps(line) + "\n")
            losses.clear()
        if time.monotonic() - saved_at > 180:
            save()
            saved_at = time.monotonic()
    save()
