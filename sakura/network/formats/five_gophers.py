"""5Gophers: a table with a second ``seq_num`` and one or several columns ``..throughput_mbps``."""

from sakura.network.formats._text import ColumnNeededError, TraceText, header_of, read_table, trace_from_samples
from sakura.network.trace import Trace

TITLE = "5Gophers"

_RATE_SUFFIX = "throughput_mbps"


def matches(text: TraceText) -> bool:
    header = header_of(text)
    return "seq_num" in header and any(name.endswith(_RATE_SUFFIX) for name in header)


def parse(text: TraceText, column: str | None) -> Trace:
    table = read_table(text)
    choices = [name for name in table.header if name.endswith(_RATE_SUFFIX)]
    if (column is None and len(choices) > 1) or (column is not None and column not in choices):
        raise ColumnNeededError(text.name, choices, column)
    rate = column or choices[0]
    return trace_from_samples(
        text,
        [table.number(line, fields, "seq_num") for line, fields in table.rows],
        [table.number(line, fields, rate) for line, fields in table.rows],
        [line for line, _ in table.rows],
        format=TITLE,
        unit="Mbit/s",
        notes=(f"The rate is column {rate}.",) if len(choices) > 1 else (),
    )
