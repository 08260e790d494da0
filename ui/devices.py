"""The devices panel: which device runs the edits, how each one is, and who may be a device."""

import collections
import itertools
import math
from collections.abc import Callable
from typing import Any, TypedDict
from urllib.parse import urlsplit

import segno

from device_bridge.addresses import LOOPBACK
from device_bridge.clocks import ClockOffset
from device_bridge.pairing import PairedDevice
from device_bridge.protocol import DeviceStatus, EngineReport, Placement
from sakura.errors import UserError
from sakura.studio import DeviceCard, PairingOffer, Studio

SHOWN_LENGTH = 160
MAX_FALLBACKS = 4
MAX_URLS = 8
QR_QUIET_MODULES = 4
SAME_CLOCK = "the same"
LOOPBACK_ONLY = "Devices elsewhere need the app started with --bridge-host 0.0.0.0."
Answer = dict[str, Any]


class Fact(TypedDict):
    """One row about a device."""

    name: str
    value: str


class DeviceView(TypedDict):
    """A connected device as the panel shows it. ``name`` is unlike that of every other one; ``fallbacks`` say what
    runs elsewhere than it was meant to, ``connected_for_s`` since when the device is there.
    """

    id: str
    name: str
    engine: str
    fallbacks: list[str]
    facts: list[Fact]
    connected_for_s: float


class PairedView(TypedDict):
    """A paired device. ``paired_s`` counts from 1970."""

    id: str
    name: str
    paired_s: float
    connected: bool


class Address(TypedDict):
    """Where a device can connect: the host and port, the command for it, and its QR code as SVG."""

    host: str
    command: str
    qr_svg: str


