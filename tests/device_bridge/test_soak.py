"""Every edit ends in a picture or a sentence, whatever happens, and nothing is left behind."""

import asyncio
import os

import pytest
from soak import DEVICES, Outcome, soak

from sakura.cache.store import CacheStore
from sakura.templates import TemplateLibrary

SOAK_EDITS = int(os.environ.get("SAKURA_SOAK_EDITS", "1000"))
MORE_BYTES = 48 * 1024 * 1024
MORE_HANDLES = 4  # sockets that close just now
SECONDS_AN_EDIT = 3.0
SENTENCES = ("was disconnected during this edit; connect it again", "is gone; connect a device, then try again")


def check(outcome: Outcome, edits: int) -> None:
    assert not outcome.faults
    assert outcome.edits == edits
    for sentence in outcome.sentences:
        assert any(each in sentence for each in SENTENCES)
    assert outcome.warm is not None
    assert outcome.end is not None
    assert outcome.end.tasks <= outcome.warm.tasks
    assert outcome.end.handles <= outcome.warm.handles + MORE_HANDLES
    assert outcome.end.memory_bytes <= outcome.warm.memory_bytes + MORE_BYTES


def quick_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    for side in ("hub", "agent"):
        monkeypatch.setattr(f"device_bridge.{side}.PING_INTERVAL_S", 0.3)
        monkeypatch.setattr(f"device_bridge.{side}.PING_TIMEOUT_S", 0.7)


def test_every_kind_of_trouble_once(
    tiny_store: CacheStore, tiny_templates: TemplateLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_pings(monkeypatch)
    monkeypatch.setattr("soak.MOST_FROZEN_S", 2.0)
    monkeypatch.setattr("websockets.client.BACKOFF_INITIAL_DELAY", 0.1)
    edits = 14
    running = soak(tiny_store, tiny_templates, edits, warm_up=DEVICES, each_trouble=True)
    outcome = asyncio.run(asyncio.wait_for(running, 60))
    assert len(outcome.trouble) >= 7
    check(outcome, edits + 3 * DEVICES)


@pytest.mark.heavy
@pytest.mark.timeout(SOAK_EDITS * SECONDS_AN_EDIT + 120)
def test_soak(tiny_store: CacheStore, tiny_templates: TemplateLibrary) -> None:
    """SAKURA_SOAK_EDITS=100 runs a shorter one."""
    warm_up = max(20, min(100, SOAK_EDITS // 5))
    outcome = asyncio.run(soak(tiny_store, tiny_templates, SOAK_EDITS, warm_up=warm_up))
    print(outcome.told())  # noqa: T201
    check(outcome, warm_up + SOAK_EDITS + 2 * DEVICES)
