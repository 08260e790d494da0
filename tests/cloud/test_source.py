"""Segments on their way in: each is handed out once, as soon as all of it is there and its checksum is right."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakura.cloud.source import Arrival, ShardDamagedError


@st.composite
def transfers(draw: st.DrawFn) -> tuple[dict[int, bytes], set[int], list[int]]:
    """Segments by id, those that are damaged on the way, and where the bytes are cut into messages."""
    ids = draw(st.lists(st.integers(0, 99), min_size=1, max_size=6, unique=True))
    segments = {segment: draw(st.binary(max_size=20)) for segment in ids}
    damaged = {segment for segment in ids if segments[segment] and draw(st.booleans())}
    total = sum(map(len, segments.values()))
    return segments, damaged, sorted(draw(st.lists(st.integers(0, total), max_size=8)))


@given(transfers())
def test_whole_segments_are_handed_out_once_and_in_order(
    transfer: tuple[dict[int, bytes], set[int], list[int]],
) -> None:
    segments, damaged, cuts = transfer
    sizes = [len(data) for data in segments.values()]
    sent = b"".join(
        bytes([data[0] ^ 1]) + data[1:] if segment in damaged else data for segment, data in segments.items()
    )
    arrival = Arrival(3, list(segments), sizes, [zlib.crc32(data) for data in segments.values()], 5.0)
    taken: list[tuple[int, bytes]] = list(arrival.take().items())
    for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(sent)], strict=True)):
        arrival.add(sent[start:stop], 6.0 + number)
        taken += arrival.take().items()
        there = [*(segment for segment, _ in taken), *arrival.damaged]
        assert sum(len(segments[segment]) for segment in there) <= stop
        whole = sum(stop >= sum(sizes[: index + 1]) for index in range(len(sizes)))
        assert set(there) == set(list(segments)[:whole])
        assert arrival.complete == (stop == len(sent))
        assert (arrival.started_s, arrival.finished_s) == (5.0, 6.0 + number)
    assert taken == [(segment, data) for segment, data in segments.items() if segment not in damaged]
    assert arrival.damaged == [segment for segment in segments if segment in damaged]
    assert not arrival.take()


def test_more_than_announced_is_refused() -> None:
    arrival = Arrival(0, [1], [2], [zlib.crc32(b"ab")], 0.0)
    with pytest.raises(ShardDamagedError, match="more than it had announced"):
        arrival.add(b"abc", 1.0)
