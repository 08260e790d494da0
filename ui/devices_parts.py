"""The markup of the device chip and the panel it opens, which ``static/devices.js`` fills."""

CHIP = """
<button type="button" class="chip" data-part="chip" aria-haspopup="dialog"><span class="dot"></span><span class="words"
  data-part="chip-words">Looking for a device</span><svg viewBox="0 0 12 12" aria-hidden="true"><path d="M2 4l4 4 4-4"
  fill="none" stroke="currentColor" stroke-width="1.6"/></svg></button>
<span class="unseen" role="status" data-part="chip-said"></span>
"""

PANEL = """
<div class="error devices-gone" role="status" data-part="gone" hidden><span></span><button type="button"
  class="btn small" data-part="gone-close">Close</button></div>
<dialog class="own devices" data-part="dialog" aria-labelledby="devices-title">
  <header><h2 id="devices-title">Devices</h2><button type="button" class="btn small" data-part="close">Close
    </button></header>
  <div class="devices-body">
    <section aria-labelledby="devices-connected">
      <div class="lab" id="devices-connected">Connected<i>the chosen one runs the next edit and race</i></div>
      <div class="error devices-said" role="status" data-part="gone-inside" hidden><span></span></div>
      <div class="devices-list" role="radiogroup" aria-labelledby="devices-connected" data-part="list"></div>
      <p class="drop" data-part="none" hidden>No device is connected; pair one.</p>
    </section>
    <div class="devices-side">
      <section aria-labelledby="devices-pair">
        <div class="lab" id="devices-pair">Pair a device</div>
        <p class="sub" data-part="pair-about">A device is a machine with this project installed. It needs a code the
          first time; after that it comes back by itself.</p>
        <div class="devices-offer" data-part="offer" hidden>
          <div class="devices-code"><output class="n" data-part="code" aria-label="Pairing code"></output>
            <span class="sub n" data-part="countdown"></span></div>
          <div class="devices-qr" role="img" aria-label="QR code with the address and the code" data-part="qr"></div>
          <p class="sub">Run this on the device:</p>
          <div class="devices-addresses" data-part="addresses"></div>
          <p class="sub" data-part="note" hidden></p>
        </div>
        <div data-part="pair-said" aria-live="polite"></div>
        <button type="button" class="btn" data-part="pair">Pair a device</button>
      </section>
      <section aria-labelledby="devices-paired">
        <div class="lab" id="devices-paired">Paired devices</div>
        <p class="sub" data-part="unpaired">None yet.</p>
        <ul class="devices-paired" data-part="paired"></ul>
        <div data-part="paired-said" aria-live="polite"></div>
      </section>
    </div>
  </div>
</dialog>
"""
