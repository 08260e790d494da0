"""Any other table whose header names a time and, with its unit, one or several rates."""

import re

from sakura.network.formats._text import ColumnNeededError, TraceText, header_of, read_table, trace_from_samples
from sakura.network.trace import Trace

TITLE = "table with named columns"

# A capital B stands for bytes where a unit is abbreviated.
_UNITS = (
    (re.compile(r"MB(ps|/s)"), 8.0, "MB/s"),
    (re.compile(r"[kK]B(ps|/s)"), 8e-3, "kB/s"),
    (re.compile(r"(?i)bytes?[ _]*(/|per)[ _]*s"), 8e-6, "bytes/s"),
    (re.compile(r"(?i)gbps|gbit|gb/s"), 1e3, "Gbit/s"),
    (re.compile(r"(?i)mbps|mbit|mb/s"), 1.0, "Mbit/s"),
    (re.compile(r"(?i)kbps|kbit|kb/s"), 1e-3, "kbit/s"),
    (re.compile(r"(?i)(?<![a-z])bps|bits?[ _]*(/|per)[ _]*s"), 1e-6, "bit/s"),
)
_TIME = re.compile(r"(?i)time|sec|epoch|\bt\b")
_MILLISECONDS = re.compile(r"(?i)(?<![a-z])ms(?![a-z])|milli")
_RATE = re.compile(r"(?i)rate|tput|throughput|bandwidth")


def rate_unit(column: str) -> tuple[float, str] | None:
    """Mbit/s in one unit of the rate that a column's name states, and the unit; None where it states none."""
    return next(((factor, unit) for pattern, factor, unit in _UNITS if pattern.search(column)), None)


def rate_columns(header: tuple[str, ...]) -> list[str]:
    return [name for name in header if rate_unit(name)]


def time_columns(header: tuple[str, ...]) -> list[str]:
    return [name for name in header if _TIME.search(name) and not rate_unit(name)]


def unitless_rates(header: tuple[str, ...]) -> list[str]:
    """Columns whose names speak of a rate and state no unit."""
    return [name for name in header if _RATE.search(name) and not rate_unit(name)]


def matches(text: TraceText) -> bool:
    header = header_of(text)
    return bool(rate_columns(header) and time_columns(header))


def parse(text: TraceText, column: str | None) -> Trace:
    """The first column of times counts; of several rates the person chooses one."""
    table = read_table(text)
    choices, time = rate_columns(table.header), time_columns(table.header)[0]
    if (column is None and len(choices) > 1) or (column is not None and column not in choices):
        raise ColumnNeededError(text.name, choices, column)
    rate = column or choices[0]
    stated = rate_unit(rate)
    assert stated is not None
    factor, unit = stated
    seconds = 1e-3 if _MILLISECONDS.search(time) else 1.0
    return trace_from_samples(
        text,
        [table.number(line, fields, time) * seconds for line, fields in table.rows],
        [table.number(line, fields, rate) * factor for line, fields in table.rows],
        [line for line, _ in table.rows],
        format=TITLE,
        unit=unit,
        notes=(f"The time is column {time}, the rate column {rate}.",),
    )
