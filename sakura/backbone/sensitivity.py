"""How much errors in the cache of each block disturb the picture: where an encoder should spend its bytes."""

import json
from pathlib import Path

import numpy as np
import torch

from sakura.backbone.editor import SENSITIVITY_FILE, CapturedCache, Editor, EditState, run_with_cache
from sakura.backbone.inputs import Request, Template


def sensitivity_of(editor: Editor, template: Template, requests: list[Request], cache: CapturedCache) -> np.ndarray:
    """Root mean square over numbers of the derivative of the picture by K and V of each block: float32 (blocks, 2).

    Each request gives one random projection of the picture's masked tokens (Hutchinson's estimator of the squared
    Jacobian); steps and tokens are averaged over. Scaled to a mean of 1.
    """
    squares = np.zeros((editor.blocks, 2))
    for number, request in enumerate(requests):
        state = EditState(editor, template, request, gradients=True)
        kv = torch.from_numpy(cache.kv).clone().requires_grad_(True)
        run_with_cache(state, kv)
        probe = torch.randn(state.predicted.shape, generator=torch.Generator().manual_seed(number))
        (gradient,) = torch.autograd.grad((state.predicted * probe).sum(), kv)
        squares += gradient.square().mean((0, 3, 4)).double().numpy()
    result = np.sqrt(squares)
    return (result / max(result.mean(), 1e-30)).astype(np.float32)


def save_sensitivity(folder: Path, sensitivity: np.ndarray) -> None:
    """Write it beside a checkpoint, where :meth:`Editor.load` finds it."""
    rows = [[round(float(value), 4) for value in row] for row in sensitivity]
    (folder / SENSITIVITY_FILE).write_text(json.dumps(rows) + "\n")
