"""What fields of the page share: sentences that belong to one of them, and the files that they were given."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradio.utils import get_upload_folder

from sakura.errors import UserError


class FieldError(UserError):
    """A sentence that belongs to one field."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


@contextmanager
def at_field(field: str) -> Iterator[None]:
    """Say that whatever is wrong inside belongs to this field."""
    try:
        yield
    except UserError as error:
        raise FieldError(field, str(error)) from error


def uploaded_path(path: str) -> Path:
    """The path of an upload. Raises UserError for a file that is gone or was not uploaded through the page."""
    resolved = Path(path).resolve()
    if not (resolved.is_relative_to(Path(get_upload_folder()).resolve()) and resolved.is_file()):
        raise UserError("Your picture is no longer kept; choose it again.")
    return resolved
