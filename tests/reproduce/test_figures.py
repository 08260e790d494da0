"""Each figure on a tiny model: rows are a table, claims are judged by them, charts can be drawn."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from sakura.cache.store import CacheStore
from sakura.codec.sakura import SakuraCodec
from sakura.errors import UserError
from sakura.figures import FIGURES, figure_module, write_files
from sakura.reproduce import (
    ablation,
    fig2_importance,
    fig8_rank_precision,
    fig13_storage,
    fig15_bytes_quality,
    fig19_exponent,
)
from sakura.reproduce.figure import Claim, Figure, Scope, as_json, make_folder
from sakura.reproduce.quality import Stored
from sakura.reproduce.workloads import WORKLOADS, make_case, plan_cases
from sakura.systems import OPTIONS
from sakura.templates import TemplateLibrary

OF_CACHES = [name for name, kind in FIGURES.items() if not kind.streamed]
QUICK = Scope(quick=True)


@pytest.fixture(scope="module")
def figures(tiny_store: CacheStore, tiny_templates: TemplateLibrary) -> dict[str, Figure]:
    """All figures, measured once."""
    return {name: figure_module(name).run(tiny_store, tiny_templates, QUICK, lambda done: None) for name in OF_CACHES}


@pytest.mark.parametrize("name", OF_CACHES)
def test_rows_and_claims(figures: dict[str, Figure], name: str) -> None:
    figure = figures[name]
    assert figure.figure == name
    assert figure.rows and figure.claims
    for row in figure.rows:
        assert list(row) == list(figure.rows[0])
        assert all(value is None or isinstance(value, str) or math.isfinite(value) for value in row.values())  # type: ignore[arg-type]
    for claim in figure.claims:
        assert isinstance(claim.holds, bool) and claim.claim and claim.ours != ""
    saved = json.loads(as_json(figure, QUICK, "fingerprint"))
    assert list(saved) == ["figure", "rows", "claims", "scope"]
    assert saved["scope"] == {"quick": True, "scale": "nano", "model": "fingerpr", "requests": QUICK.requests}
    assert list(saved["claims"][0]) == ["claim", "paper", "ours", "holds"]
    assert len(figure_module(name).summary(figure))


@pytest.mark.parametrize("name", OF_CACHES)
def test_files(figures: dict[str, Figure], name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("figure")
    written = write_files(figures[name], folder)
    assert [path.name for path in written] == [f"{name}.svg", f"{name}.png", f"{name}.csv"]
    svg, png, table = written
    assert svg.read_text().startswith("<svg") and "NaN" not in svg.read_text()
    assert png.read_bytes().startswith(b"\x89PNG")
    assert len(table.read_text().splitlines()) == 1 + len(figures[name].rows)


def test_an_unknown_figure_is_said() -> None:
    with pytest.raises(UserError, match=r"There is no figure 'fig99'; use one of fig2, .*ablation\."):
        figure_module("fig99")


def test_importance_is_a_curve(figures: dict[str, Figure]) -> None:
    for row in figures["fig2"].rows:
        shares: list[Any] = [value for field, value in row.items() if field.startswith("share_of_top")]
        assert shares == sorted(shares)
        assert shares[-1] == pytest.approx(1)
        assert -1 <= row["correlation"] <= 1  # type: ignore[operator]


def test_equal_importance_is_not_uneven() -> None:
    import numpy as np

    curve = fig2_importance.curve(np.ones((3, 100), np.float32))
    assert curve["share_of_top_10_percent"] == pytest.approx(0.1)


def test_storage_is_that_of_the_container(
    figures: dict[str, Figure], tiny_store: CacheStore, tiny_templates: TemplateLibrary
) -> None:
    plan = plan_cases(tiny_templates, 1)[0]
    case = make_case(tiny_store, plan.template, 1, plan.workload)
    stored = Stored(tiny_store.editor, case, SakuraCodec())
    (row,) = [row for row in figures["fig13"].rows if (row["workload"], row["system"]) == (plan.workload, "sakura")]
    assert row["stored_bytes"] == stored.whole_bytes
    assert row["psnr_mask_db"] == pytest.approx(stored.finest().mask_psnr_db)


def test_every_system_is_there_in_each_workload(figures: dict[str, Figure]) -> None:
    for workload in WORKLOADS:
        systems = {row["system"] for row in figures["fig15"].rows if row["workload"] == workload}
        assert systems == set(OPTIONS)
        full = [row for row in figures["fig15"].rows if (row["workload"], row["system"]) == (workload, "uncompressed")]
        assert [row["psnr_mask_db"] for row in full] == [100.0]


def quality_row(system: str, option: str, size: float, db: float) -> dict[str, object]:
    return {
        "workload": "FS",
        "system": system,
        "option": option,
        "bytes": size,
        "full_cache_bytes": 1000.0,
        "psnr_mask_db": db,
    }


def test_a_baseline_is_compared_by_its_best_option() -> None:
    rows = [
        quality_row("intq", "a", 100, 20),
        quality_row("intq", "a", 40, 10),
        quality_row("intq", "b", 90, 25),
        quality_row("intq", "b", 50, 12),
    ]
    best = fig15_bytes_quality.best_at
    assert best(rows, "FS", "intq", 10)["psnr_mask_db"] == 25
    assert best(rows, "FS", "intq", 20)["psnr_mask_db"] == 12
    assert best(rows, "FS", "intq", 25)["psnr_mask_db"] == 10
    assert best(rows, "FS", "intq", 100)["psnr_mask_db"] == 12  # neither fits: the better of the two smallest


def test_winners_fit_the_bytes() -> None:
    rows: list[dict[str, object]] = [
        {"pair": "4+4", "rank": 8, "bytes": 10.0, "psnr_mask_db": 20.0},
        {"pair": "8+8", "rank": 8, "bytes": 30.0, "psnr_mask_db": 30.0},
        {"pair": fig8_rank_precision.LADDER, "rank": 0, "bytes": 5.0, "psnr_mask_db": 50.0},
    ]
    found = fig8_rank_precision.winners(rows, (5, 20, 40))
    assert found == {20: ("4+4", 8, 20.0), 40: ("8+8", 8, 30.0)}


def test_the_best_exponent_is_named(figures: dict[str, Figure]) -> None:
    curve = fig19_exponent.by_exponent(figures["fig19"].rows, fig19_exponent.RATIOS[0])
    assert list(curve) == list(fig19_exponent.EXPONENTS)


def test_the_full_codec_gains_nothing_over_itself(figures: dict[str, Figure]) -> None:
    rows = figures["ablation"].rows
    assert {row["variant"] for row in rows} == {*ablation.VARIANTS, ablation.UNCODED}
    assert all(row["gain_db"] == 0 for row in rows if row["variant"] == ablation.FULL)


def test_planes_are_larger_as_they_are(tiny_store: CacheStore, tiny_templates: TemplateLibrary) -> None:
    geometry, arrays = tiny_store.arrays(tiny_templates.get("tiny-face"))
    encoded = SakuraCodec().encode(geometry, arrays)
    plain = ablation.plain_sizes(geometry, encoded)
    coded = [len(segment) for segment in encoded.segments]
    assert len(plain) == len(coded)
    assert sum(plain) > sum(coded)


def test_storage_claims_follow_the_numbers() -> None:
    def row(system: str, stored: str, size: float) -> dict[str, object]:
        return {
            "system": system,
            "stored": stored,
            "stored_bytes": size,
            "full_cache_bytes": 1000.0,
            "psnr_mask_db": 46.0,
        }

    every, good = fig13_storage.EVERYTHING, fig13_storage.GOOD
    rows = [row("sakura", every, 100.0), row("intq", good, 90.0), row("cachegen", good, 200.0)]
    claims = fig13_storage._claims(rows)
    assert [claim.holds for claim in claims] == [True, False, True, False, True]
    assert isinstance(claims[0], Claim) and claims[0].ours == "10.0 times less"


def test_a_quick_scope_asks_little() -> None:
    assert Scope(quick=True).requests < Scope(quick=False).requests == 30


def test_a_folder_is_made_or_it_is_said_why_not(tmp_path: Path) -> None:
    make_folder(tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file cannot be made .*; choose another one\."):
        make_folder(tmp_path / "file")
