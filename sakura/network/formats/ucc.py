"""G-NetTrack tables of University College Cork: ``Timestamp`` in local time, ``DL_bitrate`` in kbit/s."""

from datetime import datetime

from sakura.network.formats._text import TraceText, header_of, read_table, trace_from_samples
from sakura.network.trace import Trace

TITLE = "UCC G-NetTrack"

_MISSING = ("-", "")
_RESTARTS_NOTE = (
    "The download test of this set starts again every 14 s or so: its dips of 1 to 2 s are no outages of the network."
)


def matches(text: TraceText) -> bool:
    return {"Timestamp", "DL_bitrate"} <= set(header_of(text))


def parse(text: TraceText, column: str | None) -> Trace:
    """Of a repeated second the last line counts, and a missing rate leaves the one before in force."""
    table = read_table(text)
    stamp_index, rate_index = table.index("Timestamp"), table.index("DL_bitrate")
    times_s, rates_mbps, lines = [], [], []
    for line, fields in table.rows:
        if fields[rate_index].strip() in _MISSING:
            continue
        try:
            stamp = datetime.strptime(fields[stamp_index].strip(), "%Y.%m.%d_%H.%M.%S")
        except ValueError as error:
            raise text.error(line, f"{fields[stamp_index][:40]!r} is not a time like 2020.01.31_23.59.59.") from error
        times_s.append((stamp - datetime(1970, 1, 1)).total_seconds())
        rates_mbps.append(table.number(line, fields, "DL_bitrate") / 1000)
        lines.append(line)
    start_s = times_s[0] if times_s else 0.0
    missing = len(table.rows) - len(lines)
    return trace_from_samples(
        text,
        [time_s - start_s for time_s in times_s],
        rates_mbps,
        lines,
        format=TITLE,
        unit="kbit/s",
        notes=(_RESTARTS_NOTE, *([f"Lines without a rate: {missing}; the rate before them holds."] if missing else [])),
    )
