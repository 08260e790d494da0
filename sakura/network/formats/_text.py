"""What every reader of trace files needs: the text as numbered lines, its fields as numbers, samples as a trace."""

import codecs
import csv
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sakura.errors import UserError
from sakura.network.trace import Trace, checked_trace

MAX_FILE_BYTES = 20_000_000
MAX_ROWS = 1_000_000
MAX_LINE_CHARACTERS = 10_000

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE)
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+", re.ASCII)
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+", re.ASCII)
_EPOCH_MILLISECONDS_FROM = 1e11
"""As seconds this lies beyond the year 5000, as milliseconds in 1973."""

_TIMES_BELOW = 1e14

_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
"""Compressed files by their first bytes."""


class Line(NamedTuple):
    """A line that is neither empty nor a comment, without white space around it; ``number`` counts from 1."""

    number: int
    text: str


@dataclass(frozen=True)
class TraceText:
    """The content of a trace file; ``lines`` has at least one."""

    name: str
    lines: tuple[Line, ...]

    def error(self, line: Line, trouble: str) -> UserError:
        return UserError(f"{self.name}, line {line.number}: {trouble}")


class ColumnNeededError(UserError):
    """The file has several rates and the person has to choose one of ``choices``."""

    def __init__(self, name: str, choices: Sequence[str], wanted: str | None) -> None:
        self.choices = tuple(choices)
        listed = ", ".join(choices[:12]) + (f" and {len(choices) - 12} more" if len(choices) > 12 else "")
        trouble = "has several rates" if wanted is None else f"has no column {wanted!r}"
        super().__init__(f"{name} {trouble}: choose one of {listed}.")


def _read_bytes(path: Path, name: str) -> bytes:
    """At most one byte more than is allowed. Raises ``UserError`` for what is no file, or cannot be read."""
    try:
        # Opening a pipe would wait for somebody who writes into it.
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UserError(f"{name} is a folder: choose a trace file in it.")
        if not stat.S_ISREG(mode):
            raise UserError(f"{name} is a pipe or a device: save its content as a file and choose that.")
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise UserError(f"There is no file {name}: check the path.") from error
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{name} cannot be read ({reason}): check the path.") from error


def read_text(source: Path | str | bytes, name: str) -> TraceText:
    """The lines of a file (a path or its bytes), or a ``UserError``: missing, too large, empty, compressed, no text."""
    data = source if isinstance(source, bytes) else _read_bytes(Path(source), name)
    if len(data) > MAX_FILE_BYTES:
        raise UserError(f"{name} is larger than {MAX_FILE_BYTES // 10**6} MB: cut it to the part that you need.")
    packed = next((kind for start, kind in _COMPRESSED.items() if data.startswith(start)), None)
    if packed:
        raise UserError(f"{name} is compressed ({packed}): unpack it and choose the trace file inside.")
    # PowerShell and old editors write UTF-16; its byte-order mark tells.
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UserError(f"{name} is not a text file: choose a trace file, or save it as UTF-8 text.")
    rows = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")
    if len(rows) > MAX_ROWS:
        raise UserError(f"{name} has more than {MAX_ROWS:,} lines: cut it to the part that you need.")
    for number, row in enumerate(rows, 1):
        if len(row) > MAX_LINE_CHARACTERS:
            raise UserError(
                f"{name}, line {number} has more than {MAX_LINE_CHARACTERS:,} characters: put each time on a line."
            )
    numbered = enumerate(map(str.strip, rows), 1)
    lines = tuple(Line(number, row) for number, row in numbered if row and not row.startswith("#"))
    if not lines:
        raise UserError(f"{name} is empty: choose a file that holds a trace.")
    return TraceText(name, lines)


def sets_off_thousands(field: str) -> bool:
    return bool(_THOUSANDS.fullmatch(field))


def is_number(field: str) -> bool:
    return bool(_NUMBER.fullmatch(field) or _DECIMAL_COMMA.fullmatch(field) or _THOUSANDS.fullmatch(field))


def to_number(text: TraceText, line: Line, field: str, *, decimal_comma: bool = False) -> float:
    """``field`` of ``line`` as a number; thousands may be set off by commas unless the comma is the decimal one."""
    field = field.strip()
    if decimal_comma:
        plain = field.replace(",", ".", 1) if "." not in field else field
    else:
        plain = field.replace(",", "") if sets_off_thousands(field) else field
    if not _NUMBER.fullmatch(plain):
        raise text.error(line, f"{field[:40]!r} is not a number; correct or remove the line.")
    return float(plain)


