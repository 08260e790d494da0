"""One request under several systems: measured one after another on the device, kept to be replayed together.

The device is one processor, so systems that ran at the same time would slow each other down and measure nothing.
"""

import collections
import dataclasses
import logging
import secrets
import threading
from collections.abc import Sequence

from sakura.errors import UserError
from sakura.events import AnyEvent, QualityMeasured, QualityScores, RunFailed, RunFinished, System
from sakura.pictures import fit_square
from sakura.studio import SHOWN_REFERENCE_PX, EditRequest, Studio

MAX_RACES_KEPT = 16
LAP_TIMEOUT_S = 900.0
STOPPED = "You stopped this race."

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Lap:
    """What one system did. ``run_id`` is empty where it could not begin, ``reason`` where there is a picture."""

    system: System
    run_id: str = ""
    events: tuple[AnyEvent, ...] = ()
    reason: str = ""

    @property
    def finished(self) -> RunFinished | None:
        return next((event for event in self.events if isinstance(event, RunFinished)), None)

    @property
    def scores(self) -> QualityScores | None:
        """PSNR and SSIM of the picture against that of the full cache, made of the same request without a network."""
        measured = next((event for event in self.events if isinstance(event, QualityMeasured)), None)
        return measured.against_full_cache if measured else None


@dataclasses.dataclass(frozen=True)
class RaceState:
    """A race as it is now. ``laps`` are those measured so far, in the order of ``systems``.

    ``request`` is what all of them were asked; its system says nothing. ``prepared`` is how far the device has got
    ready for the template (0 to 1), None before and after. ``error`` is why nothing could be measured at all.
    """

    race_id: str
    request: EditRequest
    systems: tuple[System, ...]
    laps: tuple[Lap, ...] = ()
    prepared: float | None = None
    error: str = ""
    over: bool = False
    version: int = 0

    @property
    def measuring(self) -> System | None:
        """The system that is measured now."""
        waits = self.over or self.prepared is not None or len(self.laps) == len(self.systems)
        return None if waits else self.systems[len(self.laps)]


class _Measurement:
    """A race that is measured, or was. Readers wait on ``changed``."""

    def __init__(self, state: RaceState) -> None:
        self.state = state
        self.changed = threading.Condition()
        self.stopping = False
        self.run_id = ""

    def update(self, lap: Lap | None = None, *, prepared: float | None = None, error: str = "") -> None:
        self._replace(laps=(*self.state.laps, lap) if lap else self.state.laps, prepared=prepared, error=error)

    def finish(self) -> None:
        self._replace(over=True, prepared=None)

    def _replace(self, **changes: object) -> None:
        with self.changed:
            version = self.state.version + 1
            self.state = dataclasses.replace(self.state, version=version, **changes)  # type: ignore[arg-type]
            self.changed.notify_all()


class Races:
    """Races on a studio's devices, one at a time; the last ones are kept under their ids. Called from any thread."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._races: collections.OrderedDict[str, _Measurement] = collections.OrderedDict()
        self._lock = threading.Lock()

    def start(self, request: EditRequest, systems: Sequence[System]) -> str:
        """Begin to measure ``request`` under each of ``systems``, whatever its own system; returns the id at once.

        Raises UserError where no race can begin. What goes wrong later is told by the state: in its ``error`` when
        the first system cannot begin, such as on a device that is busy, else in the ``reason`` of a lap.
        """
        if not systems or len(set(systems)) != len(systems):
            raise UserError("Name each system of the race once, and at least one.")
        shown = request
        if request.reference is not None and max(request.reference.shape) > SHOWN_REFERENCE_PX:
            shown = dataclasses.replace(request, reference=fit_square(request.reference, SHOWN_REFERENCE_PX).pixels)
        race = _Measurement(RaceState(secrets.token_urlsafe(8), shown, tuple(systems), prepared=0.0))
        with self._lock:
            if any(not other.state.over for other in self._races.values()):
                raise UserError("The device is busy with another race; wait until it is measured, or stop it.")
            self._races[race.state.race_id] = race
            while len(self._races) > MAX_RACES_KEPT:
                self._races.popitem(last=False)
        threading.Thread(target=self._measure, args=(race, request), name="race", daemon=True).start()
        return race.state.race_id

    def state(self, race_id: str, known: int = -1, timeout_s: float = 0.0) -> RaceState:
        """The race; waits up to ``timeout_s`` for a version newer than ``known``. Raises UserError if unknown."""
        race = self._find(race_id)
        with race.changed:
            race.changed.wait_for(lambda: race.state.version > known or race.state.over, timeout_s)
            return race.state

    def stop(self, race_id: str) -> None:
        """End the measuring early; what is measured by then is kept. Once more does no harm."""
        race = self._find(race_id)
        race.stopping = True
        if race.run_id and not race.state.over:
            self._studio.stop(race.run_id)

    def _find(self, race_id: str) -> _Measurement:
        with self._lock:
            if race_id in self._races:
                return self._races[race_id]
        raise UserError("That race is not known any more; start a new one.")

    def _measure(self, race: _Measurement, request: EditRequest) -> None:
        try:
            unprepared = self._prepare(race, request)
            race.update()
            for system in race.state.systems:
                if system in unprepared:
                    race.update(Lap(system, reason=unprepared[system]))
                else:
                    race.update(self._lap(race, dataclasses.replace(request, system=system, measure=True)))
        except UserError as error:
            race.update(error=str(error))
        except Exception:
            log.exception("A race failed in the studio")
            race.update(error="The race failed in the studio; its log says why. Start it again.")
        finally:
            race.finish()

    def _prepare(self, race: _Measurement, request: EditRequest) -> dict[System, str]:
        """Get the device ready for all systems: building their caches is no part of any lap.

        Returns why there will be no lap of a system. Raises UserError where that is the first one.
        """
        systems, reasons = race.state.systems, {}
        for number, system in enumerate(systems):
            if race.stopping:
                break

            def tell(share: float, before: int = number) -> None:
                race.update(prepared=(before + share) / len(systems))

            tell(0.0)
            try:
                self._studio.plan(request.template_id, system, request.device_id, tell)
            except UserError as error:
                if number == 0:
                    raise
                reasons[system] = str(error)
        return reasons

    def _lap(self, race: _Measurement, request: EditRequest) -> Lap:
        """One system, measured. Raises UserError only where the first one of a race cannot begin."""
        if race.stopping:
            return Lap(request.system, reason=STOPPED)
        try:
            run_id = self._studio.start(request)
        except UserError as error:
            if not race.state.laps:
                raise
            return Lap(request.system, reason=str(error))
        race.run_id = run_id
        if race.stopping:  # pressed while the run began
            self._studio.stop(run_id)
        events: list[AnyEvent] = []
        try:
            for new in self._studio.follow(run_id, LAP_TIMEOUT_S):
                events.extend(new)
        except UserError as error:
            return Lap(request.system, run_id, tuple(events), str(error))
        return Lap(request.system, run_id, tuple(events), self._reason(race, events))

    def _reason(self, race: _Measurement, events: Sequence[AnyEvent]) -> str:
        """Why a lap ended without a picture; empty where it has one."""
        if any(isinstance(event, RunFinished) for event in events):
            return ""
        failed = next((event for event in events if isinstance(event, RunFailed)), None)
        if race.stopping:
            return STOPPED
        return failed.reason if failed else "The device ended this edit without a picture; start the race again."
