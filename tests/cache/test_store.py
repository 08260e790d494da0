"""The store: what a cache is made of names it, and what is missing, damaged or of something else is built anew."""

import dataclasses
import uuid
from pathlib import Path

import msgspec
import numpy as np
import pytest
from fsspec.core import url_to_fs
from worlds import tiny_model, tiny_template

from sakura.backbone.editor import Editor, capture
from sakura.cache.container import Container, write_file
from sakura.cache.store import CacheStore
from sakura.codec import new_codec
from sakura.codec.interface import Codec
from sakura.codec.sakura import SakuraCodec
from sakura.templates import TemplateAssets

TEMPLATE = tiny_template("tiny-face")
SAKURA, UNCOMPRESSED = SakuraCodec(), new_codec("uncompressed")


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path, tiny_editor: Editor) -> CacheStore:
    """A new store, in a folder and in an object store."""
    return CacheStore(tmp_path if request.param == "folder" else f"memory://{uuid.uuid4().hex}/caches", tiny_editor)


def stored(store: CacheStore, template: TemplateAssets, codec: Codec) -> bytes:
    filesystem, path = url_to_fs(store.url(template, codec))
    return filesystem.cat_file(path)


def again(store: CacheStore) -> CacheStore:
    """Another process's view of the same store."""
    return CacheStore(store.folder, store.editor)


def test_url_follows_from_everything_that_the_cache_is_made_of(tmp_path: Path, tiny_editor: Editor) -> None:
    codec, store = SAKURA, CacheStore(tmp_path, tiny_editor)
    other_model = CacheStore(tmp_path, Editor(tiny_model(1), "another"))
    sensitive = Editor(tiny_model(), "tiny", 2 * tiny_editor.sensitivity)
    other_mask = dataclasses.replace(TEMPLATE, mask=~TEMPLATE.mask)
    other_picture = dataclasses.replace(TEMPLATE, picture=255 - TEMPLATE.picture)
    urls = [
        store.url(TEMPLATE, codec),
        other_model.url(TEMPLATE, codec),
        CacheStore(tmp_path, sensitive).url(TEMPLATE, codec),
        store.url(other_mask, codec),
        store.url(other_picture, codec),
        store.url(tiny_template("tiny-wear"), codec),
        store.url(dataclasses.replace(TEMPLATE, template_id="renamed"), codec),
        store.url(TEMPLATE, msgspec.structs.replace(codec, q=0.5)),
        store.url(TEMPLATE, msgspec.structs.replace(codec, ranks=(4, 8))),
        store.url(TEMPLATE, UNCOMPRESSED),
    ]
    assert len(set(urls)) == len(urls)
    assert all(url.startswith(f"{tmp_path}/") and url.endswith(".sakura") for url in urls)
    assert again(store).url(TEMPLATE, SakuraCodec()) == urls[0]
    assert (
        CacheStore("s3://bucket/caches/", tiny_editor).url(TEMPLATE, codec).startswith("s3://bucket/caches/tiny-face")
    )


def test_builds_once_with_progress(store: CacheStore) -> None:
    progress: list[float] = []
    container = store.get(TEMPLATE, SAKURA, progress.append)
    assert progress[0] == 0.0
    assert progress[-1] == pytest.approx(1.0)
    assert container.index.model == store.editor.fingerprint
    assert container.index.template == TEMPLATE.fingerprint
    assert stored(store, TEMPLATE, SAKURA)
    assert stored(store, TEMPLATE, UNCOMPRESSED)

    more: list[float] = []
    assert store.get(TEMPLATE, SAKURA, more.append) is container
    assert store.opened(TEMPLATE, SAKURA) is container
    assert store.opened(tiny_template("tiny-hat"), SAKURA) is None
    assert again(store).get(TEMPLATE, UNCOMPRESSED, more.append).geometry == container.geometry
    assert not more


def test_arrays_are_what_was_captured(store: CacheStore) -> None:
    geometry, arrays = store.arrays(TEMPLATE)
    cache = capture(store.editor, TEMPLATE.for_editor(), TEMPLATE.typical_requests())
    assert (geometry.steps, geometry.blocks, 2, geometry.rows, geometry.columns) == cache.kv.shape
    np.testing.assert_allclose(arrays.kv, cache.kv, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(arrays.importance, cache.importance.mean(0), rtol=1e-5)
    np.testing.assert_array_equal(arrays.sensitivity, store.editor.sensitivity)
    assert len(arrays.places.positions) == geometry.rows


@pytest.mark.parametrize("place", [3, 9, 20, -1])
def test_damaged_file_is_built_anew(store: CacheStore, place: int) -> None:
    store.get(TEMPLATE, SAKURA)
    whole = stored(store, TEMPLATE, SAKURA)
    damaged = bytearray(whole)
    damaged[place] ^= 0xFF
    write_file(store.url(TEMPLATE, SAKURA), bytes(damaged))
    again(store).get(TEMPLATE, SAKURA).read_all()
    assert stored(store, TEMPLATE, SAKURA) == whole


def test_file_of_another_template_or_model_is_built_anew(store: CacheStore) -> None:
    other, codec = tiny_template("tiny-hat"), SAKURA
    other_model = CacheStore(store.folder, Editor(tiny_model(1), "another"))
    for strangers, template in ((store, other), (other_model, TEMPLATE)):
        strangers.get(template, SAKURA)
        write_file(store.url(TEMPLATE, codec), stored(strangers, template, codec))
        index = again(store).get(TEMPLATE, SAKURA).index
        assert (index.model, index.template) == (store.editor.fingerprint, TEMPLATE.fingerprint)


def test_forgotten_container_is_verified_again(store: CacheStore) -> None:
    container = store.get(TEMPLATE, SAKURA)
    store.forget(container)
    assert store.opened(TEMPLATE, SAKURA) is None
    renewed = store.get(TEMPLATE, SAKURA)
    assert renewed is not container
    assert renewed.index == container.index


def test_importance_is_kept_and_built_anew(store: CacheStore) -> None:
    scores = store.importance(TEMPLATE)
    layout = store.editor.layout(TEMPLATE.for_editor())
    assert scores.shape == (4, store.editor.steps, store.editor.blocks, len(layout.reusable))
    np.testing.assert_allclose(scores.mean(-1), 1, rtol=1e-4)
    filesystem, folder = url_to_fs(store.folder)
    (path,) = (name for name in filesystem.ls(folder, detail=False) if name.endswith(".npy"))
    whole = filesystem.cat_file(path)
    for content in (None, b"", b"\x93NUMPY nonsense", whole[:-1]):
        filesystem.rm(path)
        if content is not None:
            filesystem.pipe_file(path, content)
        np.testing.assert_allclose(again(store).importance(TEMPLATE), scores, rtol=1e-5)


def test_container_opens_by_url(store: CacheStore) -> None:
    known = store.get(TEMPLATE, SAKURA)
    assert Container(store.url(TEMPLATE, SAKURA)).index == known.index
