"""Figures of streamed edits, from edits that really ran: three requests over one network."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sakura.cache.store import CacheStore
from sakura.cli import app
from sakura.errors import UserError
from sakura.figures import FIGURES, figure_module, write_files
from sakura.network.library import constant_trace
from sakura.reproduce.figure import Row, Scope, as_json, rows_from
from sakura.streaming.live import MAIN, NEAREST, VARIANTS, Contestant, measure_along, measure_live, planned_requests
from sakura.streaming.rows import streamed_rows, table_of
from sakura.studio import Studio
from sakura.templates import TemplateLibrary

OF_ROWS = ("fig10", "fig12", "fig16", "fig17", "headline")


@pytest.fixture(scope="module")
def rows(running_studio: Studio, store: CacheStore, shipped: TemplateLibrary) -> list[Row]:
    done: list[float] = []
    contestants = (*MAIN, *VARIANTS[:1], *VARIANTS[-1:])
    found = measure_live(
        running_studio,
        store,
        shipped,
        [constant_trace(80)],
        contestants,
        requests=1,
        rtt_s=0.02,
        progress=done.append,
    )
    assert done == sorted(done) and done[-1] == 1
    return found


def test_every_contestant_has_a_row_a_request(rows: list[Row]) -> None:
    names = [(row["workload"], row["system"], row["controller"]) for row in rows]
    assert len(set(names)) == len(names) == 3 * 7
    assert {row["controller"] for row in rows} == {"own", "choose-before-send", NEAREST}


def test_rows_say_what_the_edits_did(rows: list[Row]) -> None:
    table = table_of(rows)
    assert (table["latency_s"] > 0).all() and (table["limit_s"] > 0.02).all()
    streamed = table[table["system"] != "on_device"]
    assert (streamed["received_bytes"] > 0).all()
    assert (table[table["system"] == "on_device"]["received_bytes"] == 0).all()
    full = table[table["system"] == "full_cache"]
    assert (full["psnr_mask_db"] == 100).all() and (full["distortion"] < 1e-6).all()
    ours = table[(table["system"] == "sakura") & (table["controller"] == "own")]
    assert (ours["psnr_mask_db"] > 30).all()
    assert (ours["received_bytes"].to_numpy() < full["received_bytes"].to_numpy() / 10).all()


@pytest.mark.parametrize("name", OF_ROWS)
def test_figures_are_drawn_of_the_rows(
    rows: list[Row], name: str, store: CacheStore, shipped: TemplateLibrary, tmp_path: Path
) -> None:
    scope = Scope(quick=True, known=tuple(rows))
    figure = figure_module(name).run(store, shipped, scope, lambda done: None)
    assert figure.figure == name and figure.claims
    assert all(claim.ours for claim in figure.claims)
    assert len(figure_module(name).summary(figure)) > 0
    written = write_files(figure, tmp_path)
    assert {path.suffix for path in written} == {".svg", ".png", ".csv"}
    assert all(path.stat().st_size > 500 for path in written)
    (tmp_path / "rows.json").write_text(as_json(figure, scope, "model"))
    assert rows_from(tmp_path / "rows.json") == tuple(figure.rows)


def test_table2_compares_with_the_paper(rows: list[Row], store: CacheStore, shipped: TemplateLibrary) -> None:
    module = figure_module("table2")
    renamed = tuple({**row, "network": "5G, standing still"} for row in rows)
    figure = module.run(store, shipped, Scope(quick=True, known=renamed), lambda done: None)
    summary = module.summary(figure)
    ours = summary[(summary["workload"] == "FS") & (summary["system"] == "SAKURA")]
    assert ours["paper_db"].tolist() == [27.9]
    assert module.chart(figure).to_dict()


def test_one_request_along_a_trace(running_studio: Studio, shipped: TemplateLibrary) -> None:
    planned = planned_requests(shipped, 1, constant_trace(60), 0.02)[0]
    found = measure_along(running_studio, planned, [0.0, 5.0], [Contestant("sakura")], lambda done: None)
    assert [row["start_s"] for row in found] == [0.0, 5.0]


def test_requests_are_held_out_and_start_where_no_other_does(shipped: TemplateLibrary) -> None:
    planned = planned_requests(shipped, 8, constant_trace(60), 0.02)
    assert len(planned) == 3 * 8
    assert len({each.asked.trace_offset_s for each in planned}) == len(planned)
    assert [each.number for each in planned] == sorted(each.number for each in planned)
    again = planned_requests(shipped, 8, constant_trace(60), 0.02)
    assert [each.asked.trace_offset_s for each in again] == [each.asked.trace_offset_s for each in planned]


def test_rows_of_something_else_end_in_a_sentence(store: CacheStore, shipped: TemplateLibrary, tmp_path: Path) -> None:
    scope = Scope(quick=True, known=({"figure": "fig15"},))
    with pytest.raises(UserError, match="headline --json"):
        streamed_rows(store, shipped, scope, lambda done: None)
    for text in ("", "[]", "{}", '{"rows": 3}', '{"rows": [3]}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(UserError, match="holds no measured rows"):
            rows_from(tmp_path / "bad.json")
    with pytest.raises(UserError, match="holds no measured rows"):
        rows_from(tmp_path / "missing.json")


def test_resolution_needs_paper_scale() -> None:
    result = CliRunner().invoke(app, ["reproduce", "fig18", "--quick"])
    assert result.exit_code == 1
    assert "--scale paper" in result.stderr
    assert "Traceback" not in result.output


def test_every_figure_is_there() -> None:
    for name in FIGURES:
        module = figure_module(name)
        assert module.__doc__ and callable(module.run) and callable(module.summary) and callable(module.chart)
