"""FLUX.2's KV attention: captured references are the template's alone, and injecting them is exact."""

import dataclasses

import pytest
import torch
from diffusers import Flux2Transformer2DModel
from diffusers.models.transformers.transformer_flux2 import (
    Flux2KVAttnProcessor,
    Flux2KVCache,
    Flux2KVParallelSelfAttnProcessor,
)
from worlds import tiny_model

from sakura.backbone.attention import AttentionHook, BlockKv, CaptureStatic
from sakura.backbone.static import capture_static, predict_with_static
from sakura.backbone.tokens import TEMPLATE_TIME, grid_ids

TEXT, SIDE = 5, 4
TOKENS = SIDE * SIDE


@dataclasses.dataclass(frozen=True)
class Inputs:
    text: torch.Tensor
    picture: torch.Tensor
    time: torch.Tensor


@pytest.fixture
def transformer() -> Flux2Transformer2DModel:
    return tiny_model(3).transformer


def some_inputs(seed: int, time: float) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    text = torch.randn(1, TEXT, 16, generator=generator)
    return Inputs(text, torch.randn(1, TOKENS, 192, generator=generator), torch.tensor([time]))


def some_reference(seed: int = 9) -> torch.Tensor:
    return torch.randn(1, TOKENS, 192, generator=torch.Generator().manual_seed(seed))


def text_ids() -> torch.Tensor:
    ids = torch.zeros(TEXT, 4)
    ids[:, 3] = torch.arange(TEXT)
    return ids


@torch.no_grad()
def extract(
    transformer: Flux2Transformer2DModel, reference: torch.Tensor, inputs: Inputs
) -> tuple[torch.Tensor, Flux2KVCache]:
    """diffusers' forward in extract mode: (prediction, its own cache)."""
    return transformer(
        hidden_states=torch.cat([reference, inputs.picture], 1),
        encoder_hidden_states=inputs.text,
        timestep=inputs.time,
        img_ids=torch.cat([grid_ids(SIDE, SIDE, TEMPLATE_TIME), grid_ids(SIDE, SIDE, 0)]),
        txt_ids=text_ids(),
        kv_cache_mode="extract",
        num_ref_tokens=TOKENS,
        return_dict=False,
    )


def extracted_kv(hook: AttentionHook, reference: torch.Tensor, inputs: Inputs) -> dict[int, BlockKv]:
    hook.policy = policy = CaptureStatic(TEXT, TOKENS)
    extract(hook.transformer, reference, inputs)
    return policy.kv


def test_references_do_not_depend_on_prompt_noise_or_time(transformer: Flux2Transformer2DModel) -> None:
    hook = AttentionHook(transformer)
    first = extracted_kv(hook, some_reference(), some_inputs(0, 1.0))
    assert sorted(first) == [0, 1, 2, 3]
    for seed, time in ((1, 1.0), (0, 0.3), (2, 0.7)):
        other = extracted_kv(hook, some_reference(), some_inputs(seed, time))
        assert all(torch.equal(a, b) for block in first for a, b in zip(first[block], other[block], strict=True))
    changed = extracted_kv(hook, some_reference(10), some_inputs(0, 1.0))
    assert not torch.equal(first[3][0], changed[3][0])


def test_capture_and_output_are_those_of_diffusers(transformer: Flux2Transformer2DModel) -> None:
    inputs, reference = some_inputs(0, 0.8), some_reference()
    for module in transformer.transformer_blocks:
        module.attn.set_processor(Flux2KVAttnProcessor())
    for module in transformer.single_transformer_blocks:
        module.attn.set_processor(Flux2KVParallelSelfAttnProcessor())
    expected, cache = extract(transformer, reference, inputs)
    layers = [*cache.double_block_caches, *cache.single_block_caches]

    hook = AttentionHook(transformer)
    hook.policy = policy = CaptureStatic(TEXT, TOKENS)
    output, _ = extract(transformer, reference, inputs)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
    for block, layer in enumerate(layers):
        for ours, theirs in zip(policy.kv[block], layer.get(), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("seed", "time"), [(0, 1.0), (1, 0.6), (2, 0.2)])
def test_injected_forward_is_the_extracting_one(transformer: Flux2Transformer2DModel, seed: int, time: float) -> None:
    hook = AttentionHook(transformer)
    inputs, reference = some_inputs(seed, time), some_reference()
    kv = capture_static(hook, reference, grid_ids(SIDE, SIDE, TEMPLATE_TIME))
    assert kv[0][0].shape == (1, TOKENS, 2, 16)
    ids = grid_ids(SIDE, SIDE, 0)
    injected = predict_with_static(hook, kv, inputs.picture, ids, inputs.text, text_ids(), inputs.time)
    hook.policy = CaptureStatic(TEXT, TOKENS)
    expected, _ = extract(transformer, reference, inputs)
    torch.testing.assert_close(injected, expected, atol=1e-4, rtol=1e-4)
    # The references matter: without them the output is another.
    empty = {block: (key[:, :0], value[:, :0]) for block, (key, value) in kv.items()}
    without = predict_with_static(hook, empty, inputs.picture, ids, inputs.text, text_ids(), inputs.time)
    assert (without - expected).abs().max() > 1e-2


def test_small_capture_equals_the_one_of_a_whole_request(transformer: Flux2Transformer2DModel) -> None:
    hook = AttentionHook(transformer)
    whole = extracted_kv(hook, some_reference(), some_inputs(0, 0.5))
    small = capture_static(hook, some_reference(), grid_ids(SIDE, SIDE, TEMPLATE_TIME))
    for block, pair in whole.items():
        for a, b in zip(pair, small[block], strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
