"""The Edit view in a real browser against the real app: what a visitor does, and what they must see."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from pages import PHONE, choose, expect_finished, no_sideways_scroll, open_page, press_edit
from PIL import Image
from playwright.sync_api import Page, Route, expect

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(
    ("task", "brings"), [("Face swap", "New face"), ("Try-on", "Garment"), ("Instruction", "What to change")]
)
@pytest.mark.parametrize("system", ["SAKURA", "Full cache", "On-device"])
def test_every_kind_of_edit_ends_with_a_picture_and_a_timeline(
    page: Page, demo_url: str, task: str, brings: str, system: str
) -> None:
    open_page(page, demo_url)
    choose(page, task)
    expect(page.locator(".field-brings .lab").first).to_have_text(brings)
    if task == "Instruction":
        page.locator(".example").first.click()
        expect(page.locator("#prompt textarea")).not_to_have_value("")
    choose(page, system)
    expect(page.locator("#action [data-part=go]")).to_have_attribute("aria-disabled", "false")
    press_edit(page)
    expect_finished(page)
    expect(page.get_by_alt_text("After", exact=True)).to_be_visible()
    executed = page.locator('.drawing [data-lane="execute"]')
    expect(executed).not_to_have_count(0)
    received = page.locator('.drawing [data-lane="receive"]')
    expect(received).to_have_count(0) if system == "On-device" else expect(received).not_to_have_count(0)
    expect(page.locator("[data-part=quality] table")).to_be_visible()
    page.get_by_role("button", name="Shard table").click()
    assert page.locator("[data-part=rows] tr").count() >= 4


def test_all_of_edit_fits_on_a_laptop(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    for mode in ("plan", "done"):
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight"), mode
        press_edit(page)
        expect_finished(page)


def test_enter_in_the_prompt_starts_the_edit(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    choose(page, "Instruction")
    page.locator(".example").first.click()
    expect(page.locator("#prompt textarea")).not_to_have_value("")
    expect(page.locator("#action [data-part=go]")).to_have_attribute("aria-disabled", "false")
    page.locator("#prompt textarea").press("Enter")
    expect_finished(page)


def test_an_instruction_without_words_says_why_it_cannot_start(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    choose(page, "Instruction")
    button = page.locator("#action [data-part=go]")
    expect(button).to_have_attribute("aria-disabled", "true")
    button.hover()
    expect(page.get_by_role("tooltip").filter(has_text="Say first what should change.")).to_be_visible()


def test_words_that_are_not_understood_stay_and_are_shown_as_typed(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    choose(page, "Instruction")
    markup = '<img src=x onerror="document.title=1"> ${1+1} {{value}}'
    page.locator("#prompt textarea").fill(markup)
    expect(page.locator("#action [data-part=go]")).to_have_attribute("aria-disabled", "false")
    press_edit(page)
    expect(page.locator("#setup .error:visible")).to_be_visible()
    assert page.locator("#prompt textarea").input_value() == markup
    assert page.locator("#setup img[src=x]").count() == 0
    assert page.title() != "1"
    assert "Traceback" not in page.content()


@pytest.mark.parametrize("page", [PHONE], indirect=True)
def test_markup_in_an_accepted_prompt_is_text(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    choose(page, "Instruction")
    words = page.locator(".example").first.text_content()
    page.locator("#prompt textarea").fill(f"<b>{words}</b>")
    expect(page.locator("#action [data-part=go]")).to_have_attribute("aria-disabled", "false")
    press_edit(page)
    shown = page.locator(".pick-words span, #setup .error span").filter(has_text=re.compile(".+"))
    expect(shown.first).to_be_attached()
    assert page.locator(".pick-words b b, .pick-words span b, #setup .error b").count() == 0


def test_a_file_that_is_no_picture_is_refused_with_a_sentence(page: Page, demo_url: str, tmp_path: Path) -> None:
    bad = tmp_path / "holiday.png"
    bad.write_bytes(b"this is not a picture")
    open_page(page, demo_url)
    page.set_input_files("#references [data-part=file]", bad)
    expect(page.locator("#setup .error:visible")).to_contain_text("holiday.png")
    page.locator("#setup .error:visible").get_by_role("button", name="Close").click()
    expect(page.locator("#setup .error:visible")).to_have_count(0)
    press_edit(page)
    expect_finished(page)


def test_ones_own_picture_is_used_and_survives_a_reload(page: Page, demo_url: str, tmp_path: Path) -> None:
    own = tmp_path / "me.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (90, 120, 3), dtype=np.uint8)).save(own)
    open_page(page, demo_url)
    page.set_input_files("#references [data-part=file]", own)
    expect(page.get_by_role("radio", name="Your picture")).to_be_checked()
    expect(page.locator("#references .thumb")).to_have_count(5)
    press_edit(page)
    expect_finished(page)
    assert "run=" in page.url
    page.reload()
    expect_finished(page)
    expect(page.get_by_role("radio", name="Your picture")).to_be_checked()


def test_a_reload_during_a_run_shows_it_again(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    press_edit(page)
    expect(page).to_have_url(re.compile("run="))
    page.reload()
    expect_finished(page)
    expect(page.locator('.drawing [data-lane="execute"]')).not_to_have_count(0)


def test_a_reload_of_a_finished_run_shows_how_good_it_is(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    press_edit(page)
    expect_finished(page)
    expect(page.locator("[data-part=quality] table")).to_be_visible()
    page.reload()
    expect_finished(page)
    expect(page.locator("[data-part=quality] table")).to_be_visible()
    expect(page.get_by_text("Comparing the picture")).to_have_count(0)


def test_a_second_page_shows_the_same_run(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    press_edit(page)
    expect_finished(page)
    other = page.context.new_page()
    other.goto(page.url)
    expect_finished(other)
    counts = [tab.locator(".drawing .shard").count() for tab in (page, other)]
    assert counts[0] == counts[1] > 0


def test_a_run_that_is_no_longer_kept_leaves_a_usable_page(page: Page, demo_url: str) -> None:
    page.goto(f"{demo_url.rstrip('/')}/?run=unknown")
    expect(page.locator("#action .error:visible")).to_be_visible()
    assert "run=" not in page.url
    press_edit(page)
    expect_finished(page)


def test_timeline_by_keyboard(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    press_edit(page)
    expect_finished(page)
    first = page.locator('.drawing [data-key="execute-0"]')
    first.focus()
    expect(page.locator("[data-part=tip]")).to_contain_text("Shard 1")
    page.keyboard.press("ArrowRight")
    expect(page.locator('.drawing [data-key="execute-1"]')).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("[data-part=tip]")).to_be_hidden()
    page.keyboard.press("Enter")
    expect(page.locator('[data-part=rows] tr[data-shard="1"]')).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator('.drawing [data-key="execute-1"]')).to_be_focused()


def test_shard_table_by_keyboard(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    press_edit(page)
    expect_finished(page)
    button = page.get_by_role("button", name="Shard table")
    button.press("Enter")
    rows = page.locator("[data-part=rows] tr")
    expect(rows).to_have_count(16)
    rows.first.focus()
    for key, shard in (("ArrowDown", 1), ("End", 15), ("ArrowUp", 14), ("Home", 0)):
        page.keyboard.press(key)
        expect(page.locator(f'[data-part=rows] tr[data-shard="{shard}"]')).to_be_focused()
    page.keyboard.press("Escape")
    expect(button).to_be_focused()
    expect(page.locator("[data-part=drawing]")).to_be_visible()


CUT_WORDS = "cells => cells.filter(cell => cell.scrollWidth > cell.clientWidth).map(cell => cell.textContent)"


def test_the_shard_table_fits_a_laptop(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    press_edit(page)
    expect_finished(page)
    page.get_by_role("button", name="Shard table").click()
    table = page.locator("[data-part=table]")
    assert table.evaluate("box => box.scrollWidth <= box.clientWidth")
    assert table.locator("th, td").evaluate_all(CUT_WORDS) == []
    columns = table.locator("th").evaluate_all("cells => cells.map(cell => cell.innerText.replace(/\\s+/g, ' '))")
    assert columns == [
        "Shard", "Step", "Chosen, rank, bits", "Used, rank, bits", "Received, kB", "Receive, ms", "Reconstruct, ms",
        "Execute, ms", "Ready before need, ms", "Waited, ms", "Predicted, Mbit/s", "Measured, Mbit/s", "Why",
    ]  # fmt: skip
    used = table.locator("tr td:nth-child(4)").all_text_contents()
    assert all(re.fullmatch(r"\d+, \d+\+\d+|", cell) for cell in used)


@pytest.mark.parametrize("page", [PHONE], indirect=True)
def test_the_shard_table_scrolls_on_a_phone(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    press_edit(page)
    expect_finished(page)
    page.get_by_role("button", name="Shard table").click()
    table = page.locator("[data-part=table]")
    assert table.evaluate("box => box.scrollWidth > box.clientWidth")
    assert table.locator("th, td").evaluate_all(CUT_WORDS) == []
    assert no_sideways_scroll(page)
    page.get_by_role("button", name="Timeline").click()
    expect(table).to_be_hidden()


def test_shards_computed_without_the_cache_are_told_apart(page: Page, demo_url: str, tmp_path: Path) -> None:
    """Over a network that carries nothing any more soon after the start."""
    trace = tmp_path / "tunnel.csv"
    trace.write_text("time_s,mbps\n0,0.2\n0.1,0.2\n" + "".join(f"{0.2 + step / 10:.1f},0\n" for step in range(600)))
    open_page(page, demo_url)
    page.locator(".field-network input[type=file]").set_input_files(trace)
    expect(page.locator("#trace input")).to_have_value("tunnel.csv")
    press_edit(page)
    expect_finished(page)
    alone = page.locator('.drawing [data-lane="execute"]:has([fill="var(--sys-device)"])')
    expect(alone).not_to_have_count(0)
    shards = {mark.get_attribute("data-shard") for mark in alone.all()}
    expect(page.locator("[data-part=sentence]")).to_contain_text(f"computed {len(shards)} of 16 shards without")
    alone.last.hover()
    tip = page.locator("[data-part=tip]")
    expect(tip).to_contain_text("computed on the device in")
    expect(tip).to_contain_text(re.compile(r"network|came"))
    keys = page.locator(".drawing .shard").evaluate_all("marks => marks.map(mark => mark.dataset.key)")
    assert len(keys) == len(set(keys))
    page.get_by_role("button", name="Shard table").click()
    expect(page.locator("[data-part=rows] tr").last).to_contain_text("On the device: ")


def test_before_and_after_by_keyboard(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    press_edit(page)
    expect_finished(page)
    slider = page.get_by_role("slider", name="Share of the picture that shows before")
    slider.press("Home")
    assert page.locator("[data-part=edit]").evaluate("box => box.style.getPropertyValue('--cut')") == "0%"


@pytest.mark.parametrize(("choice", "first"), [("Events", "run_started"), ("Chrome trace", None)])
def test_the_timeline_can_be_saved(page: Page, demo_url: str, choice: str, first: str | None) -> None:
    open_page(page, demo_url)
    press_edit(page)
    expect_finished(page)
    page.get_by_role("button", name="Save timeline").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name=choice).click()
    saved = json.loads(download.value.path().read_text("utf-8"))
    if first:
        assert saved[0]["kind"] == first
    else:
        assert saved["traceEvents"]


def test_importance_lies_over_the_template(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    page.get_by_role("button", name="Importance").click()
    expect(page.locator("[data-part=heat] rect")).not_to_have_count(0)
    expect(page.get_by_text("looked at little")).to_be_visible()
    page.get_by_role("slider", name="Step").fill("2")
    expect(page.locator("[data-part=heat-step-value]")).to_have_text("Step 2")


def test_ones_own_trace_is_read_or_refused(page: Page, demo_url: str, tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.csv", tmp_path / "good.csv"
    bad.write_text("hello\nworld\n")
    good.write_text("time_s,mbps\n" + "".join(f"{second},{20 + second % 5}\n" for second in range(60)))
    open_page(page, demo_url)
    upload = page.locator(".field-network input[type=file]")
    upload.set_input_files(bad)
    expect(page.locator(".field-network .error")).to_contain_text("bad.csv")
    upload.set_input_files(good)
    expect(page.locator(".field-network .lab i")).to_have_text("mean 22 Mbit/s")


CHANGED = "You changed the setup; press Edit to see its result."


@pytest.mark.parametrize("page", [{}, PHONE], indirect=True)
def test_a_result_of_another_setup_says_so(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    press_edit(page)
    expect_finished(page)
    on_phone = page.get_by_role("button", name="Change the setup").is_visible()
    said, button = page.get_by_text(CHANGED).locator("visible=true"), page.locator("#action [data-part=go]")
    expect(said).to_have_count(0)
    for system, count, words in (("On-device", 1, "Edit"), ("SAKURA", 0, "Edit again")):
        if on_phone:
            page.get_by_role("button", name="Change the setup").click()
        choose(page, system)
        expect(button).to_have_text(words)
        if on_phone:
            page.get_by_role("button", name="Change the setup").click()
        expect(said).to_have_count(count)
        expect(page.get_by_alt_text("After", exact=True)).to_be_visible()


def test_a_result_of_another_picture_or_amount_says_so(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    press_edit(page)
    expect_finished(page)
    said, pictures = page.get_by_text(CHANGED).locator("visible=true"), page.locator("#references .thumb input")
    pictures.nth(1).check()
    expect(said).to_have_count(1)
    pictures.nth(0).check()
    expect(said).to_have_count(0)
    choose_amount(page, "200 kB")
    expect(said).to_have_count(1)


def test_a_result_of_other_words_says_so(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    choose(page, "Instruction")
    page.locator(".example").nth(0).click()
    press_edit(page)
    expect_finished(page)
    page.locator(".example").nth(1).click()
    expect(page.get_by_text(CHANGED).locator("visible=true")).to_have_count(1)


def choose_amount(page: Page, name: str) -> None:
    page.locator("#budget input").click()
    page.get_by_role("option", name=name).click()


def test_too_few_bytes_are_answered_with_the_smallest_that_work(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    hint = page.locator(".field-budget .lab i")
    expect(hint).to_have_text("automatic hides the transfer")
    choose_amount(page, "Another amount")
    expect(hint).to_have_text("")
    page.get_by_label("Amount in kB").fill("10")
    press_edit(page)
    expect_finished(page)
    received = page.locator("[data-part=received]").text_content() or ""
    number, unit = re.findall(r"[\d.]+|kB|MB", received)
    expect(page.locator("[data-part=caption]")).to_have_text(
        f"The smallest that works for this template was {number} {unit}."
    )


def test_an_edit_waits_until_its_template_is_ready(page: Page, demo_url: str) -> None:
    def answer(route: Route) -> None:
        if (route.request.post_data_json or {}).get("fn_name") == "planned":
            route.fulfill(json={"progress": 0.4})
        else:
            route.continue_()

    page.route("**/component_server**", answer)
    page.goto(demo_url)
    button = page.locator("#action [data-part=go]")
    expect(button).to_have_text("Getting ready, 40 %")
    expect(button).to_have_attribute("aria-disabled", "true")
    expect(button).to_have_attribute("data-tip", "Building this template's cache, 40 %.")
    page.unroute("**/component_server**")
    expect(button).to_have_text("Edit")
    expect(button).to_have_attribute("aria-disabled", "false")


OUTSIDE = """card => [...card.querySelectorAll("*")]
    .filter((part) => part.checkVisibility() && part.getBoundingClientRect().right > card.getBoundingClientRect().right)
    .map((part) => part.className)"""


@pytest.mark.parametrize(("width", "height"), [(1100, 800), (1280, 800), (1366, 768)])
def test_results_fit_their_card_and_the_action_its_screen(page: Page, demo_url: str, width: int, height: int) -> None:
    page.set_viewport_size({"width": width, "height": height})
    open_page(page, demo_url)
    card = page.locator(".pics-card")
    heights = []
    for mode in ("plan", "done", "running"):
        if mode == "done":
            press_edit(page)
            expect_finished(page)
            expect(page.locator("[data-part=quality] table")).to_be_visible()
        page.locator(".result").evaluate("(result, mode) => (result.dataset.mode = mode)", mode)
        assert card.evaluate(OUTSIDE) == [], mode
        assert no_sideways_scroll(page), mode
        heights.append(card.bounding_box()["height"])  # type: ignore[index]
        assert page.locator("#action .act").evaluate("act => act.getBoundingClientRect().bottom + scrollY") <= height
    assert max(heights) - min(heights) < 2


def test_what_an_edit_on_the_device_has_not_is_not_shown(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    choose(page, "On-device")
    press_edit(page)
    expect_finished(page)
    expect(page.locator("[data-part=received]")).to_have_text("nothing")
    for part in ("second", "third"):
        expect(page.locator(f"[data-part={part}]")).to_be_hidden()


def start_slow_edit(page: Page, url: str, folder: Path) -> None:
    """Begin an edit that takes much longer than a test: the full cache at 1 Mbit/s."""
    trace = folder / "slow.csv"
    trace.write_text("time_s,mbps\n" + "".join(f"{second},1\n" for second in range(120)))
    open_page(page, url)
    page.locator(".field-network input[type=file]").set_input_files(trace)
    expect(page.locator(".field-network .lab i")).to_have_text("mean 1 Mbit/s")
    choose(page, "Full cache")
    expect(page.locator(".field-budget .lab i")).to_have_text("only SAKURA can choose")
    press_edit(page)
    expect(page.locator("#action [data-part=go]")).to_contain_text("Editing, step 1")


def stop_edit(page: Page) -> None:
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("html")).to_have_attribute("data-mode", "failed")


def test_an_edit_can_be_stopped(page: Page, demo_url: str, tmp_path: Path) -> None:
    start_slow_edit(page, demo_url, tmp_path)
    stop_edit(page)
    said = page.locator("#pictures [data-part=error]")
    expect(said).to_contain_text("You stopped this edit.")
    expect(said).to_have_class("error asked")
    expect(page.get_by_text("The edit ended before its last step.").first).to_be_attached()
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    expect(page.locator("#action [data-part=go]")).to_have_text("Edit again")
    choose(page, "On-device")
    press_edit(page)
    expect_finished(page)


def test_a_lost_connection_is_told_until_it_is_back(page: Page, demo_url: str, tmp_path: Path) -> None:
    start_slow_edit(page, demo_url, tmp_path)
    lost = page.get_by_text("The connection to the page's server is lost")
    expect(lost).to_be_hidden()
    page.context.set_offline(True)
    expect(lost).to_be_visible()
    expect(page.locator(".chip")).to_have_text("The page has lost its server")
    page.context.set_offline(False)
    expect(lost).to_be_hidden()
    stop_edit(page)


@pytest.mark.parametrize("page", [PHONE], indirect=True)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_phone(page: Page, demo_url: str, theme: str) -> None:
    open_page(page, demo_url, f"?__theme={theme}")
    assert no_sideways_scroll(page)
    assert ("dark" in (page.locator("body").get_attribute("class") or "")) == (theme == "dark")
    press_edit(page)
    expect_finished(page)
    assert no_sideways_scroll(page)
    assert page.locator(".pics-card").evaluate(OUTSIDE) == []
    expect(page.locator("#setup .fields")).to_be_hidden()
    page.get_by_role("button", name="Change the setup").click()
    expect(page.locator("#setup .fields")).to_be_visible()


@pytest.mark.parametrize("width", [320, 700, 1024, 1099, 1100, 1920])
def test_no_width_scrolls_sideways(page: Page, demo_url: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    open_page(page, demo_url)
    assert no_sideways_scroll(page)
    press_edit(page)
    expect_finished(page)
    assert no_sideways_scroll(page)
