"""A device: its model, its engine, what it knows of templates, and how it runs a request."""

import asyncio
import dataclasses
import time
from collections.abc import Callable

import numpy as np
import tenacity

from sakura.backbone.editor import Editor
from sakura.backbone.inputs import Request
from sakura.cloud.client import CloudClient
from sakura.cloud.protocol import FETCH_HEADER_BYTES, SEGMENT_HEADER_BYTES, Description
from sakura.cloud.source import NoSource, ShardDamagedError, ShardSource, SourceLostError
from sakura.codec import new_codec
from sakura.codec.interface import CacheGeometry
from sakura.codec.offers import offer_fault
from sakura.control import estimator_of, new_controller
from sakura.control.budget import BudgetRule
from sakura.control.estimators import DEFAULT_MBPS, Estimator, new_estimator
from sakura.control.interface import Controller, StreamState
from sakura.control.shard_by_shard import ShardByShard
from sakura.errors import UserError
from sakura.events import EventSink, RunFinished, RunStarted, System
from sakura.pictures import from_png, to_png
from sakura.runtime.clock import RunClock
from sakura.runtime.engine import Engine, Executor, LocalRun, ShardKv
from sakura.runtime.pipeline import Outcome, Pipeline, Profile
from sakura.runtime.without_stream import edit_with_resident_cache, edit_without_cache
from sakura.systems import STREAMED, codec_of
from sakura.templates import TemplateAssets

# What the last edit saw of its network is believed of the next one only so far, and of an outage nothing at all.
MAX_PRIOR_MBPS = 40.0

# A stream that is lost is opened anew, in growing pauses, until the cloud has been away for RECONNECT_S, or that many
# in a row were lost without bringing anything.
MAX_STREAMS_IN_VAIN = 6
FIRST_PAUSE_S, MAX_PAUSE_S = 0.02, 1.0
RECONNECT_S = 60.0


@dataclasses.dataclass(frozen=True)
class Job:
    """One request as a device gets it. It holds all that is the user's; none of it goes further.

    ``words`` are canonical; ``reference`` uint8 (px/2, px/2, 3). ``link_id`` names the emulated link to use, if any,
    ``controller`` the one of :mod:`sakura.control` to use instead of the system's own.
    """

    run_id: str
    template_id: str
    system: System
    words: tuple[str, ...]
    reference: np.ndarray | None
    seed: int
    rate_budget_bytes: int | None
    link_id: str | None
    rtt_s: float
    controller: str = ""


@dataclasses.dataclass
class PreparedTemplate:
    """What the device keeps of a template between edits: ``offers`` has its cache in each codec that was used."""

    assets: TemplateAssets
    geometry: CacheGeometry
    offers: dict[str, Description]
    profile: Profile


async def fetch_all(cloud: CloudClient, template_id: str, geometry: CacheGeometry, run: LocalRun) -> list[ShardKv]:
    """The whole uncompressed cache of a template, fetched without an emulated link. Raises UserError."""
    source = await cloud.open_stream(template_id, "uncompressed", None)
    shards: list[ShardKv] = []
    try:
        for shard in range(geometry.shards):
            await source.fetch(shard, [shard])
            while not (arrival := await source.next()).complete:
                pass
            segments = arrival.take()
            if arrival.damaged:
                raise ShardDamagedError(f"Shard {shard} of the full cache came damaged; try again.")
            kv, _ = await run.reconstruct(shard, segments)
            shards.append(kv)
    except (SourceLostError, ShardDamagedError) as error:
        raise UserError(str(error)) from error
    finally:
        await source.close()
    return shards


