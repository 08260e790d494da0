"""Model cases: which model edits how large a picture, how many tokens and operations that takes, and how much cache.

Operations count two for a multiplication with its addition. They are those of the transformer's matrix products and
attention; norms, modulation, text encoder and VAE are left out.
"""

import dataclasses

from sakura.codec.interface import CacheGeometry
from sakura.errors import UserError

PATCH_PX = 16  # a token is so many pixels wide and high
TEXT_TOKENS = 512
FP16_BYTES = 2


@dataclasses.dataclass(frozen=True)
class Architecture:
    """What counts of a diffusion transformer.

    A block takes ``token_products * width**2`` operations a token. The first ``image_blocks`` blocks hold a second
    attention over image tokens alone, which has keys and values of its own. ``edits_template`` if the template's own
    tokens are part of the input, beside the noisy ones.
    """

    title: str
    width: int
    blocks: int
    image_blocks: int
    token_products: int
    edits_template: bool
    steps: int

    @property
    def kv_sets(self) -> int:
        """How many attentions have keys and values, a step."""
        return self.blocks + self.image_blocks

    def flop(self, queries: float, keys: float, image_queries: float, image_keys: float) -> float:
        """Operations of one step in which ``queries`` tokens attend to ``keys`` tokens."""
        products = self.blocks * self.token_products * self.width**2 * queries
        attention = 4 * self.width * self.blocks * queries * keys
        second = self.image_blocks * (8 * self.width**2 * image_queries + 4 * self.width * image_queries * image_keys)
        return products + attention + second


KLEIN = Architecture("FLUX.2 klein 4B", 3072, 25, 0, 26, edits_template=True, steps=4)
SD35_MEDIUM = Architecture("Stable Diffusion 3.5 medium", 1536, 24, 13, 24, edits_template=False, steps=28)
# Mean share of the picture that is edited, as the paper states it of its workloads.
MASK_SHARES = {"FS": 0.112, "VTON": 0.263, "MB": 0.193}


@dataclasses.dataclass(frozen=True)
class ModelCase:
    """An edit of a ``picture_px`` square picture of which ``mask_share`` is repainted.

    ``reference_share`` is the size of the user's reference picture, in tokens of the picture's. A step is streamed in
    ``shards_per_step`` shards of equal work and size.
    """

    case_id: str
    architecture: Architecture
    picture_px: int
    reference_share: float
    mask_share: float = MASK_SHARES["MB"]
    shards_per_step: int = 4

    def with_mask(self, mask_share: float) -> "ModelCase":
        return dataclasses.replace(self, mask_share=mask_share)

    @property
    def title(self) -> str:
        reference = ", full-size reference" if self.reference_share == 1 else ""
        return f"{self.architecture.title}, {self.picture_px} px{reference}"

    @property
    def steps(self) -> int:
        return self.architecture.steps

    @property
    def image_tokens(self) -> int:
        return (self.picture_px // PATCH_PX) ** 2

    @property
    def full_tokens(self) -> float:
        pictures = 2 if self.architecture.edits_template else 1
        return TEXT_TOKENS + (pictures + self.reference_share) * self.image_tokens

    @property
    def active_tokens(self) -> float:
        return TEXT_TOKENS + (self.mask_share + self.reference_share) * self.image_tokens

    @property
    def reusable_tokens(self) -> float:
        return self.full_tokens - self.active_tokens

    @property
    def full_step_flop(self) -> float:
        images = self.full_tokens - TEXT_TOKENS
        return self.architecture.flop(self.full_tokens, self.full_tokens, images, images)

    @property
    def active_step_flop(self) -> float:
        images = self.full_tokens - TEXT_TOKENS
        return self.architecture.flop(self.active_tokens, self.full_tokens, self.active_tokens - TEXT_TOKENS, images)

    @property
    def limit(self) -> float:
        """How many times faster an edit can be than on the device alone, whatever the network."""
        return self.full_step_flop / self.active_step_flop

    @property
    def geometry(self) -> CacheGeometry:
        """The cache as it is streamed; blocks are runs of the model's that make up a shard."""
        columns = self.architecture.width * self.architecture.kv_sets // self.shards_per_step
        return CacheGeometry(self.steps, self.shards_per_step, 1, round(self.reusable_tokens), columns)

    @property
    def step_cache_bytes(self) -> float:
        """Uncompressed fp16 keys and values of the reusable tokens at one step."""
        return 2 * FP16_BYTES * self.architecture.width * self.architecture.kv_sets * self.reusable_tokens


CASES = {
    case.case_id: case
    for case in (
        ModelCase("klein-1024", KLEIN, 1024, 0.25),
        ModelCase("klein-768", KLEIN, 768, 0.25),
        ModelCase("klein-512", KLEIN, 512, 0.25),
        ModelCase("klein-1024-full-reference", KLEIN, 1024, 1.0),
        ModelCase("sd35-1024", SD35_MEDIUM, 1024, 0.0),
        ModelCase("sd35-768", SD35_MEDIUM, 768, 0.0),
    )
}
CASE_ASSUMPTIONS = (
    "The user's reference picture has a quarter of the picture's tokens where the case does not say otherwise: with "
    "one of full size the limit of klein at 1024 px is 2.4, below what the paper reports. This is our reading.",
    "All tokens of the template and the unmasked noisy tokens are cached at every step.",
    f"The prompt has {TEXT_TOKENS} tokens. Text encoder and VAE are left out, of all systems alike.",
    "SD 3.5 medium takes 28 steps, of which each four share what four steps share on nano-flux2.",
)


def model_case(case_id: str, workload: str = "MB") -> ModelCase:
    """A case with the mask share of a workload. Raises UserError if there is none."""
    if case_id not in CASES:
        raise UserError(f"There is no model case {case_id!r}; use one of {', '.join(CASES)}.")
    if workload not in MASK_SHARES:
        raise UserError(f"There is no workload {workload!r}; use one of {', '.join(MASK_SHARES)}.")
    return CASES[case_id].with_mask(MASK_SHARES[workload])
