"""The sizes and words of nano-flux2. Needs no torch, so that the page need not load it."""

import dataclasses

from sakura.portraits import factors

PAD = "<pad>"
TASK_WORDS = ("swap", "face", "wear", "garment", "hair", "hat", "eyes", "mouth", "beard", "none")


def vocabulary() -> tuple[str, ...]:
    """All words of the portrait world in a fixed order, the padding word first."""
    words = (
        PAD,
        *TASK_WORDS,
        *factors.HAIR_COLORS,
        *factors.HAIR_STYLES,
        *factors.GARMENTS,
        *factors.PATTERNS,
        *factors.CLOTH_COLORS,
        *factors.HATS,
        *factors.GLASSES,
        *factors.MOUTHS,
        *factors.BEARDS,
    )
    return tuple(dict.fromkeys(words))


@dataclasses.dataclass(frozen=True)
class NanoConfig:
    """What a nano checkpoint needs to be used, beside its transformer's own config."""

    name: str = "nano-flux2"
    picture_px: int = 128
    patch_px: int = 8
    text_tokens: int = 6
    steps: int = 4
    schedule_shift: float = 2.0
    words: tuple[str, ...] = dataclasses.field(default_factory=vocabulary)

    @property
    def reference_px(self) -> int:
        return self.picture_px // 2
