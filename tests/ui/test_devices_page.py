"""The devices panel in a real browser: a second device is paired with the code, chosen, and revoked."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pages import PHONE, expect_finished, no_sideways_scroll, open_page, press_edit
from playwright.sync_api import Locator, Page, expect
from websockets.sync.client import ClientConnection, connect

from device_bridge.protocol import (
    VERSIONS,
    Accepted,
    DeviceHello,
    DeviceStatus,
    EngineReport,
    Placement,
    decode_to_device,
    encode,
)

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
MARKUP = "<img src=x onerror=document.title='taken'><b>Phone</b>"
GONE_MS = 5000

Pair = Callable[..., ClientConnection]


def open_panel(page: Page) -> Locator:
    page.locator("[data-part=chip]").click()
    panel = page.get_by_role("dialog", name="Devices")
    expect(panel).to_be_visible()
    return panel


def ask_for_code(panel: Locator) -> tuple[str, str]:
    """The code that the panel shows, and the hub's address."""
    panel.get_by_role("button", name="Pair a device").click()
    shown = panel.locator("[data-part=code]")
    expect(shown).to_be_visible()
    expect(shown).to_have_text(re.compile("^[A-Z2-9]{6}$"))
    expect(panel.locator("code").first).to_contain_text(shown.text_content() or "no code")
    command = panel.locator("code").first.text_content() or ""
    found = re.fullmatch(r"python -m device_bridge agent --connect (ws://\S+) --pair (\w{6})", command)
    assert found
    assert found[2] == shown.text_content()
    return found[2], found[1]


def device(panel: Locator, name: str) -> Locator:
    return panel.locator("label.device").filter(has=panel.page.get_by_role("radio", name=name, exact=True))


