"""Run a FLUX.2 transformer a few blocks at a time, so that blocks can wait for the cache that they need.

The modules are diffusers' own; only the loop over them is ours. What depends on the step alone (time embedding,
modulation) or on the layout alone (RoPE) is computed once and kept.
"""

import dataclasses

import torch
from diffusers import Flux2Transformer2DModel

from sakura.backbone.attention import AttentionHook, AttentionPolicy, Rotary
from sakura.backbone.tokens import TokenLayout


@dataclasses.dataclass(frozen=True)
class StepModulation:
    """What depends on a step alone: float32 (1, n * dim) each."""

    time_embedding: torch.Tensor
    double_picture: torch.Tensor
    double_text: torch.Tensor
    single: torch.Tensor


@dataclasses.dataclass
class BlockState:
    """Activations between two blocks: text (1, text, dim) until the single-stream blocks have taken it in."""

    step: int
    picture: torch.Tensor
    text: torch.Tensor | None
    text_tokens: int


class Flux2Runner:
    """Block-wise forward passes at the fixed noise levels of a schedule (``times`` of shape (steps + 1,))."""

    def __init__(self, transformer: Flux2Transformer2DModel, times: torch.Tensor) -> None:
        self.transformer = transformer
        self.times = times
        self.hook = AttentionHook(transformer)
        self.double_blocks = len(transformer.transformer_blocks)
        self.blocks = self.double_blocks + len(transformer.single_transformer_blocks)
        self.heads: int = transformer.config["num_attention_heads"]
        self.head_dim: int = transformer.config["attention_head_dim"]
        with torch.no_grad():
            self.modulations = [self._modulation(time) for time in times[:-1]]

    def _modulation(self, time: torch.Tensor) -> StepModulation:
        model = self.transformer
        embedding = model.time_guidance_embed(time.reshape(1) * 1000, None)
        return StepModulation(
            embedding,
            model.double_stream_modulation_img(embedding),
            model.double_stream_modulation_txt(embedding),
            model.single_stream_modulation(embedding),
        )

    def rotary(self, layout: TokenLayout, positions: torch.Tensor | None = None) -> Rotary:
        """RoPE factors of the full sequence, or of ``positions`` in it: two tensors of shape (tokens, head_dim)."""
        ids = torch.cat([layout.text_ids(), layout.picture_ids()])
        return self.transformer.pos_embed(ids if positions is None else ids[positions])

    def begin(self, picture: torch.Tensor, text: torch.Tensor, step: int) -> BlockState:
        """Embed picture tokens (1, tokens, channels) and text (1, text, joint_dim) for a step."""
        model = self.transformer
        return BlockState(step, model.x_embedder(picture), model.context_embedder(text), text.shape[1])

    def run(self, state: BlockState, first: int, last: int, rotary: Rotary, policy: AttentionPolicy) -> None:
        """Run blocks ``first`` to ``last`` (exclusive) in place."""
        model, modulation = self.transformer, self.modulations[state.step]
        self.hook.policy = policy
        for block in range(first, last):
            if block < self.double_blocks:
                state.text, state.picture = model.transformer_blocks[block](
                    hidden_states=state.picture,
                    encoder_hidden_states=state.text,
                    temb_mod_img=modulation.double_picture,
                    temb_mod_txt=modulation.double_text,
                    image_rotary_emb=rotary,
                )
                continue
            if state.text is not None:
                state.picture, state.text = torch.cat([state.text, state.picture], 1), None
            state.picture = model.single_transformer_blocks[block - self.double_blocks](
                hidden_states=state.picture,
                encoder_hidden_states=None,
                temb_mod=modulation.single,
                image_rotary_emb=rotary,
            )

    def select(self, state: BlockState, positions: torch.Tensor) -> None:
        """Keep the tokens at ``positions`` of the sequence (text first, which must all be kept) in place."""
        if state.text is not None:
            state.picture = state.picture[:, positions[state.text_tokens :] - state.text_tokens]
        else:
            state.picture = state.picture[:, positions]

    def finish(self, state: BlockState, tokens: slice) -> torch.Tensor:
        """Project the given picture tokens to output channels: (1, tokens, channels)."""
        picture = state.picture if state.text is not None else state.picture[:, state.text_tokens :]
        hidden = self.transformer.norm_out(picture[:, tokens], self.modulations[state.step].time_embedding)
        return self.transformer.proj_out(hidden)
