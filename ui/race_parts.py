"""The markup of the race, which the scripts in ``static/`` fill."""

import gradio as gr

from ui.timeline import TIMELINE_TEMPLATE

ACTION_TEMPLATE = """
<div class="error" role="alert" data-part="refused" hidden></div>
<div class="act one">
  <button type="button" class="btn primary go" data-part="go"><span data-part="words">Start the race</span>
    <span class="fill" data-part="fill" hidden></span></button>
  <button type="button" class="btn stop" data-part="stop" hidden>Stop</button>
</div>
"""

RACE_TEMPLATE = """
<section class="card race-card" aria-label="Race">
  <header class="race-head">
    <output class="race-clock n" data-part="clock" aria-label="Clock of the race"></output>
    <div class="race-about"><h2 role="status" data-part="title">Race</h2><span class="sub"
      data-part="network"></span></div>
    <div class="race-tools">
      <button type="button" class="btn phone-only race-change" data-part="change">Change</button>
      <div class="race-speed" role="radiogroup" aria-label="Speed of the replay"><label><input type="radio"
        name="race-speed" value="1" checked><span>1×</span></label><label><input type="radio" name="race-speed"
        value="0.25"><span>¼×</span></label></div>
      <button type="button" class="btn race-key" data-part="next"
        data-tip="Chooses the next network; the race on it is measured when you start it."><kbd
        class="not-phone">N</kbd>Next network</button>
      <button type="button" class="btn race-key" data-part="again" aria-disabled="true"
        data-tip="There is no race to show again yet."><kbd class="not-phone">R</kbd>Race again</button>
    </div>
  </header>
  <p class="sub race-how" data-part="how"></p>
  <div class="error" role="status" data-part="lost" hidden>The connection to the page's server is lost; it is tried
    again every second.</div>
  <div class="race-names micro" aria-hidden="true"><span></span><span></span><span></span><span></span><span>
    Progress</span><span>Time</span><span>Received</span><span
    data-tip="Of the edited region, against the full cache's picture; higher is closer.">PSNR</span><span></span></div>
  <ol class="race-rows" data-part="rows"></ol>
  <table class="unseen" data-part="table"><caption>The race in figures. PSNR and SSIM compare the edited region with
    the full cache's picture.</caption><thead><tr><th scope="col">Place</th><th scope="col">System</th><th
    scope="col">Time, s</th><th scope="col">Received, MB</th><th scope="col">PSNR, dB</th><th scope="col">SSIM</th><th
    scope="col">Remark</th></tr></thead><tbody data-part="table-rows"></tbody></table>
</section>
"""


def race_action() -> gr.HTML:
    """The primary action. ``start`` asks for a race, ``network`` for the next network.

    The prop ``blocked`` is why no race can start now, or empty; a new ``answered`` frees the button after a press.
    """
    return gr.HTML(
        html_template=ACTION_TEMPLATE,
        js_on_load="sakura.mountRaceAction(element, props, trigger, watch); // 'start' 'network'",
        apply_default_css=False,
        elem_id="action",
        blocked="",
        answered=0,
    )


def race_timeline() -> gr.HTML:
    """The timeline of SAKURA's run, which follows the clock of the race."""
    return gr.HTML(
        html_template=TIMELINE_TEMPLATE,
        js_on_load="sakura.mountRaceTimeline(element);",
        apply_default_css=False,
        elem_id="race-timeline",
    )
