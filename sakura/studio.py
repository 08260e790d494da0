"""The one service behind the page and the command line: templates, devices, edits and their events."""

import dataclasses

import numpy as np

from sakura.events import AnyEvent, System
from sakura.network.trace import Trace
from sakura.portraits.tasks import Subject, Task


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
    """A connected device. ``device_id`` chooses it, ``name`` is shown ("Laptop CPU")."""

    device_id: str
    name: str


@dataclasses.dataclass(frozen=True)
class EditRequest:
    """One press of Edit. ``reference`` is uint8 RGB of any size, ``prompt`` free text; each where the task needs it."""

    template_id: str
    system: System
    trace: Trace
    reference: np.ndarray | None = None
    prompt: str = ""
    rate_budget_bytes: int | None = None
    rtt_s: float = 0.02
    trace_offset_s: float = 0.0
    seed: int = 0
    device_id: str | None = None
    truth: np.ndarray | None = None
