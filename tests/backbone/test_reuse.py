"""The hook on attention and the block-wise runner against diffusers' own forward pass."""

import copy

import numpy as np
import pytest
import torch
from worlds import SHIPPED_BY_TASK, TINY_PX, TINY_TEMPLATES, tiny_model, tiny_template

from sakura.backbone.attention import Capture, Inject, Plain
from sakura.backbone.editor import Editor, EditState, capture, edit_on_device
from sakura.backbone.flux2 import Flux2Runner
from sakura.backbone.inputs import Request, Template
from sakura.backbone.nano import load_model, save_model
from sakura.backbone.sampling import add_noise
from sakura.templates import TemplateAssets, TemplateLibrary


def masked_output(state: EditState) -> torch.Tensor:
    state.end_step()
    return state.predicted


def check_injection_is_exact(editor: Editor, template: Template, request: Request) -> None:
    """At every step: active tokens with the captured K and V of this very request, against all tokens."""
    layout = editor.layout(template)
    masked = torch.tensor(layout.masked) + layout.text_tokens
    full, active = editor.start(template, request), editor.start(template, request)
    for step in range(editor.steps):
        policy = Capture(layout.reusable, masked)
        full.begin_full(step)
        full.run_blocks(0, editor.blocks, policy)
        active.begin_active(step)
        # A few blocks at a time, as the pipeline does.
        for block in range(editor.blocks):
            active.run_blocks(block, block + 1, Inject(policy.kv))
        torch.testing.assert_close(masked_output(active), masked_output(full), atol=1e-4, rtol=0)
        active.noisy = full.noisy.clone()
    difference = full.picture().astype(int) - active.picture()
    assert np.abs(difference).max() <= 1


@pytest.mark.parametrize("template_id", TINY_TEMPLATES)
@pytest.mark.parametrize("full_blocks", [0, 1, 2, 3, 4])
def test_step_can_be_begun_in_full_and_ended_with_the_cache(
    tiny_editor: Editor, template_id: str, full_blocks: int
) -> None:
    """With the K and V of this very request it does not matter where in a step the cache comes in."""
    template = tiny_template(template_id)
    layout, request = tiny_editor.layout(template.for_editor()), template.typical_requests(1)[0]
    masked = torch.tensor(layout.masked) + layout.text_tokens
    full, mixed = (tiny_editor.start(template.for_editor(), request) for _ in range(2))
    for step in range(tiny_editor.steps):
        policy = Capture(layout.reusable, masked)
        full.begin_full(step)
        full.run_blocks(0, tiny_editor.blocks, policy)
        mixed.begin_full(step)
        mixed.run_blocks(0, full_blocks, Plain())
        for block in range(full_blocks, tiny_editor.blocks):
            mixed.keep_active()  # again and again does no harm
            mixed.run_blocks(block, block + 1, Inject(policy.kv))
        torch.testing.assert_close(masked_output(mixed), masked_output(full), atol=1e-4, rtol=0)
        mixed.noisy = full.noisy.clone()
    assert np.abs(full.picture().astype(int) - mixed.picture()).max() <= 1


def test_step_that_was_begun_can_be_begun_anew(tiny_editor: Editor) -> None:
    """As where the cache of a later shard does not come: nothing of the first try may be left."""
    template, request = tiny_template("tiny-face"), tiny_template("tiny-face").typical_requests(1)[0]
    cache = capture(tiny_editor, template.for_editor(), [request])
    heads = torch.from_numpy(cache.kv).unflatten(-1, (tiny_editor.runner.heads, -1))
    kv = {block: (heads[1, block, 0][None], heads[1, block, 1][None]) for block in range(tiny_editor.blocks)}
    state = tiny_editor.start(template.for_editor(), request)
    for step in range(tiny_editor.steps):
        if step == 1:
            state.begin_active(step)
            state.run_blocks(0, 2, Inject(kv))
        state.begin_full(step)
        state.run_blocks(0, tiny_editor.blocks, Plain())
        state.end_step()
    np.testing.assert_array_equal(state.picture(), edit_on_device(tiny_editor, template.for_editor(), request))


@pytest.mark.parametrize("template_id", SHIPPED_BY_TASK.values())
def test_injection_is_exact_on_the_shipped_model(editor: Editor, shipped: TemplateLibrary, template_id: str) -> None:
    template = shipped.get(template_id)
    check_injection_is_exact(editor, template.for_editor(), template.typical_requests(2)[1])


@pytest.mark.parametrize("template_id", TINY_TEMPLATES)
def test_injection_is_exact_on_a_random_model(tiny_editor: Editor, template_id: str) -> None:
    template = tiny_template(template_id)
    check_injection_is_exact(tiny_editor, template.for_editor(), template.typical_requests(1)[0])


@pytest.mark.parametrize("kind", ["one pixel", "everything", "all but one token"])
def test_injection_is_exact_for_extreme_masks(tiny_editor: Editor, kind: str) -> None:
    template = tiny_template("tiny-face")
    mask = np.full_like(template.mask, kind != "one pixel")
    if kind == "one pixel":
        mask[9, 17] = True
    elif kind == "all but one token":
        mask[:8, :8] = False
    chosen = Template(template.picture, mask, has_reference=True)
    check_injection_is_exact(tiny_editor, chosen, template.typical_requests(1)[0])
    assert np.isfinite(capture(tiny_editor, chosen, template.typical_requests(2)).importance).all()


