"""The encoder of the SAKURA codec: weigh, factorise, quantise, and offer representations."""

import itertools
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from sakura.codec.distortion import lower_hull, thinned
from sakura.codec.interface import CacheArrays, CacheGeometry, EncodedCache, Ladder, Representation, Rung
from sakura.codec.planes import cell_centres, encode_planes
from sakura.codec.rope import rotate, rotation
from sakura.codec.sakura_layout import HEADER, Layout, component_groups, from_log, to_log
from sakura.codec.weights import row_scales

if TYPE_CHECKING:
    from sakura.codec.sakura import SakuraCodec

MIN_SPREAD = 1e-2  # of a matrix's mean: what varies less than that counts as constant


class SakuraEncoder:
    """One template being encoded."""

    def __init__(self, codec: "SakuraCodec", geometry: CacheGeometry, arrays: CacheArrays) -> None:
        self.codec, self.geometry, self.kv = codec, geometry, arrays.kv
        if codec.unrotate_keys:
            factors = rotation(arrays.places)
            self.kv = arrays.kv.astype(np.float32, copy=True)
            for step, block in np.ndindex(geometry.steps, geometry.blocks):
                rotate(self.kv[step, block, 0], factors.conj())
        self.row_codes = to_log(row_scales(arrays.importance.mean((0, 1)), codec.q, codec.floor))
        self.rows = from_log(self.row_codes)
        self.groups = component_groups(codec.ranks, geometry.rows)
        self.rank = self.groups[-1].stop
        self.columns = geometry.shards_per_step
        weights = np.square(self.rows, dtype=np.float64)
        self.row_weight = float(weights.sum())
        kv = self.kv.astype(np.float64) if np.abs(self.kv).max(initial=0) > 1e15 else self.kv
        self.means = np.einsum("n,sbpnc->sbpc", weights / self.row_weight, kv)
        self.matrix_scales, self.left, right = self._factorise(arrays.sensitivity)
        self._rotate_steps(right)

    def _matrix(self, step: int, block: int, part: int) -> np.ndarray:
        """One matrix about its mean, rows scaled, in float64 units of its own: (rows, columns)."""
        centred = self.kv[step, block, part].astype(np.float64) - self.means[step, block, part]
        return self.rows[:, None] * centred

    def _factorise(self, sensitivity: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Matrix scales (blocks, 2), token basis (rows, rank), coefficients (steps, blocks, 2, rank, columns)."""
        steps, blocks = self.geometry.steps, self.geometry.blocks
        grams = np.zeros((blocks, 2, self.geometry.rows, self.geometry.rows))
        for step, block, part in np.ndindex(steps, blocks, 2):
            matrix = self._matrix(step, block, part)
            peak = np.abs(matrix).max(initial=0)
            if peak > 0:
                small = (matrix / peak).astype(np.float32)
                grams[block, part] += np.square(peak) * (small @ small.T)
        energy = np.trace(grams, axis1=2, axis2=3) / steps
        mean_energy = np.square(self.means).sum(-1).mean(0) * self.row_weight
        spread = np.maximum(energy, MIN_SPREAD**2 * mean_energy)
        norms = np.sqrt(spread)
        norms = np.where(norms > 0, norms, 1.0)
        # Between equal relative error (1 / norm) and equal effect of small errors on the picture (sensitivity): small
        # errors say too little of large ones, and the geometric mean is what measures best.
        effect = np.sqrt(np.maximum(sensitivity, 1e-6) * norms) if self.codec.use_sensitivity else np.ones_like(norms)
        scales = (effect / np.sqrt(np.square(effect).mean()) / norms).astype(np.float64)
        gram = np.einsum("bp,bpij->ij", np.square(scales), grams)
        last = len(gram) - 1
        _, vectors = scipy.linalg.eigh(gram, subset_by_index=(last + 1 - self.rank, last))
        basis = vectors[:, ::-1]
        right = np.empty((steps, blocks, 2, self.rank, self.geometry.columns), np.float32)
        transposed = np.ascontiguousarray(basis.T, np.float32)
        for step, block, part in np.ndindex(steps, blocks, 2):
            right[step, block, part] = transposed @ (scales[block, part] * self._matrix(step, block, part)).astype(
                np.float32
            )
        self.energy = np.square(scales) * energy * steps  # (blocks, 2)
        self.spread = np.square(scales) * spread * steps  # what distortion is a share of
        return scales, basis, right

    def _rotate_steps(self, right: np.ndarray) -> None:
        """Coefficients by mode instead of by step; modes are ordered by energy."""
        steps = self.geometry.steps
        flat = right.reshape(steps, -1)
        basis = np.eye(steps)
        if self.codec.share_steps:
            _, vectors = scipy.linalg.eigh(flat @ flat.T)
            basis = vectors[:, ::-1]
        self.step_basis = basis.astype("<f4")
        self.right = (self.step_basis.T @ flat).reshape(right.shape)
        scaled = self.means * (self.matrix_scales * np.sqrt(self.row_weight))[:, :, None]
        self.mean_right = np.tensordot(self.step_basis.T.astype(np.float64), scaled, 1)

    def _column(self, coefficients: np.ndarray, column: int) -> np.ndarray:
        """The matrices of a column of shards: (modes, matrices, ...)."""
        blocks = self.geometry.blocks_of(column)
        chosen = coefficients[:, blocks.start : blocks.stop]
        return chosen.reshape(len(chosen), -1, *chosen.shape[3:])

    def encode(self) -> EncodedCache:
        finest = self.codec.finest
        strengths = np.sqrt(np.square(self.right, dtype=np.float64).sum((0, 1, 2, 4)))
        strength_codes = to_log(strengths)
        self.left_steps = finest / from_log(strength_codes)
        modes = self.geometry.steps
        left = np.trunc(self.left / self.left_steps).astype(np.int32)
        numbers = [left[:, group].T.reshape(1, -1) for group in self.groups]
        for column in range(self.columns):
            means = np.trunc(self._column(self.mean_right, column) / finest).astype(np.int32)
            right = np.trunc(self._column(self.right, column) / np.float32(finest)).astype(np.int32)
            numbers.append(means.reshape(modes, -1))
            numbers.extend(right[:, :, group].reshape(modes, -1) for group in self.groups)
        planes = [encode_planes(part) for part in numbers]
        header = b"".join(
            (
                self.step_basis.tobytes(),
                self.matrix_scales.astype("<f8").tobytes(),
                self.row_codes.tobytes(),
                strength_codes.tobytes(),
                bytes(len(part) for part in planes),
            )
        )
        layout = Layout(self.geometry, self.groups, [len(part) for part in planes])
        segments = [header, *itertools.chain.from_iterable(planes)]
        left_errors = [self._left_errors(layout, left, group) for group in range(len(self.groups))]
        ladders = [self._ladder(layout, segments, numbers, left_errors, column) for column in range(self.columns)]
        return EncodedCache(segments, ladders, [shard % self.columns for shard in range(self.geometry.shards)])

    def _left_errors(self, layout: Layout, left: np.ndarray, group: int) -> list[np.ndarray]:
        """Squared error of each of a group's basis vectors with 0, 1, ... planes."""
        chosen = self.groups[group]
        exact, steps = self.left[:, chosen], self.left_steps[chosen]
        errors = [np.square(exact).sum(0)]
        planes = layout.planes[group]
        for dropped in range(planes - 1, -1, -1):
            kept = cell_centres(_shift(left[:, chosen], dropped), dropped) * steps
            errors.append(np.square(exact - kept).sum(0))
        return errors

    def _ladder(
        self,
        layout: Layout,
        segments: list[bytes],
        numbers: list[np.ndarray],
        left_errors: list[list[np.ndarray]],
        column: int,
    ) -> Ladder:
        """Every prefix of the column's order as a point of size and distortion; rungs are those on the hull.

        The basis is orthonormal in weighted units, so a component's error is that of its right factor plus that of its
        basis vector times the energy of the right factor. Energy beyond the last component is lost always.
        """
        total = float(self.spread.sum()) / self.columns
        blocks = self.geometry.blocks_of(column)
        right = self._column(self.right, column)
        lost = max(0.0, float(self.energy[blocks.start : blocks.stop].sum() - np.square(right, dtype=float).sum()))
        right_errors: dict[int, list[np.ndarray]] = {}
        energies: dict[int, list[np.ndarray]] = {}
        means = layout.means(column)
        exacts = {means: self._column(self.mean_right, column)[:, :, None]}
        exacts |= {layout.right(column, number): right[:, :, group] for number, group in enumerate(self.groups)}
        for part, exact in exacts.items():
            right_errors[part], energies[part] = self._right_errors(exact, numbers[part], layout.planes[part])

        have = dict.fromkeys([*range(layout.groups), *exacts], 0)

        def loss(part: int) -> float:
            if part == means:
                return float(right_errors[means][have[means]].sum())
            group = part - means - 1
            left_error = left_errors[group][have[group]]
            return float((right_errors[part][have[part]] + left_error * energies[part][have[part]]).sum())

        losses = {part: loss(part) for part in exacts}
        order, size, points = [HEADER], len(segments[HEADER]), []
        for part, plane in layout.order(column):
            segment = layout.first[part] + plane
            order.append(segment)
            size += len(segments[segment])
            have[part] = plane + 1
            if part < layout.groups:
                continue  # a left plane goes with the right plane that follows
            losses[part] = loss(part)
            top = max((group for group in range(layout.groups) if have[layout.right(column, group)]), default=-1)
            representation = Representation(
                0 if top < 0 else self.groups[top].stop,
                have[0],
                have[layout.right(column, 0)],
            )
            distortion = (lost + sum(losses.values())) / max(total, 1e-300)
            points.append(Rung(representation, 0, len(order), size, distortion))
        if not points:  # nothing but zeros
            points.append(Rung(Representation(0, 0, 0), 0, 1, size, 0.0))
        return Ladder(order, thinned(lower_hull(points)))

    def _right_errors(
        self, exact: np.ndarray, numbers: np.ndarray, planes: int
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Squared error and energy of each component with 0, 1, ... planes; ``exact`` (modes, matrices, n, columns)."""
        whole = numbers.reshape(exact.shape)
        errors, energies = [np.square(exact, dtype=np.float64).sum((0, 1, 3))], [np.zeros(exact.shape[2])]
        for dropped in range(planes - 1, -1, -1):
            kept = cell_centres(_shift(whole, dropped), dropped) * np.float32(self.codec.finest)
            errors.append(np.square(exact - kept, dtype=np.float64).sum((0, 1, 3)))
            energies.append(np.square(kept, dtype=np.float64).sum((0, 1, 3)))
        return errors, energies


def _shift(numbers: np.ndarray, planes: int) -> np.ndarray:
    """Drop the lowest planes of the magnitudes, keeping signs."""
    return np.sign(numbers) * (np.abs(numbers) >> planes)
