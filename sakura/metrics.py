"""How much two pictures of the same size differ: PSNR, SSIM and LPIPS, over a region and as a whole."""

import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import load_file
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from sakura.errors import UserError
from sakura.events import QualityScores

if TYPE_CHECKING:
    from lpips import LPIPS

LPIPS_WEIGHTS = Path(__file__).resolve().parents[1] / "data" / "metrics" / "lpips_alex.safetensors"
MAX_PSNR_DB = 100.0
MIN_SIDE_PX = 7
_SSIM_WINDOW_PX = 11
_LPIPS_MIN_SIDE_PX = 32

_network: "LPIPS | None" = None
_network_lock = threading.Lock()


def compare(picture: np.ndarray, reference: np.ndarray, mask: np.ndarray | None) -> QualityScores:
    """Scores of ``picture`` against ``reference``, both uint8 RGB of shape (h, w, 3).

    ``mask`` is bool of shape (h, w), true where the picture was edited; without one, the scores of the region are those
    of the whole. Raises UserError for sizes that differ, a side under 7 px or an empty mask.
    """
    _check(picture, reference, mask)
    if np.array_equal(picture, reference):
        return QualityScores(
            mask_psnr_db=MAX_PSNR_DB, mask_ssim=1.0, mask_lpips=0.0, psnr_db=MAX_PSNR_DB, ssim=1.0, lpips=0.0
        )
    ssim, ssim_map = _ssim(picture, reference)
    lpips, lpips_map = _lpips(picture, reference)
    whole_db = psnr_db(picture, reference)
    if mask is None:
        return QualityScores(
            mask_psnr_db=whole_db, mask_ssim=ssim, mask_lpips=lpips, psnr_db=whole_db, ssim=ssim, lpips=lpips
        )
    return QualityScores(
        mask_psnr_db=psnr_db(picture[mask], reference[mask]),
        mask_ssim=float(ssim_map[mask].mean()),
        mask_lpips=float(lpips_map[mask].mean()),
        psnr_db=whole_db,
        ssim=ssim,
        lpips=lpips,
    )


def masked_psnr_ssim(picture: np.ndarray, reference: np.ndarray, mask: np.ndarray) -> tuple[float, float]:
    """PSNR in dB and SSIM of the edited region alone: what :func:`compare` says of it, without LPIPS."""
    _check(picture, reference, mask)
    return psnr_db(picture[mask], reference[mask]), float(_ssim(picture, reference)[1][mask].mean())


def _check(picture: np.ndarray, reference: np.ndarray, mask: np.ndarray | None) -> None:
    height, width = picture.shape[:2]
    if picture.shape != reference.shape:
        raise UserError(
            f"The pictures are {width}x{height} and {reference.shape[1]}x{reference.shape[0]} pixels; "
            "compare pictures of one size."
        )
    if min(height, width) < MIN_SIDE_PX:
        raise UserError(
            f"The picture is {width}x{height} pixels, too small to compare; "
            f"use one of at least {MIN_SIDE_PX}x{MIN_SIDE_PX} pixels."
        )
    if mask is None:
        return
    if mask.shape != (height, width):
        raise UserError(
            f"The mask is {mask.shape[1]}x{mask.shape[0]} pixels and the picture {width}x{height}; "
            "use a mask of the picture's size."
        )
    if not mask.any():
        raise UserError("The mask marks no pixel, so there is no region to compare; mark the edited region.")


def psnr_db(picture: np.ndarray, reference: np.ndarray) -> float:
    if np.array_equal(picture, reference):
        return MAX_PSNR_DB
    return min(MAX_PSNR_DB, float(peak_signal_noise_ratio(reference, picture, data_range=255)))


def _ssim(picture: np.ndarray, reference: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean SSIM, and its map of shape (h, w).

    Settings of Wang et al. 2004: an 11 px Gaussian window of sigma 1.5 and the population covariance; the channels are
    averaged. The mean leaves out the border of half a window; for sides under 11 px, only 3 px.
    """
    window_px = _SSIM_WINDOW_PX if min(picture.shape[:2]) >= _SSIM_WINDOW_PX else MIN_SIDE_PX
    mean, per_channel = structural_similarity(
        reference,
        picture,
        win_size=window_px,
        data_range=255,
        channel_axis=2,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        full=True,
    )
    return float(mean), per_channel.mean(axis=2)


def _lpips(picture: np.ndarray, reference: np.ndarray) -> tuple[float, np.ndarray]:
    """LPIPS 0.1 with AlexNet, and its spatial map of shape (h, w).

    Both come from one pass of the network over the pair: the distance averages each layer's map, the spatial map adds
    the layers' maps at full size. Pictures under 32 px, too small for the network, are mirrored out to 32 px.
    """
    import lpips  # Imported late: it takes seconds, and only the first comparison needs it.

    network = _load_network()
    height, width = picture.shape[:2]
    pair = np.stack([picture, reference])
    missing = [(0, 0), (0, max(0, _LPIPS_MIN_SIDE_PX - height)), (0, max(0, _LPIPS_MIN_SIDE_PX - width)), (0, 0)]
    pair = np.pad(pair, missing, mode="symmetric")
    with torch.inference_mode():
        # The network expects -1..1.
        inputs = torch.from_numpy(pair).permute(0, 3, 1, 2).float() / 127.5 - 1
        distance = torch.zeros(())
        spatial = torch.zeros(inputs.shape[2:])
        for features, linear in zip(network.net(network.scaling_layer(inputs)), network.lins, strict=True):
            unit = lpips.normalize_tensor(features)
            difference = linear((unit[:1] - unit[1:]) ** 2)
            distance = distance + difference.mean()
            spatial = spatial + lpips.upsample(difference, out_HW=tuple(spatial.shape))[0, 0]
    return float(distance), spatial[:height, :width].numpy()


def _load_network() -> "LPIPS":
    global _network
    with _network_lock:
        if _network is None:
            _network = _build_network()
        return _network


def _build_network() -> "LPIPS":
    import lpips

    if not LPIPS_WEIGHTS.is_file():
        raise UserError(f"{LPIPS_WEIGHTS} is missing, so LPIPS cannot be computed; restore the data folder.")
    # On the meta device the classifier of AlexNet, which lpips drops at once, takes no memory. lpips names an argument
    # of torchvision in an old way, which works and would only warn people who can do nothing about it.
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        network = lpips.LPIPS(net="alex", pretrained=False, pnet_rand=True, verbose=False)
    weights = {name: tensor.float() for name, tensor in load_file(LPIPS_WEIGHTS).items()}
    network.load_state_dict(weights, strict=False, assign=True)
    # The buffers are constants that are not part of the weights, made afresh on the CPU.
    network.scaling_layer = lpips.ScalingLayer()
    return network.requires_grad_(False).eval()
