"""The markup of the lab, which the scripts in ``static/`` fill."""

import html
from string import Template

from sakura.lab.points import Chart
from sakura.lab.settings import MAX_BITS, MAX_Q, Q_STEP, RANKS

SLIDER = Template("""
<div class="field lab-slider" data-slider="$name">
  <div class="lab"><label for="lab-$name" data-tip="$tip">$label</label><input type="number" class="lab-number"
    min="$low" max="$high" step="$step" aria-label="$label, as a number" data-part="$name-number"></div>
  <input type="range" id="lab-$name" min="$first" max="$last" step="$move" data-part="$name-range">
  <div class="lab-ends micro"><span>$low</span><span data-part="$name-help">$help</span><span>$high</span></div>
</div>""")

CHART = Template("""
<section class="card lab-chart-card" aria-label="$title">
  <header><h2>$title</h2><div class="tools"><button type="button" class="btn small" data-csv="$name">CSV</button><button
    type="button" class="btn small" data-svg="$name">SVG</button></div><span
    class="sub">$sub</span><span class="micro n" data-progress></span></header>
  <div class="lab-chart" data-part="$name"></div>
</section>""")

LAB = Template("""
<div class="page lab-page">
<section class="card lab-side" aria-label="Setting">
  <div class="lab-template"><div class="thumb"><img alt="" data-part="thumb"></div><div><b data-part="title">&nbsp;</b>
    <span class="sub" data-part="task"></span></div><button type="button" class="btn small" data-part="change"
    aria-haspopup="dialog">Change</button></div>
  <div class="error" role="alert" data-part="error" hidden></div>
  $sliders
  <div class="lab-bytes">
    <div class="lab">Bytes for this template<i data-part="status" role="status"></i></div>
    <div class="lab-hero"><output class="lab-big n" data-part="bytes">&#8199;</output><span class="sub"
      data-part="smaller"></span></div>
    <div class="lab-bar"><i data-part="bar"></i><i></i></div>
    <div class="micro lab-bar-names"><span>this setting</span><span>full cache</span></div>
    <dl class="lab-parts n">
      <dt>Token basis</dt><dd data-part="part0"></dd><dt>Coefficients</dt><dd data-part="part1"></dd>
      <dt>Means</dt><dd data-part="part2"></dd><dt>Scales and index</dt><dd data-part="part3"></dd>
      <dt data-tip="The share of the importance-weighted energy that the setting loses.">Energy lost</dt>
      <dd data-part="lost"></dd></dl>
  </div>
  <a class="btn primary lab-go" data-part="go"
    data-tip="The edit spends so many bytes of the stored cache, which has q = 0.75.">Edit with these bytes</a>
  <dialog class="lab-choice" data-part="choice" aria-labelledby="lab-choice-title">
    <header><h2 id="lab-choice-title">Choose a template</h2><button type="button" class="btn small"
      data-part="choice-close">Close</button></header><div data-part="choices"></div></dialog>
</section>
<div class="main lab-main">
<section class="card lab-top" aria-label="Importance">
  <div class="lab-map"><div class="cap">Importance on the template<i data-part="where"></i></div><div class="pic"><img
    alt="Template in grey" data-part="grey"><canvas role="img" data-part="map"
    aria-label="Importance of each part of the template"></canvas><svg class="over" viewBox="0 0 100 100"
    aria-hidden="true"><defs><pattern id="lab-hatch" width="3" height="3" patternUnits="userSpaceOnUse"
    patternTransform="rotate(45)"><path d="M0 0V3" stroke="#1D1824" stroke-width=".8" opacity=".55"/></pattern></defs>
    <g data-part="outline"></g></svg></div></div>
  <div class="lab-all"><div class="cap">Every step and block<i>pick one to enlarge</i></div>
    <div class="lab-grid" role="radiogroup" aria-label="Step and block" data-part="grid"></div>
    <div class="lab-key micro"><span>low</span><canvas width="96" height="1" data-part="ramp"></canvas><span>high</span>
      <svg width="16" height="12" aria-hidden="true"><rect width="16" height="12" rx="2" fill="url(#lab-hatch-key)"
      stroke="var(--sk-edge)"/><defs><pattern id="lab-hatch-key" width="4" height="4" patternUnits="userSpaceOnUse"
      patternTransform="rotate(45)"><path d="M0 0V4" stroke="var(--sk-ink-2)" stroke-width="1.4"/></pattern></defs>
      </svg><span>edited region: computed on the device</span></div></div>
  <div class="lab-uneven"><div class="cap">How uneven it is</div><p class="lab-read" data-part="read">&nbsp;</p>
    <p class="sub" data-part="stable">&nbsp;</p><div class="lab-chart lab-lorenz" data-part="lorenz"></div></div>
</section>
<section class="card lab-edit" aria-label="The edit with this setting">
  <header><h2>The edit with this setting</h2><span class="sub">A request that the cache was not captured with.</span>
    <div class="tools"><button type="button" class="btn small" data-part="next">Next request</button></div></header>
  <p class="lab-none" data-part="none" hidden></p>
  <div class="lab-pics" data-part="pics">
    <figure class="lab-request"><figcaption data-part="request-name">Request 1</figcaption><div class="pic"
      data-part="request-box"><img alt="Reference of the request" data-part="reference" hidden><span data-part="words"
      hidden></span></div></figure>
    <figure><figcaption>With this setting</figcaption><div class="pic"><img alt="Edit with this setting"
      data-part="picture" hidden></div></figure>
    <figure><figcaption>Full cache</figcaption><div class="pic"><img alt="Edit with the full cache" data-part="full"
      hidden></div></figure>
    <figure><figcaption>Difference, 8 times</figcaption><div class="pic"><canvas role="img" data-part="difference"
      aria-label="Where the two edits differ"></canvas></div></figure>
    <table class="t n lab-scores" aria-label="This setting compared with the full cache"><thead><tr><th scope="col">
      Against the full cache</th><th scope="col">PSNR, dB</th><th scope="col">SSIM</th></tr></thead><tbody>
      <tr><th scope="row">Edited region</th><td data-part="mask-psnr"></td><td data-part="mask-ssim"></td></tr>
      <tr><th scope="row">Whole picture</th><td data-part="psnr"></td><td data-part="ssim"></td></tr></tbody></table>
  </div>
</section>
<p class="unseen" role="status" data-part="progress"></p>
<div class="lab-charts">$charts</div>
</div>
</div>
""")


