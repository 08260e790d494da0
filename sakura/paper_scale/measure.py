"""Measure on nano-flux2 what `nano.json` holds: ``python -m sakura.paper_scale.measure``; takes some minutes."""

import msgspec
import numpy as np
import torch
import typer

from sakura.backbone.editor import Editor
from sakura.cache.store import CacheStore
from sakura.codec.interface import CacheGeometry, EncodedCache
from sakura.codec.planes import MAX_PLANES
from sakura.codec.sakura import SakuraCodec
from sakura.codec.sakura_layout import HEADER
from sakura.control.budget import BudgetRule
from sakura.paper_scale.nano import NANO_FILE, CurvePoint, NanoMeasured, NanoSystem, NanoTemplate, smoothed
from sakura.reproduce.quality import receive, score
from sakura.reproduce.workloads import WORKLOADS, Case, make_case
from sakura.settings import MODEL_FOLDER, SHIPPED_TEMPLATES, cache_folder
from sakura.systems import STREAMED, streamed_codec
from sakura.templates import TemplateLibrary

TEMPLATES = 2  # a workload
REQUESTS = 2  # a template
# Bytes from a cache's coarsest to its finest, evenly in the logarithm: so many, or few beside all of its levels.
BUDGETS, FEW_BUDGETS = 10, 6
MANY_LEVELS = 8


def measure_template(store: CacheStore, case: Case) -> NanoTemplate:
    """A case's cache in all systems that stream, and their curves."""
    systems = {}
    for system, streamed in STREAMED.items():
        codec = streamed_codec(streamed.codec)
        encoded = store.get(case.template, codec).read_all()
        sakura = codec if isinstance(codec, SakuraCodec) else None
        systems[system] = NanoSystem(
            streamed.codec,
            [len(segment) for segment in encoded.segments],
            encoded.ladders,
            encoded.ladder_of,
            _curve(store.editor, case, streamed.codec, encoded),
            symbols_a_byte(sakura, case.geometry, encoded) if sakura else 0.0,
        )
    return NanoTemplate(case.workload, case.template.template_id, case.geometry, systems)


def choices(encoded: EncodedCache) -> list[list[int]]:
    """Rungs of each ladder: all at one level, unless there are many levels, and what bytes in between buy best."""
    sizes = [len(segment) for segment in encoded.segments]
    levels = max(len(ladder.rungs) for ladder in encoded.ladders)
    found = [[min(level, len(ladder.rungs) - 1) for ladder in encoded.ladders] for level in range(levels)]
    budgets = FEW_BUDGETS
    if levels > MANY_LEVELS:
        found, budgets = [], BUDGETS
    coarsest = BudgetRule(encoded.ladders, encoded.ladder_of, sizes, 0).spent_bytes
    for budget_bytes in np.geomspace(coarsest, sum(sizes), budgets):
        chosen = BudgetRule(encoded.ladders, encoded.ladder_of, sizes, int(budget_bytes)).chosen
        if chosen not in found:
            found.append(chosen)
    return found


def _curve(editor: Editor, case: Case, name: str, encoded: EncodedCache) -> list[CurvePoint]:
    codec = streamed_codec(name)
    points = []
    for chosen in choices(encoded):
        rungs = [ladder.rungs[number] for ladder, number in zip(encoded.ladders, chosen, strict=True)]
        distortion = float(np.mean([rungs[number].distortion for number in encoded.ladder_of]))
        if distortion == 0:
            continue
        segments: dict[int, None] = {}
        for ladder, rung in zip(encoded.ladders, rungs, strict=True):
            segments.update(dict.fromkeys(ladder.segments(rung)))
        received = receive(codec, case.geometry, case.arrays.places, encoded, list(segments))
        scores = list(score(editor, case, received.kv))
        psnr_db = float(np.mean([each.mask_psnr_db for each in scores]))
        points.append(CurvePoint(distortion, psnr_db, float(np.mean([each.mask_ssim for each in scores]))))
    return smoothed(points) if points else []


def symbols_a_byte(codec: SakuraCodec, geometry: CacheGeometry, encoded: EncodedCache) -> float:
    """How many entropy-coded symbols (gaps) a byte of the planes holds, as their heads say."""
    layout = codec.layout(geometry, encoded.segments[HEADER])
    symbols = plane_bytes = 0
    for part in range(len(layout.planes)):
        kinds, _ = layout.shape(part)
        for segment in layout.segments(part, MAX_PLANES):
            data, at = encoded.segments[segment], 0
            plane_bytes += len(data)
            for _ in range(kinds):
                if data[at]:
                    symbols += int.from_bytes(data[at + 1 : at + 4], "little")
                at += 4 if data[at] else 1
    return symbols / plane_bytes


def measure(store: CacheStore, library: TemplateLibrary, templates: int, requests: int) -> NanoMeasured:
    """Measure the first ``templates`` drawn templates of each workload."""
    found = []
    for workload, task in WORKLOADS.items():
        known = [template for template in library if template.task == task and template.person is not None]
        for template in known[:templates]:
            typer.echo(f"{workload}: {template.template_id}")
            found.append(measure_template(store, make_case(store, template, requests, workload)))
    return NanoMeasured(store.editor.fingerprint, requests, found)


def main() -> None:
    torch.set_num_threads(1)
    store = CacheStore(cache_folder(), Editor.load(MODEL_FOLDER))
    measured = measure(store, TemplateLibrary(SHIPPED_TEMPLATES), TEMPLATES, REQUESTS)
    NANO_FILE.write_bytes(msgspec.json.encode(measured) + b"\n")
    typer.echo(f"Wrote {NANO_FILE}")


if __name__ == "__main__":
    main()
