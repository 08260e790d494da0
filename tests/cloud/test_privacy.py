"""What a cloud learns of an edit: all that is sent to it is recorded and searched for the user's input."""

import asyncio
import dataclasses
import threading
from collections.abc import Iterator
from typing import get_args

import numpy as np
import pytest
from worlds import SHIPPED_BY_TASK, Relay, cloud_of, device_of, url_of

from device_bridge.agent import Agent
from sakura.backbone.editor import Editor
from sakura.cache.store import CacheStore
from sakura.cloud.protocol import EmulateLink, Fetch, OpenStream, ToCloud, decode_to_cloud
from sakura.errors import UserError
from sakura.events import AnyEvent, FellBack, RunFinished
from sakura.network.library import constant_trace
from sakura.pictures import fit_square, to_png
from sakura.studio import EditRequest, Studio
from sakura.templates import TemplateLibrary

pytestmark = pytest.mark.usefixtures("patient")
WINDOW_BYTES = 8
MIN_DISTINCT_BYTES = 5  # a run of equal bytes proves nothing
FACE, WEAR, HAT = SHIPPED_BY_TASK.values()


@dataclasses.dataclass
class Place:
    """A studio whose device reaches the cloud through a recording relay."""

    studio: Studio
    relay: Relay

    def edit(self, request: EditRequest) -> list[list[bytes]]:
        """Run an edit to its scores; returns what each connection sent to the cloud meanwhile."""
        before = [len(record) for record in self.relay.sent]
        run_id = self.studio.start(request)
        events: list[AnyEvent] = []
        while new := self.studio.events(run_id, len(events), 60):
            events.extend(new)
        assert any(isinstance(event, RunFinished) for event in events)
        assert not any(isinstance(event, FellBack) for event in events)
        before += [0] * (len(self.relay.sent) - len(before))
        return [record[start:] for record, start in zip(self.relay.sent, before, strict=True)]


@pytest.fixture(scope="module")
def place(home: object, editor: Editor, store: CacheStore, shipped: TemplateLibrary) -> Iterator[Place]:
    studio = Studio()
    ready: list[Relay] = []
    failures: list[BaseException] = []
    started, ending = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with cloud_of(store, shipped) as cloud, Relay(url_of(cloud)) as relay, device_of(editor) as device:
            agent = asyncio.create_task(Agent(device, studio.hub.url, studio.hub.token).run())
            ready.append(relay)
            started.set()
            await ending.wait()
            agent.cancel()
            await asyncio.gather(agent, return_exceptions=True)

    def work() -> None:
        try:
            loop.run_until_complete(serve())
        except BaseException as error:
            failures.append(error)
            started.set()

    thread = threading.Thread(target=work, name="cloud and device")
    thread.start()
    try:
        assert started.wait(30)
        assert not failures
        studio.cloud_url = ready[0].url
        studio.wait_for_device()
        for template_id in (FACE, WEAR, HAT):
            studio.plan(template_id, "sakura")
        yield Place(studio, ready[0])
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(30)
        studio.close()


def a_request(template_id: str, **changes: object) -> EditRequest:
    request = EditRequest(template_id, "sakura", constant_trace(200), rtt_s=0.0)
    return dataclasses.replace(request, **changes)  # type: ignore[arg-type]


def budgeted(template_id: str, **changes: object) -> EditRequest:
    """A request whose representations follow from its bytes alone, not from the moment's rate."""
    return a_request(template_id, rate_budget_bytes=80_000, **changes)


