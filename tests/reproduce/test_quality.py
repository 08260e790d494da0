"""What is received of a stored cache: its bytes are those of segments and index, its scores those of its pictures."""

import numpy as np
import pytest

from sakura.cache.container import Container, pack_container
from sakura.cache.store import CacheStore
from sakura.codec import CODECS, new_codec
from sakura.reproduce.quality import Stored, means, receive, rows_of, samples, segments_of_level
from sakura.reproduce.workloads import Case, make_case
from sakura.templates import TemplateLibrary


@pytest.fixture(scope="module")
def case(tiny_store: CacheStore, tiny_templates: TemplateLibrary) -> Case:
    return make_case(tiny_store, tiny_templates.get("tiny-face"), 2, "FS")


@pytest.mark.parametrize("name", list(CODECS))
def test_every_byte_is_counted(
    case: Case, tiny_store: CacheStore, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    codec = new_codec(name)
    stored = Stored(tiny_store.editor, case, codec)
    packed = pack_container(stored.encoded, model="0" * 32, template="0" * 32, codec=codec, geometry=case.geometry)
    path = tmp_path_factory.mktemp("stored") / "cache.sakura"
    path.write_bytes(packed)
    container = Container(path)
    assert stored.whole_bytes == path.stat().st_size
    assert stored.index_bytes == container.index_bytes
    for level in range(stored.levels):
        segments = segments_of_level(stored.encoded, level)
        sent = stored.index_bytes + sum(len(container.read_segment(segment)) for segment in segments)
        assert stored.at_level(level).received_bytes == sent <= stored.whole_bytes


def test_the_full_cache_is_exact(case: Case, tiny_store: CacheStore) -> None:
    stored = Stored(tiny_store.editor, case, new_codec("uncompressed"))
    received = receive(
        new_codec("uncompressed"), case.geometry, case.arrays.places, stored.encoded, range(case.geometry.shards)
    )
    assert np.array_equal(received.kv, case.arrays.kv)
    assert stored.finest().mask_psnr_db == 100.0


@pytest.mark.parametrize("name", ["sakura", "cachegen", "low-rank"])
def test_a_budget_is_kept(case: Case, tiny_store: CacheStore, name: str) -> None:
    stored = Stored(tiny_store.editor, case, new_codec(name))
    smallest, finest = stored.at_level(0).received_bytes, stored.finest().received_bytes
    for budget in np.linspace(smallest, 1.2 * finest, 5):
        assert stored.at_budget(budget).received_bytes <= budget
    assert stored.at_budget(0).received_bytes == smallest


def test_the_same_segments_are_measured_once(case: Case, tiny_store: CacheStore) -> None:
    stored = Stored(tiny_store.editor, case, new_codec("sakura"))
    assert stored.finest() is stored.at_budget(case.geometry.full_cache_bytes)


def test_means_weigh_requests_alike(case: Case, tiny_store: CacheStore) -> None:
    stored = Stored(tiny_store.editor, case, new_codec("sakura"))
    measured = stored.at_level(0)
    rows = samples(case, measured, system="sakura", missing=float("nan"))
    assert len(rows) == len(case.requests)
    (mean,) = means(rows, ["workload", "system"])
    assert mean["bytes"] == measured.received_bytes
    assert mean["psnr_mask_db"] == pytest.approx(measured.mask_psnr_db)
    assert mean["ratio"] == pytest.approx(case.geometry.full_cache_bytes / measured.received_bytes)
    assert mean["missing"] is None


def test_rows_are_plain() -> None:
    import pandas as pd

    (row,) = rows_of(pd.DataFrame({"a": [1.5], "b": ["x"], "c": [float("nan")]}))
    assert row == {"a": 1.5, "b": "x", "c": None}
