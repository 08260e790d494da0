"""One hook on attention: compute plainly, capture reusable keys and values with their importance, or inject them.

Keys and values are taken after normalisation and RoPE, as diffusers' own FLUX.2 cache does, in its convention
(batch, tokens, heads, head_dim). What happens to them is decided by the policy that the hook holds.
"""

from collections.abc import Mapping
from typing import Protocol

import torch
from diffusers.models.embeddings import apply_rotary_emb
from diffusers.models.transformers.transformer_flux2 import (
    Flux2Attention,
    Flux2ParallelSelfAttention,
    Flux2Transformer2DModel,
)
from torch.nn.functional import scaled_dot_product_attention

BlockKv = tuple[torch.Tensor, torch.Tensor]
Rotary = tuple[torch.Tensor, torch.Tensor]


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, key_bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Scaled dot-product attention of (batch, tokens, heads, head_dim) tensors.

    ``key_bias`` (keys,) is added to the scores: very negative, it hides a key.
    """
    mask = None if key_bias is None else key_bias[None, None, None]
    out = scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), mask)
    return out.transpose(1, 2)


class AttentionPolicy(Protocol):
    """What happens in the attention of one block (double-stream blocks are counted first)."""

    def attend(self, block: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """All tensors are (batch, tokens, heads, head_dim); returns the attention output in the same shape."""
        ...


class Plain:
    """Ordinary attention among the tokens present."""

    def attend(self, block: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return attention(query, key, value)


class Capture:
    """Ordinary attention that keeps K and V of the reusable tokens and scores how much they are looked at.

    ``importance[block]`` is the softmax mass that ``masked`` queries give to each reusable key, averaged over batch,
    heads and queries (our reading of the paper's token importance): float32 of shape (reusable,).
    """

    def __init__(self, reusable: torch.Tensor, masked: torch.Tensor) -> None:
        self.reusable, self.masked = reusable, masked
        self.kv: dict[int, BlockKv] = {}
        self.importance: dict[int, torch.Tensor] = {}

    def attend(self, block: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        self.kv[block] = (key[:, self.reusable].clone(), value[:, self.reusable].clone())
        scores = torch.einsum("bqhd,bkhd->bhqk", query[:, self.masked], key) / query.shape[-1] ** 0.5
        self.importance[block] = scores.float().softmax(-1)[..., self.reusable].mean((0, 1, 2))
        return attention(query, key, value)


class Inject:
    """Attention of the active tokens to themselves and to the reusable K and V of each block.

    ``kv[block]`` are two tensors of shape (1, reusable, heads, head_dim).
    """

    def __init__(self, kv: Mapping[int, BlockKv]) -> None:
        self.kv = kv

    def attend(self, block: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        cached_key, cached_value = self.kv[block]
        return attention(query, torch.cat([key, cached_key], 1), torch.cat([value, cached_value], 1))


class CaptureStatic:
    """FLUX.2's KV attention: reference tokens attend only to each other, so their K and V are the template's alone.

    Expects the sequence ``text | reference | picture`` that diffusers' "extract" mode uses.
    """

    def __init__(self, text_tokens: int, reference_tokens: int) -> None:
        self.references = slice(text_tokens, text_tokens + reference_tokens)
        self.kv: dict[int, BlockKv] = {}

    def attend(self, block: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        refs = self.references
        self.kv[block] = (key[:, refs].clone(), value[:, refs].clone())
        out = attention(query, key, value)
        out[:, refs] = attention(query[:, refs], key[:, refs], value[:, refs])
        return out


class AttentionHook:
    """Routes every attention of a FLUX.2 transformer through ``policy``; installs itself."""

    def __init__(self, transformer: Flux2Transformer2DModel) -> None:
        self.transformer = transformer
        self.policy: AttentionPolicy = Plain()
        double, single = transformer.transformer_blocks, transformer.single_transformer_blocks
        for block, module in enumerate(double):
            module.attn.set_processor(_DoubleProcessor(self, block))
        for block, module in enumerate(single, start=len(double)):
            module.attn.set_processor(_SingleProcessor(self, block))


def _rotate(query: torch.Tensor, key: torch.Tensor, rotary: Rotary) -> tuple[torch.Tensor, torch.Tensor]:
    return (
        apply_rotary_emb(query, rotary, sequence_dim=1),
        apply_rotary_emb(key, rotary, sequence_dim=1),
    )


class _DoubleProcessor:
    """Attention of a double-stream block: text and picture have projections of their own, then attend together."""

    def __init__(self, hook: AttentionHook, block: int) -> None:
        self.hook, self.block = hook, block

    def __call__(
        self,
        attn: Flux2Attention,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        image_rotary_emb: Rotary | None = None,
        **static_kv: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        assert image_rotary_emb is not None
        heads = (-1, attn.head_dim)
        query = attn.norm_q(attn.to_q(hidden_states).unflatten(-1, heads))
        key = attn.norm_k(attn.to_k(hidden_states).unflatten(-1, heads))
        value = attn.to_v(hidden_states).unflatten(-1, heads)
        text_query = attn.norm_added_q(attn.add_q_proj(encoder_hidden_states).unflatten(-1, heads))
        text_key = attn.norm_added_k(attn.add_k_proj(encoder_hidden_states).unflatten(-1, heads))
        text_value = attn.add_v_proj(encoder_hidden_states).unflatten(-1, heads)

        query, key = torch.cat([text_query, query], 1), torch.cat([text_key, key], 1)
        query, key = _rotate(query, key, image_rotary_emb)
        out = self.hook.policy.attend(self.block, query, key, torch.cat([text_value, value], 1)).flatten(2)
        text, picture = out.split([encoder_hidden_states.shape[1], hidden_states.shape[1]], dim=1)
        return attn.to_out[1](attn.to_out[0](picture)), attn.to_add_out(text)


class _SingleProcessor:
    """Attention of a single-stream block, fused with its feed-forward layer."""

    def __init__(self, hook: AttentionHook, block: int) -> None:
        self.hook, self.block = hook, block

    def __call__(
        self,
        attn: Flux2ParallelSelfAttention,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        image_rotary_emb: Rotary | None = None,
        **static_kv: object,
    ) -> torch.Tensor:
        assert image_rotary_emb is not None
        fused = attn.to_qkv_mlp_proj(hidden_states)
        qkv, mlp = fused.split([3 * attn.inner_dim, attn.mlp_hidden_dim * attn.mlp_mult_factor], dim=-1)
        query, key, value = (part.unflatten(-1, (-1, attn.head_dim)) for part in qkv.chunk(3, dim=-1))
        query, key = _rotate(attn.norm_q(query), attn.norm_k(key), image_rotary_emb)
        out = self.hook.policy.attend(self.block, query, key, value).flatten(2)
        return attn.to_out(torch.cat([out, attn.mlp_act_fn(mlp)], dim=-1))
