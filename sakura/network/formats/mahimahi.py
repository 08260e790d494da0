"""Mahimahi: the millisecond of each opportunity to send a packet, one a line; the trace repeats after the last."""

import re

import numpy as np

from sakura.errors import UserError
from sakura.network.formats._text import TraceText
from sakura.network.trace import BYTES_PER_MEGABIT, Trace, checked_trace

TITLE = "Mahimahi"
PACKET_BYTES = 1500

_MILLISECONDS = re.compile(r"\d{1,15}", re.ASCII)


def matches(text: TraceText) -> bool:
    return all(_MILLISECONDS.fullmatch(line.text) for line in text.lines[:20])


def parse(text: TraceText, column: str | None) -> Trace:
    """Milliseconds with opportunities become pieces of 1 ms, the silence between two of them one piece."""
    for line in text.lines:
        if not _MILLISECONDS.fullmatch(line.text):
            raise text.error(line, f"{line.text[:40]!r} is not a whole number of milliseconds; correct the line.")
    opportunities_ms = np.array([int(line.text) for line in text.lines], dtype=np.int64)
    if (back := np.flatnonzero(np.diff(opportunities_ms) < 0)).size:
        raise text.error(
            text.lines[int(back[0]) + 1],
            "the milliseconds go back; sort the lines, or put a time before each number if these are rates.",
        )
    if opportunities_ms[-1] == 0:
        raise UserError(f"{text.name} ends at 0 ms: the last line of a Mahimahi trace says when it repeats.")
    # An opportunity at t ms is spread over the millisecond before it; one at 0 goes to the first millisecond.
    ends_ms, first_rows, packets = np.unique(np.maximum(opportunities_ms, 1), return_index=True, return_counts=True)
    edges_ms = np.unique(np.concatenate([[0], ends_ms - 1, ends_ms]))
    rates_mbps = np.zeros(len(edges_ms) - 1)
    rows = np.zeros(len(rates_mbps), dtype=np.int64)
    busy = np.searchsorted(edges_ms, ends_ms) - 1
    rates_mbps[busy] = packets * PACKET_BYTES * 1000 / BYTES_PER_MEGABIT
    rows[busy] = first_rows
    return checked_trace(
        text.name,
        edges_ms / 1000,
        rates_mbps,
        notes=(f"Each line is one packet of {PACKET_BYTES} bytes.",),
        format=TITLE,
        unit="ms of each packet",
        lines=[text.lines[row].number for row in rows.tolist()],
    )
