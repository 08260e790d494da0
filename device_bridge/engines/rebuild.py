"""Reconstruction as a graph: the product of a shard's factors on the NPU, beside the blocks that need it.

``DequantizeLinear (constant scale and zero point) -> Mul (scales of the edit) -> MatMul`` is the form that the HTP
compiles: it refuses a dequantisation whose scale is an input, and gets casts from bytes wrong. The left factor goes in
as uint16 with a scale a component, so that an 18-bit product loses nothing that fp16 keeps.
"""

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from device_bridge.engines.qnn_provider import strict_options, strict_session

log = logging.getLogger(__name__)

OPSET = 21  # the first with uint16 in DequantizeLinear
ZERO_POINT = 32768
ROWS_STEP, RANK_STEP = 64, 32


def product_graph(rows: int, rank: int, columns: int) -> bytes:
    """An ONNX model: uint16 (rows, rank), fp16 scales (1, rank), fp16 (rank, columns) to fp16 (rows, columns)."""
    half = TensorProto.FLOAT16
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["left", "unit", "zero"], ["steps"]),
            helper.make_node("Mul", ["steps", "scales"], ["factor"]),
            helper.make_node("MatMul", ["factor", "right"], ["product"]),
        ],
        "rebuild",
        [
            helper.make_tensor_value_info("left", TensorProto.UINT16, (rows, rank)),
            helper.make_tensor_value_info("scales", half, (1, rank)),
            helper.make_tensor_value_info("right", half, (rank, columns)),
        ],
        [helper.make_tensor_value_info("product", half, (rows, columns))],
        [
            # One over the largest code, so that codes stay within fp16.
            numpy_helper.from_array(np.array(1 / ZERO_POINT, np.float16), "unit"),
            numpy_helper.from_array(np.array(ZERO_POINT, np.uint16), "zero"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    return bytes(model.SerializeToString())


def to_codes(left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """uint16 codes and fp16 scales (1, rank) of float32 (rows, rank)."""
    scales = np.maximum(np.abs(left).max(0, keepdims=True), np.finfo(np.float16).tiny).astype(np.float16)
    steps = np.round(left / scales.astype(np.float32) * ZERO_POINT)
    return (np.clip(steps, -ZERO_POINT, ZERO_POINT - 1) + ZERO_POINT).astype(np.uint16), scales


class GraphProduct:
    """``left @ right`` on the NPU or its emulator; or on the CPU, for comparison. A session a bucket of sizes."""

    def __init__(
        self, devices: Sequence[onnxruntime.OrtEpDevice] = (), options: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """``devices`` and ``options`` of the NPU's provider; without devices, the CPU."""
        self._devices, self._options, self._broken = list(devices), dict(options), False
        self._sessions: dict[tuple[int, int, int], onnxruntime.InferenceSession] = {}

    def __call__(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """float32 (rows, columns) of float32 (rows, rank) and (rank, columns)."""
        if self._broken:
            return left @ right
        try:
            return self._on_graph(left, right)
        except Exception as error:  # ONNX Runtime raises many kinds; numpy can do it, too
            log.warning("Factors are multiplied on the CPU from now on: %s", error)
            self._broken = True
            return left @ right

    def _on_graph(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        rows, rank = left.shape
        columns = right.shape[1]
        peaks = np.maximum(np.abs(right).max(1, keepdims=True), np.float32(1e-30))  # so that fp16 holds all components
        codes, scales = to_codes(left * peaks.T)
        room = -rows % ROWS_STEP, -rank % RANK_STEP
        fed = {
            "left": np.pad(codes, ((0, room[0]), (0, room[1])), constant_values=ZERO_POINT),
            "scales": np.pad(scales, ((0, 0), (0, room[1]))),
            "right": np.pad((right / peaks).astype(np.float16), ((0, room[1]), (0, 0))),
        }
        product: np.ndarray = self._session(rows + room[0], rank + room[1], columns).run(None, fed)[0]
        return product[:rows].astype(np.float32)

    def _session(self, *sizes: int) -> onnxruntime.InferenceSession:
        key = sizes[0], sizes[1], sizes[2]
        if key not in self._sessions:
            graph = product_graph(*key)
            onnx.checker.check_model(graph)
            if not self._devices:
                self._sessions[key] = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
            else:
                self._sessions[key] = strict_session(graph, strict_options(), self._devices, self._options)
        return self._sessions[key]
