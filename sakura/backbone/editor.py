"""Editing with nano-flux2: from pictures and words to tokens, one step at a time, and back to pictures.

The cloud uses it to capture a template's cache, the device to run requests with or without that cache.
"""

import dataclasses
import functools
import hashlib
import json
from pathlib import Path

import numpy as np
import torch

from sakura.backbone.attention import AttentionPolicy, Capture, Inject, Plain, Rotary
from sakura.backbone.flux2 import BlockState, Flux2Runner
from sakura.backbone.inputs import Request, Template, masked_tokens
from sakura.backbone.nano import NanoFlux2, load_model
from sakura.backbone.sampling import add_noise, euler_step, schedule
from sakura.backbone.tokens import TokenLayout, patches_to_pictures, pictures_to_patches
from sakura.codec.interface import TokenPlaces
from sakura.errors import UserError

TEMPLATE_NOISE_SEED = 0
SENSITIVITY_FILE = "sensitivity.json"


class Editor:
    """A model with its sampling schedule. One thread at a time may run edits on it.

    ``sensitivity`` float32 (blocks, 2): how much an error in K or V of a block disturbs the picture, all 1 where it has
    not been measured. Only encoding uses it.
    """

    def __init__(self, model: NanoFlux2, fingerprint: str = "untrained", sensitivity: np.ndarray | None = None) -> None:
        self.model, self.config, self.fingerprint = model, model.config, fingerprint
        self.steps = self.config.steps
        self.times = schedule(self.steps, self.config.schedule_shift)
        self.runner = Flux2Runner(model.transformer, self.times)
        self.sensitivity = np.ones((self.blocks, 2), np.float32) if sensitivity is None else sensitivity

    @classmethod
    def load(cls, folder: Path) -> "Editor":
        """Read a checkpoint, whose fingerprint is a digest of config and weights. Raises UserError without one."""
        if not (folder / "config.json").is_file() or not (folder / "model.safetensors").is_file():
            raise UserError(f"There is no checkpoint in {folder}; it needs config.json and model.safetensors.")
        digest = hashlib.sha256()
        for name in ("config.json", "model.safetensors"):
            digest.update((folder / name).read_bytes())
        measured = folder / SENSITIVITY_FILE
        sensitivity = np.array(json.loads(measured.read_text()), np.float32) if measured.exists() else None
        return cls(load_model(folder), digest.hexdigest()[:32], sensitivity)

    @property
    def blocks(self) -> int:
        return self.runner.blocks

    def layout(self, template: Template) -> TokenLayout:
        """Token geometry of a template and its requests."""
        grid = self.config.picture_px // self.config.patch_px
        reference = self.config.reference_px // self.config.patch_px if template.has_reference else 0
        masked = masked_tokens(template.mask, self.config.patch_px)
        return TokenLayout(self.config.text_tokens, grid, grid, reference, reference, masked)

    def places(self, template: Template) -> TokenPlaces:
        """Grid positions and RoPE factors of a template's reusable tokens."""
        layout = self.layout(template)
        ids = torch.cat([layout.text_ids(), layout.picture_ids()])[layout.reusable]
        cosine, sine = self.runner.rotary(layout, layout.reusable)
        return TokenPlaces(ids[:, :3].to(torch.int32).numpy(), cosine.float().numpy(), sine.float().numpy())

    def start(self, template: Template, request: Request) -> "EditState":
        return EditState(self, template, request)


