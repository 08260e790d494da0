"""The Race view in a real browser against the real app: what a visitor does, and what they must see."""

import re
from typing import Any

import pytest
from pages import PHONE, choose, no_sideways_scroll
from playwright.sync_api import Browser, Locator, Page, expect

from sakura.events import RACE_SYSTEMS, LaneFinished, RunStarted, System, events_from_json
from sakura.network.library import constant_trace
from sakura.race import STOPPED, Lap, Races, RaceState
from sakura.studio import EditRequest, Studio
from ui.race import RaceView
from ui.race_views import RACE_NAMES, lap_view, race_view, setup_key

SLOW_MS = 120_000  # all systems of a race on a busy machine, with the building of a template's cache


def part(page: Page, name: str) -> Locator:
    return page.locator(f"#race [data-part={name}]")


def open_race(page: Page, url: str, query: str = "") -> None:
    page.goto(f"{url.rstrip('/')}/race{query}")
    expect(page.locator("#race .race-row")).to_have_count(len(RACE_SYSTEMS))
    expect(page.locator("#race-timeline [data-part=waiting]")).to_be_attached()


def race_to_the_end(page: Page) -> None:
    page.locator("#action [data-part=go]").click()
    expect_over(page)


def expect_over(page: Page) -> None:
    expect(page.locator("[data-race=done]")).to_be_attached(timeout=SLOW_MS)


@pytest.fixture(scope="module")
def raced_url(browser: Browser, demo_url: str) -> str:
    """The address of a finished race, for tests that need one whichever it is."""
    page = browser.new_page()
    open_race(page, demo_url)
    race_to_the_end(page)
    url = page.url
    page.close()
    return url


def figures(page: Page) -> list[list[str]]:
    """The table twin: place, system, time in s, received MB, PSNR, SSIM, remark."""
    rows = page.locator("#race [data-part=table-rows] tr")
    return [row.locator("th, td").all_text_contents() for row in rows.all()]


@pytest.mark.browser
def test_rows_finish_in_the_order_of_measured_times(page: Page, demo_url: str) -> None:
    page.goto(demo_url)
    page.get_by_role("link", name="Race", exact=True).click()
    expect(page).to_have_title("SAKURA: race")
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    # Notes when each row is done, on the page's own clock.
    page.evaluate("""() => {
        window.finished = [];
        new MutationObserver((changes) => changes.forEach(({ target }) => {
          const { system } = target.dataset;
          if (target.classList.contains("over") && !window.finished.includes(system)) window.finished.push(system);
        })).observe(document.querySelector("#race .race-rows"), { attributes: true, subtree: true });
    }""")
    page.locator("#action [data-part=go]").click()
    expect(part(page, "title")).to_have_text(re.compile(rf"Measuring \d of {len(RACE_SYSTEMS)}: \w+"), timeout=SLOW_MS)
    expect_over(page)
    rows = figures(page)
    names = {system: RACE_NAMES[system] for system in RACE_SYSTEMS}
    assert sorted(row[1] for row in rows) == sorted(names.values())
    times_s = [float(row[2]) for row in rows]
    assert times_s == sorted(times_s)
    assert [names[system] for system in page.evaluate("window.finished")] == [row[1] for row in rows]
    assert page.locator("#race .race-row.first .race-name").inner_text() == rows[0][1]
    expect(part(page, "title")).to_contain_text(f"{rows[0][1]} was first after")
    # Every row has its picture, step by step, and SAKURA's run is drawn below.
    for system in RACE_SYSTEMS:
        pictures = page.locator(f'#race [data-system="{system}"] .thumb img')
        expect(pictures).to_have_count(5)
        expect(pictures.last).to_have_class("on")
    expect(page.locator('#race-timeline .drawing [data-lane="execute"]')).to_have_count(16)
    assert no_sideways_scroll(page)
    assert complaints == []


@pytest.mark.browser
def test_a_finished_race_is_there_after_a_reload_and_plays_again(page: Page, raced_url: str) -> None:
    page.goto(raced_url)
    expect_over(page)
    rows = figures(page)
    assert len(rows) == len(RACE_SYSTEMS)
    page.get_by_role("radio", name="¼×").check(force=True)
    part(page, "again").click()
    expect(page.locator("[data-race=playing]")).to_be_attached()
    expect(page.locator('#race [data-system="sakura"] .race-time')).to_contain_text("%")
    page.get_by_role("radio", name="1×", exact=True).check(force=True)
    expect_over(page)
    assert figures(page) == rows
    assert page.url == raced_url
    with page.expect_download() as download:
        page.locator("#race-timeline [data-part=save-button]").click()
        page.locator("#race-timeline [data-format=events]").click()
    events = events_from_json(download.value.path().read_bytes())
    assert isinstance(events[0], RunStarted)
    assert events[0].system == "sakura"


@pytest.mark.browser
def test_keys_choose_a_network_and_race_again(page: Page, raced_url: str) -> None:
    page.goto(raced_url)
    expect_over(page)
    page.keyboard.press("r")
    expect(page.locator("[data-race=playing]")).to_be_attached()
    expect_over(page)
    assert page.url == raced_url
    # On another network R measures anew.
    before = page.locator("#trace input").input_value()
    page.keyboard.press("N")
    expect(page.locator("#trace input")).not_to_have_value(before)
    expect(part(page, "network")).to_have_text("You changed the setup; start the race to see its result.")
    page.keyboard.press("r")
    expect(page).not_to_have_url(raced_url)
    expect_over(page)
    assert len(figures(page)) == len(RACE_SYSTEMS)