class Device:
    """Runs edits one at a time. ``name`` is what people see."""

    def __init__(self, editor: Editor, name: str, executor: Executor | None = None) -> None:
        self.editor, self.name = editor, name
        self.engine = Engine(editor, executor)
        self._cloud: CloudClient | None = None
        self._cloud_url = ""
        self._prepared: dict[tuple[str, str], PreparedTemplate] = {}
        self._last_estimators: dict[tuple[System, str], Estimator] = {}
        self._resident: tuple[str, list[ShardKv]] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def close(self) -> None:
        if self._cloud:
            await self._cloud.close()
        self.engine.close()

    async def connect(self, cloud_url: str) -> CloudClient:
        """The connection to a cloud, opened anew when it was lost. Raises UserError."""
        if self._cloud and (self._cloud.lost.is_set() or self._cloud_url != cloud_url):
            await self._cloud.close()
            self._cloud = None
        if self._cloud is None:
            self._cloud = await CloudClient.connect(cloud_url, self.editor.fingerprint)
            self._cloud_url = cloud_url
        return self._cloud

    async def prepare(
        self,
        template_id: str,
        cloud_url: str,
        progress: Callable[[float], None] = lambda done: None,
        codec: str = "sakura",
    ) -> PreparedTemplate:
        """Fetch the description of a template's cache and measure how fast this device edits it. Raises UserError."""
        known = self._prepared.get((cloud_url, template_id))
        if known and codec in known.offers:
            return known
        cloud = await self.connect(cloud_url)
        description = await cloud.describe(template_id, codec, progress)
        assets = TemplateAssets(
            template_id=template_id,
            title=template_id,
            subject=description.subject,
            picture=from_png(description.picture_png),
            mask=from_png(description.mask_png)[..., 0] > 127,
            person=None,
        )
        self._check(description, assets)
        if known and known.assets.fingerprint == assets.fingerprint and known.geometry == description.geometry:
            known.offers[codec] = description
            return known
        async with self._one_at_a_time:
            profile = await self._measure(assets, description.geometry)
        prepared = PreparedTemplate(assets, description.geometry, {codec: description}, profile)
        self._prepared[cloud_url, template_id] = prepared
        return prepared

    def _check(self, description: Description, assets: TemplateAssets) -> None:
        """Refuse a cache that is not of this model, this template and this device's token layout."""
        if description.model != self.editor.fingerprint:
            raise UserError("The cache is of another model than this device's; use the same checkpoint on both sides.")
        if description.template != assets.fingerprint:
            raise UserError(f"The cache is not of template {assets.template_id!r} as it is now; build it again.")
        layout, runner, geometry = self.editor.layout(assets.for_editor()), self.editor.runner, description.geometry
        expected = (self.editor.steps, runner.blocks, len(layout.reusable), runner.heads * runner.head_dim)
        if (geometry.steps, geometry.blocks, geometry.rows, geometry.columns) != expected:
            raise UserError(f"The cache of {assets.template_id!r} has a shape that this device's model cannot use.")
        fault = offer_fault(
            f"the {description.codec} cache of {assets.template_id!r}",
            geometry,
            description.codec,
            description.options,
            description.segment_bytes,
            description.ladders,
            description.ladder_of,
        )
        if fault:
            raise UserError(
                f"The cloud does not offer the {description.codec} cache of {assets.template_id!r} as it should; "
                f"build it again ({fault.rstrip('.')})."
            )

    async def _measure(self, assets: TemplateAssets, geometry: CacheGeometry) -> Profile:
        """Time one step with an empty cache and one without; the first pass of each only warms up."""
        template = assets.for_editor()
        request = assets.typical_requests(1)[0]
        run = self.engine.start(template, request, geometry, new_codec("uncompressed"))
        empty = bytes(geometry.full_cache_bytes // geometry.shards)
        steps: dict[str, list[float]] = {"active": [], "full": []}
        reconstruct_s = 0.0
        for _ in range(3):
            for kind, times in steps.items():
                start = time.perf_counter()
                for shard in range(geometry.shards_per_step):
                    if kind == "full":
                        await run.execute_locally(shard)
                        continue
                    kv, span = await run.reconstruct(shard, {shard: empty})
                    reconstruct_s = span.end - span.start
                    start += reconstruct_s
                    await run.execute(shard, kv)
                times.append(time.perf_counter() - start)
        return Profile(min(steps["active"]), min(steps["full"]), reconstruct_s)

    async def run(
        self, job: Job, cloud_url: str, emit: EventSink, progress: Callable[[float], None] = lambda done: None
    ) -> Outcome:
        """Run a request; events go to ``emit``. Raises UserError where it cannot begin."""
        codec = codec_of(job.system)
        prepared = await self.prepare(job.template_id, cloud_url, progress, codec)
        clock = RunClock()
        request = Request(job.words, job.reference, job.seed)
        self._check_request(prepared.assets, request)
        async with self._one_at_a_time:
            self._announce(job, prepared, clock, emit)
            if job.system == "resident_cache":
                outcome = await self._run_resident(prepared, request, cloud_url, clock, emit)
            elif job.system == "on_device":
                outcome = await self._run_on_device(prepared, request, clock, emit)
            else:
                offer = prepared.offers[codec]
                outcome = await self._run_with_cache(job, prepared, offer, request, cloud_url, clock, emit)
        latency_s = clock.now()
        emit(
            RunFinished(
                at_s=latency_s,
                picture_png=to_png(outcome.picture),
                latency_s=latency_s,
                received_bytes=outcome.received_bytes,
                network_wait_s=outcome.network_wait_s,
            )
        )
        return outcome

    def _check_request(self, assets: TemplateAssets, request: Request) -> None:
        side = self.editor.config.reference_px
        if assets.has_reference and (request.reference is None or request.reference.shape != (side, side, 3)):
            raise UserError(f"This template needs a reference picture of {side} x {side} px; choose one.")
        unknown = [word for word in request.words if word not in self.editor.config.words]
        if unknown or len(request.words) > self.editor.config.text_tokens:
            raise UserError(
                f"The model cannot read the words {' '.join(request.words)[:80]!r}; use words that it knows."
            )

    def _announce(self, job: Job, prepared: PreparedTemplate, clock: RunClock, emit: EventSink) -> None:
        geometry, profile = prepared.geometry, prepared.profile
        on_device = job.system == "on_device"
        emit(
            RunStarted(
                at_s=clock.now(),
                run_id=job.run_id,
                template_id=job.template_id,
                system=job.system,
                device=self.name,
                steps=geometry.steps,
                shards_per_step=geometry.shards_per_step,
                full_cache_bytes=geometry.full_cache_bytes,
                planned_start_s=clock.now() + (0.0 if on_device else job.rtt_s),
                planned_step_s=profile.full_step_s if on_device else profile.active_step_s,
                rate_budget_bytes=job.rate_budget_bytes,
            )
        )

    async def _run_on_device(
        self, prepared: PreparedTemplate, request: Request, clock: RunClock, emit: EventSink
    ) -> Outcome:
        codec = new_codec("uncompressed")
        run = self.engine.start(prepared.assets.for_editor(), request, prepared.geometry, codec)
        return await edit_without_cache(prepared.geometry, run, clock, emit)

    async def _run_resident(
        self, prepared: PreparedTemplate, request: Request, cloud_url: str, clock: RunClock, emit: EventSink
    ) -> Outcome:
        template_id, geometry = prepared.assets.template_id, prepared.geometry
        run = self.engine.start(prepared.assets.for_editor(), request, geometry, new_codec("uncompressed"))
        if self._resident is None or self._resident[0] != template_id:
            cloud = await self.connect(cloud_url)
            self._resident = (template_id, await fetch_all(cloud, template_id, geometry, run))
        return await edit_with_resident_cache(geometry, run, self._resident[1], clock, emit)

    async def _run_with_cache(
        self,
        job: Job,
        prepared: PreparedTemplate,
        offer: Description,
        request: Request,
        cloud_url: str,
        clock: RunClock,
        emit: EventSink,
    ) -> Outcome:
        geometry, streamed, profile = prepared.geometry, STREAMED[job.system], prepared.profile
        estimator = self._estimator(job)
        state = StreamState(
            geometry=geometry,
            ladders=offer.ladders,
            ladder_of=offer.ladder_of,
            segment_bytes=offer.segment_bytes,
            shard_s=profile.active_step_s / geometry.shards_per_step,
            local_shard_s=profile.full_step_s / geometry.shards_per_step,
            reconstruct_s=profile.reconstruct_s,
            rtt_s=job.rtt_s,
            predicted_mbps=estimator.predict_mbps(),
        )
        opened = _Opened(self, job, offer.codec, cloud_url, state)
        codec = new_codec(offer.codec, offer.options)
        try:
            pipeline = Pipeline(
                state=state,
                source=await opened.first(),
                run=self.engine.start(prepared.assets.for_editor(), request, geometry, codec),
                controller=_controller(job, offer),
                estimator=estimator,
                clock=clock,
                emit=emit,
                patient=streamed.patient,
                reopen=opened.again,
            )
            return await pipeline.edit()
        finally:
            await opened.close()

    def _estimator(self, job: Job) -> Estimator:
        """A new estimator, which starts from what the last edit of this kind learned of the network."""
        name = estimator_of(job.controller or STREAMED[job.system].controller)
        last = self._last_estimators.get((job.system, job.controller))
        prior_mbps = max(DEFAULT_MBPS, min(MAX_PRIOR_MBPS, last.predict_mbps())) if last else DEFAULT_MBPS
        estimator = new_estimator(name, prior_mbps)
        if job.link_id is not None:  # what is fetched for a comparison passes no link, and says nothing of it
            self._last_estimators[job.system, job.controller] = estimator
        return estimator


class _Opened:
    """The stream of an edit, opened anew when it is lost: the cloud may come back while the device computes."""

    def __init__(self, device: Device, job: Job, codec: str, cloud_url: str, state: StreamState) -> None:
        self._device, self._job, self._codec, self._cloud_url = device, job, codec, cloud_url
        self._state = state
        self._source: ShardSource | None = None
        self._in_vain = 0  # streams that were lost since a segment came last
        self._arrived = 0  # segments that had come when the last one was lost

    async def first(self) -> ShardSource:
        try:
            source: ShardSource = await self._open()
        except (UserError, SourceLostError) as error:
            # The device knows the template, so it can still edit it by itself.
            source = NoSource(str(error))
        self._source = source
        return source

    async def _open(self) -> ShardSource:
        cloud = await self._device.connect(self._cloud_url)
        return await cloud.open_stream(self._job.template_id, self._codec, self._job.link_id)

    async def again(self, error: SourceLostError) -> ShardSource:
        """Another stream, after growing pauses. Raises ``error`` where there is none, or too many brought nothing."""
        await self.close()
        arrived = len(self._state.arrived)
        self._in_vain = 1 if arrived > self._arrived else self._in_vain + 1
        self._arrived = arrived
        if self._in_vain > MAX_STREAMS_IN_VAIN:
            raise error
        await asyncio.sleep(FIRST_PAUSE_S * 2 ** (self._in_vain - 1))
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type((UserError, SourceLostError)),
            wait=tenacity.wait_random_exponential(multiplier=FIRST_PAUSE_S, max=MAX_PAUSE_S),
            stop=tenacity.stop_after_delay(RECONNECT_S),
        )
        try:
            source: ShardSource = await retrying(self._open)
        except tenacity.RetryError:
            raise error from None
        self._source = source
        return source

    async def close(self) -> None:
        if self._source:
            source, self._source = self._source, None
            await source.close()


def _controller(job: Job, offer: Description) -> Controller:
    """The controller that was asked for, or the system's own; one that spends the bytes to spend where they are set."""
    if job.rate_budget_bytes is not None and job.system == "sakura":
        sent_bytes = [size_bytes + SEGMENT_HEADER_BYTES for size_bytes in offer.segment_bytes]
        left_bytes = job.rate_budget_bytes - FETCH_HEADER_BYTES * offer.geometry.shards
        return ShardByShard(BudgetRule(offer.ladders, offer.ladder_of, sent_bytes, left_bytes))
    return new_controller(job.controller or STREAMED[job.system].controller)
