"""Exported shards as engines find them: files, what goes in and out, token counts, and the self-test.

A folder of shards holds ``manifest.json``, one ``.onnx`` file a shard, and for each a ``.check.safetensors`` with
inputs and what they must give, so that a device can test an engine before it trusts it.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from safetensors.numpy import load_file

from sakura.errors import UserError

MANIFEST_VERSION = 1
# Relative error of what a shard adds to its tokens. The residual would hide an error: K/V change only a part of that.
MAX_ERROR = {"fp32": 1e-4, "fp16": 2e-2}
HIDDEN = -1e4  # as a key bias: below every score, and within fp16

Precision = Literal["fp32", "fp16"]


class ShardInput(msgspec.Struct, frozen=True):
    """One input of a shard; a string in ``shape`` is a token count that the session fixes or leaves open."""

    name: str
    shape: list[int | str]


class ShardFile(msgspec.Struct, frozen=True):
    """Blocks ``first`` to ``last`` (exclusive). ``error`` is the relative error of its delta against torch."""

    file: str
    check: str
    first: int
    last: int
    double_blocks: int
    inputs: list[ShardInput]
    outputs: list[str]
    error: float


class Manifest(msgspec.Struct, frozen=True):
    """What a folder of exported shards holds. ``model`` is the fingerprint of the weights."""

    version: int
    model: str
    precision: Precision
    padded: bool
    blocks_per_shard: int
    shards: list[ShardFile]


class _Versioned(msgspec.Struct, frozen=True):
    version: int


def read_manifest(folder: Path, fingerprint: str) -> Manifest:
    """Raises UserError where a folder holds no shards that this version can use, or those of another model."""
    manifest = read_any_manifest(folder)
    if manifest.model != fingerprint:
        raise UserError(f"The shards in {folder} are not of this checkpoint; export them again.")
    return manifest


def read_any_manifest(folder: Path) -> Manifest:
    """Raises UserError where a folder holds no shards that this version can use."""
    path = folder / "manifest.json"
    try:
        data = path.read_bytes()
        version = msgspec.json.decode(data, type=_Versioned).version
        if version != MANIFEST_VERSION:
            raise UserError(f"{path} is of version {version}, not {MANIFEST_VERSION}; export the shards again.")
        manifest = msgspec.json.decode(data, type=Manifest)
    except FileNotFoundError:
        raise UserError(f"{folder} holds no exported shards; run python -m device_bridge export first.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error}); export the shards elsewhere.") from error
    except msgspec.DecodeError as error:
        raise UserError(f"{path} is damaged ({error}); export the shards again.") from error
    return manifest


@dataclasses.dataclass(frozen=True)
class Counts:
    """Token counts of one run of a shard: text, picture (or other) tokens that are computed, and cached rows."""

    text: int
    picture: int
    cached: int

    def of(self, name: str) -> int:
        sizes = {"T": self.text, "P": self.picture, "N": self.text + self.picture, "R": self.cached}
        return sum(sizes[each] for each in name.split(" + "))

    def shape(self, shape: list[int | str]) -> tuple[int, ...]:
        return tuple(self.of(side) if isinstance(side, str) else side for side in shape)


def counts_of(given: Mapping[str, np.ndarray]) -> Counts:
    """The token counts of a shard's inputs."""
    total, cached = given["cosine"].shape[0], given["cached"].shape[1]
    text = given["text"].shape[1] if "text" in given else 0
    return Counts(text, total - text, cached)


def stored_counts(shard: ShardFile, folder: Path) -> Counts:
    """The token counts that a shard is checked with."""
    return counts_of({key.removeprefix("in."): value for key, value in load_file(folder / shard.check).items()})


def _added(shard: ShardFile, given: list[np.ndarray], results: list[np.ndarray]) -> np.ndarray:
    """What a shard adds to its tokens, flat: results less inputs."""
    names = [each.name for each in shard.inputs]
    if shard.outputs == ["picture_out", "text_out"]:
        before = [given[names.index("picture")], given[names.index("text")]]
    elif "tokens" in names:
        before = [given[names.index("tokens")]]
    else:
        before = [np.concatenate([given[names.index("text")], given[names.index("picture")]], 1)]
    return np.concatenate([(after - start).ravel() for after, start in zip(results, before, strict=True)])


def _relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found.astype(np.float64) - wanted) / np.linalg.norm(wanted.astype(np.float64)))


def self_test(run: Callable[[dict[str, np.ndarray]], list[np.ndarray]], shard: ShardFile, folder: Path) -> float:
    """Relative error of what ``run`` adds to the tokens, against what torch added when the shard was exported."""
    stored = load_file(folder / shard.check)
    given = {each.name: stored[f"in.{each.name}"] for each in shard.inputs}
    results = run(given)
    wanted = [stored[f"out.{name}"] for name in shard.outputs]
    inputs = [value.astype(np.float32) for value in given.values()]
    return _relative_error(_added(shard, inputs, results), _added(shard, inputs, wanted))
