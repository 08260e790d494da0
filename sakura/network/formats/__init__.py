"""Readers of trace files, one module a format: a new format is a module and its name in ``_registry``."""

from sakura.network.formats._registry import FORMATS, TraceFormat, load_trace
from sakura.network.formats._text import MAX_FILE_BYTES, MAX_ROWS, ColumnNeededError

__all__ = ["FORMATS", "MAX_FILE_BYTES", "MAX_ROWS", "ColumnNeededError", "TraceFormat", "load_trace"]