def split_fields(line: Line, delimiter: str) -> list[str]:
    """Fields of a delimited line; quotes may protect the delimiter."""
    if '"' not in line.text:
        return line.text.split(delimiter)
    try:
        return next(csv.reader([line.text], delimiter=delimiter))
    except csv.Error:
        return []


@dataclass(frozen=True)
class Table:
    """A delimited file with a header, as columns of fields."""

    text: TraceText
    header: tuple[str, ...]
    decimal_comma: bool
    rows: tuple[tuple[Line, list[str]], ...]

    def index(self, column: str) -> int:
        return self.header.index(column)

    def number(self, line: Line, fields: list[str], column: str) -> float:
        return to_number(self.text, line, fields[self.index(column)], decimal_comma=self.decimal_comma)


def header_of(text: TraceText) -> tuple[str, ...]:
    """Column names in the first line, if that were a header."""
    line = text.lines[0]
    return tuple(field.strip() for field in split_fields(line, delimiter_of(line)))


def delimiter_of(line: Line) -> str:
    return next((mark for mark in ";\t," if mark in line.text), ",")


def read_table(text: TraceText) -> Table:
    """The file as a table; a semicolon as delimiter lets the comma be the decimal one, as in a European spreadsheet."""
    header, delimiter = header_of(text), delimiter_of(text.lines[0])
    rows = []
    for line in text.lines[1:]:
        fields = split_fields(line, delimiter)
        if len(fields) != len(header):
            raise text.error(line, f"{len(fields)} fields where the header names {len(header)}; correct the line.")
        rows.append((line, fields))
    return Table(text, header, delimiter == ";", tuple(rows))


def trace_from_samples(
    text: TraceText,
    times_s: Sequence[float],
    rates_mbps: Sequence[float],
    lines: Sequence[Line],
    *,
    format: str,
    unit: str,
    notes: tuple[str, ...] = (),
) -> Trace:
    """A trace of rates with the times of their lines; steps may be irregular.

    A rate holds until the next time, the last one for the usual (median) step. Where the first time is about one step
    after 0, each rate holds instead since the time before. Of several rates at the same time the last one is kept.
    Any other first time is moved to 0. Raises ``UserError`` where the time is not plausible or goes back.
    """
    if not times_s:
        raise UserError(f"{text.name} holds no rates: add at least one line with a time and a rate.")
    times = np.array(times_s, dtype=np.float64)
    if (bad := np.flatnonzero(~(np.abs(times) < _TIMES_BELOW))).size:
        raise text.error(lines[int(bad[0])], f"the time {times[bad[0]]:g} is not plausible; correct the line.")
    found = list(notes)
    if times[0] > _EPOCH_MILLISECONDS_FROM:
        times /= 1000
        found.append("Times are read as milliseconds.")
    if (back := np.flatnonzero(np.diff(times) < 0)).size:
        at = int(back[0]) + 1
        raise text.error(
            lines[at], f"the time goes back from {times[at - 1]:g} s to {times[at]:g} s; sort or remove the line."
        )
    kept = np.append(np.diff(times) > 0, True)
    if not kept.all():
        dropped = np.count_nonzero(~kept)
        found.append(f"Times that are given more than once: of these the last line counts, {dropped} are left out.")
    times, rates = times[kept], np.array(rates_mbps, dtype=np.float64)[kept]
    numbers = [line.number for line, keep in zip(lines, kept, strict=True) if keep]
    step_s = float(np.median(np.diff(times))) if len(times) > 1 else 1.0
    if 0 < times[0] <= 2 * step_s:
        edges = np.append(0.0, times)
    else:
        edges = np.append(times, times[-1] + step_s)
        if times[0] != 0:
            found.append(f"Times begin at {times[0]:.10g} s; they are moved to begin at 0.")
    longest_s = float(np.diff(edges).max())
    if longest_s > 5 * step_s:
        found.append(f"The longest gap between lines is {longest_s:g} s; a rate holds through a gap.")
    return checked_trace(text.name, edges, rates, notes=tuple(found), format=format, unit=unit, lines=numbers)
