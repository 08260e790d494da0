"""Shards of a FLUX.2 transformer as ONNX files: active tokens and cached K/V in, active tokens out.

All shards of a kind (so many double-stream blocks, so many single-stream ones) have the same graph and differ in
their weights, so a kind is traced once. On the CPU, token counts stay open: the same file runs the active tokens with
a cache, and all tokens with an empty one. An NPU wants fixed counts (a bucket); there a ``key_bias`` hides the padding.
"""

import hashlib
import logging
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import onnx_ir
import onnxruntime
import onnxscript.optimizer
import torch
from diffusers import Flux2Transformer2DModel
from safetensors.numpy import save_file
from torch import nn

from device_bridge.engines.speed import typical_template
from device_bridge.shards import (
    MANIFEST_VERSION,
    MAX_ERROR,
    Counts,
    Manifest,
    Precision,
    ShardFile,
    ShardInput,
    self_test,
)
from sakura.backbone.attention import AttentionHook, attention
from sakura.backbone.editor import Editor
from sakura.errors import UserError
from sakura.settings import MODEL_FOLDER

OPSET = 18  # boolean masks and some shapes of later ones are refused by the NPU's compiler
CHECK_SEED = 0

_WEIGHTS = "blocks."  # what the names of a shard's weights begin with


class _CachedAttention:
    """Attention of the tokens present to themselves and to cached K and V of (matrices, rows, heads, head_dim)."""

    def __init__(self, cached: torch.Tensor, key_bias: torch.Tensor | None) -> None:
        self.cached, self.key_bias = cached, key_bias

    def attend(self, block: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        keys = torch.cat([key, self.cached[2 * block][None]], 1)
        values = torch.cat([value, self.cached[2 * block + 1][None]], 1)
        return attention(query, keys, values, self.key_bias)


class _DividingRmsNorm(nn.Module):
    """RMSNorm that divides by the root instead of multiplying by its reciprocal.

    The NPU's compiler takes the latter, followed by the weights, for an operation of its own and gets it wrong: off by
    more than the result in fp32 (QAIRT of onnxruntime-qnn 2.7.0, any SoC).
    """

    def __init__(self, norm: nn.RMSNorm) -> None:
        super().__init__()
        self.eps = torch.finfo(torch.float32).eps if norm.eps is None else norm.eps
        self.weight = norm.weight

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        numbers = hidden_states.float()
        root = (numbers.square().mean(-1, keepdim=True) + self.eps).sqrt()
        return (numbers / root * self.weight).to(hidden_states.dtype)


class ShardModule(nn.Module):
    """Consecutive blocks of FLUX.2, double-stream ones first, with everything that they depend on as an input.

    ``transformer`` has these blocks and no others, see :func:`shard_module`.
    """

    def __init__(self, transformer: Flux2Transformer2DModel, *, padded: bool) -> None:
        super().__init__()
        self._hook = [AttentionHook(transformer)]  # in a list, so that the transformer is no module of this one
        self.padded = padded
        self.double_blocks = len(transformer.transformer_blocks)
        self.blocks = nn.ModuleList([*transformer.transformer_blocks, *transformer.single_transformer_blocks])
        for block in self.blocks:
            for name, part in list(block.named_modules()):
                if isinstance(part, nn.RMSNorm):
                    block.set_submodule(name, _DividingRmsNorm(part))
        self.heads: int = transformer.config["num_attention_heads"]
        self.head_dim: int = transformer.config["attention_head_dim"]

    @property
    def width(self) -> int:
        return self.heads * self.head_dim

    @property
    def inputs(self) -> list[ShardInput]:
        """Their names, their order and their shapes; P, T and N count picture, text and all active tokens."""
        matrices = 2 * len(self.blocks)
        single = len(self.blocks) - self.double_blocks
        tokens: list[ShardInput] = []
        if self.double_blocks:
            tokens += [ShardInput("picture", [1, "P", self.width]), ShardInput("text", [1, "T", self.width])]
            tokens += [ShardInput(f"modulation_{name}", [1, 6 * self.width]) for name in ("picture", "text")]
        else:
            tokens += [ShardInput("tokens", [1, "N", self.width])]
        if single:
            tokens += [ShardInput("modulation_single", [1, 3 * self.width])]
        tokens += [ShardInput(name, ["N", self.head_dim]) for name in ("cosine", "sine")]
        tokens += [ShardInput("cached", [matrices, "R", self.width])]
        return [*tokens, ShardInput("key_bias", ["N + R"])] if self.padded else tokens

    @property
    def outputs(self) -> list[str]:
        return ["picture_out", "text_out"] if self.double_blocks == len(self.blocks) else ["tokens_out"]

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = dict(zip((each.name for each in self.inputs), inputs, strict=True))
        rotary = given["cosine"], given["sine"]
        cached = given["cached"].unflatten(-1, (self.heads, self.head_dim))
        self._hook[0].policy = _CachedAttention(cached, given.get("key_bias"))
        picture, text = given.get("picture", given.get("tokens")), given.get("text")
        assert picture is not None
        for number, block in enumerate(self.blocks):
            if number < self.double_blocks:
                text, picture = block(
                    hidden_states=picture,
                    encoder_hidden_states=text,
                    temb_mod_img=given["modulation_picture"],
                    temb_mod_txt=given["modulation_text"],
                    image_rotary_emb=rotary,
                )
                continue
            if text is not None:
                picture, text = torch.cat([text, picture], 1), None
            picture = block(
                hidden_states=picture,
                encoder_hidden_states=None,
                temb_mod=given["modulation_single"],
                image_rotary_emb=rotary,
            )
        return (picture,) if text is None else (picture, text)


def shard_module(
    config: Mapping[str, object], double: int, single: int, dtype: torch.dtype, *, padded: bool
) -> ShardModule:
    """A shard with so many double-stream and single-stream blocks of a transformer's config, weights untrained."""
    transformer = Flux2Transformer2DModel.from_config(config, num_layers=double, num_single_layers=single)
    module = ShardModule(transformer, padded=padded).to(dtype).eval().requires_grad_(False)
    for weight in module.parameters():  # equal ones would be merged into one
        weight.uniform_(-0.1, 0.1)
    return module


def typical_counts(editor: Editor) -> Counts:
    """Those of an edit with a reference and a mask of the usual size."""
    layout = editor.layout(typical_template(editor))
    return Counts(layout.text_tokens, len(layout.active) - layout.text_tokens, len(layout.reusable))


SMALL_COUNTS = Counts(text=64, picture=192, cached=256)  # for checking large models; their graphs take any


def example_inputs(module: ShardModule, counts: Counts, seed: int = CHECK_SEED) -> list[torch.Tensor]:
    """Random inputs of the sizes that they have in use; RoPE factors lie on the unit circle."""
    generator = torch.Generator().manual_seed(seed)
    given = [torch.randn(counts.shape(each.shape), generator=generator) for each in module.inputs]
    names = [each.name for each in module.inputs]
    angles = 3 * given[names.index("cosine")]
    given[names.index("cosine")], given[names.index("sine")] = angles.cos(), angles.sin()
    for name in names:
        if name.startswith("modulation"):
            given[names.index(name)] *= 0.5
    if module.padded:
        given[-1] = torch.zeros_like(given[-1])
    return given


def _trace(module: ShardModule, counts: Counts) -> onnx_ir.Model:
    dtype = next(module.parameters()).dtype
    given = tuple(each.to(dtype) for each in example_inputs(module, counts))
    open_sides = tuple(
        {side: torch.export.Dim.DYNAMIC for side, count in enumerate(each.shape) if isinstance(count, str)} or None
        for each in module.inputs
    )
    for name in ("torch.onnx", "onnxscript", "onnx_ir"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            given,
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=(open_sides,),
            input_names=[each.name for each in module.inputs],
            output_names=module.outputs,
            optimize=False,  # would fold weights away, of which there is one set a shard
            verbose=False,
        )
        assert program is not None
        model: onnx_ir.Model = program.model
        onnxscript.optimizer.optimize_ir(model, should_fold=_without_weights)
    for value, described in zip(model.graph.inputs, module.inputs, strict=True):
        value.shape = onnx_ir.Shape(described.shape)
    return model


def _without_weights(node: onnx_ir.Node) -> bool | None:
    """Whether a node may be folded into a constant; None leaves it to the optimizer."""
    return False if any(each is not None and (each.name or "").startswith(_WEIGHTS) for each in node.inputs) else None


def _split(double_blocks: int, first: int, last: int) -> tuple[int, int]:
    double = max(0, min(last, double_blocks) - first)
    return double, last - first - double


def export_shards(
    transformer: Flux2Transformer2DModel,
    folder: Path,
    *,
    fingerprint: str,
    blocks_per_shard: int,
    counts: Counts,
    precision: Precision = "fp32",
    padded: bool = False,
    progress: Callable[[float], None] = lambda done: None,
) -> Manifest:
    """Write the shards of a transformer to ``folder``, which is replaced as a whole when all of them are right.

    ``counts`` are typical ones, for tracing and checking. Raises UserError where a shard does not do what torch does.
    """
    every = [*transformer.transformer_blocks, *transformer.single_transformer_blocks]
    if len(every) % blocks_per_shard:
        raise UserError(f"{len(every)} blocks do not make shards of {blocks_per_shard}; choose a divisor.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".export-") as name:
        part = Path(name)
        shards = []
        kinds: dict[tuple[int, int], tuple[onnx_ir.Model, ShardModule]] = {}
        for first in range(0, len(every), blocks_per_shard):
            last = first + blocks_per_shard
            kind = _split(len(transformer.transformer_blocks), first, last)
            if kind not in kinds:
                dtype = torch.float32 if precision == "fp32" else torch.float16
                traced = _trace(shard_module(transformer.config, *kind, dtype, padded=padded), counts)
                kinds[kind] = traced, shard_module(transformer.config, *kind, torch.float32, padded=padded)
            model, module = kinds[kind]
            module.blocks.load_state_dict(nn.ModuleList(every[first:last]).state_dict())
            shards.append(_write_shard(part, model, module, first, precision, counts))
            progress(last / len(every))
        manifest = Manifest(MANIFEST_VERSION, fingerprint, precision, padded, blocks_per_shard, shards)
        (part / "manifest.json").write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
        part.mkdir()  # for the end of the temporary directory
    return manifest


def _write_shard(
    folder: Path, model: onnx_ir.Model, module: ShardModule, first: int, precision: Precision, counts: Counts
) -> ShardFile:
    last = first + len(module.blocks)
    name = f"shard-{first:02}-{last - 1:02}"
    dtype = np.float16 if precision == "fp16" else np.float32
    weights = {f"{_WEIGHTS}{key}": value.numpy().astype(dtype) for key, value in module.blocks.state_dict().items()}
    for key, value in weights.items():
        model.graph.initializers[key].const_value = onnx_ir.tensor(value, name=key)
    onnx_ir.save(model, folder / f"{name}.onnx")
    given = example_inputs(module, counts)
    results = [each.numpy() for each in module(*given)]
    names = [each.name for each in module.inputs]
    check = {f"in.{key}": value.numpy().astype(dtype) for key, value in zip(names, given, strict=True)}
    check |= {f"out.{key}": value for key, value in zip(module.outputs, results, strict=True)}
    save_file(check, folder / f"{name}.check.safetensors")
    described = ShardFile(
        f"{name}.onnx",
        f"{name}.check.safetensors",
        first,
        last,
        module.double_blocks,
        module.inputs,
        module.outputs,
        error=0.0,
    )
    session = onnxruntime.InferenceSession(folder / described.file, providers=["CPUExecutionProvider"])
    error = self_test(lambda stored: list(session.run(described.outputs, stored)), described, folder)
    if not error <= MAX_ERROR[precision]:
        raise UserError(
            f"Blocks {first} to {last - 1} exported as {precision} are wrong by {100 * error:.2g} % of what they add; "
            "this is a bug of the exporter's versions: use the versions of requirements.txt."
        )
    return msgspec.structs.replace(described, error=error)


def export_model(
    model: Path | None,
    folder: Path,
    precision: str,
    blocks_per_shard: int,
    *,
    padded: bool,
    socs: Sequence[int],
    progress: Callable[[float], None] = lambda done: None,
) -> Manifest:
    """Export a checkpoint: nano's, the shipped one if None, or a FLUX.2 transformer in diffusers' layout.

    ``socs`` get context binaries as well. Raises UserError.
    """
    from device_bridge.engines.qnn import compile_for

    if precision not in MAX_ERROR:
        raise UserError(f"There is no precision {precision!r}; there are {', '.join(MAX_ERROR)}.")
    if folder.exists() and any(folder.iterdir()) and not (folder / "manifest.json").exists():
        raise UserError(f"{folder} holds other files; choose an empty folder, or one of exported shards.")
    transformer, fingerprint, counts = _load(model or MODEL_FOLDER)
    manifest = export_shards(
        transformer,
        folder,
        fingerprint=fingerprint,
        blocks_per_shard=blocks_per_shard,
        counts=counts,
        precision=precision,  # type: ignore[arg-type]
        padded=padded,
        progress=progress,
    )
    for soc in socs:
        compile_for(folder, soc)
    return manifest


def _load(model: Path) -> tuple[Flux2Transformer2DModel, str, Counts]:
    config = model / "config.json"
    if not config.is_file() and (model / "transformer" / "config.json").is_file():
        model, config = model / "transformer", model / "transformer" / "config.json"
    if not config.is_file():
        raise UserError(f"There is no model in {model}; it needs a config.json.")
    try:
        described = msgspec.json.decode(config.read_bytes(), type=dict[str, object])
    except msgspec.DecodeError as error:
        raise UserError(f"{config} is damaged ({error}); copy the model again.") from error
    if described.get("_class_name") != "Flux2Transformer2DModel":
        editor = Editor.load(model)
        return editor.model.transformer, editor.fingerprint, typical_counts(editor)
    digest = hashlib.sha256(config.read_bytes())
    for weights in sorted(model.glob("*.safetensors")):
        with weights.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    transformer = Flux2Transformer2DModel.from_pretrained(model, torch_dtype=torch.float32)
    return transformer.eval().requires_grad_(False), digest.hexdigest()[:32], SMALL_COUNTS
