"""The markup of the Paper scale view, which ``static/scale.js`` fills."""

import html
from string import Template

from sakura.paper_scale.models import CASE_ASSUMPTIONS
from sakura.paper_scale.notes import QUALITY_NOTE, TIMING_ASSUMPTIONS

NUMBER_TITLES = {
    "npu_tflops": "NPU, TFLOPS",
    "gpu_tflops": "GPU, TFLOPS",
    "gpu_write_gb_per_s": "GPU writes, GB/s",
    "dequantise_gb_per_s": "Dequantising, GB/s",
    "entropy_decode_gb_per_s": "Entropy decoding, GB/s",
    "dispatch_ms": "Dispatch a shard, ms",
    "sustained_share": "Speed, first minute",
    "throttled_share": "Speed, hot",
}
WORKLOAD_TITLES = {"FS": "Face swap", "VTON": "Try-on", "MB": "Instruction"}

CHOICE = Template("""
<div class="field"><div class="lab"><label for="scale-$name">$label</label></div>
  <select class="select scale-select" id="scale-$name" data-part="$name"></select></div>""")

SCALE = Template("""
<div class="page lab-page scale-page">
<section class="card lab-side scale-side" aria-label="Setting">
  <div class="error" role="alert" data-part="error" hidden></div>
  $choices
  <div class="field"><div class="lab"><label for="scale-rtt">Round trip, ms</label></div>
    <input type="number" class="scale-input" id="scale-rtt" min="0" max="2000" step="any" data-part="rtt_ms"></div>
  <details class="scale-device" open data-part="device-numbers"><summary><span>Numbers of the device</span><button
    type="button" class="btn small" data-part="reset" hidden>Reset</button></summary>
    <div data-part="numbers"></div></details>
</section>
<div class="main lab-main">
<section class="card scale-result" aria-label="Latency">
  <header><h2>Latency of one edit</h2><span class="sub" data-part="about"></span></header>
  <div class="scale-heads"><div class="metric"><div class="k">SAKURA</div><output class="scale-big n"
    data-part="sakura">&#8199;</output></div>
    <div class="metric"><div class="k">than on the device alone</div><div class="v n" data-part="over-device">
    &#8199;</div></div>
    <div class="metric"><div class="k">than CacheGen</div><div class="v n" data-part="over-cachegen">&#8199;</div></div>
    <div class="metric"><div class="k">of the limit</div><div class="v n" data-part="share">&#8199;</div></div>
    <p class="sub scale-status" role="status" data-part="status"></p></div>
  <div class="scale-rows" data-part="rows" role="table" aria-label="Systems"></div>
  <p class="micro scale-key"><i class="scale-dash"></i><span data-part="limit"></span></p>
</section>
<section class="card scale-model" aria-label="The model">
  <header><h2>The model</h2></header>
  <dl class="scale-facts n" data-part="facts"></dl>
</section>
<section class="card scale-notes" aria-label="What this assumes">
  <header><h2>What this assumes</h2><span class="sub">Nothing here is measured on a phone.</span></header>
  <ul>$notes</ul>
  <ul data-part="sources"></ul>
</section>
</div>
</div>
""")


def scale_markup() -> str:
    """All of the view, empty and at its final size."""
    labels = {"case": "Model", "workload": "Workload", "device": "Device", "network": "Network"}
    choices = "".join(CHOICE.substitute(name=name, label=label) for name, label in labels.items())
    notes = "".join(
        f"<li>{html.escape(sentence)}</li>" for sentence in (QUALITY_NOTE, *CASE_ASSUMPTIONS, *TIMING_ASSUMPTIONS)
    )
    return SCALE.substitute(choices=choices, notes=notes)
