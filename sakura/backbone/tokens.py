"""Where each token of a request sits: the one place that knows the order of tokens and who is reusable.

The full sequence is ``text | noisy picture | template | reference``. Active tokens (text, masked noisy tokens, the
request's reference) are computed on the device for every request; reusable tokens (unmasked noisy tokens and the
template's clean tokens) have keys and values that the cloud computed once.
"""

import dataclasses
import functools

import numpy as np
import torch

TEMPLATE_TIME = 10  # FLUX.2 puts reference picture i at t = 10 + 10 i on the first RoPE axis
REFERENCE_TIME = 20


@dataclasses.dataclass(frozen=True)
class TokenLayout:
    """Token geometry of one template and the kind of request that it serves.

    ``masked`` lists the positions (row-major in the picture's token grid) that the edit may change.
    """

    text_tokens: int
    rows: int
    columns: int
    reference_rows: int
    reference_columns: int
    masked: tuple[int, ...]

    @property
    def picture_tokens(self) -> int:
        return self.rows * self.columns

    @property
    def reference_tokens(self) -> int:
        return self.reference_rows * self.reference_columns

    @property
    def total_tokens(self) -> int:
        return self.text_tokens + 2 * self.picture_tokens + self.reference_tokens

    @functools.cached_property
    def unmasked(self) -> tuple[int, ...]:
        masked = set(self.masked)
        return tuple(index for index in range(self.picture_tokens) if index not in masked)

    @functools.cached_property
    def reusable(self) -> torch.Tensor:
        """Positions of the reusable tokens in the full sequence, int64 of shape (reusable,)."""
        noisy = torch.tensor(self.unmasked, dtype=torch.long) + self.text_tokens
        first_template = self.text_tokens + self.picture_tokens
        template = torch.arange(first_template, first_template + self.picture_tokens)
        return torch.cat([noisy, template])

    @functools.cached_property
    def active(self) -> torch.Tensor:
        """Positions of the active tokens in the full sequence, int64 of shape (active,); text comes first."""
        text = torch.arange(self.text_tokens)
        noisy = torch.tensor(self.masked, dtype=torch.long) + self.text_tokens
        reference = torch.arange(self.text_tokens + 2 * self.picture_tokens, self.total_tokens)
        return torch.cat([text, noisy, reference])

    def text_ids(self) -> torch.Tensor:
        """RoPE coordinates (t, h, w, l) of the text tokens, float32 of shape (text_tokens, 4)."""
        ids = torch.zeros(self.text_tokens, 4)
        ids[:, 3] = torch.arange(self.text_tokens)
        return ids

    def picture_ids(self) -> torch.Tensor:
        """RoPE coordinates of noisy, template and reference tokens, float32 of shape (total - text, 4)."""
        return torch.cat(
            [
                grid_ids(self.rows, self.columns, 0),
                grid_ids(self.rows, self.columns, TEMPLATE_TIME),
                grid_ids(self.reference_rows, self.reference_columns, REFERENCE_TIME),
            ]
        )


def grid_ids(rows: int, columns: int, time: int) -> torch.Tensor:
    """RoPE coordinates (t, h, w, l) of a grid in row-major order, float32 of shape (rows * columns, 4)."""
    ids = torch.zeros(rows, columns, 4)
    ids[..., 0] = time
    ids[..., 1] = torch.arange(rows)[:, None]
    ids[..., 2] = torch.arange(columns)[None]
    return ids.reshape(-1, 4)


def pictures_to_patches(pictures: np.ndarray, patch_px: int) -> torch.Tensor:
    """uint8 (batch, height, width, 3) to float32 patches in -1..1 of shape (batch, tokens, 3 * patch_px**2)."""
    batch, height, width, _ = pictures.shape
    scaled = torch.from_numpy(pictures.astype(np.float32)) / 127.5 - 1
    grid = scaled.view(batch, height // patch_px, patch_px, width // patch_px, patch_px, 3)
    return grid.permute(0, 1, 3, 2, 4, 5).reshape(batch, -1, 3 * patch_px * patch_px)


def patches_to_pictures(patches: torch.Tensor, rows: int, columns: int, patch_px: int) -> np.ndarray:
    """The inverse of :func:`pictures_to_patches`, rounded and clipped to uint8."""
    grid = patches.view(-1, rows, columns, patch_px, patch_px, 3).permute(0, 1, 3, 2, 4, 5)
    pixels = grid.reshape(-1, rows * patch_px, columns * patch_px, 3)
    return ((pixels.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).numpy()
