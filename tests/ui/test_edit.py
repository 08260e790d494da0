"""The small decisions of the Edit view."""

from pathlib import Path

import pytest
from gradio.utils import get_upload_folder

from sakura.errors import UserError
from ui.edit import AUTOMATIC, CUSTOM, FieldError, at_field, blocked_reason, budget_bytes, uploaded_path


def test_budget_bytes() -> None:
    assert budget_bytes(AUTOMATIC, None) is None
    assert budget_bytes("200", None) == 200_000
    assert budget_bytes(CUSTOM, 12.5) == 12_500


@pytest.mark.parametrize("amount_kb", [None, 0, -3, 1e9])
def test_a_budget_that_makes_no_sense_is_refused(amount_kb: float | None) -> None:
    with pytest.raises(UserError, match="between 1 and"):
        budget_bytes(CUSTOM, amount_kb)


def test_only_instructions_need_words() -> None:
    assert blocked_reason("instruction", "  ")
    assert not blocked_reason("instruction", "red hat")
    assert not blocked_reason("face_swap", "")


def test_only_uploads_are_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"x")
    folder = Path(get_upload_folder())
    for path in (secret, folder / ".." / "secret.png", folder, folder / "missing.png"):
        with pytest.raises(UserError, match="choose it again"):
            uploaded_path(str(path))


def test_a_sentence_belongs_to_its_field() -> None:
    with pytest.raises(FieldError, match="Write a word") as caught, at_field("prompt"):
        raise UserError("Write a word.")
    assert caught.value.field == "prompt"
