"""How importance becomes row scales (our reading of the paper's token-importance-aware compression)."""

import numpy as np


def row_scales(importance: np.ndarray, q: float, floor: float) -> np.ndarray:
    """importance**q, averaging 1 and at least ``floor``: float64 (rows,)."""
    scales = np.maximum(importance, 1e-6).astype(np.float64) ** q
    return np.maximum(scales / scales.mean(), floor)
