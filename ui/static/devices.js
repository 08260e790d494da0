// Which device runs the next edit and race, the chip that says so, and the panel with all devices.
"use strict";

(() => {
  const { h } = sakura;
  const CLOSED_MS = 3000; // between looks while the panel is closed
  const OPEN_MS = 2000;
  const KEY = "sakura-device";
  const listeners = [];

  // The choice holds for this tab, also on the other pages; a browser may refuse to keep it.
  function recall() {
    try {
      return JSON.parse(sessionStorage.getItem(KEY));
    } catch {
      return null;
    }
  }

  let kept = recall(); // {id, name} of the chosen device; null for the first one

  function keep(choice) {
    kept = choice;
    try {
      if (choice) sessionStorage.setItem(KEY, JSON.stringify(choice));
      else sessionStorage.removeItem(KEY);
    } catch {
      // Then the choice holds for this page only.
    }
  }

  const devices = {
    list: null, // the connected devices; null where that is not known
    paired: [],

    // The id of the device that runs what is started next; null leaves it to the server, which takes the first.
    chosen: () => kept?.id ?? devices.list?.[0]?.id ?? null,

    choose(id) {
      const device = devices.list?.find((each) => each.id === id);
      if (!device) return;
      change(() => keep({ id, name: device.name }));
      tell("gone", ""); // whatever went before
    },

    // A view is called with every change: look, chosen, gone (with a sentence, or none any more).
    listen: (view) => listeners.push(view),
  };

  const tell = (what, detail) => listeners.forEach((view) => view(what, detail));

  function change(work) {
    const before = devices.chosen();
    work();
    const after = devices.chosen();
    if (before === after) return;
    // What asked before a device was known was answered for the first one.
    if (before !== null || after !== devices.list?.[0]?.id) sakura.renewPlan();
    tell("chosen");
  }

  function take(answer) {
    change(() => {
      devices.list = answer?.devices ?? null;
      if (!answer) return;
      devices.paired = answer.paired;
      if (!kept || devices.list.some(({ id }) => id === kept.id)) return;
      const { name } = kept;
      keep(null);
      const next = devices.list[0]?.name;
      tell("gone", next ? `${name} is not connected any more; ${next} runs the next edit.` : `${name} is not connected any more, nor is any other device.`);
    });
    tell("look");
  }

  sakura.devices = devices;

  sakura.mountHeader = (element, server) => {
    const $ = (name) => element.querySelector(`[data-part=${name}]`);
    const dialog = $("dialog");
    let offer = null; // {code, addresses, note, ends_ms, known}: the code that is shown
    let asking = false;
    let timer = 0;
    let latest = 0; // the number of the last look: older answers do not count

    async function look() {
      clearTimeout(timer);
      if (!element.isConnected) return;
      const mine = (latest += 1);
      const code = offer?.code ?? "";
      const answer = await sakura.asked(server.devices(code));
      if (mine !== latest) return;
      take(answer);
      if (answer && offer && offer.code === code && !answer.code_open) used();
      sakura.redrawAction?.();
      timer = setTimeout(look, dialog.open ? OPEN_MS : CLOSED_MS);
    }

    // The chip

    function drawChip() {
      const { list } = devices;
      const name = list?.find(({ id }) => id === devices.chosen())?.name;
      const words = list === null
        ? "The page has lost its server"
        : list.length === 0 ? "No device connected" : list.length === 1 ? `${name} connected` : `${list.length} devices: ${name}`;
      $("chip").classList.toggle("warn", !list?.length);
      for (const part of ["chip-words", "chip-said"]) if ($(part).textContent !== words) $(part).textContent = words;
    }

    function gone(sentence) {
      for (const part of ["gone", "gone-inside"]) {
        $(part).querySelector("span").textContent = sentence;
        $(part).hidden = !sentence;
      }
    }

    // The connected devices: rows stay while their device does, so that focus and pointer stay where they are.

    const since = (seconds_ago) => new Date(Date.now() - 1000 * seconds_ago).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

    function newRow(id) {
      const input = h("input", { type: "radio", name: "device", value: id, onchange: () => devices.choose(id) });
      const parts = { name: h("b"), engine: h("span", { class: "sub" }), fallbacks: h("div"), facts: h("dl") };
      return Object.assign(h("label", { class: "device", "data-key": id }, input, parts.name, parts.engine, parts.fallbacks, parts.facts), { input, parts });
    }

    function fillRow(row, device) {
      const { parts } = row;
      row.input.checked = device.id === devices.chosen();
      row.input.setAttribute("aria-label", device.name);
      parts.name.textContent = device.name;
      parts.engine.textContent = device.engine;
      const facts = [...device.facts, { name: "Connected", value: `since ${since(device.connected_for_s)}` }];
      const shows = JSON.stringify([device.fallbacks, facts]);
      if (row.shows === shows) return;
      row.shows = shows;
      parts.fallbacks.replaceChildren(...device.fallbacks.map((sentence) => h("p", { class: "device-fallback" }, sentence)));
      parts.facts.replaceChildren(...facts.map(({ name, value }) => h("div", {}, h("dt", {}, name), h("dd", { class: "n" }, value))));
    }

    // Children of a list by their key: the old ones stay, new ones come, and what is no more goes.
    function keyed(box, items, create, fill) {
      const rows = new Map([...box.children].map((row) => [row.dataset.key, row]));
      items.forEach((item, place) => {
        const row = rows.get(item.id) ?? create(item.id);
        rows.delete(item.id);
        fill(row, item);
        if (box.children[place] !== row) box.insertBefore(row, box.children[place] ?? null);
      });
      const focused = box.contains(document.activeElement);
      for (const row of rows.values()) row.remove();
      if (focused && !box.contains(document.activeElement)) $("close").focus();
    }

    function drawPanel() {
      if (!dialog.open) return;
      keyed($("list"), devices.list ?? [], newRow, fillRow);
      $("none").hidden = devices.list === null || devices.list.length > 0;
      keyed($("paired"), devices.paired, newPaired, fillPaired);
      $("unpaired").hidden = devices.paired.length > 0;
    }

    // Paired devices

    function newPaired(id) {
      const words = h("div", {}, h("b"), h("span", { class: "sub" }));
      const row = h("li", { "data-key": id }, words);
      row.words = words;
      const button = (name, press) => h("button", { type: "button", class: "btn small", onclick: press }, name);
      const ask = (on) => {
        question.hidden = !on;
        revoke.hidden = on;
        (on ? keep : revoke).focus();
      };
      const revoke = button("Revoke", () => ask(true));
      const keep = button("Keep it", () => ask(false));
      const sure = button("Revoke it", async () => {
        if (sure.disabled) return;
        sure.disabled = true;
        const answer = (await sakura.asked(server.revoke(id))) ?? { error: sakura.UNREACHED };
        sure.disabled = false;
        say("paired-said", answer.error ?? "");
        look();
      });
      const question = h("div", { class: "devices-sure", hidden: true }, h("span", { class: "sub" }, "It needs a new code to come back."), h("div", {}, sure, keep));
      row.append(revoke, question);
      row.revoke = revoke;
      return row;
    }

    function fillPaired(row, { name, paired_s, connected }) {
      const when = new Date(1000 * paired_s).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
      row.words.querySelector("b").textContent = name;
      row.words.querySelector("span").textContent = `${connected ? "Connected" : "Not connected"}, paired ${when}`;
      row.revoke.setAttribute("aria-label", `Revoke ${name}`);
    }

    function say(part, error, remark = "") {
      $(part).replaceChildren(...(error ? [h("div", { class: "error", role: "alert" }, h("span", {}, error))] : remark ? [h("p", { class: "remark" }, remark)] : []));
    }

    // Pairing

    async function pair() {
      if (asking) return;
      asking = true;
      drawOffer();
      const answer = (await sakura.asked(server.pairing_offer())) ?? { error: sakura.UNREACHED };
      asking = false;
      say("pair-said", answer.error ?? "");
      if (!answer.error) offer = { ...answer, ends_ms: performance.now() + 1000 * answer.expires_in_s, known: devices.paired.map(({ id }) => id) };
      showOffer();
      look();
    }

    // The code that was shown works no more: a device has used it, or it was given up.
    function used() {
      const device = devices.paired.find(({ id }) => !offer.known.includes(id));
      const ended = performance.now() >= offer.ends_ms;
      offer = null;
      say("pair-said", "", device ? `${device.name} is paired.` : `${ended ? "The code has expired" : "The code does not work any more"}; ask for a new one.`);
      showOffer();
    }

    function showOffer() {
      if (offer) {
        $("code").textContent = offer.code;
        $("addresses").replaceChildren(...offer.addresses.map(newAddress));
        showQr(0);
        $("note").textContent = offer.note;
        $("note").hidden = !offer.note;
      } else $("qr").replaceChildren();
      drawOffer();
    }

    function drawOffer() {
      $("offer").hidden = !offer;
      $("pair-about").hidden = Boolean(offer);
      $("pair").textContent = asking ? "Asking for a code" : offer ? "Ask for a new code" : "Pair a device";
      if (!offer) return;
      const left_s = Math.max(0, Math.ceil((offer.ends_ms - performance.now()) / 1000));
      $("countdown").textContent = `works once, for ${Math.floor(left_s / 60)}:${String(left_s % 60).padStart(2, "0")} more`;
      if (left_s === 0) used();
    }

    // The server draws the QR code; nothing in it comes from a device.
    function showQr(place) {
      $("qr").innerHTML = offer.addresses[place].qr_svg;
    }

    function newAddress({ host, command }, place, { length }) {
      const copy = h("button", { type: "button", class: "btn small", "aria-label": `Copy the command for ${host}` }, "Copy");
      // It breaks between words only, not at the hyphens inside of them.
      const words = command.split(" ").flatMap((word, i) => [i ? " " : "", h("span", {}, word)]);
      const code = h("code", { tabindex: 0 }, ...words);
      copy.addEventListener("click", async () => {
        try {
          await navigator.clipboard.writeText(command);
          copy.textContent = "Copied";
        } catch {
          // Where the browser does not let the page copy, the command is marked for the keyboard.
          getSelection().selectAllChildren(code);
          copy.textContent = "Marked";
        }
        setTimeout(() => (copy.textContent = "Copy"), 2000);
      });
      const radio = h("input", { type: "radio", name: "device-address", onchange: () => showQr(place) });
      radio.checked = place === 0;
      const address = length > 1 ? h("label", { class: "sub" }, radio, `${host}, shown as QR code`) : null;
      return h("div", {}, address, h("div", { class: "devices-command" }, code, copy));
    }

    $("chip").addEventListener("click", () => {
      dialog.showModal();
      drawPanel();
      look();
    });
    $("close").addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    $("gone-close").addEventListener("click", () => gone(""));
    $("pair").addEventListener("click", pair);
    setInterval(() => offer && drawOffer(), 1000);
    devices.listen((what, detail) => {
      if (!element.isConnected) return;
      if (what === "gone") gone(detail);
      if (what === "chosen" && devices.list) drawChip();
      if (what === "look") {
        drawChip();
        drawPanel();
      }
    });
    look();
  };
})();
