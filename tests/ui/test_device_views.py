"""What the devices panel is told, in words."""

import math
from xml.etree import ElementTree

import pytest
import segno
from hypothesis import given
from hypothesis import strategies as st

from device_bridge.clocks import ClockOffset
from device_bridge.hub import Traffic
from device_bridge.pairing import PairedDevice
from device_bridge.protocol import DeviceStatus, EngineReport, Placement
from sakura.studio import DeviceCard, PairingOffer, Studio
from ui.devices import (
    LOOPBACK_ONLY,
    MAX_FALLBACKS,
    MAX_URLS,
    SHOWN_LENGTH,
    Devices,
    clock_words,
    device_view,
    device_views,
    fallback_sentences,
    offer_view,
    paired_views,
    running_words,
    shown,
    span,
)

ENGINE = EngineReport("torch, CPU", "Provider", active_step_s=0.0382, full_step_s=0.214)


def card(name: str = "Desk PC", **changes: object) -> DeviceCard:
    known: dict[str, object] = {
        "device_id": "d1", "name": name, "engine": ENGINE, "status": DeviceStatus(), "clock": None, "traffic": None,
        "paired": True, "connected_for_s": 12.0,
    }  # fmt: skip
    return DeviceCard(**{**known, **changes})  # type: ignore[arg-type]


def facts(card: DeviceCard) -> dict[str, str]:
    return {fact["name"]: fact["value"] for fact in device_view(card)["facts"]}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.00021, "0.2 ms"), (0.038, "38 ms"), (0.214, "0.21 s"), (3.21, "3.2 s"), (42.0, "42 s"), (300.0, "5 min"),
        (25_200.0, "7 h"), (86_400.0 * 12, "12 days"),
    ],
)  # fmt: skip
def test_durations_are_said_as_people_say_them(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("clock", "words"),
    [
        (None, ""),
        (ClockOffset(math.nan, 0.1), ""),
        (ClockOffset(3.21, 0.0002), "3.2 s ahead"),
        (ClockOffset(-7300.0, 0.0002), "2 h behind"),
        (ClockOffset(-0.0001, 0.0002), "the same"),
    ],
)
def test_clocks_in_words(clock: ClockOffset | None, words: str) -> None:
    assert clock_words(clock) == words


def test_what_a_device_tells_becomes_facts() -> None:
    told = card(
        status=DeviceStatus(temperature_c=48.4, battery_percent=80.0, charging=True, memory_bytes=412_000_000),
        clock=ClockOffset(3.2, 0.0002),
        traffic=Traffic(frames=1213, size_bytes=240_100, dropped=3),
    )
    assert facts(told) == {
        "Step with the cache": "38 ms",
        "Step without it": "0.21 s",
        "Clock": "3.2 s ahead, known to 0.2 ms",
        "Temperature": "48 °C",
        "Battery": "80 %, charging",
        "Memory": "412 MB",
        "Last run": "1,213 messages, 240 kB, 3 events left out",
    }
    assert device_view(told)["engine"] == "torch, CPU, Provider"
    assert running_words(told) == "Desk PC (torch, CPU), clock 3.2 s ahead"


def test_what_is_absent_or_makes_no_sense_is_left_out() -> None:
    assert facts(card(engine=EngineReport("torch"))) == {}
    nonsense = DeviceStatus(temperature_c=math.nan, battery_percent=math.inf, memory_bytes=-1)
    assert facts(card(engine=EngineReport("torch", active_step_s=math.nan), status=nonsense)) == {}
    assert running_words(card(engine=EngineReport(""))) == "Desk PC"


def test_what_runs_elsewhere_is_counted_with_its_reason() -> None:
    placements = [
        Placement(0, 2, "qnn-htp", "qnn-htp"),
        Placement(2, 4, "qnn-htp", "torch-cpu", "no kernel."),
        Placement(4, 6, "qnn-htp", "torch-cpu", "no kernel."),
        Placement(6, 8, "qnn-htp", "onnx-cpu"),
    ]
    assert fallback_sentences(placements) == [
        "2 of 4 shards run on torch-cpu instead of qnn-htp: no kernel.",
        "1 of 4 shards runs on onnx-cpu instead of qnn-htp.",
    ]
    assert fallback_sentences(placements[:1]) == []


def test_many_reasons_are_cut_short() -> None:
    placements = [Placement(n, n + 1, "a", "b", f"reason {n}") for n in range(256)]
    sentences = fallback_sentences(placements)
    assert len(sentences) == MAX_FALLBACKS + 1
    assert sentences[-1] == "252 more for other reasons."


@given(st.text(max_size=400))
def test_whatever_a_device_sends_is_one_bounded_line(text: str) -> None:
    line = shown(text)
    assert len(line) <= SHOWN_LENGTH
    assert line.isprintable()
    assert line == line.strip()


def test_devices_of_one_name_are_told_apart() -> None:
    views = device_views([card("Phone"), card("Phone (2)"), card("Phone"), card("\u202e")])
    assert [view["name"] for view in views] == ["Phone", "Phone (2)", "Phone (3)", "Device"]


def test_paired_devices_come_newest_first_without_their_secrets() -> None:
    old, new = PairedDevice("a", "Old", "secret", 1.0), PairedDevice("b", "New", "secret", 2.0)
    views = paired_views([old, new], {"a"})
    assert [(view["name"], view["connected"]) for view in views] == [("New", False), ("Old", True)]
    assert "secret" not in str(views)


def test_an_offer_has_a_command_and_a_qr_code_for_each_address() -> None:
    answer = offer_view(PairingOffer(["ws://192.0.2.7:4711", "ws://192.0.2.9:4711"], "ABC234", 300.0))
    first = answer["addresses"][0]
    assert first["command"] == "python -m device_bridge agent --connect ws://192.0.2.7:4711 --pair ABC234"
    assert first["host"] == "192.0.2.7:4711"
    svg = ElementTree.fromstring(first["qr_svg"])
    side = segno.make("ws://192.0.2.7:4711/#ABC234", micro=False).symbol_size(border=4)[0]
    assert svg.get("viewBox") == f"0 0 {side} {side}"
    assert len(answer["addresses"]) == 2
    assert answer["note"] == ""


def test_over_tls_the_certificate_is_named() -> None:
    answer = offer_view(PairingOffer(["wss://192.0.2.7:4711"], "ABC234", 300.0))
    assert answer["addresses"][0]["command"].endswith("--pair ABC234 --ca CERTIFICATE.pem")


def test_an_offer_for_this_machine_alone_says_so_and_many_addresses_are_cut() -> None:
    assert offer_view(PairingOffer(["ws://127.0.0.1:1"], "ABC234", 300.0))["note"] == LOOPBACK_ONLY
    many = offer_view(PairingOffer([f"ws://192.0.2.{n}:1" for n in range(40)], "ABC234", 300.0))
    assert len(many["addresses"]) == MAX_URLS


def test_the_panel_asks_a_studio(running_studio: Studio) -> None:
    ask = {function.__name__: function for function in Devices(running_studio).functions()}
    offer = ask["pairing_offer"](None)
    answer = ask["devices"](offer["code"])
    assert [device["name"] for device in answer["devices"]] == ["Laptop CPU"]
    assert answer["code_open"] is True
    for other in ("", "ZZZZZZ", None, ["x"]):
        assert ask["devices"](other)["code_open"] is False
    assert "not paired" in ask["revoke"]("nobody")["error"]
