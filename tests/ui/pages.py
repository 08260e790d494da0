"""Steps that tests of the page share."""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Locator, Page, expect

PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "has_touch": True, "is_mobile": True,
}  # fmt: skip


def open_page(page: Page, url: str, query: str = "") -> None:
    """Open the page and wait until the plan is drawn."""
    page.goto(f"{url.rstrip('/')}/{query}")
    expect(page.get_by_text("Press Edit to run it.")).to_have_count(1)


def choose(page: Page, name: str) -> None:
    page.get_by_role("radio", name=name, exact=True).check()


def press_edit(page: Page) -> None:
    page.locator("#action [data-part=go]").click()


def expect_finished(page: Page) -> None:
    expect(page.locator("html")).to_have_attribute("data-mode", "done")
    expect(page.locator("#action [data-part=go]")).to_have_text("Edit again")


def no_sideways_scroll(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def shown_pixels(image: Locator) -> np.ndarray:
    """The uint8 RGB pixels of an image whose address holds its data."""
    source = image.get_attribute("src") or ""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(source.split(",")[1]))).convert("RGB"))
