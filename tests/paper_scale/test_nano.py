"""What was measured on nano: of the shipped model, and curves that behave."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sakura.paper_scale.nano as nano
from sakura.backbone.editor import Editor
from sakura.errors import UserError
from sakura.paper_scale.models import MASK_SHARES
from sakura.paper_scale.nano import COMMAND, CurvePoint, NanoSystem, nano_measured, smoothed
from sakura.systems import STREAMED

CURVED = [
    (template, system)
    for template in nano_measured().templates
    for system in STREAMED
    if template.systems[system].curve
]


def test_it_is_of_the_shipped_model(editor: Editor) -> None:
    assert nano_measured().model == editor.fingerprint, f"the model has changed; run `{COMMAND}`"


def test_every_workload_has_all_systems_that_stream() -> None:
    for workload in MASK_SHARES:
        first, second = (nano_measured().template(workload, request) for request in (0, 1))
        assert first.template_id != second.template_id
        assert nano_measured().template(workload, 2) is first
        assert set(first.systems) == set(STREAMED)
    with pytest.raises(UserError, match="Nothing is measured for workload 'XX'; run `python -m"):
        nano_measured().template("XX", 0)


@given(curved=st.sampled_from(CURVED), low=st.floats(1e-6, 1), factor=st.floats(1.01, 10))
def test_losing_more_is_never_better(curved: tuple[nano.NanoTemplate, str], low: float, factor: float) -> None:
    system = curved[0].systems[curved[1]]  # type: ignore[index]
    fine, coarse = system.quality(low), system.quality(low * factor)
    assert fine.psnr_mask_db >= coarse.psnr_mask_db
    assert fine.ssim_mask >= coarse.ssim_mask
    assert 0 < fine.psnr_mask_db <= 100
    assert 0 < fine.ssim_mask <= 1


def test_a_curve_goes_through_its_points_and_on_below_them() -> None:
    system = NanoSystem("sakura", [], [], [], [CurvePoint(0.01, 40.0, 0.99), CurvePoint(0.1, 30.0, 0.9)])
    assert system.quality(0.01) == CurvePoint(0.01, 40.0, 0.99)
    assert system.quality(math.sqrt(0.001)).psnr_mask_db == pytest.approx(35)
    assert system.quality(0.001) == CurvePoint(0.001, pytest.approx(50), pytest.approx(0.999))  # type: ignore[arg-type]
    assert system.quality(0.5).psnr_mask_db == 30
    assert system.quality(0) == CurvePoint(0, 100, 1)


@given(st.lists(st.builds(CurvePoint, st.floats(1e-4, 1), st.floats(10, 60), st.floats(0, 1)), min_size=1, max_size=9))
def test_smoothed_curves_fall(points: list[CurvePoint]) -> None:
    curve = smoothed(points)
    assert [point.distortion for point in curve] == sorted({point.distortion for point in points})
    for value in ("psnr_mask_db", "ssim_mask"):
        values = [getattr(point, value) for point in curve]
        assert values == sorted(values, reverse=True)
        assert set(values) <= {getattr(point, value) for point in points}


def test_a_missing_file_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nano, "NANO_FILE", tmp_path / "nano.json")
    with pytest.raises(UserError, match=f"nano.json cannot be read .*; run `{COMMAND}`"):
        nano.nano_measured.__wrapped__()
