"""PROTOCOL.md says what protocol.py does: every kind, field, default and limit, and nothing else."""

import re
import types
from pathlib import Path
from typing import Annotated, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from device_bridge import hub, pairing, protocol
from device_bridge.agent import ESSENTIAL, FIRST_PAUSE_S, MAX_PAUSE_S
from sakura import events
from sakura.codec.interface import CacheGeometry

DOCUMENT = Path(protocol.__file__).with_name("PROTOCOL.md").read_text()
PROSE = " ".join(DOCUMENT.split())
FIELD = re.compile(r"(?:^|; )`(\w+)` ([^;]*)")

TO_DEVICE, FROM_DEVICE = get_args(protocol.ToDevice), get_args(protocol.FromDevice)
EVENTS = get_args(events.AnyEvent)
MAPS = (protocol.EngineReport, protocol.Placement, CacheGeometry, events.QualityScores)


def rows(header: str) -> dict[str, list[str]]:
    """Cells by the first one, of the table with this header."""
    body = DOCUMENT.split(f"{header}\n")[1].split("\n\n")[0].splitlines()[1:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in body]
    assert all(len(row) == len(cells[0]) for row in cells)
    found = {row[0].strip("`"): row[1:] for row in cells}
    assert len(found) == len(cells)
    return found


def written(cell: str) -> dict[str, str]:
    """What is said of each field."""
    found = FIELD.findall(cell)
    assert len({name for name, _ in found}) == len(found)
    return dict(found)


def constraints(kind: object) -> tuple[object, list[msgspec.Meta]]:
    """A type without what narrows it, and that."""
    metas: list[msgspec.Meta] = []
    while get_origin(kind) is Annotated:
        kind, *more = get_args(kind)
        metas.extend(more)
    if get_origin(kind) in (Union, types.UnionType):
        inner = [each for each in get_args(kind) if each is not type(None)]
        if len(inner) == 1:
            plain, more_metas = constraints(inner[0])
            return plain, metas + more_metas
    return kind, metas


def type_words(kind: object) -> set[str]:
    """How a type may begin in the document."""
    if kind in (str,) or get_origin(kind) is Literal:
        return {"text", "one of"}
    if get_origin(kind) is list:
        return {"list"}
    named: dict[object, set[str]] = {int: {"int"}, float: {"float", "s"}, bool: {"bool"}, bytes: {"bytes"}}
    return named.get(kind) or {f"map {kind.__name__}"}  # type: ignore[attr-defined]


def check_fields(struct: type[msgspec.Struct], cell: str, skip: tuple[str, ...] = ()) -> None:
    said = written(cell)
    fields = {field.name: field for field in msgspec.structs.fields(struct) if field.name not in skip}
    assert set(said) == set(fields), struct.__name__
    hints = get_type_hints(struct, include_extras=True)
    for name, field in fields.items():
        text, where = said[name], f"{struct.__name__}.{name}"
        kind, metas = constraints(hints[name])
        assert any(re.match(rf"{word}\b", text) for word in type_words(kind)), where
        assert ("or nil" in text) == (type(None) in get_args(hints[name])), where
        assert (" = " in text) == (not field.required), where
        if not field.required:
            listed = field.default_factory is not msgspec.NODEFAULT
            default = msgspec.json.encode([] if listed else field.default).decode()
            wanted = default.replace("null", "nil").removesuffix(".0")
            assert re.search(rf" = {re.escape(wanted)}(\W|$)", text), where
        if name.endswith("_s") and kind is float:
            assert re.match(r"s\b", text), f"{where} is in seconds"
        for meta in metas:
            if meta.max_length is not None:
                wanted = f"text({meta.max_length})" if kind is str else f"0–{meta.max_length}"
                assert wanted in text, where
            if meta.ge is not None and meta.le is not None and "of the probe" not in text and "given back" not in text:
                low, high = f"{meta.ge:g}".replace("-", "−"), f"{meta.le:g}".replace("e+", "e").replace("e0", "e")
                assert f"{low}–{high}" in text or f"±{high}" in text, where


@pytest.mark.parametrize("struct", TO_DEVICE + FROM_DEVICE, ids=lambda struct: struct.__struct_config__.tag)
def test_message_is_written_down(struct: type[msgspec.Struct]) -> None:
    sender, cell = rows("| Kind | From | Fields |")[str(struct.__struct_config__.tag)]
    assert sender == ("hub" if struct in TO_DEVICE else "device")
    check_fields(struct, cell)


@pytest.mark.parametrize("struct", MAPS, ids=lambda struct: struct.__name__)
def test_map_is_written_down(struct: type[msgspec.Struct]) -> None:
    check_fields(struct, rows("| Map | Fields |")[struct.__name__][0])


@pytest.mark.parametrize("struct", EVENTS, ids=lambda struct: struct.__struct_config__.tag)
def test_event_is_written_down(struct: type[msgspec.Struct]) -> None:
    check_fields(struct, rows("| Kind | Fields beside `at_s` |")[str(struct.__struct_config__.tag)][0], ("at_s",))


def test_nothing_else_is_written_down() -> None:
    def tags(structs: tuple[type[msgspec.Struct], ...]) -> set[str]:
        return {str(struct.__struct_config__.tag) for struct in structs}

    assert set(rows("| Kind | From | Fields |")) == tags(TO_DEVICE + FROM_DEVICE)
    assert set(rows("| Kind | Fields beside `at_s` |")) == tags(EVENTS)
    assert set(rows("| Map | Fields |")) == {struct.__name__ for struct in MAPS}
    assert len(re.findall(r"^\|---", DOCUMENT, re.MULTILINE)) == 3


def test_numbers_in_the_text_are_those_of_the_code() -> None:
    systems = ", ".join(f"`{system}`" for system in get_args(events.System))
    essential = [f"`{struct.__struct_config__.tag}`" for struct in ESSENTIAL]
    letters = set("ABCDEFGHIJKLMNOPQRSTUVWXYZ23456789") - set(pairing.ALPHABET)
    left_out = ", ".join(f"`{letter}`" for letter in sorted(letters))
    for sentence in (
        f"# Bridge protocol, version {protocol.VERSION} ",
        f"sends `device_hello` within {hub.HELLO_TIMEOUT_S:g} s",
        f"a code of {pairing.CODE_LENGTH} characters (`A–Z2–9` without {left_out})",
        f"works once and for {pairing.CODE_LIFETIME_S:g} s",
        f"After {pairing.MAX_WRONG_CODES} wrong codes within {pairing.WRONG_CODES_WINDOW_S:g} s",
        f"pings every {protocol.PING_INTERVAL_S:g} s",
        f"not answered after {protocol.PING_TIMEOUT_S:g} s is gone, at most {protocol.CLOSE_TIMEOUT_S:g} s later",
        f"grow from {FIRST_PAUSE_S:g} s to {MAX_PAUSE_S:g} s",
        f"other than {', '.join(essential[:-1])} and {essential[-1]}",
        f"A frame is at most {protocol.MAX_MESSAGE_BYTES // 2**20} MiB",
        f"at most {hub.MAX_DEVICES} devices and {hub.MAX_STRANGERS} connections without hello",
        f"`system` is one of {systems}.",
    ):
        assert sentence in PROSE