def some_picture(seed: int) -> np.ndarray:
    """A picture that hardly compresses, so that any part of it can be told: uint8 (90, 120, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (90, 120, 3), dtype=np.uint8)


def windows(data: bytes) -> set[bytes]:
    pieces = (data[start : start + WINDOW_BYTES] for start in range(len(data) - WINDOW_BYTES + 1))
    return {piece for piece in pieces if len(set(piece)) >= MIN_DISTINCT_BYTES}


def traces_of(picture: np.ndarray) -> dict[str, bytes]:
    """Forms in which a picture could leave the device; rows and PNG data are covered by any window of these."""
    fitted = fit_square(picture, 64).pixels
    planes = np.ascontiguousarray(fitted.transpose(2, 0, 1))
    return {
        "the original's pixels": picture.tobytes(),
        "the original's PNG": to_png(picture)[41:],  # after the header, which all PNGs share
        "the fitted pixels": fitted.tobytes(),
        "the fitted pixels by channel": planes.tobytes(),
        "the fitted PNG": to_png(fitted)[41:],
        "the model's numbers": (fitted.astype("<f4") / 127.5 - 1).tobytes(),
    }


def test_search_would_find_a_leak() -> None:
    row = fit_square(some_picture(1), 64).pixels[3, 10:14].tobytes()
    seen = windows(b"some message " + row + b" goes on")
    found = [form for form, data in traces_of(some_picture(1)).items() if seen & windows(data)]
    assert "the fitted pixels" in found


@pytest.mark.parametrize("system", ["sakura", "full_cache", "on_device"])
@pytest.mark.parametrize("template_id", [FACE, WEAR])
def test_reference_picture_never_reaches_the_cloud(place: Place, template_id: str, system: str) -> None:
    picture = some_picture(1)
    sent = place.edit(a_request(template_id, reference=picture, system=system))
    spoken = b"".join(data for record in sent for data in record)
    assert spoken
    assert b"\x89PNG" not in spoken
    seen = windows(spoken)
    for form, data in traces_of(picture).items():
        assert not seen & windows(data), form
    for data in (message for record in sent for message in record):
        decode_to_cloud(data)


@pytest.mark.parametrize("system", ["sakura", "full_cache", "on_device"])
def test_prompt_never_reaches_the_cloud(place: Place, system: str) -> None:
    sent = place.edit(a_request(HAT, prompt="Please wear a purple beanie", system=system))
    spoken = b"".join(data for record in sent for data in record).lower()
    assert HAT.encode() in spoken
    for word in ("please", "wear", "purple", "beanie"):
        assert word.encode() not in spoken
    for data in (message for record in sent for message in record):
        decode_to_cloud(data)


def test_refused_input_reaches_nobody(place: Place) -> None:
    def spoken_bytes() -> int:
        return sum(len(data) for record in place.relay.sent for data in record)

    before = spoken_bytes()
    with pytest.raises(UserError, match="mohawk"):
        place.studio.start(a_request(HAT, prompt="a mohawk"))
    assert spoken_bytes() == before


def what_was_asked(sent: list[list[bytes]]) -> list[list[tuple[object, ...]]]:
    """Messages by connection, without what the run's number decides."""

    def essence(message: ToCloud) -> tuple[object, ...]:
        match message:
            case Fetch():
                return ("fetch", message.fetch_id, tuple(message.segments))
            case OpenStream():
                return ("open", message.template_id, message.codec, message.link_id is None)
            case EmulateLink():
                # How long a device took to get ready is in the offset too.
                offset_s = round(message.offset_s, 1)
                return ("link", message.title, message.edges_s, message.rates_mbps, message.rtt_s, offset_s)
            case _:
                return (type(message).__name__,)

    return [[essence(decode_to_cloud(data)) for data in record] for record in sent]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (budgeted(FACE, reference=some_picture(1)), budgeted(FACE, reference=some_picture(2))),
        (budgeted(HAT, prompt="no hat"), budgeted(HAT, prompt="put on a purple beanie please")),
    ],
    ids=["reference", "prompt"],
)
def test_requests_cannot_be_told_apart(place: Place, first: EditRequest, second: EditRequest) -> None:
    place.edit(first)  # whatever happens only once has happened
    assert what_was_asked(place.edit(first)) == what_was_asked(place.edit(second))


def test_protocol_has_no_room_for_pictures_or_prompts() -> None:
    """Every text and byte field of a message to the cloud is an id, a version or a name."""
    texts = {
        f"{message.__name__}.{field}"
        for message in get_args(ToCloud)
        for field, kind in message.__annotations__.items()
        if kind in (str, bytes, "str", "bytes") or "str" in str(kind)
    }
    assert texts == {
        "Hello.model",
        "Describe.template_id",
        "Describe.codec",
        "AskImportance.template_id",
        "OpenStream.template_id",
        "OpenStream.codec",
        "OpenStream.link_id",
        "EmulateLink.link_id",
        "EmulateLink.title",
    }
