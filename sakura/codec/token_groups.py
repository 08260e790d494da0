"""Neighbouring tokens in groups, each with an anchor that the others are told apart from."""

import dataclasses
from typing import Literal

import numpy as np

Order = Literal["raster", "tiles"]
STRIP_ROWS = 3  # with ten tokens a group, tiles of about three by three


@dataclasses.dataclass(frozen=True)
class TokenGroups:
    """``anchors`` (groups,) and ``others`` (rows - groups,) are row numbers; ``group_of`` (rows - groups,) says whose
    anchor each other row is told apart from, as an index into ``anchors``."""

    anchors: np.ndarray
    others: np.ndarray
    group_of: np.ndarray


def group_tokens(positions: np.ndarray, order: Order, size: int) -> TokenGroups:
    """Groups of ``size`` contiguous tokens within each picture, the last one of a picture perhaps smaller.

    ``positions`` int (rows, 3): picture, row, column. In raster order the anchor is the group's first token. Tiles are
    cut from strips of three token rows, walked back and forth column by column, so that they are full even where a
    picture has holes; the token nearest to a tile's centre goes first and is its anchor.
    """
    picture, row, column = positions.T
    if order == "raster":
        path = np.lexsort((column, row, picture))
    else:
        strip = row // STRIP_ROWS
        along = np.where(strip % 2 == 0, column, -column)
        across = np.where(column % 2 == 0, row, -row)
        path = np.lexsort((across, along, strip, picture))
    pictures = np.split(path, np.flatnonzero(np.diff(picture[path])) + 1)
    groups = [part[first : first + size] for part in pictures for first in range(0, len(part), size)]
    if order == "tiles":
        groups = [centre_first(group, positions) for group in groups]
    return TokenGroups(
        anchors=np.array([group[0] for group in groups]),
        others=np.concatenate([group[1:] for group in groups]),
        group_of=np.repeat(np.arange(len(groups)), [len(group) - 1 for group in groups]),
    )


def centre_first(group: np.ndarray, positions: np.ndarray) -> np.ndarray:
    places = positions[group, 1:]
    centre = int(np.square(places - places.mean(0)).sum(1).argmin())
    return np.concatenate([group[centre : centre + 1], np.delete(group, centre)])
