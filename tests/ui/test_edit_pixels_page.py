"""What an edit does to pixels, and what the timeline shows of it, in a real browser."""

import base64
import io

import numpy as np
import pytest
from pages import choose, expect_finished, open_page, press_edit
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from sakura.settings import SHIPPED_TEMPLATES
from sakura.templates import load_template

pytestmark = pytest.mark.browser


def pixels(image: Locator) -> np.ndarray:
    source = image.get_attribute("src") or ""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(source.split(",", 1)[1]))).convert("RGB"))


def spans(page: Page, lane: str) -> list[tuple[float, float]]:
    """Where a lane's blocks begin and end on the page, in shard order."""
    boxes = page.locator(f'.drawing [data-lane="{lane}"]').evaluate_all(
        "blocks => blocks.map(block => { const box = block.getBoundingClientRect(); return [box.left, box.right]; })"
    )
    return sorted((left, right) for left, right in boxes)


@pytest.mark.parametrize(
    ("task", "template_id", "brings"),
    [
        ("Face swap", "face-afro", "New face"),
        ("Try-on", "wear-afro", "Garment"),
        ("Instruction", "say-beard", "What to change"),
    ],
)
def test_pixels_change_inside_the_mask_only_while_lanes_overlap(
    page: Page, demo_url: str, task: str, template_id: str, brings: str
) -> None:
    template = load_template(SHIPPED_TEMPLATES / template_id)
    open_page(page, demo_url)
    choose(page, task)
    expect(page.locator(".field-brings .lab").first).to_have_text(brings)
    if task == "Instruction":
        page.locator(".example").first.click()
    expect(page.locator("#action [data-part=go]")).to_have_attribute("aria-disabled", "false")
    press_edit(page)
    expect_finished(page)
    after = pixels(page.get_by_alt_text("After", exact=True))
    changed = (after != template.picture).any(-1)
    assert not changed[~template.mask].any()
    assert changed[template.mask].mean() > 0.3

    executed, rebuilt = spans(page, "execute"), spans(page, "reconstruct")
    alone = page.locator('.drawing [data-lane="execute"]:has([fill="var(--sys-device)"])').count()
    assert len(executed) >= 16
    # A shard that the device computes by itself, as while the first bytes are on their way, may not be rebuilt.
    assert 16 >= len(rebuilt) >= len(executed) - alone > 0
    assert spans(page, "receive")  # as many as fit: what one step brings serves the others
    # Some later shard is rebuilt while an earlier one is executed.
    assert any(begin < end_of_run and run_begin < end for begin, end in rebuilt for run_begin, end_of_run in executed)
