"""The small decisions of the Edit view."""

import pytest

from sakura.errors import UserError
from ui.edit import AUTOMATIC, CUSTOM, budget_bytes
from ui.request_form import blocked_reason


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
