"""The compression lab in a real browser against the real app, and the small decisions of its view."""

import csv
import re
from typing import Any, cast

import pytest
from pages import PHONE, no_sideways_scroll
from playwright.sync_api import Locator, Page, expect

from sakura.lab.points import CODEC_NAMES
from sakura.lab.service import Lab
from sakura.studio import Studio
from ui.lab import LabView

SLOW_MS = 240_000  # loading the model, or all charts of a template, on a busy machine


def part(page: Page, name: str) -> Locator:
    return page.locator(f"#lab [data-part={name}]")


def open_lab(page: Page, url: str, query: str = "") -> None:
    """Open the lab and wait for the edit with its setting."""
    page.goto(f"{url.rstrip('/')}/lab{query}")
    expect(part(page, "mask-psnr")).to_have_text(re.compile(r"\d"), timeout=SLOW_MS)


def settled(page: Page) -> None:
    expect(part(page, "status")).to_have_text("")


@pytest.mark.browser
def test_the_lab_is_a_click_away_and_shows_importance(page: Page, demo_url: str) -> None:
    page.goto(demo_url)
    page.get_by_role("link", name="Compression lab").click()
    expect(page).to_have_title("SAKURA: compression lab")
    cells = page.get_by_role("radiogroup", name="Step and block").get_by_role("radio")
    expect(cells).to_have_count(32, timeout=SLOW_MS)
    expect(part(page, "read")).to_have_text(re.compile(r"10 % of tokens hold \d+ % of the attention"))
    chosen = page.get_by_role("radiogroup", name="Step and block").get_by_role("radio", checked=True)
    chosen.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect(part(page, "where")).to_have_text("step 3, block 6")
    expect(page.locator("#lab :focus")).to_have_attribute("aria-checked", "true")
    assert no_sideways_scroll(page)


@pytest.mark.browser
def test_a_released_slider_changes_bytes_and_picture(page: Page, demo_url: str) -> None:
    open_lab(page, demo_url)
    settled(page)
    bytes_before, picture_before = part(page, "bytes").inner_text(), part(page, "picture").get_attribute("src")
    slider = page.get_by_role("slider", name="Rank")
    slider.press("Home")
    expect(part(page, "rank-number")).to_have_value("4")
    expect(part(page, "bytes")).not_to_have_text(bytes_before)
    expect(part(page, "picture")).not_to_have_attribute("src", cast(str, picture_before))
    settled(page)
    part(page, "q-number").fill("9")
    part(page, "q-number").press("Enter")
    expect(part(page, "q-number")).to_have_value("1.5")
    expect(page).to_have_url(re.compile(r"q=1\.5&rank=4"))
    settled(page)
    # A reload shows the same.
    shown = part(page, "bytes").inner_text()
    page.reload()
    expect(part(page, "bytes")).to_have_text(shown)


@pytest.mark.browser
def test_another_request_is_another_picture(page: Page, demo_url: str) -> None:
    open_lab(page, demo_url)
    settled(page)
    before = part(page, "full").get_attribute("src")
    page.get_by_role("button", name="Next request").click()
    expect(part(page, "request-name")).to_have_text("Request 2")
    expect(part(page, "full")).not_to_have_attribute("src", cast(str, before))


@pytest.mark.browser
def test_charts_fill_and_can_be_saved(page: Page, demo_url: str) -> None:
    open_lab(page, demo_url)
    expect(part(page, "progress")).to_have_text("All charts are measured.", timeout=SLOW_MS)
    expect(part(page, "codecs")).to_contain_text("times fewer bytes")
    expect(part(page, "precision")).to_contain_text("your setting")
    with page.expect_download() as download:
        page.locator("[data-csv=codecs]").click()
    rows = list(csv.DictReader(download.value.path().read_text("utf-8").splitlines()))
    assert {row["codec"] for row in rows} == set(CODEC_NAMES)
    assert all(float(row["psnr_db"]) > 0 for row in rows)
    with page.expect_download() as download:
        page.locator("[data-svg=precision]").click()
    drawing = download.value.path().read_text("utf-8")
    assert drawing.startswith("<svg")
    assert "var(" not in drawing
    # The second visit has them at once, for everyone.
    page.reload()
    expect(part(page, "progress")).to_have_text("All charts are measured.")


