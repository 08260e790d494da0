"""The one service behind the page and the command line: templates, devices, edits and their events.

Its methods are called from any thread; its own work happens on an event loop in a thread of its own.
"""

import asyncio
import collections
import contextlib
import dataclasses
import logging
import math
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
import numpy as np

from device_bridge.addresses import LOOPBACK, reachable_urls
from device_bridge.clocks import ClockOffset
from device_bridge.hub import ConnectedDevice, Hub, Traffic, host_from_here, url_of
from device_bridge.pairing import PairedDevice, Pairing
from device_bridge.protocol import DeviceStatus, EngineReport, RunJob
from sakura import prompts
from sakura.backbone.config import NanoConfig
from sakura.cloud.client import CloudClient, NoAnswerError
from sakura.control import new_controller
from sakura.errors import UserError
from sakura.events import AnyEvent, NetworkChanged, QualityMeasured, RunFailed, RunFinished, System
from sakura.lab.importance import on_grid
from sakura.network.library import load_library_trace, trace_ids
from sakura.network.trace import Trace
from sakura.pictures import fit_square, from_png, to_png
from sakura.portraits.tasks import Subject, Task, render_truth
from sakura.processes import Role, limit_threads
from sakura.settings import SHIPPED_TEMPLATES, home, own_templates
from sakura.systems import codec_of
from sakura.templates import (
    ReferencePicture,
    TemplateAssets,
    TemplateLibrary,
    add_own_template,
    shipped_references,
)

CONFIG = NanoConfig()
SHOWN_REFERENCE_PX = 256
DEFAULT_RTT_S = 0.02
MAX_RTT_S = 5.0
MAX_BUDGET_BYTES = 10**12
ABANDONED_S = 5.0  # a run whose events nobody has asked for this long gives way to a new one
FOLLOW_S = 1.0  # so often a run that is followed is told so, also where nothing happens in it
STOP_TIMEOUT_S = 5.0
LINK_PAUSE_S = 0.05  # between tries to tell a cloud that comes back of a run's network
MAX_RUNS_KEPT = 64
MEASURING = "-full"  # ends the id of a run that another one is scored against
CALL_TIMEOUT_S = 330.0
DEVICE_TIMEOUT_S = 120.0

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class TemplateCard:
    """A template as people choose it. ``picture`` uint8 (px, px, 3); ``mask`` bool (px, px), True is edited."""

    template_id: str
    title: str
    task: Task
    subject: Subject
    picture: np.ndarray
    mask: np.ndarray

    @property
    def edited_share(self) -> float:
        return float(self.mask.mean())


@dataclasses.dataclass(frozen=True)
class DeviceCard:
    """A connected device. ``device_id`` chooses it, ``name`` is shown ("Laptop CPU").

    ``clock`` is how far its clock is from this one's, ``traffic`` what came of its last run; None where not known yet.
    """

    device_id: str
    name: str
    engine: EngineReport
    status: DeviceStatus
    clock: ClockOffset | None
    traffic: Traffic | None
    paired: bool
    connected_for_s: float


@dataclasses.dataclass(frozen=True)
class PairingOffer:
    """What a new device needs: the hub's addresses, a code that works once, and for how long it does."""

    urls: list[str]
    code: str
    expires_in_s: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """What an edit is expected to take on the device, measured there when it got ready for the template."""

    steps: int
    shards_per_step: int
    start_s: float
    step_s: float
    full_cache_bytes: int
    on_device_s: float


@dataclasses.dataclass(frozen=True)
class EditRequest:
    """One press of Edit. ``reference`` is uint8 RGB of any size, ``prompt`` free text; each where the task needs it."""

    template_id: str
    system: System
    trace: Trace
    reference: np.ndarray | None = None
    prompt: str = ""
    rate_budget_bytes: int | None = None
    rtt_s: float = DEFAULT_RTT_S
    trace_offset_s: float = 0.0
    seed: int = 0
    device_id: str | None = None
    controller: str = ""  # of sakura.control; the system's own if empty
    measure: bool = True  # score the picture against the full-cache output afterwards