@pytest.mark.browser
def test_an_instruction_is_typed_without_racing(page: Page, demo_url: str) -> None:
    open_race(page, demo_url)
    choose(page, "Instruction")
    prompt = page.locator("#prompt textarea")
    expect(prompt).not_to_have_value("")
    prompt.fill("")
    expect(page.locator("#action [data-part=go]")).to_have_attribute("aria-disabled", "true")
    prompt.press_sequentially("rnrn")
    expect(page.locator("html")).to_have_attribute("data-mode", "plan")
    expect(page.locator("#action [data-part=go]")).to_have_attribute("aria-disabled", "false")
    prompt.press("Enter")
    expect(page.locator("#setup .error:visible")).to_be_visible()
    assert prompt.input_value() == "rnrn"


@pytest.mark.browser
def test_a_race_can_be_stopped(page: Page, demo_url: str) -> None:
    open_race(page, demo_url)
    page.locator("#action [data-part=go]").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text(STOPPED).locator("visible=true").first).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    expect(page.locator("#action [data-part=go]")).to_have_attribute("aria-disabled", "false")


@pytest.mark.browser
def test_a_run_of_the_race_opens_in_edit(page: Page, raced_url: str) -> None:
    page.goto(raced_url)
    expect_over(page)
    page.get_by_role("link", name="Open the run of SAKURA").click()
    expect(page.locator("html")).to_have_attribute("data-mode", "done")
    expect(page.locator("[data-part=quality] table")).to_be_visible()


@pytest.mark.browser
def test_a_race_that_is_no_longer_kept_leaves_a_usable_page(page: Page, demo_url: str) -> None:
    open_race(page, demo_url, "?race=unknown")
    expect(page.locator("#action .error:visible")).to_contain_text("not known any more")
    assert "race=" not in page.url
    expect(page.locator("#action [data-part=go]")).to_have_attribute("aria-disabled", "false")


@pytest.mark.browser
@pytest.mark.parametrize("page", [PHONE, {**PHONE, "reduced_motion": "reduce"}], indirect=True)
def test_the_race_fits_a_phone(page: Page, demo_url: str, raced_url: str) -> None:
    open_race(page, demo_url, "?__theme=dark")
    assert no_sideways_scroll(page)
    page.goto(raced_url)
    expect_over(page)
    assert no_sideways_scroll(page)
    part(page, "again").click()
    expect(page.locator("[data-race=playing]")).to_be_attached()
    expect_over(page)
    expect(page.locator("#setup .fields")).to_be_hidden()
    part(page, "change").click()
    expect(page.locator("#setup .fields")).to_be_visible()


@pytest.mark.browser
@pytest.mark.parametrize("size", [(320, 700), (800, 900), (1100, 800), (1440, 900), (1920, 1080)])
def test_no_width_scrolls_sideways(page: Page, demo_url: str, size: tuple[int, int]) -> None:
    width, height = size
    page.set_viewport_size({"width": width, "height": height})
    open_race(page, demo_url)
    assert no_sideways_scroll(page)
    if width >= 1440:
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")


class TestAnswers:
    """What pages are told."""

    REQUEST = EditRequest("say-hat", "sakura", constant_trace(60), prompt="a yellow beanie")

    def state(self, **changes: Any) -> RaceState:
        return RaceState("some-race", self.REQUEST, RACE_SYSTEMS, **changes)

    def test_a_race_that_is_measured_tells_how_far_it_is(self, running_studio: Studio) -> None:
        card = RaceView(running_studio, Races(running_studio))._cards.view("say-hat")
        answer = race_view(self.state(laps=(Lap(RACE_SYSTEMS[0], reason="It failed."),)), card, None)
        assert answer["measured"] == [RACE_SYSTEMS[0]]
        assert answer["measuring"] == RACE_SYSTEMS[1]
        assert "laps" not in answer

    def test_a_lap_that_never_began_has_its_reason(self) -> None:
        answer = lap_view(Lap("sakura", reason="The device is busy; wait."))
        assert (answer["reason"], answer["latency_s"]) == ("The device is busy; wait.", None)
        assert (answer["ended_s"], answer["pictures"]) == (0.0, [])

    @pytest.mark.parametrize(("system", "alone"), [("sakura", 1), ("on_device", 0)])
    def test_shards_without_the_cache_are_told_where_there_is_one(self, system: System, alone: int) -> None:
        shards = [LaneFinished(at_s=n + 1, lane="execute", shard=n, started_s=n, on_device=n == 1) for n in range(2)]
        answer = lap_view(Lap(system, "run", tuple(shards)))
        assert answer["alone"] == alone
        assert answer["stretches"] == [[0, 1], [1, 2]]

    def test_setups_differ_by_template_network_and_words_alone(self) -> None:
        key = setup_key(self.REQUEST)
        same = EditRequest("say-hat", "on_device", constant_trace(60), prompt="a yellow beanie")
        assert setup_key(same) == key
        assert setup_key(EditRequest("say-hat", "sakura", constant_trace(61), prompt="a yellow beanie")) != key
        assert setup_key(EditRequest("say-hat", "sakura", constant_trace(60), prompt="a red beanie")) != key

    @pytest.mark.parametrize("question", [["nonsense", -1], [None, None], ["", "x"]])
    def test_an_unknown_race_gets_a_sentence(self, running_studio: Studio, question: list[Any]) -> None:
        view = RaceView(running_studio, Races(running_studio))
        functions = {function.__name__: function for function in view.functions()}
        assert "not known any more" in functions["race_state"](question)["error"]
        assert "not known any more" in functions["race_stop"](question[0])["error"]
