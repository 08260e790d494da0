"""Static reuse with FLUX.2's KV attention: reference tokens whose keys and values depend on the template alone.

In diffusers' "extract" mode reference tokens attend only to each other, at a fixed timestep. One capture then serves
every step, prompt and seed, and injecting it is exact.
"""

from collections.abc import Mapping

import torch

from sakura.backbone.attention import AttentionHook, BlockKv, CaptureStatic, Inject


@torch.no_grad()
def capture_static(
    hook: AttentionHook, reference: torch.Tensor, reference_ids: torch.Tensor, *, fixed_time: float = 0.0
) -> dict[int, BlockKv]:
    """K and V of reference tokens in every block, each (1, reference, heads, head_dim).

    ``reference`` is (1, reference, channels), ``reference_ids`` (reference, 4); ``fixed_time`` is in 0..1.
    """
    count = reference.shape[1]
    # References see neither text nor picture, so one empty token of each stands in for them.
    text = reference.new_zeros(1, 1, hook.transformer.config["joint_attention_dim"])
    ids = reference_ids.new_zeros(1, 4)
    policy = CaptureStatic(text_tokens=1, reference_tokens=count)
    hook.policy = policy
    hook.transformer(
        hidden_states=torch.cat([reference, torch.zeros_like(reference[:, :1])], 1),
        encoder_hidden_states=text,
        timestep=reference.new_zeros(1),
        img_ids=torch.cat([reference_ids, ids]),
        txt_ids=ids,
        kv_cache_mode="extract",
        num_ref_tokens=count,
        ref_fixed_timestep=fixed_time,
    )
    return policy.kv


@torch.no_grad()
def predict_with_static(
    hook: AttentionHook,
    kv: Mapping[int, BlockKv],
    picture: torch.Tensor,
    picture_ids: torch.Tensor,
    text: torch.Tensor,
    text_ids: torch.Tensor,
    time: torch.Tensor,
) -> torch.Tensor:
    """The model's output for picture tokens (1, picture, channels) that see captured references.

    ``text`` is (1, text, joint_dim), ids are (tokens, 4), ``time`` (1,) in 0..1.
    """
    hook.policy = Inject(kv)
    return hook.transformer(
        hidden_states=picture,
        encoder_hidden_states=text,
        timestep=time,
        img_ids=picture_ids,
        txt_ids=text_ids,
        return_dict=False,
    )[0]
