"""Looks and scripts of the page: the tokens, components and views in ``static/`` go into the head of the document."""

from pathlib import Path

import gradio as gr

STATIC = Path(__file__).parent / "static"
FONTS = STATIC / "fonts"
TOKENS = "tokens.css"
STYLES = (
    "components.css",
    "page.css",
    "setup.css",
    "result.css",
    "own.css",
    "devices.css",
    "lab.css",
    "race.css",
    "scale.css",
)
SCRIPTS = (
    "base.js",
    "run.js",
    "devices.js",
    "pictures.js",
    "timeline.js",
    "setup.js",
    "brush.js",
    "own.js",
    "lab_maps.js",
    "lab_charts.js",
    "lab.js",
    "race.js",
    "race_rows.js",
    "race_view.js",
    "scale.js",
)
BLOSSOM_PETAL = "M0 -1.2C-3.6 -3.4 -3.9 -7.6 -1.9 -10L0 -8.5L1.9 -10C3.9 -7.6 3.6 -3.4 0 -1.2Z"


def page_head() -> str:
    """Styles and scripts as markup for ``<head>``: Gradio's own ``css`` argument drops the at-rules the tokens need."""
    tokens = (STATIC / TOKENS).read_text("utf-8").replace('url("fonts/', f'url("gradio_api/file={FONTS.as_posix()}/')
    # Gradio's own style sheets load later; inside this rule every selector outweighs theirs.
    styles = tokens + ":root:root {\n" + "\n".join((STATIC / name).read_text("utf-8") for name in STYLES) + "}"
    scripts = "\n".join(f"<script>{(STATIC / name).read_text('utf-8')}</script>" for name in SCRIPTS)
    icon = _blossom("%23C4246B", 'xmlns="http://www.w3.org/2000/svg"').replace('"', "'")
    return (
        f"<style>{styles}</style>\n{scripts}\n"
        f'<link rel="icon" href="data:image/svg+xml,{icon}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
    )


def blossom_svg() -> str:
    """The mark of SAKURA in the colour of the text around it."""
    return _blossom("currentColor", 'aria-hidden="true"')


def _blossom(fill: str, attributes: str) -> str:
    petals = "".join(
        f'<path transform="rotate({angle}) scale(1.05)" d="{BLOSSOM_PETAL}" fill="{fill}"/>'
        for angle in range(0, 360, 72)
    )
    return f'<svg {attributes} viewBox="-11 -11 22 22">{petals}</svg>'


def page_theme() -> gr.themes.Base:
    """Gradio's own parts in the colours of the tokens, which switch with the theme by themselves."""
    return gr.themes.Base(font=["Atkinson Hyperlegible Next", "system-ui", "sans-serif"], font_mono=["monospace"]).set(
        body_background_fill="var(--sk-bg)",
        body_background_fill_dark="var(--sk-bg)",
        body_text_color="var(--sk-ink)",
        body_text_color_dark="var(--sk-ink)",
        body_text_color_subdued="var(--sk-ink-2)",
        body_text_color_subdued_dark="var(--sk-ink-2)",
        background_fill_primary="var(--sk-surface)",
        background_fill_primary_dark="var(--sk-surface)",
        background_fill_secondary="var(--sk-sunken)",
        background_fill_secondary_dark="var(--sk-sunken)",
        block_background_fill="transparent",
        block_background_fill_dark="transparent",
        block_border_width="0px",
        block_padding="0",
        block_shadow="none",
        border_color_primary="var(--sk-line)",
        border_color_primary_dark="var(--sk-line)",
        color_accent="var(--sk-accent)",
        color_accent_soft="var(--sk-accent-soft)",
        color_accent_soft_dark="var(--sk-accent-soft)",
        input_background_fill="var(--sk-surface)",
        input_background_fill_dark="var(--sk-surface)",
        input_border_color="var(--sk-edge)",
        input_border_color_dark="var(--sk-edge)",
        input_border_color_focus="var(--sk-ink)",
        input_border_color_focus_dark="var(--sk-ink)",
        input_border_width="1px",
        input_shadow="none",
        input_shadow_focus="none",
        input_radius="var(--r-field)",
        layout_gap="12px",
        button_secondary_background_fill="var(--sk-surface)",
        button_secondary_background_fill_dark="var(--sk-surface)",
        button_secondary_border_color="var(--sk-edge)",
        button_secondary_border_color_dark="var(--sk-edge)",
        button_secondary_text_color="var(--sk-ink)",
        button_secondary_text_color_dark="var(--sk-ink)",
    )
