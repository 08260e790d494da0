"""The page as a whole: header and views, and how it is launched."""

from typing import Any

import gradio as gr

from sakura.lab.service import Lab
from sakura.paper_scale.service import Scales
from sakura.pictures import MAX_FILE_BYTES
from sakura.race import Races
from sakura.studio import Studio
from ui.devices import Devices
from ui.edit import EditView
from ui.lab import LabView
from ui.parts import header
from ui.race import RaceView
from ui.scale import ScaleView
from ui.theme import FONTS, page_head, page_theme

UPLOAD_CHECK_S = 600
UPLOAD_KEPT_S = 86_400


def build_page(studio: Studio, lab: Lab) -> gr.Blocks:
    """All of the page for a studio and a lab; ``launch(**launch_options())`` serves it."""
    devices = Devices(studio)
    with gr.Blocks(
        title="SAKURA: edit", fill_width=True, delete_cache=(UPLOAD_CHECK_S, UPLOAD_KEPT_S), analytics_enabled=False
    ) as page:
        header("edit", devices)
        EditView(studio).build()
    with page.route("Race", "/race"):
        header("race", devices)
        RaceView(studio, Races(studio)).build()
    with page.route("Compression lab", "/lab"):
        header("lab", devices)
        LabView(studio, lab).build()
    with page.route("Paper scale", "/scale"):
        header("scale", devices)
        ScaleView(Scales()).build()
    return page


def launch_options() -> dict[str, Any]:
    """Arguments of ``launch`` that belong to the page: its looks, its fonts and the limit for uploads."""
    return {
        "theme": page_theme(),
        "head": page_head(),
        "footer_links": [],
        "allowed_paths": [str(FONTS)],
        "max_file_size": MAX_FILE_BYTES,
        "show_error": False,
        "ssr_mode": False,
    }
