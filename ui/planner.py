"""Plans asked for by pages: getting a device ready may take minutes, so each plan is made in a thread of its own."""

import threading
import time

from sakura.errors import UserError
from sakura.events import System
from sakura.studio import Plan, Studio

QUICK_S = 0.3
KEPT_S = 2.0


class _Job:
    def __init__(self) -> None:
        self.progress: float | None = None
        self.plan: Plan | None = None
        self.error = ""
        self.done = threading.Event()
        self.done_at_s = 0.0

    @property
    def stale(self) -> bool:
        return self.done.is_set() and time.monotonic() - self.done_at_s > KEPT_S


class Planner:
    """Makes plans in the background; pages ask again until theirs is there."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._jobs: dict[tuple[str, System, str], _Job] = {}
        self._lock = threading.Lock()
        self._on_device_s: dict[tuple[str, str], float] = {}

    def ask(self, template_id: str, system: System, device_id: str) -> tuple[Plan | None, float | None, str]:
        """The plan if it is there, else how far it is (0 to 1, None if unknown), else a sentence why there is none."""
        with self._lock:
            self._jobs = {key: job for key, job in self._jobs.items() if not job.stale}
            job = self._jobs.get((template_id, system, device_id))
            if job is None:
                job = self._jobs[template_id, system, device_id] = _Job()
                threading.Thread(target=self._make, args=(job, template_id, system, device_id), daemon=True).start()
        job.done.wait(QUICK_S)
        return job.plan, job.progress, job.error

    def on_device_s(self, template_id: str, device_id: str) -> float | None:
        """What computing all of an edit on a device was measured to take, if a plan told."""
        return self._on_device_s.get((template_id, device_id))

    def _make(self, job: _Job, template_id: str, system: System, device_id: str) -> None:
        def report(share: float) -> None:
            job.progress = share

        try:
            job.plan = self._studio.plan(template_id, system, device_id, progress=report)
            self._on_device_s[template_id, device_id] = job.plan.on_device_s
        except UserError as error:
            job.error = str(error)
        finally:
            job.done_at_s = time.monotonic()
            job.done.set()
