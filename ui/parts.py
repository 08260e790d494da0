"""The page's own pieces as ``gr.HTML``: fixed templates that the scripts in ``static/`` fill."""

import gradio as gr

from ui.devices import Devices
from ui.devices_parts import CHIP, PANEL
from ui.theme import blossom_svg

LOCK = (
    '<svg viewBox="0 0 16 16" aria-hidden="true"><rect x="3" y="7" width="10" height="7" rx="1.5" fill="none" '
    'stroke="currentColor" stroke-width="1.4"/><path d="M5.2 7V5a2.8 2.8 0 0 1 5.6 0v2" fill="none" '
    'stroke="currentColor" stroke-width="1.4"/></svg>'
)


def thumbs(name: str, items: list[dict[str, str]], value: str, label: str) -> gr.HTML:
    """Up to four pictures as one radio group. ``items`` are ``{"id", "src", "alt"}``, the value is the chosen id."""
    return gr.HTML(
        value=value,
        html_template=f'<div class="thumbs" role="radiogroup" aria-label="{label}"></div>',
        js_on_load="sakura.mountThumbs(element, props, trigger, watch); // 'select'",
        apply_default_css=False,
        elem_id=f"{name}-thumbs",
        items=items,
        name=name,
    )


REFERENCES_TEMPLATE = """
<div class="thumbs" data-part="thumbs" role="radiogroup" aria-label="Pictures to choose from"></div>
<div class="drop" data-part="drop">
  <span data-part="drop-words"><span class="wide">Drop a picture here, </span><button type="button" class="link"
    data-part="choose">choose a file</button><span data-part="photo-words"> or <button type="button" class="link"
    data-part="photo">take a photo</button></span></span>
  <span data-part="drop-busy" hidden>Reading your picture</span>
</div>
<input type="file" accept="image/*" data-part="file" hidden aria-label="Choose a picture">
<input type="file" accept="image/*" capture="environment" data-part="camera-file" hidden aria-label="Take a photo">
<dialog class="camera" data-part="camera" aria-label="Take a photo">
  <video autoplay playsinline muted></video>
  <div class="camera-tools"><button type="button" class="btn" data-part="camera-cancel">Cancel</button>
    <button type="button" class="btn" data-part="camera-take">Take the photo</button></div>
</dialog>
"""


def references(items: list[dict[str, str]], value: str) -> gr.HTML:
    """Shipped pictures, and a place for the visitor's own.

    ``select`` brings the ``id`` of a chosen one, ``picture`` ``{"path", "name"}`` of an upload, ``refuse`` a
    ``reason`` why the browser did not upload. The prop ``own`` is ``{"id", "src"}`` or None.
    """
    return gr.HTML(
        value=value,
        html_template=REFERENCES_TEMPLATE,
        js_on_load="sakura.mountReferences(element, props, trigger, upload, watch); // 'select' 'picture' 'refuse'",
        apply_default_css=False,
        elem_id="references",
        items=items,
        own=None,
    )


def examples(words: list[str]) -> gr.HTML:
    """Prompts to start from; ``example`` brings the ``words`` of the one that was pressed."""
    return gr.HTML(
        html_template='<div class="examples" role="group" aria-label="Examples"></div>',
        js_on_load="sakura.mountExamples(element, props, trigger, watch); // 'example'",
        apply_default_css=False,
        examples=words,
    )


ACTION_TEMPLATE = """
<div class="error" role="alert" data-part="refused" hidden></div>
<div class="act one">
  <button type="button" class="btn primary go" data-part="go"><span data-part="words">Edit</span>
    <span class="fill" data-part="fill" hidden></span></button>
  <button type="button" class="btn stop" data-part="stop" hidden>Stop</button>
</div>
"""


def action() -> gr.HTML:
    """The primary action. ``edit`` asks for a run, ``stop`` brings the ``run_id`` to stop.

    The prop ``blocked`` is why nothing can be edited now, or empty; a new ``answered`` frees the button after a press.
    """
    return gr.HTML(
        html_template=ACTION_TEMPLATE,
        js_on_load="sakura.mountAction(element, props, trigger, watch); // 'edit' 'stop'",
        apply_default_css=False,
        elem_id="action",
        blocked="",
        answered=0,
    )


def privacy_markup(own_template: bool) -> str:
    """What the cloud and the device learn, with a shipped template or one of the visitor's own."""
    words = "Your picture goes to your device only. The cloud learns only which template you chose."
    if own_template:
        words = "The cloud keeps the template that you made; your picture for the edit goes to your device only."
    return f'<div class="note">{LOCK}<span>{words}</span></div>'


def privacy_note() -> gr.HTML:
    """The note under the action, about the template that is chosen."""
    return gr.HTML(privacy_markup(own_template=False), apply_default_css=False, elem_classes="note-block")


