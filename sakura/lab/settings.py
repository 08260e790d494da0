"""What people choose in the lab: exponent, rank and bits, within what the codec offers."""

import math

import msgspec

from sakura.codec.interface import Representation
from sakura.codec.sakura import SakuraCodec
from sakura.errors import UserError

MAX_Q = 1.5
Q_STEP = 0.05
MAX_BITS = 12  # parts of a template have at most about this many planes; more bits bring nothing
MAX_REQUEST = 999
DEFAULT_CODEC = SakuraCodec()
RANKS = DEFAULT_CODEC.ranks


class Setting(msgspec.Struct, frozen=True):
    """One setting of the codec: the importance exponent, and the representation that every shard is sent in."""

    q: float = DEFAULT_CODEC.q
    rank: int = 64
    left_bits: int = 8
    right_bits: int = 6

    @property
    def codec(self) -> SakuraCodec:
        return SakuraCodec(q=self.q)

    @property
    def representation(self) -> Representation:
        return Representation(self.rank, self.left_bits, self.right_bits)


def checked_setting(q: object, rank: object, left_bits: object, right_bits: object) -> Setting:
    """A setting from what a page or an address says. Raises UserError naming the first value that is not possible."""
    exponent = _number(q, "importance exponent", 0, MAX_Q)
    components = _number(rank, "rank", RANKS[0], RANKS[-1])
    if components not in RANKS:
        raise UserError(f"The rank must be one of {', '.join(map(str, RANKS))}; choose one of these.")
    bits = [
        _number(value, f"number of bits of the {side} factor", 1, MAX_BITS)
        for value, side in ((left_bits, "left"), (right_bits, "right"))
    ]
    if any(value != int(value) for value in bits):
        raise UserError("Numbers of bits are whole; write one without a fraction.")
    return Setting(round(round(exponent / Q_STEP) * Q_STEP, 2), int(components), int(bits[0]), int(bits[1]))


def checked_request(number: object) -> int:
    """The number of a held-out request. Raises UserError."""
    return int(_number(number, "number of the request", 0, MAX_REQUEST))


def _number(value: object, name: str, low: float, high: float) -> float:
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not low <= number <= high:
        raise UserError(f"The {name} must be from {low:g} to {high:g}; write another number.")
    return number
