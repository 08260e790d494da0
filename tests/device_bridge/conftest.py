"""The world in which the bridge is tested: a cloud of the tiny model, and a hub."""

import asyncio

import pytest
from bridges import TOKEN, Bridge, Play, Scenario
from worlds import cloud_of, url_of

from device_bridge.hub import Hub
from sakura.cache.store import CacheStore
from sakura.templates import TemplateLibrary


@pytest.fixture
def play(tiny_store: CacheStore, tiny_templates: TemplateLibrary) -> Play:
    """Plays a scenario on a bridge, for half a minute at most."""

    def run(scenario: Scenario) -> None:
        async def main() -> None:
            async with asyncio.timeout(30), cloud_of(tiny_store, tiny_templates) as cloud, Hub(TOKEN) as hub:
                await scenario(Bridge(hub, tiny_store.editor, url_of(cloud)))

        asyncio.run(main())

    return run