PICTURES_TEMPLATE = """
<div class="result" data-mode="plan">
  <section class="phone-only pick-row" aria-label="The edit in view"><div class="pick" data-part="pick"></div>
    <button type="button" class="btn" data-part="change" aria-label="Change the setup"><svg width="18" height="18"
      viewBox="0 0 18 18" aria-hidden="true"><path d="M2 5h14M2 13h14" stroke="currentColor" stroke-width="1.6"/><circle
      cx="6" cy="5" r="2.4" fill="var(--sk-surface)" stroke="currentColor" stroke-width="1.6"/><circle cx="12" cy="13"
      r="2.4" fill="var(--sk-surface)" stroke="currentColor" stroke-width="1.6"/></svg></button></section>
  <section class="card pics-card" aria-label="Pictures">
    <p class="changed phone-only" role="status" data-part="changed" hidden></p>
    <div class="error" role="status" data-part="lost" hidden>The connection to the page's server is lost; it is tried
      again every second.</div>
    <div class="pics">
      <div class="p-template"><div class="cap">Template<i data-part="region"></i><i class="heat-key">looked at
        little<span class="heat-ramp"></span>much</i></div>
        <div class="pic" data-part="template-box"><img data-part="template" alt="Template"><svg class="over heat"
          viewBox="0 0 100 100" preserveAspectRatio="none" data-part="heat" role="img"
          aria-label="Importance of each part of the template for the edit"></svg><svg class="over"
          viewBox="0 0 100 100" data-part="outline" aria-hidden="true"></svg>
          <div class="heat-tools"><button type="button" class="btn small" data-part="heat-toggle" aria-pressed="false"
            data-tip="Shows which parts of the template the edited region looks at.">Importance</button>
            <label><span data-part="heat-step-value">Step 1</span><input type="range" min="1" max="4" value="1"
              data-part="heat-step" aria-label="Step"></label>
            <label><span data-part="heat-block-value">Block 1</span><input type="range" min="1" max="1" value="1"
              data-part="heat-block" aria-label="Block"></label></div></div></div>
      <div class="p-edit"><div class="cap">Your edit<i data-part="state">no edit yet</i></div>
        <div class="pic-box"><div class="pic" data-part="edit"></div>
          <div class="error" role="alert" data-part="error" hidden><span data-part="error-text"></span><button
            type="button" class="btn small" data-part="error-close">Close</button></div></div></div>
      <div class="p-how"><div class="lab2">What will happen</div><ol class="how" data-part="how"></ol></div>
      <div class="p-hero"><div class="metric"><div class="k" data-part="hero-name"></div>
        <output class="big" data-part="time"></output></div><p class="verdict" data-part="verdict"></p></div>
      <div class="p-numbers grid3">
        <div class="metric phone-only"><div class="k">Time</div><div class="v" data-part="time"></div></div>
        <div class="metric"><div class="k">Received</div><div class="v" data-part="received"></div></div>
        <div class="metric not-phone" tabindex="0"
          data-tip="The same data without compression; every quality figure is measured against it."><div class="k"
          data-part="second-name"></div><div class="v" data-part="second"></div></div>
        <div class="metric not-phone"><div class="k" data-part="third-name"></div><div class="v"
          data-part="third"></div></div>
        <div class="metric phone-only"><div class="k">Waiting for network</div><div class="v"
          data-part="waiting"></div></div>
        <p class="micro caption" data-part="caption" hidden></p></div>
      <div class="p-steps"><div class="lab2">The picture so far</div><div class="steps" data-part="steps"></div></div>
      <div class="p-quality" data-part="quality"></div>
    </div>
  </section>
</div>
"""


def pictures() -> gr.HTML:
    """Template, edit and numbers of the run in view."""
    return gr.HTML(
        html_template=PICTURES_TEMPLATE,
        js_on_load="sakura.mountPictures(element);",
        apply_default_css=False,
        elem_id="pictures",
    )


PAGES = {
    "edit": ("./", "Edit"),
    "race": ("./race", "Race"),
    "lab": ("./lab", "Compression lab"),
    "scale": ("./scale", "Paper scale"),
}


def header(page: str, devices: Devices) -> gr.HTML:
    """Brand, pages with the one in view, and the device chip with its panel, which ask every few seconds."""
    links = "".join(
        f'<a href="{address}"{" class=on aria-current=page" if key == page else ""}>{name}</a>'
        for key, (address, name) in PAGES.items()
    )
    markup = (
        f'<header class="bar"><div class="brand">{blossom_svg()}<span>SAKURA</span></div>'
        f'<nav class="nav" aria-label="Pages">{links}</nav>'
        f'<div class="right">{CHIP}</div>{PANEL}</header>'
    )
    return gr.HTML(
        html_template=markup,
        js_on_load="sakura.mountHeader(element, server);",
        apply_default_css=False,
        server_functions=devices.functions(),
        elem_id="header",
    )
