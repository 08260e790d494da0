"""A template of one's own in a real browser: give a picture, mark a region, add it, edit it."""

import re
from pathlib import Path

import numpy as np
import pytest
from pages import PHONE, choose, expect_finished, no_sideways_scroll, open_page, press_edit, shown_pixels
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from sakura.pictures import MIN_SIDE_PX
from sakura.settings import own_templates

pytestmark = pytest.mark.browser

SIDE_PX = 512


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """A picture of 512 by 512 pixels that no other test has."""
    path = tmp_path / "garden.png"
    colors = np.random.default_rng(len(str(tmp_path))).integers(60, 200, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(colors).resize((SIDE_PX, SIDE_PX), Image.Resampling.BICUBIC).save(path)
    return path


def write_mask(path: Path, *, inverted: bool = False, size: tuple[int, int] = (SIDE_PX, SIDE_PX)) -> Path:
    """166 by 180 white pixels on black, 11.4 % of 512 by 512; or black on white."""
    mask = np.zeros((size[1], size[0]), dtype=bool)
    mask[100:266, 150:330] = True
    Image.fromarray(mask ^ inverted).save(path)
    return path


def open_panel(page: Page, picture: Path | None = None) -> Locator:
    page.get_by_role("button", name="Use your own picture").click()
    panel = page.get_by_role("dialog", name="A template of your own")
    expect(panel).to_be_visible()
    if picture is not None:
        panel.locator("[data-part=file]").set_input_files(picture)
        expect(panel.locator("canvas")).to_be_visible()
    return panel


def paint(page: Page, panel: Locator, *ways: tuple[float, float]) -> None:
    """One stroke over places given as shares of the square."""
    box = panel.locator("canvas").bounding_box()
    assert box is not None
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in ways]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places:
        page.mouse.move(*place, steps=4)
    page.mouse.up()


def add_button(panel: Locator) -> Locator:
    return panel.locator("[data-part=add]")


def shared_percent(panel: Locator) -> float:
    return float((panel.locator("[data-part=share]").text_content() or "").split(" ")[0])


def expect_blocked(panel: Locator, reason: str) -> None:
    expect(add_button(panel)).to_have_attribute("aria-disabled", "true")
    add_button(panel).hover()
    expect(panel.get_by_role("tooltip")).to_have_text(reason)


def added_template(page: Page) -> str:
    """The id of the template that was just added, once it is chosen."""
    chosen = page.locator("#template-thumbs input:checked")
    expect(chosen).to_have_value(re.compile("^own-"))
    return chosen.input_value()


