"""What the browser is told of the lab's answers: plain dictionaries, pictures as data addresses."""

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from sakura.lab.importance import CURVE_AT, ImportanceFacts
from sakura.lab.points import Measurement, best_at_each_size, chart_points, fewer_bytes, quality_at
from sakura.studio import TemplateCard
from ui.markup import outline_path, picture_uri
from ui.views import TASK_NAMES, importance_levels

if TYPE_CHECKING:
    from sakura.lab.bench import Tried, TriedEdit

Answer = dict[str, Any]


def lab_card(card: TemplateCard) -> Answer:
    """A template to choose or chosen."""
    return {
        "id": card.template_id,
        "title": card.title,
        "task": TASK_NAMES[card.task],
        "side_px": card.picture.shape[0],
        "picture": picture_uri(card.picture),
        "outline": outline_path(card.mask),
    }


def importance_view(facts: ImportanceFacts) -> Answer:
    """Maps as levels of a colour scale by step and block; shares in percent; a correlation that is unknown is None."""
    steps, blocks = facts.top.shape
    correlation = float(facts.correlation.mean())
    return {
        "levels": [[importance_levels(facts.maps[step, block]) for block in range(blocks)] for step in range(steps)],
        "at": np.round(100 * CURVE_AT, 1).tolist(),
        "curves": np.round(100 * facts.curves, 1).tolist(),
        "top": np.round(100 * facts.top).astype(int).tolist(),
        "correlation": None if np.isnan(correlation) else round(correlation, 3),
        "correlations": np.where(np.isnan(facts.correlation), 0, facts.correlation).round(3).tolist(),
        "requests": facts.requests,
    }


def tried_view(tried: "Tried") -> Answer:
    """A setting's bytes and its edit."""
    parts = tried.parts
    return {
        "bytes": tried.received_bytes,
        "full_bytes": tried.full_cache_bytes,
        "parts": [parts.basis_bytes, parts.coefficients_bytes, parts.means_bytes, parts.index_bytes],
        "planes": [tried.left_planes, tried.right_planes],
        "lost_percent": 100 * tried.distortion,
        "edit": _edit_view(tried.edit) if tried.edit else None,
    }


def _edit_view(edit: "TriedEdit") -> Answer:
    return {
        "words": " ".join(edit.words),
        "reference": None if edit.reference is None else picture_uri(edit.reference),
        "picture": picture_uri(edit.picture),
        "full": picture_uri(edit.full),
        "difference": picture_uri(np.repeat(edit.difference[..., None], 3, axis=-1)),
        "scores": msgspec.to_builtins(edit.scores),
        "chart_db": edit.chart_db,
    }


def charts_view(measurement: Measurement, mine: tuple[float, float] | None) -> Answer:
    """All charts as far as they are measured. ``mine`` is the bytes and dB of the setting in view."""
    best = best_at_each_size(chart_points(measurement, "precision"))
    best_db = quality_at(best, mine[0]) if mine else None
    fewer = fewer_bytes(measurement.points)
    return {
        "measured": measurement.measured,
        "total": len(measurement.points),
        "full_bytes": measurement.full_cache_bytes,
        "points": msgspec.to_builtins(measurement.points),
        "stored": msgspec.to_builtins(measurement.stored),
        "best": best,
        "fewer": None if fewer is None else {**msgspec.to_builtins(fewer), "ratio": fewer.ratio},
        "under_best_db": None if mine is None or best_db is None else best_db - mine[1],
    }
