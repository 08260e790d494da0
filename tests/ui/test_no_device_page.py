"""The page of a studio that no device is connected to."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from sakura.lab.service import Lab
from sakura.studio import Studio
from ui.page import build_page, launch_options

pytestmark = pytest.mark.browser


@pytest.fixture
def lonely_url(home: Path) -> Iterator[str]:
    """The address of a page without cloud and device."""
    studio = Studio()
    blocks = build_page(studio, Lab(studio.library, studio.busy))
    try:
        _, url, _ = blocks.launch(server_name="127.0.0.1", prevent_thread_lock=True, quiet=True, **launch_options())
        yield url
    finally:
        blocks.close()
        studio.close()


def test_without_a_device_the_page_says_so_and_what_to_do(page: Page, lonely_url: str) -> None:
    page.goto(lonely_url)
    expect(page.locator(".chip")).to_have_text("No device connected")
    button = page.locator("#action [data-part=go]")
    expect(button).to_have_attribute("aria-disabled", "true")
    button.hover()
    expect(page.get_by_role("tooltip").filter(has_text="No device is connected; start one.")).to_be_visible()
    expect(page.locator("[data-part=waiting]").filter(has_text="No device is connected")).to_be_visible()
    button.click(force=True)
    expect(page.locator("html")).to_have_attribute("data-mode", "plan")
