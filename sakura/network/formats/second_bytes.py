"""Second and bytes in that second, delimited, without a header."""

from sakura.errors import UserError
from sakura.network.formats._text import TraceText, delimiter_of, is_number, split_fields, to_number, trace_from_samples
from sakura.network.trace import BYTES_PER_MEGABIT, Trace

TITLE = "second and bytes"

_PLAUSIBLE_BYTES_FROM = 10_000
"""A file that never reaches this many bytes a second is more likely in Mbit/s."""


def matches(text: TraceText) -> bool:
    delimiter = delimiter_of(text.lines[0])
    first = [split_fields(line, delimiter) for line in text.lines[:20]]
    return len(first[0]) == 2 and all(is_number(field.strip()) for field in first[0]) and {len(f) for f in first} == {2}


def parse(text: TraceText, column: str | None) -> Trace:
    delimiter = delimiter_of(text.lines[0])
    times_s, sizes_bytes = [], []
    for line in text.lines:
        fields = split_fields(line, delimiter)
        if len(fields) != 2:
            raise text.error(line, f"{len(fields)} fields instead of a second and its bytes; correct the line.")
        times_s.append(to_number(text, line, fields[0], decimal_comma=delimiter == ";"))
        sizes_bytes.append(to_number(text, line, fields[1], decimal_comma=delimiter == ";"))
    largest = max(sizes_bytes)
    if 0 < largest < _PLAUSIBLE_BYTES_FROM or any(size % 1 for size in sizes_bytes):
        raise UserError(
            f"{text.name} has a second column that does not look like bytes a second (at most {largest:g}): "
            f"if it is Mbit/s, put the header 'time{delimiter}Mbps' above the first line."
        )
    rates_mbps = [size / BYTES_PER_MEGABIT for size in sizes_bytes]
    return trace_from_samples(text, times_s, rates_mbps, text.lines, format=TITLE, unit="bytes/s")
