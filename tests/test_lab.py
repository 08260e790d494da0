"""The lab on the tiny model: what a setting costs, what charts hold, who waits for whom, and what is refused."""

import csv
import io
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakura.cache.store import CacheStore
from sakura.errors import UserError
from sakura.lab import service
from sakura.lab.bench import Bench, Tried
from sakura.lab.importance import importance_facts
from sakura.lab.points import (
    Measurement,
    Point,
    Stored,
    best_at_each_size,
    chart_csv,
    chart_points,
    fewer_bytes,
    quality_at,
    size_at,
)
from sakura.lab.service import Lab
from sakura.lab.settings import MAX_BITS, MAX_Q, RANKS, Setting, checked_request, checked_setting
from sakura.templates import TemplateAssets, TemplateLibrary, save_template

T = TypeVar("T")
DEADLINE_S = 60.0
FACE, HAT = "tiny-face", "tiny-hat"
FINE = Setting(rank=RANKS[-1], left_bits=MAX_BITS, right_bits=MAX_BITS)
COARSE = Setting(rank=RANKS[0], left_bits=2, right_bits=1)


def awaited(ask: Callable[[], T | None]) -> T:
    """Ask as a page does, until the answer is there."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        answer = ask()
        if answer is not None:
            return answer
    raise AssertionError("the lab did not answer")


def all_charts(lab: Lab, page: str, template_id: str) -> Measurement:
    known = -1
    while True:
        measurement = awaited(lambda known=known: lab.charts(page, template_id, known, 1))  # type: ignore[misc]
        if measurement.complete:
            return measurement
        known = measurement.measured


@pytest.fixture(scope="module")
def bench(tiny_store: CacheStore) -> Bench:
    return Bench(tiny_store)


@pytest.fixture
def lab(tiny_templates: TemplateLibrary, bench: Bench, tmp_path: Path) -> Iterator[Lab]:
    with Lab(tiny_templates, open_bench=lambda: bench, folder=tmp_path) as lab:
        yield lab


def tried(lab: Lab, setting: Setting, request: int = 0, page: str = "a") -> Tried:
    return awaited(lambda: lab.try_setting(page, FACE, setting, request, 1))


def test_a_finer_setting_costs_more_and_is_better(lab: Lab) -> None:
    coarse, fine = tried(lab, COARSE), tried(lab, FINE)
    assert coarse.received_bytes < fine.received_bytes
    assert coarse.distortion > fine.distortion >= 0
    assert coarse.edit is not None
    assert fine.edit is not None
    assert coarse.edit.scores.mask_psnr_db < fine.edit.scores.mask_psnr_db
    for one in (coarse, fine):
        parts = one.parts
        total = parts.basis_bytes + parts.coefficients_bytes + parts.means_bytes + parts.index_bytes
        assert total == one.received_bytes
        assert one.edit is not None
        assert one.edit.picture.shape == one.edit.full.shape == (32, 32, 3)
        assert one.edit.difference.shape == (32, 32)


def test_every_request_is_edited_anew_and_the_charts_quality_stays(lab: Lab) -> None:
    first, later = tried(lab, COARSE, 0).edit, tried(lab, COARSE, 5).edit
    assert first is not None
    assert later is not None
    assert not np.array_equal(first.full, later.full)
    assert first.chart_db == later.chart_db


def test_importance_says_how_uneven_and_how_stable(lab: Lab) -> None:
    facts = awaited(lambda: lab.importance("a", FACE, 1))
    steps, blocks = facts.maps.shape[:2]
    assert facts.curves.shape[:2] == facts.top.shape == facts.correlation.shape == (steps, blocks)
    assert (np.diff(facts.curves, axis=-1) >= -1e-9).all()
    assert np.allclose(facts.curves[..., -1], 1)
    assert (facts.top >= 0.1 - 1e-9).all()
    assert (facts.correlation <= 1 + 1e-9).all()
    assert np.isnan(facts.maps).any()


def test_equal_importance_is_a_straight_line() -> None:
    mask = np.zeros((16, 16), bool)
    mask[:8, :8] = True
    facts = importance_facts(np.ones((2, 1, 1, 7), np.float32), mask, 8)  # three noisy tokens, four clean ones
    np.testing.assert_allclose(facts.top, 0.1)
    np.testing.assert_array_equal(np.isnan(facts.maps[0, 0]), [[True, False], [False, False]])
    assert facts.maps[0, 0, 1, 1] == 2


def test_charts_fill_point_by_point_and_are_kept(
    lab: Lab, tiny_templates: TemplateLibrary, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sakura.lab.bench.PAIRS", ((4, 4),))
    monkeypatch.setattr("sakura.lab.bench.EXPONENTS", (0.0, 0.75, 1.5))
    first = awaited(lambda: lab.charts("a", HAT, -1, 1))
    assert first.measured < len(first.points)
    assert all(point.received_bytes > 0 for point in first.points)
    done = all_charts(lab, "a", HAT)
    assert {point.codec for point in chart_points(done, "codecs")} == {"sakura", "intq", "cachegen"}
    assert {point.kind for point in chart_points(done, "precision")} == {"rung", "pair"}
    assert {point.q for point in chart_points(done, "exponent")} == {0.0, 0.75, 1.5}
    assert [stored.codec for stored in done.stored] == ["sakura", "intq", "cachegen", "uncompressed"]
    # Another start reads what is kept, and measures nothing.
    with Lab(tiny_templates, open_bench=lambda: bench, folder=tmp_path) as again:
        assert awaited(lambda: again.charts("b", HAT, -1, 1)) == done


def test_a_damaged_file_is_measured_anew(tiny_templates: TemplateLibrary, bench: Bench, tmp_path: Path) -> None:
    with Lab(tiny_templates, open_bench=lambda: bench, folder=tmp_path) as lab:
        awaited(lambda: lab.charts("a", FACE, -1, 1))
    (kept,) = tmp_path.glob("tiny-face-*.json")
    kept.write_bytes(b'{"points": 3')
    with Lab(tiny_templates, open_bench=lambda: bench, folder=tmp_path) as again:
        assert awaited(lambda: again.charts("b", FACE, -1, 1)).points


def test_a_newer_setting_takes_the_place_of_one_not_begun(
    tiny_templates: TemplateLibrary, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = threading.Event()
    busy.set()
    worked: list[Setting] = []
    really = bench.try_setting

    def try_setting(template: TemplateAssets, setting: Setting, request: int) -> Tried:
        worked.append(setting)
        return really(template, setting, request)

    monkeypatch.setattr(bench, "try_setting", try_setting)
    with Lab(tiny_templates, busy.is_set, open_bench=lambda: bench, folder=tmp_path) as lab:
        assert lab.try_setting("a", FACE, COARSE, 0, 0.01) is None
        assert lab.try_setting("a", FACE, FINE, 0, 0.01) is None
        assert lab.try_setting("b", FACE, Setting(), 0, 0.01) is None
        busy.clear()
        awaited(lambda: lab.try_setting("b", FACE, Setting(), 0, 1))
        awaited(lambda: lab.try_setting("a", FACE, FINE, 0, 1))
    assert worked == [FINE, Setting()]


def test_work_gives_way_to_an_edit_for_a_bounded_time(
    tiny_templates: TemplateLibrary, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Lab(tiny_templates, lambda: True, open_bench=lambda: bench, folder=tmp_path) as lab:
        assert lab.try_setting("a", FACE, COARSE, 0, 0.3) is None
        assert lab.status == "A device is at work for an edit; the lab goes on after it."
        monkeypatch.setattr(service, "MAX_BUSY_WAIT_S", 0.0)
        awaited(lambda: lab.try_setting("a", FACE, COARSE, 0, 1))


def test_what_nobody_asks_for_any_more_is_not_worked_on(
    tiny_templates: TemplateLibrary, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "WANTED_S", 0.0)
    with Lab(tiny_templates, open_bench=lambda: bench, folder=tmp_path) as lab:
        assert lab.try_setting("a", FACE, COARSE, 0, 0.2) is None


def test_too_many_pages_are_told(
    tiny_templates: TemplateLibrary, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_WISHES", 1)
    with Lab(tiny_templates, lambda: True, open_bench=lambda: bench, folder=tmp_path) as lab:
        assert lab.importance("a", FACE, 0.0) is None
        with pytest.raises(UserError, match="Too many pages"):
            lab.importance("b", FACE, 0.0)


def test_a_template_that_is_gone_is_told(lab: Lab) -> None:
    for ask in (lab.importance, lambda page, name, wait: lab.charts(page, name, -1, wait)):
        with pytest.raises(UserError, match="This template is not there any more"):
            ask("a", "../tiny-face", 0.0)


def test_a_template_without_factors_has_bytes_but_no_edits(
    bench: Bench, tiny_templates: TemplateLibrary, tmp_path: Path
) -> None:
    own = tiny_templates.get(FACE)
    object.__setattr__(own, "person", None)
    save_template(own, tmp_path / "own-face")
    with Lab(TemplateLibrary(tmp_path), open_bench=lambda: bench, folder=tmp_path / "lab") as lab:
        found = awaited(lambda: lab.try_setting("a", "own-face", COARSE, 0, 1))
        assert found.received_bytes > 0
        assert found.edit is None
        with pytest.raises(UserError, match="only drawn templates"):
            lab.charts("a", "own-face", -1, 0.0)


def test_a_failure_is_a_sentence_and_the_lab_goes_on(lab: Lab, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Tried:
        raise RuntimeError("no")

    with monkeypatch.context() as patch:
        patch.setattr(bench, "try_setting", fail)
        with pytest.raises(UserError, match="The lab failed at this"):
            tried(lab, COARSE)
    assert tried(lab, COARSE).received_bytes > 0


@given(st.floats(0, MAX_Q), st.sampled_from(RANKS), st.integers(1, MAX_BITS), st.integers(1, MAX_BITS))
def test_possible_settings_are_taken(q: float, rank: int, left_bits: int, right_bits: int) -> None:
    setting = checked_setting(q, str(rank), left_bits, float(right_bits))
    assert abs(setting.q - q) <= 0.025 + 1e-9
    assert (setting.rank, setting.left_bits, setting.right_bits) == (rank, left_bits, right_bits)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ((1.6, 32, 6, 6), "importance exponent must be from 0 to 1.5"),
        (("nan", 32, 6, 6), "importance exponent must be from 0 to 1.5"),
        ((None, 32, 6, 6), "importance exponent must be from 0 to 1.5"),
        ((1, 33, 6, 6), "rank must be one of 4, 8"),
        ((1, [32], 6, 6), "rank must be from 4 to 96"),
        ((1, 32, 0, 6), "bits of the left factor must be from 1 to 12"),
        ((1, 32, 6, "1e9"), "bits of the right factor must be from 1 to 12"),
        ((1, 32, 6, 2.5), "Numbers of bits are whole"),
    ],
)
def test_impossible_settings_are_refused(values: tuple[object, ...], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        checked_setting(*values)


def test_impossible_requests_are_refused() -> None:
    assert checked_request("7") == 7
    with pytest.raises(UserError, match="number of the request"):
        checked_request(-1)


def points_of(*curve: tuple[int, float], codec: str = "sakura") -> list[Point]:
    return [Point(codec, "rung", size, level, psnr_db=db, ssim=1.0) for level, (size, db) in enumerate(curve)]  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.integers(1, 10**7), st.floats(0, 100)), max_size=30))
def test_nothing_is_better_than_the_best_at_its_size(curve: list[tuple[int, float]]) -> None:
    best = best_at_each_size(points_of(*curve))
    for (size, db), (larger, better) in itertools.pairwise(best):
        assert size < larger
        assert db < better
    for size, db in curve:
        assert any(kept <= size and good >= db for kept, good in best)


def test_curves_are_read_between_their_points() -> None:
    curve = [(100.0, 20.0), (10_000.0, 40.0)]
    assert quality_at(curve, 1000) == pytest.approx(30)
    assert size_at(curve, 30) == pytest.approx(1000)
    assert quality_at(curve, 99) is None
    assert size_at(curve, 41) is None
    assert size_at(curve, 10) == 100


def test_fewer_bytes_compares_with_the_best_other_codec() -> None:
    sakura = points_of((1000, 30), (4000, 40))
    assert fewer_bytes(sakura) is None
    intq = points_of((30_000, 36), (60_000, 50), codec="intq")
    found = fewer_bytes(sakura + intq + points_of((10_000, 30), (40_000, 40), codec="cachegen"))
    assert found is not None
    assert found.other == "cachegen"
    assert found.ratio == pytest.approx(10)


def test_tables_hold_what_charts_show() -> None:
    unmeasured = Point("sakura", "rung", 5)
    measurement = Measurement(100, [*points_of((3, 30.0)), unmeasured], [Stored("sakura", [9])])
    rows = list(csv.DictReader(io.StringIO(chart_csv(measurement, "codecs"))))
    assert [(row["received_bytes"], row["psnr_db"]) for row in rows] == [("3", "30.0"), ("5", "")]
    assert list(csv.reader(io.StringIO(chart_csv(measurement, "storage"))))[1] == ["sakura", "0", "9"]
