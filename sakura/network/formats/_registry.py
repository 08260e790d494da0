"""The formats that can be read, in the order in which they are tried."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sakura.errors import UserError
from sakura.network.formats import (
    five_gophers,
    ghent,
    lumos5g,
    mahimahi,
    named_columns,
    second_bytes,
    time_mbps,
    ucc,
)
from sakura.network.formats._refusals import why_chunks, why_no_trace
from sakura.network.formats._text import TraceText, read_text
from sakura.network.trace import Trace


@dataclass(frozen=True)
class TraceFormat:
    """A kind of trace file.

    ``matches`` looks at the first lines alone. ``parse`` gets the text and the column that the person chose, if any,
    and raises ``UserError`` for the first thing that is wrong.
    """

    matches: Callable[[TraceText], bool]
    parse: Callable[[TraceText, str | None], Trace]


FORMATS = tuple(
    TraceFormat(module.matches, module.parse)
    for module in (ucc, five_gophers, lumos5g, time_mbps, named_columns, mahimahi, ghent, second_bytes)
)


def load_trace(source: Path | str | bytes, name: str, *, column: str | None = None) -> Trace:
    """Read a trace file, given by its path or its bytes; ``name`` stands for it in messages.

    The content decides the format. ``column`` chooses the rate where a file has several; without it such a file raises
    ``ColumnNeededError``. Raises ``UserError`` for all else that cannot be read.
    """
    text = read_text(source, name)
    if (why := why_chunks(text)) is not None:
        raise UserError(why)
    for form in FORMATS:
        if form.matches(text):
            return form.parse(text, column)
    if (why := why_no_trace(text)) is not None:
        raise UserError(why)
    line = text.lines[0]
    raise UserError(
        f"{name} is in no trace format known here (line {line.number} reads {line.text[:30]!r}): write a time in s, "
        "a tab and a rate in Mbit/s on each line, or choose a file of UCC, 5Gophers, Lumos5G, Mahimahi or Ghent 4G."
    )
