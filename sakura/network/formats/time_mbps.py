"""Time in s and rate in Mbit/s, between them a tab or spaces; with a header also other delimiters."""

import re

from sakura.network.formats._text import (
    Line,
    TraceText,
    delimiter_of,
    is_number,
    sets_off_thousands,
    split_fields,
    to_number,
    trace_from_samples,
)
from sakura.network.trace import Trace

TITLE = "time and Mbit/s"

_HEADER_TIME = re.compile(r"time|sec", re.IGNORECASE)
_HEADER_RATE = re.compile(r"(?i:mbit)|[Mm]bps|[Mm]b/s|MBPS")  # MBps would be bytes


def _fields(line: Line, delimiter: str | None) -> list[str]:
    """Two fields in a proper line; white space of any length separates them where there is no ``delimiter``."""
    fields = line.text.split() if delimiter is None else split_fields(line, delimiter)
    return [field.strip() for field in fields]


def _header_delimiter(line: Line) -> tuple[bool, str | None]:
    """Whether the first line is a header of this format, and the delimiter of the lines below it."""
    mark = delimiter_of(line)
    delimiter = mark if mark in line.text and mark != "\t" else None
    fields = line.text.split("\t") if "\t" in line.text else _fields(line, delimiter)
    named = len(fields) == 2 and bool(_HEADER_TIME.search(fields[0]) and _HEADER_RATE.search(fields[1]))
    return named, delimiter if named else None


def matches(text: TraceText) -> bool:
    named, delimiter = _header_delimiter(text.lines[0])
    if named:
        return True
    first = [_fields(line, delimiter) for line in text.lines[:20]]
    return len(first[0]) == 2 and all(map(is_number, first[0])) and all(len(fields) == 2 for fields in first)


def _has_decimal_comma(text: TraceText, lines: tuple[Line, ...]) -> bool:
    """Whether commas are decimal ones; raises ``UserError`` where all of them could as well set off thousands."""
    with_comma = [(line, field) for line in lines for field in re.split(r"[\s;]+", line.text) if "," in field]
    if with_comma and all(sets_off_thousands(field) for _, field in with_comma):
        line, field = with_comma[0]
        raise text.error(line, f"{field[:40]!r} may be thousands or a decimal fraction; write numbers without commas.")
    return bool(with_comma)


def parse(text: TraceText, column: str | None) -> Trace:
    named, delimiter = _header_delimiter(text.lines[0])
    lines = text.lines[1:] if named else text.lines
    decimal_comma = delimiter != "," and _has_decimal_comma(text, lines)
    times_s, rates_mbps = [], []
    for line in lines:
        fields = _fields(line, delimiter)
        if len(fields) != 2:
            raise text.error(line, f"{len(fields)} fields instead of a time and a rate; correct the line.")
        times_s.append(to_number(text, line, fields[0], decimal_comma=decimal_comma))
        rates_mbps.append(to_number(text, line, fields[1], decimal_comma=decimal_comma))
    return trace_from_samples(text, times_s, rates_mbps, lines, format=TITLE, unit="Mbit/s")