def _slider(name: str, label: str, tip: str, help_words: str, values: tuple[float, float, float]) -> str:
    low, high, step = values
    ranks = name == "rank"
    return SLIDER.substitute(
        name=name, label=label, tip=html.escape(tip), help=help_words, low=f"{low:g}", high=f"{high:g}",
        step="any" if ranks else f"{step:g}", first=0 if ranks else f"{low:g}",
        last=len(RANKS) - 1 if ranks else f"{high:g}", move=1 if ranks else f"{step:g}",
    )  # fmt: skip


def _chart(name: Chart, title: str, sub: str) -> str:
    return CHART.substitute(name=name, title=title, sub=sub)


def lab_markup() -> str:
    """All of the view, empty and at its final size."""
    sliders = [
        _slider(
            "q", "Importance exponent q", "How strongly bytes go to the tokens that the edited region looks at.",
            "at 0 all tokens count alike", (0, MAX_Q, Q_STEP),
        ),
        _slider(
            "rank", "Rank", "How many components of the cache are sent; the first ones carry the most.",
            "components that are sent", (RANKS[0], RANKS[-1], 1),
        ),
        _slider(
            "left", "Bits, left factor", "How finely the token basis is sent, which all steps and blocks share.",
            "bit planes of the token basis", (1, MAX_BITS, 1),
        ),
        _slider(
            "right", "Bits, right factor", "How finely the coefficients of each block and step are sent.",
            "bit planes of the coefficients", (1, MAX_BITS, 1),
        ),
    ]  # fmt: skip
    ranks = f"ranks {RANKS[0]} to {RANKS[-1]}"
    charts = [
        _chart(
            "precision",
            "Rank against precision",
            f"Each line is one pair of bits; points are {ranks}.",
        ),
        _chart("codecs", "Rate and quality, all codecs", "Compared with the picture from the full cache."),
        _chart("exponent", "Effect of q", "At the same bytes, with caches encoded for each q."),
        _chart("storage", "Storage of this template", "What the cloud keeps, with all configurations that it serves."),
    ]
    return LAB.substitute(sliders="".join(sliders), charts="".join(charts))