class EditState:
    """One edit in progress. Steps run in order; each is either of all tokens or of the active ones.

    ``gradients`` keeps what differentiating through the edit needs.
    """

    def __init__(self, editor: Editor, template: Template, request: Request, *, gradients: bool = False) -> None:
        self.editor, self.template, self._gradients = editor, template, gradients
        self.layout = layout = editor.layout(template)
        patch = editor.config.patch_px
        self.clean = pictures_to_patches(template.picture[None], patch)
        empty = self.clean[:, :0]
        self.reference = empty if request.reference is None else pictures_to_patches(request.reference[None], patch)
        with torch.no_grad():
            self.text = editor.model.words(torch.tensor([editor.model.word_ids(request.words)]))
        self.masked = torch.tensor(layout.masked, dtype=torch.long)
        # Unmasked noise belongs to the template, since its cache was computed with it; the seed varies the rest.
        self.noise = _noise(TEMPLATE_NOISE_SEED, self.clean.shape)
        self.noise[:, self.masked] = _noise(request.seed + 1, self.clean.shape)[:, self.masked]
        self.noisy = self.noise[:, self.masked].clone()
        self.predicted = self.clean[:, self.masked]
        self._blocks: BlockState | None = None
        self._rotary: Rotary | None = None
        self._output = slice(0)
        self._selected: torch.Tensor | None = None

    @functools.cached_property
    def rotary_active(self) -> Rotary:
        return self.editor.runner.rotary(self.layout, self.layout.active)

    @functools.cached_property
    def rotary_full(self) -> Rotary:
        return self.editor.runner.rotary(self.layout)

    def begin_active(self, step: int) -> None:
        """Begin a step in which only active tokens are computed."""
        with torch.set_grad_enabled(self._gradients):
            tokens = torch.cat([self.noisy, self.reference], 1)
            self._blocks = self.editor.runner.begin(tokens, self.text, step)
            self._rotary, self._output, self._selected = self.rotary_active, slice(0, len(self.masked)), None

    def begin_full(self, step: int) -> None:
        """Begin a step in which every token is computed."""
        with torch.set_grad_enabled(self._gradients):
            picture = add_noise(self.clean, self.noise, float(self.editor.times[step]))
            picture[:, self.masked] = self.noisy
            tokens = torch.cat([picture, self.clean, self.reference], 1)
            self._blocks = self.editor.runner.begin(tokens, self.text, step)
            self._rotary, self._output = self.rotary_full, slice(0, self.layout.picture_tokens)
            self._selected = self.masked

    def keep_active(self) -> None:
        """Go on with the active tokens alone in a step that was begun in full; nothing to do in any other."""
        if self._selected is None:
            return
        with torch.set_grad_enabled(self._gradients):
            assert self._blocks is not None, "begin a step first"
            self.editor.runner.select(self._blocks, self.layout.active)
            self._rotary, self._output, self._selected = self.rotary_active, slice(0, len(self.masked)), None

    @property
    def step(self) -> tuple[BlockState, Rotary]:
        """The activations of the step begun, which whoever runs its blocks changes in place, and RoPE factors."""
        assert self._blocks is not None and self._rotary is not None, "begin a step first"
        return self._blocks, self._rotary

    def run_blocks(self, first: int, last: int, policy: AttentionPolicy) -> None:
        """Run blocks ``first`` to ``last`` (exclusive) of the step begun."""
        blocks, rotary = self.step
        with torch.set_grad_enabled(self._gradients):
            self.editor.runner.run(blocks, first, last, rotary, policy)

    def end_step(self) -> None:
        """Take the step's prediction and move the masked tokens to the next noise level."""
        with torch.set_grad_enabled(self._gradients):
            assert self._blocks is not None, "begin a step first"
            output = self.editor.runner.finish(self._blocks, self._output)
            self.predicted = output if self._selected is None else output[:, self._selected]
            times, step = self.editor.times, self._blocks.step
            self.noisy = euler_step(self.noisy, self.predicted, float(times[step]), float(times[step + 1]))
            self._blocks = None

    def picture(self) -> np.ndarray:
        """The clean picture predicted so far: uint8 (px, px, 3), equal to the template outside the mask."""
        patches = self.clean.clone()
        patches[:, self.masked] = self.predicted
        config = self.editor.config
        grid = config.picture_px // config.patch_px
        pixels = patches_to_pictures(patches, grid, grid, config.patch_px)[0]
        return np.where(self.template.mask[..., None], pixels, self.template.picture)


def edit_on_device(editor: Editor, template: Template, request: Request) -> np.ndarray:
    """The whole edit with every token computed: uint8 (px, px, 3)."""
    state = editor.start(template, request)
    for step in range(editor.steps):
        state.begin_full(step)
        state.run_blocks(0, editor.blocks, Plain())
        state.end_step()
    return state.picture()


def edit_with_cache(editor: Editor, template: Template, request: Request, kv: np.ndarray) -> np.ndarray:
    """The edit with a cache that is all there: ``kv`` float32 (steps, blocks, 2, reusable, columns)."""
    state = editor.start(template, request)
    run_with_cache(state, torch.from_numpy(kv))
    return state.picture()


def run_with_cache(state: EditState, kv: torch.Tensor) -> None:
    """Run all steps of an edit with a cache that is all there: ``kv`` (steps, blocks, 2, reusable, columns)."""
    editor = state.editor
    heads = kv.unflatten(-1, (editor.runner.heads, -1))
    for step in range(editor.steps):
        state.begin_active(step)
        blocks = {block: (heads[step, block, 0][None], heads[step, block, 1][None]) for block in range(editor.blocks)}
        state.run_blocks(0, editor.blocks, Inject(blocks))
        state.end_step()


@dataclasses.dataclass(frozen=True)
class CapturedCache:
    """K and V of a template's reusable tokens, and how important each token is.

    ``kv`` float32 (steps, blocks, 2, reusable, heads * head_dim); ``importance`` float32
    (requests, steps, blocks, reusable), each row averaging 1.
    """

    kv: np.ndarray
    importance: np.ndarray


def capture(editor: Editor, template: Template, requests: list[Request]) -> CapturedCache:
    """Run ``requests`` in full; keep K and V of the first, importance of all."""
    layout = editor.layout(template)
    masked = torch.tensor(layout.masked, dtype=torch.long) + layout.text_tokens
    kv: list[np.ndarray] = []
    importance: list[np.ndarray] = []
    for number, request in enumerate(requests):
        state = editor.start(template, request)
        for step in range(editor.steps):
            policy = Capture(layout.reusable, masked)
            state.begin_full(step)
            state.run_blocks(0, editor.blocks, policy)
            state.end_step()
            rows = torch.stack([policy.importance[block] for block in range(editor.blocks)])
            importance.append((rows / rows.mean(-1, keepdim=True)).numpy())
            if number == 0:
                both = [torch.cat(policy.kv[block]).flatten(2) for block in range(editor.blocks)]
                kv.append(torch.stack(both).numpy())
    shape = (len(requests), editor.steps, editor.blocks, -1)
    return CapturedCache(np.stack(kv), np.stack(importance).reshape(shape))


def _noise(seed: int, shape: torch.Size) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
