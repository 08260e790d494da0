import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sakura.backbone.inputs import masked_tokens
from sakura.backbone.sampling import add_noise, euler_step, schedule
from sakura.backbone.tokens import TokenLayout, patches_to_pictures, pictures_to_patches


@given(st.integers(1, 50), st.floats(1, 10))
def test_schedule_falls_from_pure_noise_to_none(steps: int, shift: float) -> None:
    times = schedule(steps, shift)
    assert times.shape == (steps + 1,)
    assert float(times[0]) == pytest.approx(1, abs=1e-6)
    assert float(times[-1]) == 0
    assert (times.diff() < 0).all()
    assert (times >= torch.linspace(1, 0, steps + 1) - 1e-6).all()


@pytest.mark.parametrize("steps", [1, 4])
def test_perfect_prediction_is_reached_exactly(steps: int) -> None:
    clean, noise = torch.randn(2, 1, 6, 12, generator=torch.Generator().manual_seed(0))
    times = schedule(steps, 2.0)
    noisy = noise.clone()
    for time, next_time in zip(times.tolist(), times[1:].tolist(), strict=False):
        torch.testing.assert_close(noisy, add_noise(clean, noise, time), atol=1e-5, rtol=0)
        noisy = euler_step(noisy, clean, time, next_time)
    torch.testing.assert_close(noisy, clean, atol=1e-5, rtol=0)


@given(st.integers(0, 1000), st.sampled_from([4, 8]), st.integers(1, 4), st.integers(1, 4))
def test_patches_round_trip(seed: int, patch_px: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    pictures = rng.integers(0, 256, (2, rows * patch_px, columns * patch_px, 3), dtype=np.uint8)
    patches = pictures_to_patches(pictures, patch_px)
    assert patches.shape == (2, rows * columns, 3 * patch_px**2)
    np.testing.assert_array_equal(patches_to_pictures(patches, rows, columns, patch_px), pictures)


@given(st.integers(0, 1000))
def test_every_token_is_active_or_reusable(seed: int) -> None:
    mask = np.random.default_rng(seed).random((32, 32)) < 0.01
    masked = masked_tokens(mask, 8)
    layout = TokenLayout(6, 4, 4, 2, 2, masked)
    together = torch.cat([layout.active, layout.reusable])
    assert sorted(together.tolist()) == list(range(layout.total_tokens))
    assert len(layout.picture_ids()) + len(layout.text_ids()) == layout.total_tokens
    for position in layout.unmasked:
        row, column = divmod(position, 4)
        assert not mask[8 * row : 8 * row + 8, 8 * column : 8 * column + 8].any()
