"""What fields of the page share."""

from pathlib import Path

import pytest
from gradio.utils import get_upload_folder

from sakura.errors import UserError
from ui.fields import FieldError, at_field, uploaded_path


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
