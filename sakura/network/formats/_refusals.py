"""Files that look like traces and cannot be used as one: each gets a sentence that says why."""

import re

from sakura.network.formats._text import TraceText, header_of, is_number
from sakura.network.formats.named_columns import rate_columns, time_columns, unitless_rates

_LONGEST_NAME = 40
"""A longer name is prose that happens to speak of rates."""

_CHUNK_COLUMNS = {"delivery_time(s)", "chunk_index"}


def why_chunks(text: TraceText) -> str | None:
    """Tables of video chunks, as those of Lumos, have rates and durations, but no times."""
    if not set(header_of(text)) >= _CHUNK_COLUMNS:
        return None
    return (
        f"{text.name} lists downloads of video chunks, and the idle time between them is not in it: "
        "choose a trace that gives a time with each rate."
    )


def why_no_trace(text: TraceText) -> str | None:
    """What is missing in a file that no format matched, where that can be told."""
    below = re.split(r"[\s;,]+", text.lines[min(1, len(text.lines) - 1)].text)
    if not any(map(is_number, below)):
        return None
    header = tuple(name for name in header_of(text) if len(name) <= _LONGEST_NAME)
    rates, unitless = rate_columns(header), unitless_rates(header)
    if unitless and time_columns(header):
        return (
            f"{text.name} does not say in which unit its column {unitless[0]!r} is: "
            f"add it to the header, as in {unitless[0] + '_mbps'!r} or {unitless[0] + '_kbps'!r}."
        )
    if rates or unitless or all(is_number(line.text) for line in text.lines[:20]):
        return (
            f"{text.name} has rates but no times, and how long a line lasts is a guess: "
            "put a column 'time_s' with the second of each line before them."
        )
    return None
