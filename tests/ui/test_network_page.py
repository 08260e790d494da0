"""The network field in a real browser: files dropped on it, the choice of a column, and another network mid-run."""

import json
from pathlib import Path

import pytest
from pages import PHONE, choose, expect_finished, no_sideways_scroll, open_page, press_edit
from playwright.sync_api import Locator, Page, expect

pytestmark = pytest.mark.browser

DROP = """([selector, files]) => {
  const data = new DataTransfer();
  for (const [name, text] of files) data.items.add(new File([text], name));
  const target = document.querySelector(selector);
  for (const kind of ["dragenter", "dragover", "drop"])
    target.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
}"""
WALK = "time_s,mbps\n" + "".join(f"{second},{20 + second % 5}\n" for second in range(60))
SLOW = "time_s,mbps\n" + "".join(f"{second},1\n" for second in range(600))
DRIVE = "seq_num,A_throughput_mbps,B_throughput_mbps\n" + "".join(f"{second},10,40\n" for second in range(30))


def drop(page: Page, *files: tuple[str, str], on: str = ".field-network .lab") -> None:
    page.evaluate(DROP, [on, list(files)])


def mean(page: Page) -> Locator:
    return page.locator(".field-network .lab i")


def told(page: Page) -> Locator:
    return page.locator(".field-network .remark")


def choose_option(page: Page, field: str, name: str) -> None:
    page.locator(f"{field} input").click()
    page.get_by_role("option", name=name, exact=True).click()


