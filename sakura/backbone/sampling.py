"""Few-step Euler sampling of a model that predicts clean patches (x0)."""

import torch

MIN_TIME = 0.05


def schedule(steps: int, shift: float) -> torch.Tensor:
    """Noise levels from 1 to 0, float32 of shape (steps + 1,), shifted towards noise (SD 3, eq. 23)."""
    times = torch.linspace(1, 0, steps + 1)
    return shift * times / (1 + (shift - 1) * times)


def euler_step(noisy: torch.Tensor, clean: torch.Tensor, time: float, next_time: float) -> torch.Tensor:
    """Move noisy tokens from ``time`` to ``next_time`` along the velocity implied by the predicted ``clean`` ones."""
    velocity = (noisy - clean) / max(time, MIN_TIME)
    return noisy + (next_time - time) * velocity


def add_noise(clean: torch.Tensor, noise: torch.Tensor, time: float) -> torch.Tensor:
    """The rectified-flow interpolation (1 - time) * clean + time * noise."""
    return (1 - time) * clean + time * noise