def test_paint_add_edit(page: Page, demo_url: str, picture: Path) -> None:
    open_page(page, demo_url)
    panel = open_panel(page, picture)
    paint(page, panel, (0.4, 0.4), (0.6, 0.4), (0.6, 0.6))
    expect(add_button(panel)).to_have_attribute("aria-disabled", "false")
    panel.get_by_label("Title").fill("Garden <b>one</b>")
    add_button(panel).click()
    expect(panel).to_be_hidden()
    added = page.locator("#template-thumbs").get_by_role("radio", name="Garden <b>one</b>")
    expect(added).to_be_checked()
    expect(added.locator("..")).to_be_in_viewport(ratio=0.99)
    mask = np.asarray(Image.open(own_templates() / added_template(page) / "mask.png").convert("L")) > 127
    assert mask[52, 64]
    assert not mask[:36].any()
    assert not mask[80:, :60].any()
    expect(page.locator("[data-part=region]")).to_have_text(f"edited region {100 * mask.mean():.1f} %")
    expect(page.get_by_text("Press Edit to run it.")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    press_edit(page)
    expect_finished(page)
    before, after = (
        shown_pixels(page.get_by_alt_text("Before", exact=True)),
        shown_pixels(page.get_by_alt_text("After", exact=True)),
    )
    differs = (before != after).any(-1)
    assert differs[mask].mean() > 0.5
    assert not differs[~mask].any()
    page.reload()
    expect_finished(page)
    expect(added).to_be_checked()


def test_a_mask_file_of_the_wrong_polarity_is_seen_and_inverted(
    page: Page, demo_url: str, picture: Path, tmp_path: Path
) -> None:
    open_page(page, demo_url)
    panel = open_panel(page, picture)
    panel.locator("[data-part=mask-file]").set_input_files(write_mask(tmp_path / "black.png", inverted=True))
    share = panel.locator("[data-part=share]")
    expect(share).to_have_text("88.6 % of the picture")
    expect(panel.locator("[data-part=mask-said]")).to_contain_text("little can be reused")
    expect(panel.get_by_text("white is edited")).to_be_visible()
    panel.get_by_role("button", name="Invert").click()
    expect(share).to_have_text("11.4 % of the picture")
    expect(panel.locator("[data-part=mask-said]")).to_have_text("")


def test_everything_marked_is_told_and_can_be_edited(page: Page, demo_url: str, picture: Path) -> None:
    open_page(page, demo_url)
    panel = open_panel(page, picture)
    panel.get_by_role("button", name="Invert").click()
    expect(panel.locator("[data-part=share]")).to_have_text("100.0 % of the picture")
    expect(panel.locator("[data-part=mask-said]")).to_contain_text("nothing can be reused")
    add_button(panel).click()
    expect(panel).to_be_hidden()
    expect(page.locator("[data-part=region]")).to_have_text("edited region 100.0 %")
    expect(page.get_by_text("Press Edit to run it.")).to_have_count(1)
    press_edit(page)
    expect_finished(page)


def test_brush_eraser_and_keyboard(page: Page, demo_url: str, picture: Path) -> None:
    open_page(page, demo_url)
    panel = open_panel(page, picture)
    paint(page, panel, (0.3, 0.5), (0.7, 0.5))
    painted = shared_percent(panel)
    panel.get_by_role("radio", name="Eraser").check()
    paint(page, panel, (0.6, 0.5), (0.8, 0.5))
    assert 0 < shared_percent(panel) < painted
    panel.get_by_role("button", name="Clear").click()
    expect_blocked(panel, "Mark first what the edit may change.")
    panel.get_by_role("radio", name="Brush").check()
    panel.get_by_role("slider", name="Size").fill("120")
    panel.locator("canvas").focus()
    for key in ("ArrowLeft", "ArrowUp", " "):
        page.keyboard.press(key)
    expect(panel.locator("[data-part=share]")).to_have_text("4.3 % of the picture")
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(page.get_by_role("button", name="Use your own picture")).to_be_focused()
    open_panel(page)
    expect(panel.locator("[data-part=share]")).to_have_text("4.3 % of the picture")


def test_what_is_missing_is_said(page: Page, demo_url: str, picture: Path) -> None:
    open_page(page, demo_url)
    choose(page, "Instruction")
    expect(page.get_by_role("radio", name="Change the hat")).to_be_attached()
    panel = open_panel(page)
    expect_blocked(panel, "Choose a picture first.")
    panel.get_by_role("button", name="choose a mask file").click()
    expect(panel.locator("[data-part=mask-said]")).to_contain_text("Choose the picture first")
    panel.locator("[data-part=file]").set_input_files(picture)
    expect(panel.locator("canvas")).to_be_visible()
    expect_blocked(panel, "Mark first what the edit may change.")
    paint(page, panel, (0.4, 0.4), (0.6, 0.4))
    expect_blocked(panel, "Say first what the template is about.")
    panel.get_by_role("radio", name="Hat").check()
    add_button(panel).click()
    expect(panel).to_be_hidden()
    added_template(page)
    expect(page.locator(".block.prompt-help")).to_contain_text("cap")
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    assert no_sideways_scroll(page)


def test_files_that_cannot_be_used_are_refused_and_all_is_kept(
    page: Page, demo_url: str, picture: Path, tmp_path: Path
) -> None:
    broken, tiny, black = tmp_path / "broken.png", tmp_path / "tiny.png", tmp_path / "black.png"
    broken.write_bytes(b"this is not a picture")
    Image.new("RGB", (MIN_SIDE_PX - 1, 40)).save(tiny)
    Image.new("RGB", (SIDE_PX, SIDE_PX)).save(black)
    open_page(page, demo_url)
    panel = open_panel(page)
    for path, sentence in ((broken, "broken.png is not a picture"), (tiny, "too small")):
        panel.locator("[data-part=file]").set_input_files(path)
        expect(panel.locator("[data-part=picture-said] .error")).to_contain_text(sentence)
    panel.locator("[data-part=file]").set_input_files(picture)
    expect(panel.locator("canvas")).to_be_visible()
    paint(page, panel, (0.4, 0.4), (0.6, 0.4))
    painted = shared_percent(panel)
    other = write_mask(tmp_path / "other.png", size=(512, 400))
    for path, sentence in (
        (other, "other.png is 512x400 pixels and the picture 512x512; use a mask of the picture's size."),
        (black, "black.png marks nothing to edit; paint the region to edit in white."),
        (broken, "broken.png is not a picture"),
    ):
        panel.locator("[data-part=mask-file]").set_input_files(path)
        expect(panel.locator("[data-part=mask-said] .error")).to_contain_text(sentence)
    panel.locator("[data-part=file]").set_input_files(broken)
    expect(panel.locator("[data-part=picture-said] .error")).to_contain_text("broken.png")
    assert shared_percent(panel) == painted
    expect(add_button(panel)).to_have_attribute("aria-disabled", "false")


@pytest.mark.parametrize("page", [PHONE], indirect=True)
def test_by_touch_on_a_phone(page: Page, demo_url: str, tmp_path: Path) -> None:
    wide = tmp_path / "wide.png"
    Image.new("RGB", (90, 60), "teal").save(wide)
    open_page(page, demo_url)
    panel = open_panel(page, wide)
    expect(panel.locator("[data-part=picture-said]")).to_contain_text("Of the 90x60 pixels, the middle 60x60 are used.")
    box = panel.locator("canvas").bounding_box()
    assert box is not None
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(panel.locator("[data-part=share]")).to_have_text("0.9 % of the picture")
    for control in panel.locator(".own-tools button, .own > header button, footer button, input[type=text]").all():
        size = control.bounding_box()
        assert size is not None
        assert size["height"] >= 44
    assert no_sideways_scroll(page)
    add_button(panel).click()
    expect(panel).to_be_hidden()
    added_template(page)