def test_a_file_dropped_anywhere_on_the_field_is_chosen_and_told_back(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    for number, on in enumerate((".field-network .lab", "#trace input", ".trace-drawing")):
        name = f"walk-{number}.csv"
        drop(page, (name, WALK), on=on)
        expect(page.locator("#trace input")).to_have_value(name)
        expect(mean(page)).to_have_text("mean 22 Mbit/s")
        expect(told(page)).to_have_text(["time and Mbit/s, read as Mbit/s: 60 s, mean 22 Mbit/s."])
        expect(page.locator(".trace-facts")).to_contain_text("20 to 24 Mbit/s")
        expect(page.locator(".field-network.over")).to_have_count(0)
    press_edit(page)
    expect_finished(page)
    expect(told(page)).to_have_count(1)


def test_a_bad_file_leaves_the_trace_chosen_before(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    choose_option(page, "#trace", "4G, driving")
    expect(mean(page)).to_have_text("mean 38 Mbit/s")
    error = page.locator(".field-network .error")
    for name, text, words in (
        ("empty.csv", "", "empty.csv is empty"),
        ("zero.txt", "0 0\n1 0\n", "zero.txt never carries any data"),
        ("back.txt", "0 10\n2 10\n1 10\n", "back.txt, line 3: the time goes back"),
        ("words.txt", "hello\n", "words.txt is in no trace format known here"),
    ):
        drop(page, (name, text))
        expect(error).to_contain_text(words)
        expect(page.locator("#trace input")).to_have_value("4G, driving")
        expect(mean(page)).to_have_text("mean 38 Mbit/s")
    drop(page, ("walk.csv", WALK))
    expect(mean(page)).to_have_text("mean 22 Mbit/s")
    expect(error).to_have_count(0)


def test_what_cannot_be_one_trace_file_is_refused_before_it_is_sent(page: Page, demo_url: str, tmp_path: Path) -> None:
    open_page(page, demo_url)
    drop(page, ("a.csv", WALK), ("b.csv", WALK))
    error = page.locator(".field-network .error")
    expect(error).to_contain_text("These are several files; drop one trace file.")
    large = tmp_path / "large.csv"
    with large.open("wb") as file:
        file.truncate(20_000_001)
    page.locator(".field-network input[type=file]").set_input_files(large)
    expect(error).to_contain_text("large.csv is larger than 20 MB")
    expect(mean(page)).to_have_text("mean 551 Mbit/s")


def test_a_file_with_several_rates_asks_for_the_column(page: Page, demo_url: str) -> None:
    open_page(page, demo_url)
    column = page.locator("#trace-column")
    expect(column).to_be_hidden()
    drop(page, ("drive.csv", DRIVE))
    expect(told(page)).to_have_text(["drive.csv has 2 rates; choose the one to use."])
    expect(page.locator("#trace-column input")).to_have_value("Choose a column")
    expect(page.locator("#trace input")).to_have_value("5G, walking")
    expect(mean(page)).to_have_text("mean 551 Mbit/s")
    choose_option(page, "#trace-column", "B_throughput_mbps")
    expect(mean(page)).to_have_text("mean 40 Mbit/s")
    expect(page.locator("#trace input")).to_have_value("drive.csv, B_throughput_mbps")
    expect(told(page).first).to_have_text("5Gophers, read as Mbit/s: 30 s, mean 40 Mbit/s.")
    choose_option(page, "#trace-column", "A_throughput_mbps")
    expect(mean(page)).to_have_text("mean 10 Mbit/s")
    choose_option(page, "#trace", "4G, driving")
    expect(mean(page)).to_have_text("mean 38 Mbit/s")
    expect(column).to_be_hidden()
    expect(told(page)).to_have_count(0)


def begin_slow_edit(page: Page, url: str) -> None:
    """The full cache at 1 Mbit/s: about a minute and a half, if nothing changes."""
    open_page(page, url)
    drop(page, ("slow.csv", SLOW))
    expect(mean(page)).to_have_text("mean 1 Mbit/s")
    choose(page, "Full cache")
    expect(page.locator(".field-budget .lab i")).to_have_text("only SAKURA can choose")
    press_edit(page)
    expect(page.locator("#action [data-part=go]")).to_contain_text("Editing, step 1")
    expect(page.locator('.drawing [data-shard="0"], .drawing circle').first).to_be_attached()


@pytest.mark.parametrize("page", [{}, PHONE], indirect=True)
def test_another_network_takes_over_while_the_edit_runs(page: Page, demo_url: str) -> None:
    begin_slow_edit(page, demo_url)
    if page.get_by_role("button", name="Change the setup").is_visible():
        page.get_by_role("button", name="Change the setup").click()
    expect(page.locator(".trace-facts .switch")).to_be_visible()
    choose_option(page, "#trace", "5G, driving")
    switch = page.locator(".drawing line.switch")
    expect(switch).to_have_count(1)
    expect(page.locator(".drawing").get_by_text("5G, driving")).to_be_attached()
    assert no_sideways_scroll(page)
    expect_finished(page)
    # The network that is chosen now is the one that held in the end.
    expect(page.get_by_text("You changed the setup").locator("visible=true")).to_have_count(0)
    trace = json.loads(page.evaluate("JSON.stringify(sakura.store.run.view.trace)"))
    (at_s, title), *others = trace["switches"]
    assert (title, others) == ("5G, driving", [])
    before = [rate for time_s, rate in zip(trace["times"], trace["rates"], strict=True) if time_s < at_s]
    after = [rate for time_s, rate in zip(trace["times"], trace["rates"], strict=True) if time_s >= at_s]
    assert set(before) == {1}
    assert max(after) > 100
    # The shards that followed came faster than 1 Mbit/s ever could.
    events = json.loads(page.evaluate("JSON.stringify(sakura.store.run.events)"))
    received = [event for event in events if event["kind"] == "lane_finished" and event["lane"] == "receive"]
    total_bits, last_s = 8 * sum(event["received_bytes"] for event in received), received[-1]["at_s"]
    assert total_bits / last_s > 2e6
    (change,) = (event for event in events if event["kind"] == "network_changed")
    assert (change["title"], round(change["at_s"], 4)) == (title, at_s)
    page.reload()
    expect_finished(page)
    expect(page.get_by_text("You changed the setup").locator("visible=true")).to_have_count(0)
    expect(switch).to_have_count(1)
    expect(page.locator("#trace input")).to_have_value("5G, driving")


def test_a_file_dropped_while_the_edit_runs_takes_over_too(page: Page, demo_url: str) -> None:
    begin_slow_edit(page, demo_url)
    drop(page, ("fast.csv", WALK.replace(",2", ",2000")))
    expect(page.locator(".drawing line.switch")).to_have_count(1)
    expect_finished(page)
    expect(page.locator(".drawing line.switch")).to_have_count(1)


def test_a_second_page_sees_the_switch_and_the_export_has_it(page: Page, demo_url: str) -> None:
    begin_slow_edit(page, demo_url)
    other = page.context.new_page()
    other.goto(page.url)
    expect(other.locator("#action [data-part=go]")).to_contain_text("Editing, step 1")
    choose_option(page, "#trace", "5G, driving")
    for tab in (other, page):
        expect(tab.locator(".drawing line.switch")).to_have_count(1)
        expect_finished(tab)
    page.get_by_role("button", name="Save timeline").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="Chrome trace").click()
    rows = json.loads(download.value.path().read_text("utf-8"))["traceEvents"]
    (flip,) = (row for row in rows if row["name"] == "Network: 5G, driving")
    rates = [(row["ts"], row["args"]["value"]) for row in rows if row["name"] == "Trace, Mbit/s"]
    assert {value for at_us, value in rates if at_us < flip["ts"] - 1} == {1}
    assert max(value for _, value in rates) > 100
