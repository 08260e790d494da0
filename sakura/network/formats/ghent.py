"""Logs of the Ghent 4G set: epoch ms, ms since the start, latitude, longitude, bytes and ms since the line before."""

from sakura.network.formats._text import TraceText, is_number, to_number
from sakura.network.trace import BYTES_PER_MEGABIT, Trace, checked_trace

TITLE = "Ghent 4G"


def matches(text: TraceText) -> bool:
    first = text.lines[0].text.split()
    return len(first) == 6 and all(map(is_number, first))


def parse(text: TraceText, column: str | None) -> Trace:
    """Each line covers the milliseconds since the line before; positions are not kept."""
    edges_ms, rates_mbps = [0.0], []
    for line in text.lines:
        fields = line.text.split()
        if len(fields) != 6:
            raise text.error(line, f"{len(fields)} fields instead of six; correct or remove the line.")
        size_bytes, passed_ms = to_number(text, line, fields[4]), to_number(text, line, fields[5])
        if not passed_ms > 0:
            raise text.error(line, f"{passed_ms:g} ms since the line before; correct or remove the line.")
        edges_ms.append(edges_ms[-1] + passed_ms)
        rates_mbps.append(size_bytes / (passed_ms / 1000) / BYTES_PER_MEGABIT)
    return checked_trace(
        text.name,
        [edge / 1000 for edge in edges_ms],
        rates_mbps,
        format=TITLE,
        unit="bytes since the line before",
        lines=[line.number for line in text.lines],
    )