def shown(text: str) -> str:
    """What came from a device, as one line of bounded length without characters that cannot be seen."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= SHOWN_LENGTH else line[: SHOWN_LENGTH - 1] + "…"


def span(seconds: float) -> str:
    """A duration as people say it: 0.2 ms, 38 ms, 0.21 s, 3.2 s, 5 min, 7 h, 12 days."""
    if seconds < 0.1:
        return f"{1000 * seconds:.{0 if seconds >= 0.01 else 1}f} ms"
    if seconds < 1:
        return f"{seconds:.2f} s"
    for limit_s, unit_s, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit_s:
            amount = seconds / unit_s
            return f"{amount:.{1 if amount < 10 and unit == 's' else 0}f} {unit}"
    return f"{seconds / 86_400:,.0f} days"


def clock_words(clock: ClockOffset | None) -> str:
    """How far a device's clock is from the page's server; empty where that is not known."""
    if clock is None or not math.isfinite(clock.offset_s):
        return ""
    if abs(clock.offset_s) <= clock.uncertainty_s:
        return SAME_CLOCK
    return f"{span(abs(clock.offset_s))} {'ahead' if clock.offset_s > 0 else 'behind'}"


def engine_words(engine: EngineReport) -> str:
    """An engine with its provider."""
    return ", ".join(filter(None, (shown(engine.name), shown(engine.provider))))


def running_words(card: DeviceCard) -> str:
    """Which device runs, in one line: its name, its engine, and its clock where that is known."""
    engine, clock = shown(card.engine.name), clock_words(card.clock)
    return f"{shown(card.name)}{f' ({engine})' if engine else ''}{f', clock {clock}' if clock else ''}"


def fallback_sentences(placements: list[Placement]) -> list[str]:
    """What runs elsewhere than requested: how many shards, where instead, and why. Most frequent first."""
    elsewhere = [place for place in placements if place.requested != place.resolved]
    counted = collections.Counter((place.requested, place.resolved, place.reason) for place in elsewhere)
    sentences = []
    for (requested, resolved, reason), count in counted.most_common(MAX_FALLBACKS):
        why = shown(reason).rstrip(".")
        of = f"{count} of {len(placements)} shards {'run' if count > 1 else 'runs'}"
        sentences.append(f"{of} on {shown(resolved)} instead of {shown(requested)}{f': {why}' if why else ''}.")
    rest = len(elsewhere) - sum(count for _, count in counted.most_common(MAX_FALLBACKS))
    return [*sentences, f"{rest} more for other reasons."] if rest else sentences


def device_view(card: DeviceCard) -> DeviceView:
    facts = {
        "Step with the cache": _step_words(card.engine.active_step_s),
        "Step without it": _step_words(card.engine.full_step_s),
        "Clock": _known_clock_words(card.clock),
        **_status_facts(card.status),
        "Last run": _traffic_words(card),
    }
    return {
        "id": card.device_id,
        "name": shown(card.name) or "Device",
        "engine": engine_words(card.engine),
        "fallbacks": fallback_sentences(card.engine.placements),
        "facts": [{"name": name, "value": value} for name, value in facts.items() if value],
        "connected_for_s": card.connected_for_s,
    }


def device_views(cards: list[DeviceCard]) -> list[DeviceView]:
    """The connected devices in their order; what has the name of an earlier one has a number after it."""
    views = [device_view(card) for card in cards]
    taken: set[str] = set()
    for view in views:
        names = itertools.chain([view["name"]], (f"{view['name']} ({number})" for number in itertools.count(2)))
        view["name"] = next(name for name in names if name not in taken)
        taken.add(view["name"])
    return views


def paired_views(paired: list[PairedDevice], connected: set[str]) -> list[PairedView]:
    """All paired devices, the newest first."""
    newest = sorted(paired, key=lambda each: -each.paired_s)
    return [
        {
            "id": each.device_id,
            "name": shown(each.name) or "Device",
            "paired_s": each.paired_s,
            "connected": each.device_id in connected,
        }
        for each in newest
    ]


def offer_view(offer: PairingOffer) -> Answer:
    """A code with all that a new device can be told: ``code``, ``expires_in_s``, ``addresses``, ``note``."""
    urls = offer.urls[:MAX_URLS]
    here_only = all(urlsplit(url).hostname in LOOPBACK for url in urls)
    return {
        "code": offer.code,
        "expires_in_s": offer.expires_in_s,
        "addresses": [_address(url, offer.code) for url in urls],
        "note": LOOPBACK_ONLY if here_only else "",
    }


def _address(url: str, code: str) -> Address:
    # High contrast on white with its quiet zone, whatever the theme: cameras need both.
    svg = segno.make(f"{url}/#{code}", micro=False).svg_inline(
        border=QR_QUIET_MODULES, dark="#000", light="#fff", omitsize=True
    )
    trusted = " --ca CERTIFICATE.pem" if url.startswith("wss:") else ""  # which the hub was started with
    return {
        "host": urlsplit(url).netloc,
        "command": f"python -m device_bridge agent --connect {url} --pair {code}{trusted}",
        "qr_svg": svg,
    }


def _step_words(seconds: float) -> str:
    return span(seconds) if math.isfinite(seconds) and seconds > 0 else ""


def _known_clock_words(clock: ClockOffset | None) -> str:
    words = clock_words(clock)
    if clock is None or not words:
        return ""
    return f"{words}{'' if words == SAME_CLOCK else ', known'} to {span(clock.uncertainty_s)}"


def _status_facts(status: DeviceStatus) -> dict[str, str]:
    """What a device tells about itself; nothing where it is absent or makes no sense."""
    facts = {}
    if status.temperature_c is not None and -100 < status.temperature_c < 300:
        facts["Temperature"] = f"{status.temperature_c:.0f} °C"
    if status.battery_percent is not None and 0 <= status.battery_percent <= 100:
        charging = {True: ", charging", False: ", not charging", None: ""}[status.charging]
        facts["Battery"] = f"{status.battery_percent:.0f} %{charging}"
    if status.memory_bytes is not None and 0 < status.memory_bytes < 10**15:
        facts["Memory"] = f"{status.memory_bytes / 1e6:,.0f} MB"
    return facts


def _traffic_words(card: DeviceCard) -> str:
    traffic = card.traffic
    if traffic is None:
        return ""
    messages = f"{traffic.frames:,} message{'' if traffic.frames == 1 else 's'}, {traffic.size_bytes / 1000:,.0f} kB"
    return f"{messages}, {traffic.dropped:,} events left out" if traffic.dropped > 0 else messages


class Devices:
    """Answers the panel's questions. Which device is chosen is known to the browser alone."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio

    def functions(self) -> list[Callable[[Any], Answer]]:
        """The functions that the script calls by name. All answer with JSON; ``error`` holds a sentence."""

        def devices(code: object) -> Answer:
            cards = self._studio.devices()
            ids = {card.device_id for card in cards}
            return {
                "devices": device_views(cards),
                "paired": paired_views(self._studio.paired_devices(), ids),
                "code_open": isinstance(code, str) and code != "" and self._studio.pairing_open(code),
            }

        def pairing_offer(_: object) -> Answer:
            return _answered(lambda: offer_view(self._studio.offer_pairing()))

        def revoke(device_id: object) -> Answer:
            def revoked() -> Answer:
                self._studio.revoke(str(device_id))
                return {}

            return _answered(revoked)

        return [devices, pairing_offer, revoke]


def _answered(answer: Callable[[], Answer]) -> Answer:
    try:
        return answer()
    except UserError as error:
        return {"error": str(error)}
