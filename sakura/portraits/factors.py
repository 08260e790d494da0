"""The factors of a procedural portrait, and how they are drawn at random.

A :class:`Portrait` is a plain description; :mod:`sakura.portraits.drawing` turns it into pixels. Every factor is a
parameter, so an edit is a portrait with some factors replaced, and its ground truth is exact.
"""

import dataclasses
import random
from typing import Literal

Color = tuple[int, int, int]

HairStyle = Literal["bald", "short", "long", "bun", "afro", "side", "bob"]
Garment = Literal["tee", "vneck", "hoodie", "jacket", "shirt"]
Pattern = Literal["plain", "stripes", "dots", "checks", "logo"]
Hat = Literal["none", "cap", "beanie"]
Glasses = Literal["none", "glasses", "sunglasses"]
Mouth = Literal["smile", "neutral", "open", "frown"]
Beard = Literal["none", "stubble", "full", "mustache"]
Background = Literal["plain", "gradient", "circles", "stripes", "window", "hills"]

SKIN_COLORS: tuple[Color, ...] = (
    (255, 224, 196),
    (241, 194, 160),
    (224, 172, 130),
    (198, 134, 94),
    (141, 85, 54),
    (92, 58, 40),
)
HAIR_COLORS: dict[str, Color] = {
    "black": (30, 26, 28),
    "brown": (92, 58, 36),
    "blond": (222, 184, 104),
    "red": (176, 66, 32),
    "gray": (160, 160, 165),
    "blue": (60, 90, 190),
    "pink": (224, 110, 160),
    "white": (235, 235, 235),
}
CLOTH_COLORS: dict[str, Color] = {
    "red": (205, 50, 52),
    "blue": (50, 92, 190),
    "green": (52, 140, 84),
    "yellow": (236, 192, 60),
    "white": (240, 240, 240),
    "black": (40, 40, 46),
    "purple": (124, 72, 160),
    "orange": (232, 128, 48),
    "pink": (236, 140, 170),
    "teal": (40, 150, 160),
}
EYE_COLORS: tuple[Color, ...] = ((70, 45, 30), (60, 110, 170), (70, 130, 80), (90, 90, 95))
LIP_COLORS: tuple[Color, ...] = ((190, 80, 80), (170, 60, 70), (150, 70, 60))

HAIR_STYLES: tuple[HairStyle, ...] = ("bald", "short", "long", "bun", "afro", "side", "bob")
GARMENTS: tuple[Garment, ...] = ("tee", "vneck", "hoodie", "jacket", "shirt")
PATTERNS: tuple[Pattern, ...] = ("plain", "stripes", "dots", "checks", "logo")
HATS: tuple[Hat, ...] = ("none", "cap", "beanie")
GLASSES: tuple[Glasses, ...] = ("none", "glasses", "sunglasses")
MOUTHS: tuple[Mouth, ...] = ("smile", "neutral", "open", "frown")
BEARDS: tuple[Beard, ...] = ("none", "stubble", "full", "mustache")
BACKGROUNDS: tuple[Background, ...] = ("plain", "gradient", "circles", "stripes", "window", "hills")


@dataclasses.dataclass(frozen=True)
class Portrait:
    """One person in front of one background. Lengths are in units of 1/256 of the picture's side."""

    # head
    skin: int
    head_width: float
    head_height: float
    hair_color: str
    hair_style: HairStyle
    hat: Hat
    hat_color: str
    # face
    eye_color: Color
    eye_size: float
    eye_gap: float
    brow_slant: float
    nose: float
    mouth: Mouth
    lip_color: Color
    beard: Beard
    freckles: bool
    glasses: Glasses
    # clothes
    garment: Garment
    cloth_color: str
    pattern: Pattern
    accent_color: str
    # surroundings and pose
    background: Background
    back_color: Color
    back_color_2: Color
    tilt_deg: float
    shift_x: float
    shift_y: float
    light: float


FACE_FACTORS = (
    "eye_color",
    "eye_size",
    "eye_gap",
    "brow_slant",
    "nose",
    "mouth",
    "lip_color",
    "beard",
    "freckles",
    "glasses",
)
GARMENT_FACTORS = ("garment", "cloth_color", "pattern", "accent_color")


def sample_portrait(rng: random.Random) -> Portrait:
    """Draw every factor independently."""

    def backdrop() -> Color:
        return (rng.randint(60, 235), rng.randint(60, 235), rng.randint(60, 235))

    return Portrait(
        skin=rng.randrange(len(SKIN_COLORS)),
        head_width=rng.uniform(0.92, 1.10),
        head_height=rng.uniform(0.92, 1.10),
        hair_color=rng.choice(tuple(HAIR_COLORS)),
        hair_style=rng.choice(HAIR_STYLES),
        hat=rng.choices(HATS, (3, 1, 1))[0],
        hat_color=rng.choice(tuple(CLOTH_COLORS)),
        eye_color=rng.choice(EYE_COLORS),
        eye_size=rng.uniform(0.80, 1.25),
        eye_gap=rng.uniform(0.90, 1.15),
        brow_slant=rng.uniform(-0.5, 0.6),
        nose=rng.uniform(0.8, 1.2),
        mouth=rng.choice(MOUTHS),
        lip_color=rng.choice(LIP_COLORS),
        beard=rng.choices(BEARDS, (3, 1, 1, 1))[0],
        freckles=rng.random() < 0.2,
        glasses=rng.choices(GLASSES, (3, 1, 1))[0],
        garment=rng.choice(GARMENTS),
        cloth_color=rng.choice(tuple(CLOTH_COLORS)),
        pattern=rng.choice(PATTERNS),
        accent_color=rng.choice(tuple(CLOTH_COLORS)),
        background=rng.choice(BACKGROUNDS),
        back_color=backdrop(),
        back_color_2=backdrop(),
        tilt_deg=rng.uniform(-6, 6),
        shift_x=rng.uniform(-5, 5),
        shift_y=rng.uniform(-4, 4),
        light=rng.uniform(-1, 1),
    )
