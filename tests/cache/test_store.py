import dataclasses
from pathlib import Path

import numpy as np
import pytest
from worlds import tiny_model, tiny_template

from sakura.backbone.editor import Editor, capture
from sakura.cache.store import CacheStore, geometry_of, shard_of
from sakura.codec import CODECS, new_codec
from sakura.codec.sakura import SakuraCodec

TEMPLATE = tiny_template("tiny-face")


@pytest.fixture
def store(tmp_path: Path, tiny_editor: Editor) -> CacheStore:
    return CacheStore(tmp_path, tiny_editor)


def test_path_follows_from_everything_that_the_cache_is_made_of(store: CacheStore, tiny_editor: Editor) -> None:
    codec = SakuraCodec()
    other_model = CacheStore(store.folder, Editor(tiny_model(1), "another"))
    other_mask = dataclasses.replace(TEMPLATE, mask=~TEMPLATE.mask)
    other_picture = dataclasses.replace(TEMPLATE, picture=255 - TEMPLATE.picture)
    paths = [
        store.path(TEMPLATE, codec),
        other_model.path(TEMPLATE, codec),
        store.path(other_mask, codec),
        store.path(other_picture, codec),
        store.path(tiny_template("tiny-wear"), codec),
        store.path(dataclasses.replace(TEMPLATE, template_id="renamed"), codec),
        store.path(TEMPLATE, dataclasses.replace(codec, q=0.5)),
        store.path(TEMPLATE, dataclasses.replace(codec, ranks=(4, 8))),
        store.path(TEMPLATE, new_codec("uncompressed")),
    ]
    assert len(set(paths)) == len(paths)
    assert store.path(TEMPLATE, codec) == CacheStore(store.folder, tiny_editor).path(TEMPLATE, SakuraCodec())


def test_builds_once_with_progress(store: CacheStore, tiny_editor: Editor) -> None:
    progress: list[float] = []
    container = store.get(TEMPLATE, "sakura", progress.append)
    assert progress == sorted(progress)
    assert (progress[0], progress[-1]) == (0.0, pytest.approx(1.0))
    assert container.index.model == tiny_editor.fingerprint
    assert container.index.template == TEMPLATE.fingerprint
    assert all(store.path(TEMPLATE, new_codec(name)).exists() for name in CODECS)

    again: list[float] = []
    assert store.get(TEMPLATE, "sakura", again.append) is container
    assert CacheStore(store.folder, tiny_editor).get(TEMPLATE, "uncompressed", again.append).index.geometry
    assert not again


def test_uncompressed_cache_is_what_was_captured(store: CacheStore, tiny_editor: Editor) -> None:
    container, codec = store.get(TEMPLATE, "uncompressed"), new_codec("uncompressed")
    cache = capture(tiny_editor, TEMPLATE.for_editor(), TEMPLATE.typical_requests())
    geometry = container.index.geometry
    assert geometry == geometry_of(cache)
    for shard in range(geometry.shards):
        rung = container.index.shards[shard].rungs[0]
        segments = {0: container.read_segment(shard, 0)}
        rebuilt = codec.decode(geometry.shard_shape, rung.representation, segments)
        np.testing.assert_allclose(rebuilt, shard_of(geometry, cache, shard)[0], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("place", [3, 20, -1])
def test_damaged_file_is_rebuilt(store: CacheStore, tiny_editor: Editor, place: int) -> None:
    store.get(TEMPLATE, "sakura")
    path = store.path(TEMPLATE, SakuraCodec())
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[place] ^= 0xFF
    path.write_bytes(damaged)
    CacheStore(store.folder, tiny_editor).get(TEMPLATE, "sakura").verify()
    assert path.read_bytes() == whole


def test_file_of_another_template_is_rebuilt(store: CacheStore, tiny_editor: Editor) -> None:
    other = tiny_template("tiny-hat")
    store.get(TEMPLATE, "sakura")
    store.get(other, "sakura")
    store.path(other, SakuraCodec()).replace(store.path(TEMPLATE, SakuraCodec()))
    assert CacheStore(store.folder, tiny_editor).get(TEMPLATE, "sakura").index.template == TEMPLATE.fingerprint


def test_importance_is_kept_and_rebuilt(store: CacheStore, tiny_editor: Editor) -> None:
    scores = store.importance(TEMPLATE)
    layout = tiny_editor.layout(TEMPLATE.for_editor())
    assert scores.shape == (4, tiny_editor.steps, tiny_editor.blocks, len(layout.reusable))
    np.testing.assert_allclose(scores.mean(-1), 1, rtol=1e-4)
    path = store.importance_path(TEMPLATE)
    for content in (None, b"", b"\x93NUMPY nonsense"):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        np.testing.assert_allclose(store.importance(TEMPLATE), scores, rtol=1e-5)
