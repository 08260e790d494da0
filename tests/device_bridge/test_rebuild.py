"""Factors of a cache multiplied by a graph, on the CPU and on the emulator of the NPU."""

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("onnxruntime_qnn", reason="There is no wheel of onnxruntime-qnn for this system.")

from hypothesis import given
from hypothesis import strategies as st
from onnxruntime.capi.onnxruntime_pybind11_state import EPFail

from device_bridge.engines.qnn_provider import (
    DEFAULT_SOC_MODEL,
    configured,
    qnn_devices,
    strict_options,
    strict_session,
)
from device_bridge.engines.rebuild import ZERO_POINT, GraphProduct, product_graph, to_codes
from sakura.backbone.editor import Editor
from sakura.cache.store import CacheStore
from sakura.codec import new_codec
from sakura.templates import TemplateLibrary


def relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def factors(rows: int, rank: int, columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Components that fall off as those of a cache do."""
    rng = np.random.default_rng(seed)
    fall = (0.9 ** np.arange(rank)).astype(np.float32)
    left = rng.standard_normal((rows, rank), np.float32) * fall
    return left, rng.standard_normal((rank, columns), np.float32) * fall[:, None]


def on_emulator() -> GraphProduct:
    return GraphProduct(qnn_devices()[:1], configured(DEFAULT_SOC_MODEL))


@pytest.mark.parametrize("new_product", [GraphProduct, on_emulator])
def test_products_are_numpys(new_product: Callable[[], GraphProduct]) -> None:
    product = new_product()
    for sizes in ((474, 97, 768), (70, 5, 64)):
        left, right = factors(*sizes)
        assert relative_error(product(left, right), left @ right) < 2e-3
    assert not product._broken


@given(st.integers(1, 40), st.integers(1, 12), st.integers(-12, 4), st.integers(0, 99))
def test_codes_keep_each_component_to_its_peak(rows: int, rank: int, power: int, seed: int) -> None:
    left = factors(rows, rank, 1, seed)[0] * np.float32(2.0**power)
    codes, scales = to_codes(left)
    back = (codes.astype(np.float32) - ZERO_POINT) / ZERO_POINT * scales.astype(np.float32)
    assert codes.dtype == np.uint16
    assert scales.dtype == np.float16
    assert np.all(np.abs(back - left) <= 2e-3 * np.abs(left).max(0) + 1e-7)


def test_a_cache_is_rebuilt_with_it(tiny_store: CacheStore, tiny_templates: TemplateLibrary) -> None:
    editor: Editor = tiny_store.editor
    template = tiny_templates.get("tiny-face")
    container = tiny_store.get(template, new_codec("sakura"))
    geometry, places = container.index.geometry, editor.places(template.for_editor())
    shards = []
    for product in (np.matmul, on_emulator()):
        decoder = new_codec("sakura", container.index.options).decoder(geometry, places)
        decoder.product = product  # type: ignore[attr-defined]
        decoder.add({number: container.read_segment(number) for number in range(len(container.index.segment_bytes))})
        shards.append(decoder.shard(0))
    assert relative_error(shards[1], shards[0]) < 5e-3


def test_what_the_graph_cannot_do_numpy_does(monkeypatch: pytest.MonkeyPatch) -> None:
    product = GraphProduct()
    monkeypatch.setattr(product, "_session", lambda *_: 1 / 0)
    left, right = factors(9, 3, 8)
    assert np.array_equal(product(left, right), left @ right)


def test_a_session_that_fails_is_not_made_anew_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    session = strict_session(
        product_graph(64, 32, 32), strict_options(), qnn_devices()[:1], configured(DEFAULT_SOC_MODEL)
    )

    class Failing:
        sound = session._sess

        def __getattr__(self, name: str) -> object:
            return getattr(self.sound, name)

        def run(self, *_: object) -> None:
            raise EPFail("the NPU was reset")

    monkeypatch.setattr(session, "_sess", Failing())
    monkeypatch.setattr(session, "set_providers", lambda *_: pytest.fail("it fell back"))
    fed = {
        "left": np.zeros((64, 32), np.uint16),
        "scales": np.zeros((1, 32), np.float16),
        "right": np.zeros((32, 32), np.float16),
    }
    with pytest.raises(EPFail, match="was reset"):
        session.run(["product"], fed)