class _Run:
    """A run's request and its events so far. Readers wait on ``changed``."""

    def __init__(self, run_id: str, request: EditRequest, device: ConnectedDevice) -> None:
        self.run_id, self.request, self.device = run_id, request, device
        self.events: list[AnyEvent] = []
        self.changed = threading.Condition()
        self.active = True  # no final event yet
        self.over = False  # no more events will come
        self.task: asyncio.Task[None] | None = None
        self.networks: list[tuple[float, Trace]] = [(0.0, request.trace)]
        self.pressed_s = self.followed_s = time.monotonic()
        self.began_s = math.inf  # when the device began, on this clock: the event that came quickest tells best
        self.declared_s: float | None = None  # when its network began
        self.stopping = False

    def append(self, event: AnyEvent) -> None:
        with self.changed:
            if self.active:
                self.began_s = min(self.began_s, time.monotonic() - event.at_s)
            self.events.append(event)
            self.active = self.active and not isinstance(event, RunFinished | RunFailed)
            self.changed.notify_all()

    def since(self, cursor: int, timeout_s: float) -> tuple[list[AnyEvent], bool]:
        """Events from number ``cursor`` on, and whether they are the last; waits up to ``timeout_s`` for one."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.events) > cursor or self.over, timeout_s)
            return self.events[cursor:], self.over

    def finish(self) -> None:
        with self.changed:
            self.active, self.over = False, True
            self.changed.notify_all()


class Studio:
    """Templates, devices and runs. ``cloud_url`` is where caches come from; devices connect to the hub."""

    def __init__(
        self,
        *,
        hub_port: int = 0,
        host: str = "127.0.0.1",
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.cloud_url = ""
        self.library = TemplateLibrary(SHIPPED_TEMPLATES, own_templates())
        pairing = Pairing(home() / "devices.json")
        self.hub = Hub(token or secrets.token_urlsafe(24), host=host, port=hub_port, pairing=pairing, tls=tls)
        self._runs: collections.OrderedDict[str, _Run] = collections.OrderedDict()
        self._runs_lock = threading.Lock()
        self._preparing = 0  # devices that are getting ready for a template
        self._cloud: CloudClient | None = None
        self._connecting = asyncio.Lock()
        self._importance: dict[str, np.ndarray] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="studio", daemon=True)
        self._thread.start()
        self._call(self.hub.__aenter__())

    def close(self) -> None:
        """Disconnect everything and end the loop."""
        with contextlib.suppress(UserError):
            self._call(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _shut_down(self) -> None:
        tasks = [run.task for run in self._runs.values() if run.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._cloud:
            await self._cloud.close()
        await self.hub.__aexit__()

    def _call(self, work: Coroutine[object, object, T], timeout_s: float = CALL_TIMEOUT_S) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except TimeoutError as error:
            future.cancel()
            raise UserError(f"This took longer than {timeout_s:.0f} s and was given up; try again.") from error

    # Templates, references, prompts, traces

    def templates(self) -> list[TemplateCard]:
        """All templates, shipped ones first."""
        cards = [TemplateCard(t.template_id, t.title, t.task, t.subject, t.picture, t.mask) for t in self.library]
        return sorted(cards, key=lambda card: not (SHIPPED_TEMPLATES / card.template_id).is_dir())

    def add_template(self, title: str, subject: Subject, picture: np.ndarray, mask: np.ndarray) -> str:
        """Keep a template of one's own: ``picture`` uint8 RGB, ``mask`` bool of the same size. Returns its id."""
        return add_own_template(title, subject, picture, mask)

    def references(self, template_id: str) -> list[np.ndarray]:
        """Reference pictures offered for a template; none for instructions."""
        return [reference.picture for reference in shipped_references(self.library.get(template_id).task)]

    def prompt_examples(self, template_id: str) -> list[str]:
        """Instructions that the template understands; none for templates that take a reference picture."""
        return list(prompts.EXAMPLES.get(self.library.get(template_id).subject, ()))

    def prompt_help(self, template_id: str) -> str:
        """One sentence with the words that the template understands."""
        return prompts.prompt_help(self.library.get(template_id).subject)

    def check_prompt(self, template_id: str, prompt: str) -> None:
        """Raises UserError where the template cannot follow the instruction."""
        prompts.parse_prompt(prompt, self.library.get(template_id).subject)

    def traces(self) -> list[tuple[str, str, Trace]]:
        """Shipped traces: id, title, trace."""
        found = []
        for trace_id in trace_ids():
            trace = load_library_trace(trace_id)
            found.append((trace_id, trace.title, trace))
        return found

    # Devices and plans

    def devices(self) -> list[DeviceCard]:
        """The connected devices: this machine's own, then paired ones, the oldest first."""

        async def look() -> list[DeviceCard]:
            return [_card(device) for device in self.hub.in_order()]

        return self._call(look())

    def offer_pairing(self) -> PairingOffer:
        """A new code for one more device."""

        async def offer() -> PairingOffer:
            code = self.hub.pairing.new_code()
            return PairingOffer(reachable_urls(self.hub), code.code, code.expires_s - time.monotonic())

        return self._call(offer())

    def pairing_open(self, code: str) -> bool:
        """Whether a device can still be paired with a code."""

        async def look() -> bool:
            return self.hub.pairing.is_open(code)

        return self._call(look())

    def paired_devices(self) -> list[PairedDevice]:
        """All devices that may come back by themselves, connected or not."""

        async def look() -> list[PairedDevice]:
            return self.hub.pairing.paired()

        return self._call(look())

    def revoke(self, device_id: str) -> None:
        """Unpair a device, and disconnect it. Raises UserError."""
        self._call(self.hub.revoke(device_id))

    def wait_for_device(self, timeout_s: float = DEVICE_TIMEOUT_S) -> DeviceCard:
        """The first device, waiting for one to connect. Raises UserError."""

        async def wait() -> None:
            while not self.hub.devices:
                await asyncio.sleep(0.05)

        self._call(asyncio.wait_for(wait(), timeout_s), timeout_s + 1)
        return self.devices()[0]

    def plan(
        self,
        template_id: str,
        system: System,
        device_id: str | None = None,
        progress: Callable[[float], None] = lambda done: None,
    ) -> Plan:
        """Get the device ready for a template, building the cache if there is none. Raises UserError."""
        return self._call(self._plan(template_id, system, device_id, progress))

    async def _plan(
        self, template_id: str, system: System, device_id: str | None, progress: Callable[[float], None]
    ) -> Plan:
        self.library.get(template_id)
        device = self.hub.device(device_id)
        self._preparing += 1
        try:
            prepared = await self.hub.prepare(
                device, template_id, _cloud_for(device, self.cloud_url), codec_of(system), progress
            )
        finally:
            self._preparing -= 1
        geometry, on_device = prepared.geometry, system == "on_device"
        return Plan(
            steps=geometry.steps,
            shards_per_step=geometry.shards_per_step,
            start_s=0.0 if on_device else DEFAULT_RTT_S,
            step_s=prepared.full_step_s if on_device else prepared.active_step_s,
            full_cache_bytes=geometry.full_cache_bytes,
            on_device_s=geometry.steps * prepared.full_step_s,
        )

    def importance(self, template_id: str) -> np.ndarray:
        """Importance of the template's clean tokens: float32 (steps, blocks, rows, columns), NaN in the edited region.

        Averages 1 over all reusable tokens; of the two tokens at a place (noisy and clean) the sum is shown.
        """
        if template_id not in self._importance:
            self._importance[template_id] = self._importance_map(template_id)
        return self._importance[template_id]

    def _importance_map(self, template_id: str) -> np.ndarray:
        async def ask() -> np.ndarray:
            return await (await self._cloud_client()).importance(template_id)

        return on_grid(self._call(ask()).mean(0), self.library.get(template_id).mask, CONFIG.patch_px)

    async def _cloud_client(self) -> CloudClient:
        async with self._connecting:
            if self._cloud and self._cloud.lost.is_set():
                await self._cloud.close()
                self._cloud = None
            if self._cloud is None:
                self._cloud = await CloudClient.connect(self.cloud_url, "")
            return self._cloud

    # Runs

    def start(self, request: EditRequest) -> str:
        """Begin an edit; returns its run id at once. Raises UserError where it cannot begin."""
        template = self.library.get(request.template_id)
        words, factors, reference = self._read_request(template, request)
        if request.reference is not None and max(request.reference.shape) > SHOWN_REFERENCE_PX:
            # A photo of a phone has millions of pixels; what is kept of it is what people see again.
            request = dataclasses.replace(request, reference=fit_square(request.reference, SHOWN_REFERENCE_PX).pixels)
        _check_numbers(request)
        if request.controller:
            new_controller(request.controller)
        return self._call(self._start(template, request, words, factors, reference))

    def _read_request(
        self, template: TemplateAssets, request: EditRequest
    ) -> tuple[tuple[str, ...], dict[str, object] | None, np.ndarray | None]:
        """Words for the model, the factors that the truth follows from where they are known, the fitted reference."""
        if not template.has_reference:
            instruction = prompts.parse_prompt(request.prompt, template.subject)
            return instruction.words, instruction.factors, None
        if request.reference is None:
            raise UserError("Choose a reference picture, or bring one of your own.")
        words = ("swap", "face") if template.task == "face_swap" else ("wear", "garment")
        shipped = _find_reference(template.task, request.reference)
        return words, shipped.factors if shipped else None, fit_square(request.reference, CONFIG.reference_px).pixels

    async def _start(
        self,
        template: TemplateAssets,
        request: EditRequest,
        words: tuple[str, ...],
        factors: dict[str, object] | None,
        reference: np.ndarray | None,
    ) -> str:
        device = self.hub.device(request.device_id)
        unwanted: list[_Run] = []
        for other in self._runs.values():
            if other.device is not device or other.over:
                continue
            if other.active and time.monotonic() - other.followed_s < ABANDONED_S:
                raise UserError(f"{device.name} is busy with another edit; wait until it is done, or stop it.")
            # Scores that are still being measured, or an edit that nobody looks at, matter less than a new one.
            unwanted.append(other)
        run = _Run(secrets.token_urlsafe(8), request, device)
        with self._runs_lock:
            self._runs[run.run_id] = run
            over = [run_id for run_id, other in self._runs.items() if other.over]
            for run_id in over[: max(0, len(self._runs) - MAX_RUNS_KEPT)]:
                del self._runs[run_id]
        job = RunJob(
            run_id=run.run_id,
            template_id=template.template_id,
            cloud_url=_cloud_for(device, self.cloud_url),
            system=request.system,
            words=list(words),
            reference_png=None if reference is None else to_png(reference),
            seed=request.seed,
            rate_budget_bytes=request.rate_budget_bytes,
            link_id=run.run_id,
            rtt_s=request.rtt_s,
            controller=request.controller,
        )
        truth = None
        if template.person and factors is not None:
            truth = render_truth(template.person, template.subject, factors, template.picture.shape[0])
        run.task = asyncio.create_task(self._run(run, unwanted, job, template.mask, truth))
        return run.run_id

    async def _make_way(self, unwanted: Sequence[_Run]) -> None:
        """End other runs on the device that a new one is about to use."""
        for other in unwanted:
            if other.active:
                await self.hub.stop(other.device, other.run_id)
            elif other.task:
                other.task.cancel()
            if other.task:
                await asyncio.wait({other.task}, timeout=STOP_TIMEOUT_S)

    async def _run(
        self, run: _Run, unwanted: Sequence[_Run], job: RunJob, mask: np.ndarray, truth: np.ndarray | None
    ) -> None:
        keeping = asyncio.create_task(self._keep_link(run))
        try:
            await self._make_way(unwanted)
            await self._declare_link(run)
            if run.stopping:
                run.append(RunFailed(at_s=0.0, reason="You stopped this edit."))
                return
            picture = None
            async for event in self.hub.run(run.device, job):
                if isinstance(event, RunFinished):
                    picture = from_png(event.picture_png)
                    event = msgspec.structs.replace(event, press_to_picture_s=time.monotonic() - run.pressed_s)
                run.append(event)
            if picture is not None and run.request.measure:
                run.append(await self._measure(run, job, picture, mask, truth))
        except UserError as error:
            if run.active:
                run.append(RunFailed(at_s=0.0, reason=str(error)))
        except Exception:
            log.exception("A run failed in the studio")
            if run.active:
                run.append(
                    RunFailed(at_s=0.0, reason="The studio failed during this edit; its log says why. Try again.")
                )
        finally:
            keeping.cancel()
            run.finish()

    async def _keep_link(self, run: _Run) -> None:
        """Declare the run's network anew when the cloud has come back: it forgot it, and the device will ask for it."""
        while True:
            with contextlib.suppress(NoAnswerError):
                cloud = await self._cloud_client()
                await cloud.lost.wait()
                await self._declare_link(run)
            await asyncio.sleep(LINK_PAUSE_S)

    async def _declare_link(self, run: _Run) -> None:
        """The run's network. Without a cloud the device finds out by itself and computes alone."""
        if run.request.system == "on_device":
            return
        request = run.request
        run.declared_s = run.declared_s or time.monotonic()
        try:
            cloud = await self._cloud_client()
            offset_s = (request.trace_offset_s + time.monotonic() - run.declared_s) % run.networks[-1][1].duration_s
            await cloud.emulate_link(run.run_id, run.networks[-1][1], request.rtt_s, offset_s)
        except NoAnswerError as error:
            log.warning("%s", error)

    async def _measure(
        self, run: _Run, job: RunJob, picture: np.ndarray, mask: np.ndarray, truth: np.ndarray | None
    ) -> AnyEvent:
        """Run the same request with the full cache, unpaced, and score the picture against it and the truth."""
        began = self._loop.time()
        measuring = msgspec.structs.replace(
            job,
            run_id=job.run_id + MEASURING,
            system="full_cache",
            rate_budget_bytes=None,
            link_id=None,
            rtt_s=0.0,
            controller="",
        )
        full = None
        finished = False
        try:
            async for event in self.hub.run(run.device, measuring):
                if isinstance(event, RunFinished):
                    full = from_png(event.picture_png)
            finished = True
        finally:
            if not finished:
                with contextlib.suppress(UserError):
                    await self.hub.stop(run.device, measuring.run_id)

        def score() -> QualityMeasured:
            from sakura.metrics import compare  # torch and lpips: not needed before the first score

            return QualityMeasured(
                at_s=self._loop.time() - began,
                against_full_cache=None if full is None else compare(picture, full, mask),
                against_truth=None if truth is None else compare(picture, truth, mask),
            )

        return await asyncio.to_thread(score)

    def events(self, run_id: str, cursor: int, timeout_s: float) -> list[AnyEvent]:
        """Events from number ``cursor`` on; waits up to ``timeout_s`` for one. Raises UserError on an unknown run."""
        run = self._find(run_id)
        run.followed_s = time.monotonic()
        return run.since(cursor, timeout_s)[0]

    def follow(self, run_id: str, timeout_s: float) -> Iterator[list[AnyEvent]]:
        """The events of a run from its first to its last, scores included, as they come: one or more at a time.

        Raises UserError on an unknown run, and on one that takes longer than ``timeout_s``, which is stopped.
        """
        run = self._find(run_id)
        end_s = time.monotonic() + timeout_s
        told, over = 0, False
        while not over:
            run.followed_s = time.monotonic()
            new, over = run.since(told, min(FOLLOW_S, timeout_s))
            if new:
                told += len(new)
                yield new
            if not over and time.monotonic() >= end_s:
                self.stop(run_id)
                raise UserError(f"This edit took longer than {timeout_s:g} s and was stopped; try again.")

    def is_over(self, run_id: str) -> bool:
        """Whether no more events will come (scores included)."""
        return self._find(run_id).over

    def busy(self) -> bool:
        """Whether a device runs an edit, is scored on one, or gets ready for a template."""
        with self._runs_lock:
            return self._preparing > 0 or any(not run.over for run in self._runs.values())

    def run_request(self, run_id: str) -> EditRequest:
        """What a run was asked to do. Raises UserError on an unknown run."""
        return self._find(run_id).request

    def run_device(self, run_id: str) -> DeviceCard:
        """The device of a run as it is now, or was when it left. Raises UserError on an unknown run."""

        async def look() -> DeviceCard:
            return _card(self._find(run_id).device)

        return self._call(look())

    def networks(self, run_id: str) -> list[tuple[float, Trace]]:
        """The networks of a run, each with when it began to hold, in s since the run began. Raises UserError."""
        return list(self._find(run_id).networks)

    def change_network(self, run_id: str, trace: Trace) -> None:
        """Let a run go on over another emulated network at once. A run that is over keeps the one it had."""
        self._call(self._change_network(self._find(run_id), trace))

    async def _change_network(self, run: _Run, trace: Trace) -> None:
        if not run.active or _same(run.networks[-1][1], trace):
            return
        if run.events:
            at_s = max(0.0, time.monotonic() - run.began_s)
            run.networks.append((at_s, trace))
            run.append(NetworkChanged(at_s=at_s, title=trace.title))
        else:  # it held from the start
            run.networks = [(0.0, trace)]
        await self._declare_link(run)

    def stop(self, run_id: str) -> None:
        """End a run early; it then ends with a RunFailed event."""
        run = self._find(run_id)
        run.stopping = True
        if run.active:
            self._call(self.hub.stop(run.device, run_id))

    def _find(self, run_id: str) -> _Run:
        with self._runs_lock:
            if run_id in self._runs:
                return self._runs[run_id]
        raise UserError("That edit is not known any more; press Edit to start a new one.")


