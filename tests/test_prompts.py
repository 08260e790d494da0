import random
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakura.backbone.config import NanoConfig
from sakura.errors import UserError
from sakura.portraits.tasks import INSTRUCTION_SUBJECTS, Subject, make_example, render_truth, sample_request
from sakura.prompts import EXAMPLES, MAX_PROMPT_CHARACTERS, SLOTS, SYNONYMS, parse_prompt, prompt_help

SUBJECTS = tuple(INSTRUCTION_SUBJECTS)
VOCABULARY = set(NanoConfig().words)
TEXT_TOKENS = NanoConfig().text_tokens


@pytest.mark.parametrize(("subject", "prompt"), [(s, prompt) for s, prompts in EXAMPLES.items() for prompt in prompts])
def test_examples_are_understood(subject: Subject, prompt: str) -> None:
    instruction = parse_prompt(prompt, subject)
    assert set(instruction.words) <= VOCABULARY
    assert len(instruction.words) <= TEXT_TOKENS
    assert set(instruction.factors) == {slot.factor for slot in SLOTS[subject]}


def test_every_instruction_subject_has_examples_and_slots() -> None:
    assert set(EXAMPLES) == set(SLOTS) == set(INSTRUCTION_SUBJECTS)
    assert set(INSTRUCTION_SUBJECTS) == set(get_args(Subject)) - {"face", "garment"}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_training_request_can_be_said(subject: Subject) -> None:
    """The words of a training request, said as they are, come back unchanged and have the same truth."""
    rng = random.Random(0)
    person = make_example("train", 0, 16, subject).person
    for _ in range(100):
        request = sample_request(subject, person, rng, 16)
        instruction = parse_prompt(" ".join(request.words), subject)
        assert instruction.words == request.words
        wanted, said = (render_truth(person, subject, f, 32) for f in (request.factors, instruction.factors))
        np.testing.assert_array_equal(said, wanted)


@pytest.mark.parametrize(
    ("subject", "prompt", "words"),
    [
        ("hair", "Give her SHORT Blonde hair, please!", ("hair", "blond", "short")),
        ("hair", "grey", ("hair", "gray", "short")),
        ("hat", "the hat off", ("hat", "none")),
        ("hat", "remove the hat", ("hat", "none")),
        ("hat", "a cap", ("hat", "cap", "red")),
        ("hat", "no red cap", ("hat", "none")),
        ("glasses", "without glasses", ("eyes", "none")),
        ("glasses", "put on shades", ("eyes", "sunglasses")),
        ("mouth", "make him happy", ("mouth", "smile")),
        ("beard", "remove beard", ("beard", "none")),
        ("beard", "a moustache", ("beard", "mustache")),
        ("outfit", "striped t-shirt in red and white", ("tee", "red", "stripes", "white")),
        ("outfit", "white", ("tee", "white", "plain")),
        ("outfit", "black jacket", ("jacket", "black", "plain", "white")),
        ("outfit", "ｒｅｄ hoodie", ("hoodie", "red", "plain")),
    ],
)
def test_ways_of_saying_it(subject: Subject, prompt: str, words: tuple[str, ...]) -> None:
    assert parse_prompt(prompt, subject).words == words


REFUSALS = {
    "": "Write what to change.",
    "   \n\t": "Write what to change.",
    "please": "names nothing to change",
    "!!! ???": "names nothing to change",
    "😀": "names nothing to change",
    "mohawk": "does not know “mohawk”",
    "a red mohawk with sparkles": "“mohawk”, “sparkles”",
    "تغيير لون الشعر": "does not know “تغيير”",
    "\u202eder tah": "does not know “der”",
    "<script>alert(1)</script>": "does not know “script”",
    "<b>red</b> hat": "does not know “b”",
    "'; DROP TABLE runs; --": "does not know “drop”",
    "=cmd|' /C calc'!A0": "does not know “cmd”",
    "${jndi:ldap://x}": "does not know “jndi”",
    "{red} {0.__class__}": "does not know",
    "x" * 250: "does not know “xxxxxxxxxxxxxxxxxxxxxxxx”",
    "red " * 2500: f"has 10,000 characters; the limit is {MAX_PROMPT_CHARACTERS}",
}


@pytest.mark.parametrize("prompt", REFUSALS, ids=range(len(REFUSALS)))
@pytest.mark.parametrize("subject", ["hair", "outfit"])
def test_what_cannot_be_followed_is_told_in_a_sentence_or_two(prompt: str, subject: Subject) -> None:
    with pytest.raises(UserError) as refusal:
        parse_prompt(prompt, subject)
    message = str(refusal.value)
    assert REFUSALS[prompt] in message
    assert message.endswith(".")
    assert "\n" not in message
    assert not set(message) & set("<>{}\u202e")
    assert len(message) < 400


@pytest.mark.parametrize(
    ("subject", "prompt"), [("outfit", "no pattern"), ("hair", "remove hair"), ("mouth", "sad off")]
)
def test_refusals_name_the_word_that_was_written(subject: Subject, prompt: str) -> None:
    """Not the synonym that it was read as."""
    with pytest.raises(UserError) as refusal:
        parse_prompt(prompt, subject)
    named = str(refusal.value).split("“")[1].split("”")[0]
    assert named in prompt.split()


@pytest.mark.parametrize("subject", SUBJECTS)
def test_missing_choices_are_asked_for(subject: Subject) -> None:
    for slot in SLOTS[subject]:
        if slot.default is None and len(SLOTS[subject]) > 1:
            others = [option for other in SLOTS[subject] if other is not slot for option in other.options[1:2]]
            only = [word for word in others if word not in slot.options and word != "none"][:1]
            with pytest.raises(UserError, match=f"Say one of {slot.options[0]}"):
                parse_prompt(" ".join(only), subject)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_help_lists_every_choice(subject: Subject) -> None:
    text = prompt_help(subject)
    assert all(option in text for slot in SLOTS[subject] for option in slot.options)


@given(st.text(max_size=400), st.sampled_from(SUBJECTS))
def test_any_text_gives_known_words_or_a_refusal(prompt: str, subject: Subject) -> None:
    try:
        instruction = parse_prompt(prompt, subject)
    except UserError:
        return
    assert set(instruction.words) <= VOCABULARY
    assert len(instruction.words) <= TEXT_TOKENS


WORDS = sorted({*SYNONYMS, "no", "a", "the"} | {o for slots in SLOTS.values() for slot in slots for o in slot.options})


@given(st.lists(st.sampled_from(WORDS), max_size=10), st.sampled_from(SUBJECTS))
def test_any_order_of_known_words_gives_known_words_or_a_refusal(words: list[str], subject: Subject) -> None:
    test_any_text_gives_known_words_or_a_refusal.hypothesis.inner_test(" ".join(words), subject)  # type: ignore[attr-defined]
