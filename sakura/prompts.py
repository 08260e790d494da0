"""Instructions in plain words, turned into the few words that nano-flux2 knows.

An instruction is about one subject (hair, hat, glasses, mouth, beard, outfit). Words that carry no choice ("make",
"the", "please") are skipped, common synonyms are understood, and an unknown word is named, never guessed.
"""

import dataclasses
import re
import unicodedata

from sakura.errors import UserError
from sakura.portraits import factors
from sakura.portraits.tasks import EDITABLE_HAIR_STYLES, Subject

MAX_PROMPT_CHARACTERS = 300

FILLER = frozenset(
    re.findall(
        r"\w+",
        "a add an and as be become change color colored colour give has have her him his in into it its let make man "
        "new of on person please put shape someone style the their them to turn wear wearing with woman",
    )
)
SYNONYMS = {
    "grey": "gray",
    "blonde": "blond",
    "violet": "purple",
    "tshirt": "tee",
    "t-shirt": "tee",
    "v-neck": "vneck",
    "sweatshirt": "hoodie",
    "striped": "stripes",
    "stripe": "stripes",
    "dotted": "dots",
    "checked": "checks",
    "checkered": "checks",
    "moustache": "mustache",
    "smiling": "smile",
    "frowning": "frown",
    "sad": "frown",
    "happy": "smile",
    "shades": "sunglasses",
    "spectacles": "glasses",
    "no": "none",
    "without": "none",
    "remove": "none",
    "off": "none",
}
SUBJECT_NAMES: dict[Subject, tuple[str, ...]] = {
    "hair": ("hair",),
    "hat": ("hat",),
    "glasses": ("eyes", "eyewear"),
    "mouth": ("mouth", "face"),
    "beard": ("beard",),
    "outfit": ("outfit", "clothes", "garment"),
}


@dataclasses.dataclass(frozen=True)
class Slot:
    """One choice of an instruction: the factor that it sets, and the words for it."""

    factor: str
    options: tuple[str, ...]
    default: str | None = None


SLOTS: dict[Subject, tuple[Slot, ...]] = {
    "hair": (
        Slot("hair_color", tuple(factors.HAIR_COLORS)),
        Slot("hair_style", tuple(style for style in EDITABLE_HAIR_STYLES if style != "bald"), "short"),
    ),
    "hat": (Slot("hat", factors.HATS), Slot("hat_color", tuple(factors.CLOTH_COLORS), "red")),
    "glasses": (Slot("glasses", factors.GLASSES),),
    "mouth": (Slot("mouth", factors.MOUTHS),),
    "beard": (Slot("beard", factors.BEARDS),),
    "outfit": (
        Slot("garment", factors.GARMENTS, "tee"),
        Slot("cloth_color", tuple(factors.CLOTH_COLORS)),
        Slot("pattern", factors.PATTERNS, "plain"),
        Slot("accent_color", tuple(factors.CLOTH_COLORS), "white"),
    ),
}
EXAMPLES: dict[Subject, tuple[str, ...]] = {
    "hair": ("short blue hair", "a red bun", "side blond hair", "pink bun"),
    "hat": ("a yellow beanie", "put on a red cap", "no hat", "purple cap"),
    "glasses": ("sunglasses", "glasses", "no glasses"),
    "mouth": ("make it smile", "open mouth", "frown", "neutral"),
    "beard": ("a full beard", "mustache", "stubble", "no beard"),
    "outfit": ("red hoodie", "blue shirt with white dots", "green tee with yellow stripes", "a black jacket, orange"),
}


@dataclasses.dataclass(frozen=True)
class Instruction:
    """``words`` for the model in the order it was trained with, and the factors that they set."""

    words: tuple[str, ...]
    factors: dict[str, object]


def prompt_help(subject: Subject) -> str:
    """One sentence with the words that a template of this subject understands."""
    listed = "; ".join(", ".join(slot.options) for slot in SLOTS[subject])
    return f"This template understands: {listed}."


def parse_prompt(prompt: str, subject: Subject) -> Instruction:
    """Read an instruction for a template whose region shows ``subject``. Raises UserError naming what is amiss."""
    if not prompt.strip():
        raise UserError(f"Write what to change. {prompt_help(subject)}")
    if len(prompt) > MAX_PROMPT_CHARACTERS:
        raise UserError(
            f"The instruction has {len(prompt):,} characters; the limit is {MAX_PROMPT_CHARACTERS}, so shorten it."
        )
    text = unicodedata.normalize("NFKC", prompt).lower()
    written = re.findall(r"[^\W_]+(?:-[^\W_]+)*", text)
    spoken = [SYNONYMS.get(word, word) for word in written]
    known = {option for slot in SLOTS[subject] for option in slot.options}
    # "no hat" and "no beard" speak of the subject by a word that is also its name or its choice.
    understood = known.union(FILLER, SUBJECT_NAMES[subject])
    unknown = [word for word, meaning in zip(written, spoken, strict=True) if meaning not in understood]
    if unknown:
        named = ", ".join(f"“{word[:24]}”" for word in dict.fromkeys(unknown[:4]))
        raise UserError(f"The model does not know {named} here. {prompt_help(subject)}")

    chosen = _fill_slots([word for word in spoken if word in known], SLOTS[subject])
    if not chosen:
        raise UserError(f"The instruction names nothing to change. {prompt_help(subject)}")
    values: dict[str, object] = {}
    for slot in SLOTS[subject]:
        value = chosen.get(slot.factor, slot.default)
        if value is None:
            raise UserError(f"Say one of {', '.join(slot.options)} as well.")
        values[slot.factor] = value
    return Instruction(_canonical_words(subject, values), values)


def _fill_slots(words: list[str], slots: tuple[Slot, ...]) -> dict[str, str]:
    """Give each word to the first free slot that knows it; later repeats of a full slot are ignored.

    "none" empties what it goes with: "no glasses" is none, not glasses.
    """
    chosen: dict[str, str] = {}
    for slot in slots:
        if "none" in words and "none" in slot.options:
            chosen[slot.factor] = "none"
    for word in words:
        for slot in slots:
            if word in slot.options and slot.factor not in chosen:
                chosen[slot.factor] = word
                break
    return chosen


def _canonical_words(subject: Subject, values: dict[str, object]) -> tuple[str, ...]:
    chosen = {name: str(value) for name, value in values.items()}
    if subject == "hair":
        return ("hair", chosen["hair_color"], chosen["hair_style"])
    if subject == "hat":
        return ("hat", "none") if chosen["hat"] == "none" else ("hat", chosen["hat"], chosen["hat_color"])
    if subject == "outfit":
        words = (chosen["garment"], chosen["cloth_color"], chosen["pattern"])
        plain = chosen["pattern"] == "plain" and chosen["garment"] != "jacket"
        return words if plain else (*words, chosen["accent_color"])
    word = "eyes" if subject == "glasses" else subject
    return (word, chosen[SLOTS[subject][0].factor])


def prompt_for(subject: Subject, words: tuple[str, ...]) -> str:
    """A prompt that :func:`parse_prompt` turns into these canonical words."""
    return " ".join(words if subject == "outfit" else words[1:])