def _cloud_for(device: ConnectedDevice, cloud_url: str) -> str:
    """The cloud's address as a device sees it: on the machine whose hub it found, unless the cloud is elsewhere."""
    parts = urlsplit(cloud_url)
    address = device.connection.local_address
    if parts.hostname not in LOOPBACK or not address or address[0] in LOOPBACK:
        return cloud_url
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return parts._replace(netloc=f"{host}:{parts.port}").geturl()


def _card(device: ConnectedDevice) -> DeviceCard:
    return DeviceCard(
        device.device_id,
        device.name,
        device.engine,
        device.status,
        device.clock,
        next((each for run_id, each in reversed(device.traffic.items()) if not run_id.endswith(MEASURING)), None),
        device.paired,
        time.monotonic() - device.connected_s,
    )


def _same(trace: Trace, other: Trace) -> bool:
    return np.array_equal(trace.edges_s, other.edges_s) and np.array_equal(trace.rates_mbps, other.rates_mbps)


def _check_numbers(request: EditRequest) -> None:
    """Raises UserError on a number that is out of range."""
    budget = request.rate_budget_bytes
    if budget is not None and not 1 <= budget <= MAX_BUDGET_BYTES:
        raise UserError(f"The bytes to spend must be from 1 to {MAX_BUDGET_BYTES:,}; use automatic if unsure.")
    if not (math.isfinite(request.rtt_s) and 0 <= request.rtt_s <= MAX_RTT_S):
        raise UserError(f"The round trip must be from 0 to {MAX_RTT_S:.0f} s.")
    if not (math.isfinite(request.trace_offset_s) and 0 <= request.trace_offset_s <= 1e6):
        raise UserError("The trace can start at 0 to 1,000,000 s; it repeats when it ends.")
    if not 0 <= request.seed < 2**32:
        raise UserError("The seed must be from 0 to 4,294,967,295.")


