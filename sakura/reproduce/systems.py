"""The systems that are compared, each with the options that may serve it best."""

from collections.abc import Mapping

EQUAL_BINS = {"thirds": (1.0, 1.0, 1.0), "unit": "matrix"}
WITHOUT_DELTAS = {"thirds": (1.0, 1.0, 1.0), "deltas": False}
# Options by name, the usually strongest first. A baseline is compared by whichever does best at the bytes in question.
OPTIONS: dict[str, dict[str, Mapping[str, object]]] = {
    "sakura": {"as shipped": {}},
    "intq": {"keys before RoPE": {}, "keys after RoPE": {"keys": "after_rope"}},
    "cachegen": {
        "equal bins": EQUAL_BINS,
        "bins by thirds and channel": {},
        "without deltas": WITHOUT_DELTAS,
        "raster order": {"order": "raster"},
        "keys after RoPE": {"keys": "after_rope"},
    },
    "low-rank": {"keys before RoPE": {}, "keys after RoPE": {"keys": "after_rope"}},
    "uncompressed": {"as captured": {}},
}


def strongest(system: str) -> Mapping[str, object]:
    """The options that usually serve a system best."""
    return next(iter(OPTIONS[system].values()))