@pytest.mark.browser
def test_edit_with_this_setting_spends_these_bytes(page: Page, demo_url: str) -> None:
    open_lab(page, demo_url, "?template=face-hills&rank=32")
    settled(page)
    page.get_by_role("link", name="Edit with these bytes").click()
    expect(page.get_by_role("radio", name="Red hair before hills")).to_be_checked()
    amount = re.search(r"budget_kb=([\d.]+)", page.url)
    assert amount
    expect(page.locator("#budget-kb input")).to_have_value(amount[1])
    expect(page.locator("#budget input")).to_have_value("Another amount")


@pytest.mark.browser
def test_two_pages_do_not_disturb_each_other(page: Page, demo_url: str) -> None:
    open_lab(page, demo_url, "?rank=16")
    other = page.context.new_page()
    open_lab(other, demo_url, "?rank=96")
    settled(page)
    settled(other)
    expect(part(page, "rank-number")).to_have_value("16")
    assert part(page, "bytes").inner_text() != part(other, "bytes").inner_text()


@pytest.mark.browser
@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("?template=nowhere", "This template is not there any more"),
        ("?q=nan", "The importance exponent must be from 0 to 1.5"),
        ("?rank=33", "The rank must be one of"),
    ],
)
def test_a_bad_address_gets_a_sentence_and_a_usable_page(page: Page, demo_url: str, query: str, sentence: str) -> None:
    open_lab(page, demo_url, query)
    settled(page)
    expect(part(page, "error")).to_contain_text(sentence)
    page.get_by_role("slider", name="Rank").press("End")
    expect(part(page, "error")).to_be_hidden()


@pytest.mark.browser
@pytest.mark.parametrize("query", ["?budget_kb=abc", "?budget_kb=0&template=face-bob", "?template=nowhere"])
def test_a_bad_address_of_edit_gets_a_sentence(page: Page, demo_url: str, query: str) -> None:
    page.goto(f"{demo_url.rstrip('/')}/{query}")
    expect(page.locator(".action-error .error")).to_be_visible()


@pytest.mark.browser
@pytest.mark.parametrize("page", [PHONE], indirect=True)
def test_the_lab_fits_a_phone(page: Page, demo_url: str) -> None:
    open_lab(page, demo_url)
    settled(page)
    assert no_sideways_scroll(page)
    expect(page.get_by_role("link", name="Edit with these bytes")).to_be_in_viewport()


class TestQuestions:
    """What a page may ask, and what it may not."""

    @pytest.fixture
    def ask(self, running_studio: Studio) -> Any:
        with Lab(running_studio.library, lambda: True) as lab:
            functions = {function.__name__: function for function in LabView(running_studio, lab).functions()}
            yield lambda name, question: functions[name](question)

    def test_an_answer_that_is_not_there_yet_says_why(self, ask: Any) -> None:
        question = ["page", "face-bob", [0.75, 32, 6, 6], 0]
        assert ask("lab_try", question) == {"status": "A device is at work for an edit; the lab goes on after it."}

    @pytest.mark.parametrize(
        ("name", "question", "sentence"),
        [
            ("lab_try", ["page", "face-bob", [2, 32, 6, 6], 0], "importance exponent"),
            ("lab_try", ["page", "face-bob", [1, 32, 6, 6], "x"], "number of the request"),
            ("lab_try", ["page", {"a": 1}, [1, 32, 6, 6], 0], "not there any more"),
            ("lab_importance", ["page" * 99, "face-bob"], "not there any more"),
            ("lab_charts", ["page", "../face-bob", -1, None], "not there any more"),
            ("lab_csv", ["page", "face-bob", "../etc"], "no such chart"),
            ("lab_csv", ["page", "face-bob", "codecs"], "Nothing is measured yet"),
        ],
    )
    def test_what_cannot_be_answered_gets_a_sentence(
        self, ask: Any, name: str, question: list[object], sentence: str
    ) -> None:
        assert sentence in ask(name, question)["error"]