def _find_reference(task: Task, picture: np.ndarray) -> ReferencePicture | None:
    """The shipped reference that these pixels are, if they are one."""
    return next((r for r in shipped_references(task) if np.array_equal(r.picture, picture)), None)


class LocalRoles:
    """A cloud and a device on this machine, each a process of its own, for a studio. A context manager.

    The cloud listens where the studio's hub does, for devices elsewhere need it, too.

    Without ``wait`` the processes come up in the background; call :meth:`wait_ready` before an edit.
    """

    def __init__(self, studio: Studio, *, cloud_port: int = 0, threads: int = 1, wait: bool = True) -> None:
        self.studio, self.wait = studio, wait
        limit_threads()
        self.cloud = Role(
            "cloud", "sakura.cloud.role:run_cloud", {"host": studio.hub.host, "port": cloud_port, "model": None}
        )
        self.device = Role(
            "device",
            "device_bridge.role:run_device",
            {
                "hub_url": studio.hub.local_url,
                "token": studio.hub.token,
                "name": "Laptop CPU",
                "model": None,
                "threads": threads,
            },
        )

    def __enter__(self) -> "LocalRoles":
        self.cloud.start()
        self.device.start()
        if self.wait:
            try:
                self.wait_ready()
            except BaseException:
                self.__exit__()
                raise
        return self

    def wait_ready(self) -> None:
        """Until an edit can be made. Raises UserError."""
        self.studio.cloud_url = url_of("ws", host_from_here(self.studio.hub.host), self.cloud.wait_ready())
        self.device.wait_ready()
        self.studio.wait_for_device()

    def __exit__(self, *_: object) -> None:
        self.device.close()
        self.cloud.close()
