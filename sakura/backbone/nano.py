"""nano-flux2: diffusers' own FLUX.2 transformer at a small size, on pixels and words.

The released FLUX.2 models see pictures through a VAE and text through a language model. nano sees pictures as pixel
patches and text as a few words of a closed vocabulary, each with a learned embedding; the transformer in between is
the same class, so every line that handles attention, caches and streaming serves both.
"""

import dataclasses
import json
from pathlib import Path

import torch
from diffusers import Flux2Transformer2DModel
from safetensors.torch import load_file, save_file
from torch import nn

from sakura.backbone.config import NanoConfig

TRANSFORMER_CONFIG: dict[str, object] = {
    "patch_size": 1,
    "in_channels": 192,
    "num_layers": 2,
    "num_single_layers": 6,
    "attention_head_dim": 32,
    "num_attention_heads": 6,
    "joint_attention_dim": 64,
    "timestep_guidance_channels": 128,
    "mlp_ratio": 3.0,
    "axes_dims_rope": (4, 12, 12, 4),
    "rope_theta": 2000,
    "guidance_embeds": False,
}


class NanoFlux2(nn.Module):
    """A small FLUX.2 transformer with its word embeddings."""

    def __init__(self, config: NanoConfig, transformer: Flux2Transformer2DModel) -> None:
        super().__init__()
        self.config = config
        self.transformer = transformer
        self.words = nn.Embedding(len(config.words), transformer.config["joint_attention_dim"])

    def word_ids(self, words: tuple[str, ...]) -> list[int]:
        """Indices of words, padded to the model's text length. Raises KeyError on an unknown word."""
        index = {word: position for position, word in enumerate(self.config.words)}
        if len(words) > self.config.text_tokens:
            raise ValueError(f"{self.config.name} reads at most {self.config.text_tokens} words, not {len(words)}.")
        return [index[word] for word in words] + [0] * (self.config.text_tokens - len(words))

    def forward(
        self,
        picture_tokens: torch.Tensor,
        picture_ids: torch.Tensor,
        word_ids: torch.Tensor,
        text_ids: torch.Tensor,
        time: torch.Tensor,
    ) -> torch.Tensor:
        """Predict clean patches (x0) for every picture token.

        picture_tokens (batch, tokens, 192), picture_ids (tokens, 4), word_ids int64 (batch, text), text_ids (text, 4),
        time (batch,) in 0..1 with 1 = pure noise. Returns (batch, tokens, 192).
        """
        return self.transformer(
            hidden_states=picture_tokens,
            encoder_hidden_states=self.words(word_ids),
            timestep=time,
            img_ids=picture_ids,
            txt_ids=text_ids,
            return_dict=False,
        )[0]


def new_model(config: NanoConfig | None = None, **overrides: object) -> NanoFlux2:
    """A freshly initialised model; ``overrides`` replace entries of :data:`TRANSFORMER_CONFIG`."""
    return NanoFlux2(config or NanoConfig(), Flux2Transformer2DModel(**{**TRANSFORMER_CONFIG, **overrides}))


def save_model(model: NanoFlux2, folder: Path, *, half: bool = True) -> None:
    """Write config.json, the transformer in diffusers' layout and words.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    dtype = torch.float16 if half else torch.float32
    config = {**dataclasses.asdict(model.config), "transformer": dict(model.transformer.config)}
    (folder / "config.json").write_text(json.dumps(config, indent=1, default=str) + "\n")
    weights = {name: value.detach().to(dtype).contiguous() for name, value in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors")


def load_model(folder: Path) -> NanoFlux2:
    """Read what :func:`save_model` wrote, in float32 and evaluation mode."""
    settings = json.loads((folder / "config.json").read_text())
    transformer = {key: settings["transformer"][key] for key in TRANSFORMER_CONFIG}
    names = {field.name for field in dataclasses.fields(NanoConfig)}
    config = NanoConfig(**{key: value for key, value in settings.items() if key in names})
    config = dataclasses.replace(config, words=tuple(config.words))
    model = NanoFlux2(config, Flux2Transformer2DModel(**transformer))
    weights = load_file(folder / "model.safetensors")
    model.load_state_dict({name: value.float() for name, value in weights.items()})
    return model.eval().requires_grad_(False)