def revoke(panel: Locator, name: str) -> None:
    row = panel.locator("[data-part=paired] > li").filter(has_text=name)
    row.get_by_role("button", name=f"Revoke {name}").click()
    row.get_by_role("button", name="Revoke it").click()
    expect(row).to_have_count(0)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Connects a device that speaks the protocol and computes nothing."""
    with contextlib.ExitStack() as opened:

        def paired(url: str, code: str, name: str = MARKUP, status: DeviceStatus | None = None) -> ClientConnection:
            placements = [Placement(0, 2, "npu", "npu"), Placement(2, 4, "npu", "cpu", "<i>no</i> kernel")]
            engine = EngineReport("<u>engine</u>", "NPU", placements, active_step_s=0.02, full_step_s=0.5)
            connection = opened.enter_context(connect(url, compression=None))
            connection.send(encode(DeviceHello(VERSIONS, name, engine, pairing_code=code)))
            accepted = decode_to_device(connection.recv(decode=False))
            assert isinstance(accepted, Accepted)
            connection.send(encode(status or DeviceStatus()))
            return connection

        yield paired


def test_a_real_device_pairs_is_chosen_edits_and_is_revoked(page: Page, demo_url: str, tmp_path: Path) -> None:
    open_page(page, demo_url)
    expect(page.locator("[data-part=chip]")).to_have_text("Laptop CPU connected")
    expect(page.locator("#timeline [data-part=device]")).to_contain_text("On Laptop CPU (")
    panel = open_panel(page)
    expect(panel.locator("[data-part=code]")).to_be_hidden()
    expect(panel.get_by_role("radio", name="Laptop CPU")).to_be_checked()
    code, url = ask_for_code(panel)
    expect(panel.locator("[data-part=qr] svg")).to_be_visible()
    expect(panel.locator("[data-part=countdown]")).to_contain_text("works once, for 4:")
    expect(panel.locator("[data-part=note]")).to_contain_text("--bridge-host 0.0.0.0")
    arguments = ["--connect", url, "--pair", code, "--engine", "torch-cpu", "--name", "Desk PC"]
    agent = subprocess.Popen(
        [sys.executable, "-m", "device_bridge", "agent", *arguments],
        cwd=ROOT,
        env={**os.environ, "SAKURA_HOME": str(tmp_path)},
    )
    try:
        expect(panel.get_by_text("Desk PC is paired.")).to_be_visible()
        expect(panel.locator("[data-part=code]")).to_be_hidden()
        row = device(panel, "Desk PC")
        expect(row).to_contain_text("torch")
        expect(row).to_contain_text("to 0.")
        row.get_by_role("radio").check()
        page.keyboard.press("Escape")
        expect(panel).to_be_hidden()
        chip = page.locator("[data-part=chip]")
        expect(chip).to_be_focused()
        expect(chip).to_have_text("2 devices: Desk PC")

        page.get_by_role("link", name="Race").click()
        expect(page.locator(".race-page")).to_be_visible()
        expect(chip).to_have_text("2 devices: Desk PC")
        open_page(page, demo_url)
        expect(page.locator("#timeline [data-part=device]")).to_contain_text("On Desk PC (torch")
        press_edit(page)
        expect_finished(page)
        expect(page.locator("#timeline [data-part=device]")).to_contain_text("On Desk PC (torch")

        chip.focus()
        page.keyboard.press("Enter")
        expect(device(panel, "Desk PC")).to_contain_text(re.compile(r"Last run[\d,]+ messages, [\d,]+ kB"))
        expect(device(panel, "Laptop CPU").get_by_text("Last run")).to_have_count(0)
        revoke(panel, "Desk PC")
        expect(device(panel, "Desk PC")).to_have_count(0, timeout=GONE_MS)
        sentence = "Desk PC is not connected any more; Laptop CPU runs the next edit."
        expect(panel.locator("[data-part=gone-inside]")).to_have_text(sentence)
        expect(panel.get_by_role("radio", name="Laptop CPU")).to_be_checked()
        assert agent.wait(20) == 1
    finally:
        agent.kill()
        agent.wait(10)


def test_a_name_with_markup_is_text_and_its_device_vanishes(page: Page, demo_url: str, pair: Pair) -> None:
    open_page(page, demo_url)
    panel = open_panel(page)
    code, url = ask_for_code(panel)
    status = DeviceStatus(temperature_c=48.2, battery_percent=73.0, charging=False, memory_bytes=412_000_000)
    connection = pair(url, code, status=status)
    row = device(panel, MARKUP)
    expect(row.locator("b")).to_have_text(MARKUP)
    for words in ("20 ms", "0.50 s", "48 °C", "73 %, not charging", "412 MB", "<u>engine</u>, NPU"):
        expect(row).to_contain_text(words)
    expect(row).to_contain_text("1 of 2 shards runs on cpu instead of npu: <i>no</i> kernel.")
    expect(panel.locator("img, u")).to_have_count(0)
    row.get_by_role("radio").check()
    expect(page.locator("[data-part=chip]")).to_have_text(f"2 devices: {MARKUP}")
    connection.close()
    expect(row).to_have_count(0, timeout=GONE_MS)
    expect(panel.get_by_role("radio", name="Laptop CPU")).to_be_checked()
    panel.locator("[data-part=close]").click()
    gone = page.locator("header > [data-part=gone]")
    expect(gone.locator("span")).to_have_text(f"{MARKUP} is not connected any more; Laptop CPU runs the next edit.")
    gone.get_by_role("button", name="Close").click()
    expect(gone).to_be_hidden()
    assert page.title() == "SAKURA: edit"
    revoke(open_panel(page), MARKUP)


def test_a_choice_that_is_gone_by_the_next_page_is_told_there(page: Page, demo_url: str, pair: Pair) -> None:
    open_page(page, demo_url)
    panel = open_panel(page)
    code, url = ask_for_code(panel)
    connection = pair(url, code, "Old phone")
    device(panel, "Old phone").get_by_role("radio").check()
    connection.close()
    page.goto(f"{demo_url}/scale")
    expect(page.locator("header > [data-part=gone]")).to_contain_text("Old phone is not connected any more")
    expect(page.locator("[data-part=chip]")).to_have_text("Laptop CPU connected")
    page.reload()
    expect(page.locator("[data-part=chip]")).to_have_text("Laptop CPU connected")
    expect(page.locator("header > [data-part=gone]")).to_be_hidden()
    revoke(open_panel(page), "Old phone")


def test_revoking_can_be_thought_over(page: Page, demo_url: str, pair: Pair) -> None:
    open_page(page, demo_url)
    panel = open_panel(page)
    code, url = ask_for_code(panel)
    pair(url, code, "Tablet")
    row = panel.locator("[data-part=paired] > li").filter(has_text="Tablet")
    expect(row).to_contain_text("Connected, paired")
    row.get_by_role("button", name="Revoke Tablet").click()
    expect(row.get_by_role("button", name="Keep it")).to_be_focused()
    page.keyboard.press("Enter")
    expect(row.get_by_role("button", name="Revoke Tablet")).to_be_focused()
    expect(device(panel, "Tablet")).to_be_visible()
    revoke(panel, "Tablet")


def test_a_code_runs_out(page: Page, demo_url: str) -> None:
    page.clock.install()
    open_page(page, demo_url)
    panel = open_panel(page)
    first, _ = ask_for_code(panel)
    page.clock.fast_forward(301_000)
    expect(panel.get_by_text("The code has expired; ask for a new one.")).to_be_visible()
    expect(panel.locator("[data-part=code]")).to_be_hidden()
    second, _ = ask_for_code(panel)
    assert second != first


@pytest.mark.parametrize("page", [PHONE], indirect=True)
def test_on_a_phone_the_panel_fills_the_screen(page: Page, demo_url: str, pair: Pair) -> None:
    open_page(page, demo_url)
    panel = open_panel(page)
    code, url = ask_for_code(panel)
    box = panel.bounding_box()
    assert box is not None
    assert (box["width"], box["height"]) == (390, 844)
    for button in panel.get_by_role("button").all():
        size = button.bounding_box()
        assert size is not None
        assert size["height"] >= 44
    pair(url, code, "N" * 64)
    device(panel, "N" * 64).tap()
    expect(panel.get_by_role("radio", name="N" * 64)).to_be_checked()
    assert panel.evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth")
    assert no_sideways_scroll(page)
    revoke(panel, "N" * 64)
    panel.locator("[data-part=close]").tap()
    assert no_sideways_scroll(page)
