"""The timeline as one ``gr.HTML``: an SVG that ``static/timeline.js`` draws, and its twin, the shard table."""

import gradio as gr

TIMELINE_TEMPLATE = """
<section class="card tl-card" aria-label="Timeline">
  <header><h2 data-part="title">What the device will do</h2><span class="sub" data-part="sentence"></span>
    <div class="tools"><button type="button" class="btn small" data-part="table-button"
        aria-disabled="true">Shard table</button><span class="menu"><button type="button" class="btn small"
        data-part="save-button" aria-disabled="true" aria-haspopup="menu">Save timeline</button><span class="menu-list"
        role="menu" data-part="save-menu" hidden><button type="button" role="menuitem" data-format="events">Events,
        JSON</button><button type="button" role="menuitem" data-format="chrome">Chrome trace, JSON</button></span>
      </span></div></header>
  <p class="micro tl-device" data-part="device"></p>
  <div class="tl-box">
    <div class="drawing" data-part="drawing"></div>
    <p class="tl-waiting" role="status" data-part="waiting" hidden></p>
    <div class="tip" role="tooltip" data-part="tip" hidden></div>
    <div class="table-box" role="region" aria-label="Shard table" data-part="table" hidden><table
      class="t"><thead><tr data-part="head"></tr></thead>
      <tbody data-part="rows"></tbody></table></div>
  </div>
  <div class="phone-only" style="margin-top: 8px"><button type="button" class="btn" style="height: var(--touch)"
    data-part="table-button-phone" aria-disabled="true">Shard table</button></div>
  <p class="unseen" role="status" aria-live="polite" data-part="live"></p>
</section>
"""


def timeline() -> gr.HTML:
    """The timeline of the run in view, or of the plan; it follows the run by itself."""
    return gr.HTML(
        html_template=TIMELINE_TEMPLATE,
        js_on_load="sakura.mountTimeline(element);",
        apply_default_css=False,
        elem_id="timeline",
    )
