"""Claims are judged by the numbers: made-up rows for which they hold, and for which they do not."""

from typing import Any

import pandas as pd
import pytest

from sakura.errors import UserError
from sakura.figures import FIGURES, check_scope, figure_module
from sakura.network.library import constant_trace
from sakura.reproduce.figure import Claim, Row, Scope
from sakura.streaming.live import NEAREST
from sakura.streaming.rows import measured_of, speed_up, table_of

RTT_S, ACTIVE_S, ALONE_S = 0.02, 0.10, 0.40


def rows_of(system: str, latency_s: float, controller: str = "own", count: int = 4, **changed: Any) -> list[Row]:
    row: Row = {
        "scale": "nano",
        "workload": "FS",
        "network": "5G, standing still",
        "mean_mbps": 80.0,
        "system": system,
        "controller": controller,
        "rtt_s": RTT_S,
        "latency_s": latency_s,
        "limit_s": ACTIVE_S + RTT_S,
        "on_device_s": ALONE_S,
        "received_bytes": 100_000,
        "network_wait_s": RTT_S,
        "first_wait_s": RTT_S,
        "mask_share": 0.1,
        "psnr_mask_db": 40.0,
        "ssim_mask": 0.99,
        **changed,
    }
    return [{**row, "request": number} for number in range(count)]


def edits(sakura_s: float = 0.125, cachegen_s: float = 0.25, **changed: Any) -> list[Row]:
    return [
        *rows_of("sakura", sakura_s, **changed),
        *rows_of("sakura", 0.125, "choose-before-send", psnr_mask_db=37.0),
        *rows_of("intq", 0.3),
        *rows_of("cachegen", cachegen_s, psnr_mask_db=30.0),
        *rows_of("cachegen", cachegen_s, NEAREST),
        *rows_of("full_cache", 0.2, count=1),
        *rows_of("on_device", ALONE_S),
    ]


def claims(name: str, rows: list[Row]) -> dict[str, Claim]:
    figure = figure_module(name).run(None, None, Scope(quick=True, known=tuple(rows)), lambda done: None)  # type: ignore[arg-type]
    assert figure.measured["requests"] == 4
    return {claim.claim: claim for claim in figure.claims}


def the(found: dict[str, Claim], words: str) -> Claim:
    (claim,) = (claim for text, claim in found.items() if words in text)
    return claim


def test_headline_holds_for_what_it_says() -> None:
    found = claims("headline", edits())
    assert str(the(found, "its own rule").ours).startswith("2.00 times")
    assert the(found, "nearest in PSNR").holds
    assert not any("fastest level" in text for text in found), "there are no such rows"
    assert the(found, "within 15%").holds and "+4.2%" in str(the(found, "within 15%").ours)
    assert the(found, "stands still").holds and the(found, "stands still").ours == "0.0%"
    assert the(found, "beats choosing").ours == "+3.0 dB at 1.00 times the latency"
    device = the(found, "faster than the device")
    assert not device.holds and device.ours == "3.20 times (the limit is 3.33)"


def test_headline_fails_for_what_is_worse() -> None:
    slow = claims("headline", edits(sakura_s=0.2))
    assert not the(slow, "within 15%").holds
    assert not the(slow, "its own rule").holds
    assert not the(slow, "beats choosing").holds
    waiting = claims("headline", edits(network_wait_s=0.03))
    assert the(waiting, "stands still").ours == "10.0%" and not the(waiting, "stands still").holds
    alone = claims("headline", edits(network_wait_s=0.01, first_wait_s=0.0))
    assert the(alone, "stands still").ours == "10.0%", "only a wait for the first shard is part of the limit"
    assert not any("within 15%" in text for text in claims("headline", edits(mean_mbps=30.0)))


def test_latencies_compare_where_requests_are_the_same() -> None:
    assert the(claims("fig10", edits()), "90 % quantile").holds, "the full cache was tried with fewer requests"
    assert not the(claims("fig10", edits(sakura_s=0.5)), "90 % quantile").holds
    assert the(claims("fig12", edits()), "faster than CacheGen").holds
    assert not the(claims("fig12", edits(cachegen_s=0.2)), "faster than CacheGen").holds
    assert the(claims("fig17", edits()), "lowest median").holds
    assert not the(claims("fig17", edits(sakura_s=0.26)), "lowest median").holds


def test_table2_is_judged_by_the_papers_numbers() -> None:
    assert claims("table2", edits())["FS on 5G: at least the paper's PSNR (aim: 10 dB more)"].ours == "40.0 dB, +12.1"
    assert not the(claims("table2", edits(psnr_mask_db=20.0)), "FS on 5G").holds
    with pytest.raises(UserError, match="None of the rows"):
        claims("table2", [{**row, "network": "elsewhere"} for row in edits()])


def test_speed_up_of_medians() -> None:
    table = table_of(edits())
    assert speed_up(table, "cachegen") == pytest.approx(2.0)
    assert pd.isna(speed_up(table, "low-rank"))
    assert measured_of(edits()) == {"requests": 4, "networks": ["5G, standing still"], "rtt_s": RTT_S}


@pytest.mark.parametrize("name", FIGURES)
def test_options_that_would_do_nothing_are_refused(name: str) -> None:
    kind = FIGURES[name]
    check_scope(name, Scope(quick=True))
    for scope in (Scope(True, "paper"), Scope(True, networks=(constant_trace(30),))):
        if kind.streamed:
            check_scope(name, scope)
        else:
            with pytest.raises(UserError, match="streams nothing"):
                check_scope(name, scope)
    if not kind.of_rows:
        with pytest.raises(UserError, match="leave out --rows"):
            check_scope(name, Scope(True, known=({},)))
