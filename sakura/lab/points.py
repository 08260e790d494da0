"""What the lab measures for its charts: points of size and quality, kept as JSON, and what can be read off them."""

import csv
import io
import itertools
import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

CodecName: TypeAlias = Literal["sakura", "intq", "cachegen"]
Kind: TypeAlias = Literal["rung", "pair", "exponent"]
Chart: TypeAlias = Literal["precision", "codecs", "exponent", "storage"]
CODEC_NAMES: tuple[CodecName, ...] = ("sakura", "intq", "cachegen")
EQUAL_PSNR_DB = 35.0  # where codecs are compared, or at the most that all of them reach


class Point(msgspec.Struct, frozen=True):
    """One way to send a template's cache, and how good edits with it are.

    A ``rung`` is level ``level`` of every ladder of a codec; a ``pair`` sends every shard in one representation; an
    ``exponent`` spends ``budget_bytes`` on a cache encoded with ``q``. ``received_bytes`` counts the index too.
    ``psnr_db`` and ``ssim`` are means over held-out requests, in the edited region, against the full cache; None until
    they are measured.
    """

    codec: CodecName
    kind: Kind
    received_bytes: int
    level: int = 0
    q: float = 0.0
    rank: int = 0
    left_bits: int = 0
    right_bits: int = 0
    budget_bytes: int = 0
    psnr_db: float | None = None
    ssim: float | None = None


class Stored(msgspec.Struct, frozen=True):
    """What is kept of a template with one codec: bytes of the whole object, one part a level where levels are apart."""

    codec: str
    parts_bytes: list[int]


class Measurement(msgspec.Struct, frozen=True):
    """Everything that the charts of one template show. ``points`` are planned at once and measured one by one."""

    full_cache_bytes: int
    points: list[Point]
    stored: list[Stored]

    @property
    def measured(self) -> int:
        return sum(point.psnr_db is not None for point in self.points)

    @property
    def complete(self) -> bool:
        return self.measured == len(self.points)


class FewerBytes(msgspec.Struct, frozen=True):
    """At the same quality, how many times fewer bytes SAKURA takes than the best other codec."""

    psnr_db: float
    sakura_bytes: float
    other: CodecName
    other_bytes: float

    @property
    def ratio(self) -> float:
        return self.other_bytes / self.sakura_bytes


def measured_curve(points: Sequence[Point]) -> list[tuple[int, float]]:
    """(bytes, dB) of those that are measured, by size."""
    return sorted((point.received_bytes, point.psnr_db) for point in points if point.psnr_db is not None)


def best_at_each_size(points: Sequence[Point]) -> list[tuple[int, float]]:
    """Of the measured points, those that are better than every one that is not larger: sizes and dB grow."""
    best: list[tuple[int, float]] = []
    for size, quality in measured_curve(points):
        if best and quality <= best[-1][1]:
            continue
        if best and best[-1][0] == size:
            best.pop()  # of the same size, the better one comes later
        best.append((size, quality))
    return best


def quality_at(curve: Sequence[tuple[float, float]], size_bytes: float) -> float | None:
    """The dB of a curve at a size, between its points over the logarithm of the size; None outside of it."""
    for (left, low), (right, high) in itertools.pairwise(curve):
        if left <= size_bytes <= right:
            return low + (high - low) * math.log(size_bytes / left) / math.log(right / left)
    return None


def size_at(curve: Sequence[tuple[float, float]], psnr_db: float) -> float | None:
    """The fewest bytes at which a curve reaches a quality, between its points; None where it does not."""
    if curve and curve[0][1] >= psnr_db:
        return curve[0][0]
    for (left, low), (right, high) in itertools.pairwise(curve):
        if low < psnr_db <= high:
            return left * (right / left) ** ((psnr_db - low) / (high - low))
    return None


def fewer_bytes(points: Sequence[Point]) -> FewerBytes | None:
    """How SAKURA's ladder compares with the others at one quality; None until it and another one are measured."""
    curves: dict[CodecName, list[tuple[int, float]]] = {}
    for name in CODEC_NAMES:
        curve = measured_curve([point for point in points if point.kind == "rung" and point.codec == name])
        if len(curve) >= 2:
            curves[name] = curve
    if "sakura" not in curves or len(curves) == 1:
        return None
    psnr_db = min(EQUAL_PSNR_DB, *(max(db for _, db in curve) for curve in curves.values()))
    sizes = {name: size_at(curve, psnr_db) for name, curve in curves.items()}
    sakura_bytes = sizes.pop("sakura")
    others = [(size, name) for name, size in sizes.items() if size is not None]
    if sakura_bytes is None or not others:
        return None
    other_bytes, other = min(others)
    return FewerBytes(psnr_db, sakura_bytes, other, other_bytes)


def chart_points(measurement: Measurement, chart: Chart) -> list[Point]:
    """The points that a chart shows."""
    wanted: dict[Chart, tuple[tuple[CodecName, ...], tuple[Kind, ...]]] = {
        "precision": (("sakura",), ("rung", "pair")),
        "codecs": (CODEC_NAMES, ("rung",)),
        "exponent": (("sakura",), ("exponent",)),
        "storage": ((), ()),
    }
    codecs, kinds = wanted[chart]
    return [point for point in measurement.points if point.codec in codecs and point.kind in kinds]


def chart_csv(measurement: Measurement, chart: Chart) -> str:
    """The data of a chart as a table; cells that are not measured yet are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if chart == "storage":
        writer.writerow(["codec", "part", "stored_bytes"])
        for stored in measurement.stored:
            writer.writerows([stored.codec, part, size] for part, size in enumerate(stored.parts_bytes))
        return text.getvalue()
    writer.writerow(Point.__struct_fields__)
    for point in chart_points(measurement, chart):
        writer.writerow(["" if value is None else value for value in msgspec.structs.astuple(point)])
    return text.getvalue()