@torch.no_grad()
def test_runner_is_the_forward_pass_of_diffusers() -> None:
    model, template = tiny_model(), tiny_template("tiny-face")
    untouched = copy.deepcopy(model)
    editor = Editor(model)
    state = editor.start(template.for_editor(), template.typical_requests(1)[0])
    for step in range(editor.steps):
        state.begin_full(step)
        assert state._blocks is not None
        state.run_blocks(0, editor.blocks, Plain())
        ours = editor.runner.finish(state._blocks, slice(0, None))
        time = float(editor.times[step])
        picture = add_noise(state.clean, state.noise, time)
        picture[:, state.masked] = state.noisy
        theirs = untouched.transformer(
            hidden_states=torch.cat([picture, state.clean, state.reference], 1),
            encoder_hidden_states=state.text,
            timestep=editor.times[step].reshape(1),
            img_ids=state.layout.picture_ids(),
            txt_ids=state.layout.text_ids(),
            return_dict=False,
        )[0]
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
        state.end_step()


def test_importance_is_a_share_of_attention(tiny_editor: Editor) -> None:
    """Summed over reusable keys and the rest, each query's softmax is one; all keys reusable leaves nothing over."""
    tokens, heads, width = 12, 2, 8
    query, key, value = torch.randn(3, 1, tokens, heads, width, generator=torch.Generator().manual_seed(0))
    masked = torch.tensor([1, 4])
    some, rest = torch.arange(0, 7), torch.arange(7, tokens)
    scores = []
    for reusable in (some, rest, torch.arange(tokens)):
        policy = Capture(reusable, masked)
        torch.testing.assert_close(policy.attend(0, query, key, value), Plain().attend(0, query, key, value))
        scores.append(policy.importance[0])
    assert scores[2].sum() == pytest.approx(1, abs=1e-6)
    torch.testing.assert_close(torch.cat(scores[:2]), scores[2])
    assert (scores[2] > 0).all()


def test_captured_importance_averages_one(tiny_editor: Editor) -> None:
    template = tiny_template("tiny-face")
    requests = template.typical_requests(2)
    cache = capture(tiny_editor, template.for_editor(), requests)
    rows = len(tiny_editor.layout(template.for_editor()).reusable)
    assert cache.kv.shape == (tiny_editor.steps, tiny_editor.blocks, 2, rows, 32)
    assert cache.importance.shape == (2, tiny_editor.steps, tiny_editor.blocks, rows)
    np.testing.assert_allclose(cache.importance.mean(-1), 1, rtol=1e-5)
    # K and V are those of the first request alone.
    np.testing.assert_array_equal(capture(tiny_editor, template.for_editor(), requests[:1]).kv, cache.kv)


def test_importance_is_uneven_and_stable_across_references(editor: Editor, shipped: TemplateLibrary) -> None:
    template = shipped.get(SHIPPED_BY_TASK["face_swap"])
    importance = capture(editor, template.for_editor(), template.typical_requests(2)).importance
    mean = np.sort(importance.mean((0, 1, 2)))[::-1]
    assert mean[: len(mean) // 10].sum() / mean.sum() > 0.3
    assert np.corrcoef(importance[0].ravel(), importance[1].ravel())[0, 1] > 0.9


def test_pictures_equal_the_template_outside_the_mask(editor: Editor, shipped: TemplateLibrary) -> None:
    for template_id in SHIPPED_BY_TASK.values():
        template: TemplateAssets = shipped.get(template_id)
        picture = edit_on_device(editor, template.for_editor(), template.typical_requests(1)[0])
        np.testing.assert_array_equal(picture[~template.mask], template.picture[~template.mask])
        assert (picture[template.mask] != template.picture[template.mask]).any()


def test_edits_repeat_and_follow_seed_words_and_reference(tiny_editor: Editor) -> None:
    template = tiny_template("tiny-face")
    request = template.typical_requests(1)[0]
    assert request.reference is not None
    variants = [
        request,
        Request(request.words, request.reference, request.seed + 1),
        Request(("wear", "garment"), request.reference, request.seed),
        Request(request.words, 255 - request.reference, request.seed),
    ]
    pictures = [edit_on_device(tiny_editor, template.for_editor(), variant).tobytes() for variant in variants]
    assert len(set(pictures)) == len(variants)
    assert edit_on_device(tiny_editor, template.for_editor(), request).tobytes() == pictures[0]


def test_checkpoints_round_trip(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("checkpoint")
    model = tiny_model()
    save_model(model, folder, half=False)
    # load_model reads what a checkpoint says about its own transformer.
    loaded = load_model(folder)
    assert loaded.config == model.config
    assert loaded.config.picture_px == TINY_PX
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)
    assert Editor.load(folder).fingerprint == Editor.load(folder).fingerprint != "untrained"


def test_words_are_checked(tiny_editor: Editor) -> None:
    model = tiny_editor.model
    assert model.word_ids(("swap", "face")) == [1, 2, 0, 0, 0, 0]
    with pytest.raises(KeyError, match="nonsense"):
        model.word_ids(("nonsense",))
    with pytest.raises(ValueError, match="at most 6 words, not 7"):
        model.word_ids(("swap",) * 7)


def test_runner_counts_blocks() -> None:
    runner = Flux2Runner(tiny_model().transformer, torch.tensor([1.0, 0.0]))
    assert (runner.double_blocks, runner.blocks, runner.heads, runner.head_dim) == (2, 4, 2, 16)
