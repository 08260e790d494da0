"""Lumos5G: a table of many runs with the columns ``run_num``, ``seq_num`` (second of the run) and ``Throughput``."""

from sakura.network.formats._text import ColumnNeededError, TraceText, header_of, read_table, trace_from_samples
from sakura.network.trace import Trace

TITLE = "Lumos5G"


def matches(text: TraceText) -> bool:
    return {"run_num", "seq_num", "Throughput"} <= set(header_of(text))


def parse(text: TraceText, column: str | None) -> Trace:
    """One run is one trace: where there are several, ``column`` chooses it as ``run_num=7``."""
    table = read_table(text)
    run_index = table.index("run_num")
    choices = list(dict.fromkeys(f"run_num={fields[run_index].strip()}" for _, fields in table.rows))
    if (column is None and len(choices) > 1) or (column is not None and column not in choices):
        raise ColumnNeededError(text.name, choices, column)
    rows = [row for row in table.rows if column is None or f"run_num={row[1][run_index].strip()}" == column]
    return trace_from_samples(
        text,
        [table.number(line, fields, "seq_num") for line, fields in rows],
        [table.number(line, fields, "Throughput") for line, fields in rows],
        [line for line, _ in rows],
        format=TITLE,
        unit="Mbit/s",
        notes=(f"The run is {column}.",) if column else (),
    )
