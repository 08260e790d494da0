"""The Paper scale view in a real browser against the real app, and its answers."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from pages import PHONE, no_sideways_scroll
from playwright.sync_api import Locator, Page, expect

from sakura.paper_scale.service import LINES, Scales
from ui.scale import ScaleView

SLOW_MS = 120_000


def part(page: Page, name: str) -> Locator:
    return page.locator(f"#scale [data-part={name}]")


def row(page: Page, system: str) -> Locator:
    return page.locator(f"#scale [data-system={system}]").first


def open_scale(page: Page, url: str, query: str = "") -> None:
    """Open the view and wait until all systems are worked out."""
    page.goto(f"{url.rstrip('/')}/scale{query}")
    worked_out(page)


def worked_out(page: Page) -> None:
    expect(page.locator("#scale [data-system]")).to_have_count(len(LINES), timeout=SLOW_MS)
    expect(part(page, "status")).to_have_text("", timeout=SLOW_MS)
    expect(page.locator("html")).not_to_have_attribute("data-scale", "old")


@pytest.mark.browser
def test_the_view_is_a_click_away_and_fills(page: Page, demo_url: str) -> None:
    page.goto(demo_url)
    page.get_by_role("link", name="Paper scale").click()
    expect(page).to_have_title("SAKURA: paper scale")
    worked_out(page)
    expect(row(page, "sakura")).to_contain_text("dB")
    expect(row(page, "on_device")).to_contain_text("exact")
    expect(part(page, "over-device")).to_have_text(re.compile(r"^[34]\.\d\d times"))
    expect(part(page, "facts")).to_contain_text("88.7 TFLOP")
    expect(part(page, "sources")).to_contain_text("Whisper-large-v3-turbo")
    assert no_sideways_scroll(page)


@pytest.mark.browser
def test_a_changed_number_changes_the_answer_and_can_be_reset(page: Page, demo_url: str) -> None:
    open_scale(page, demo_url)
    before = row(page, "on_device").inner_text()
    page.get_by_label("NPU, TFLOPS").fill("17.4")
    page.get_by_label("NPU, TFLOPS").press("Enter")
    expect(row(page, "on_device")).to_contain_text("22.7 s", timeout=SLOW_MS)
    expect(page).to_have_url(re.compile("set_npu_tflops=17.4"))
    expect(part(page, "sources")).to_contain_text("NPU, TFLOPS: 17.4, changed from 8.7.")
    worked_out(page)
    page.reload()
    expect(row(page, "on_device")).to_contain_text("22.7 s", timeout=SLOW_MS)
    part(page, "reset").click()
    expect(row(page, "on_device")).to_have_text(before.replace("\n", ""), timeout=SLOW_MS)
    expect(part(page, "reset")).to_be_hidden()
    expect(page).not_to_have_url(re.compile("set_"))


@pytest.mark.browser
def test_another_choice_is_another_answer(page: Page, demo_url: str) -> None:
    open_scale(page, demo_url)
    page.get_by_label("Model", exact=True).select_option("FLUX.2 klein 4B, 512 px")
    expect(part(page, "facts")).to_contain_text("19.7 TFLOP", timeout=SLOW_MS)
    worked_out(page)
    page.get_by_label("Device", exact=True).select_option("This machine (measured now)")
    expect(part(page, "sources")).to_contain_text("measured on this machine", timeout=SLOW_MS)


@pytest.mark.browser
@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("?case=dall-e", "There is no model case 'dall-e'"),
        ("?set_npu_tflops=0", "must be a number from 0.000001 to 1,000,000"),
        ("?set_speed=3", "has no 'speed'"),
        ("?rtt_ms=soon", "holds a number that cannot be read"),
        ("?rtt_ms=90000", "The round trip must be from 0 to 2000 ms"),
    ],
)
def test_a_bad_address_gets_a_sentence_and_a_usable_page(page: Page, demo_url: str, query: str, sentence: str) -> None:
    open_scale(page, demo_url, query)
    expect(part(page, "error")).to_contain_text(sentence)
    expect(row(page, "sakura")).to_contain_text("dB")


@pytest.mark.browser
@pytest.mark.parametrize("page", [PHONE], indirect=True)
def test_it_fits_a_phone(page: Page, demo_url: str) -> None:
    open_scale(page, demo_url)
    assert no_sideways_scroll(page)
    expect(page.get_by_label("NPU, TFLOPS")).to_be_hidden()
    part(page, "device-numbers").locator("summary").click()
    expect(page.get_by_label("NPU, TFLOPS")).to_be_visible()


@pytest.fixture
def functions() -> dict[str, Callable[..., Any]]:
    return {function.__name__: function for function in ScaleView(Scales()).functions()}


def setting(**changes: Any) -> dict[str, Any]:
    usual = {"case": "klein-1024", "workload": "MB", "device": "8-elite", "network": "wifi", "rtt_ms": 1, "changed": {}}
    return {**usual, **changes}


@pytest.mark.parametrize(
    "asked",
    [
        ["page", None, -1],
        ["page", {}, -1],
        ["", setting(), -1],
        ["page", setting(device="x"), -1],
        ["page", setting(case=[], workload={}, device=1, network=None), -1],
        ["page", setting(rtt_ms=True), 0],
        ["page", setting(changed={"npu_tflops": "fast"}), 0],
        ["page", setting(changed={"npu_tflops": -1}), 0],
    ],
)
def test_whatever_a_page_asks_is_answered(functions: dict[str, Callable[..., Any]], asked: list[Any]) -> None:
    answer = functions["scale_ask"](asked)
    assert answer["error"].endswith(".")


def test_devices_are_told_with_their_sources(functions: dict[str, Callable[..., Any]]) -> None:
    numbers = functions["scale_device"]("8-elite")["numbers"]
    assert [number["value"] for number in numbers[:2]] == [7.4, 3.0]
    assert all(number["source"] and number["title"] and number["known"] for number in numbers)
    assert functions["scale_device"]("3310")["error"].startswith("There is no device profile '3310'")
