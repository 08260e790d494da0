// Paper scale: what is chosen, asking the server until all systems are worked out, and the bars.
"use strict";

(() => {
  const { h, said } = sakura;
  const CHOICES = { case: "cases", workload: "workloads", device: "devices", network: "networks" };
  const SYSTEMS = { sakura: "SAKURA", cachegen: "CacheGen", intq: "INTQ", on_device: "On the device", full_cache: "Full cache" };
  const COLOURS = { sakura: "sakura", cachegen: "cachegen", intq: "intq", on_device: "device", full_cache: "full" };
  const AGAIN_MS = 1000;
  const TYPING_MS = 400;
  const ROOM = 1.06; // the axis ends a little beyond the device alone, so that its bar can be read

  const pause = (ms) => new Promise((resume) => setTimeout(resume, ms));

  sakura.mountScale = async (element, props, server) => {
    const $ = (name) => element.querySelector(`[data-part=${name}]`);
    const page = `page-${Math.random().toString(36).slice(2)}`;
    const view = { chosen: null, devices: {} };
    let turn = 0; // a newer question ends the older one
    document.title = "SAKURA: paper scale";

    function say(sentence) {
      $("error").textContent = sentence;
      $("error").hidden = !sentence;
    }

    // The address holds what is in view, so that a reload or a link shows it again.
    function remember() {
      const url = new URL(location);
      url.search = "";
      for (const name of [...Object.keys(CHOICES), "rtt_ms"]) url.searchParams.set(name, view.chosen[name]);
      for (const [name, value] of Object.entries(view.chosen.changed)) url.searchParams.set(`set_${name}`, value);
      history.replaceState(history.state, "", url);
    }

    // The numbers of the device

    async function showDevice() {
      const device = view.chosen.device;
      if (!view.devices[device]) {
        $("numbers").replaceChildren(h("p", { class: "sub" }, "Measuring this machine"));
        const answer = await sakura.asked(server.scale_device(device));
        if (!answer || answer.error) return say(answer?.error ?? sakura.UNREACHED);
        view.devices[device] = answer.numbers;
      }
      if (device === view.chosen.device) showNumbers();
    }

    function showNumbers() {
      const numbers = view.devices[view.chosen.device];
      const { changed } = view.chosen;
      $("numbers").replaceChildren(...numbers.map((number) => {
        const label = h("span", { class: `scale-label ${number.name in changed ? "changed" : number.label}` }, number.name in changed ? "changed" : number.label);
        const field = h("input", { type: "number", class: "scale-input n", id: `scale-${number.name}`, step: "any", value: changed[number.name] ?? number.value });
        field.addEventListener("change", () => {
          const value = field.valueAsNumber;
          if (!Number.isFinite(value) || value === number.value) delete changed[number.name];
          else changed[number.name] = value;
          showNumbers();
          ask();
        });
        const tip = `${number.known}: ${number.source} Likely range ${number.low} to ${number.high}.`;
        return h("div", { class: "scale-number", "data-tip": tip }, h("label", { for: `scale-${number.name}` }, number.title), label, field);
      }));
      $("reset").hidden = Object.keys(changed).length === 0;
      $("sources").replaceChildren(...numbers.map((number) => h(
        "li", {},
        h("b", {}, `${number.title}: ${changed[number.name] ?? number.value}`),
        number.name in changed ? `, changed from ${number.value}. ` : `, ${number.known}. `,
        number.source,
      )));
    }

    $("device-numbers").open = !matchMedia("(max-width: 699px)").matches;
    $("reset").addEventListener("click", (event) => {
      event.preventDefault(); // it stands in a summary
      view.chosen.changed = {};
      showNumbers();
      ask();
    });

    // Answers

    async function ask(sentence = "") {
      const mine = (turn += 1);
      remember();
      say(sentence);
      // What is shown is of the choice before until the first answer is here.
      document.documentElement.dataset.scale = "old";
      const asked = structuredClone(view.chosen);
      await pause(TYPING_MS);
      let known = -1;
      while (mine === turn && element.isConnected) {
        const answer = await sakura.asked(server.scale_ask([page, asked, known]));
        if (mine !== turn) return;
        if (!answer) {
          $("status").textContent = sakura.UNREACHED;
          await pause(AGAIN_MS);
          continue;
        }
        if (answer.error) {
          $("status").textContent = "";
          return say(answer.error);
        }
        $("status").textContent = answer.lines.length < answer.total ? `Working out system ${answer.lines.length + 1} of ${answer.total}` : "";
        if (answer.lines.length > Math.max(known, 0)) show(answer);
        known = answer.lines.length;
        if (known === answer.total) return;
      }
    }

    function number(part, [value, unit]) {
      $(part).replaceChildren(value, h("span", { class: "u" }, unit));
    }

    function show(answer) {
      delete document.documentElement.dataset.scale;
      const of = (system) => answer.lines.find((line) => line.system === system);
      const [ours, cachegen] = [of("sakura"), of("cachegen")];
      number("sakura", sakura.time(ours.latency_s));
      number("over-device", [`${(answer.on_device_s / ours.latency_s).toFixed(2)} times`, "faster"]);
      if (cachegen) number("over-cachegen", [`${(cachegen.latency_s / ours.latency_s).toFixed(2)} times`, "faster"]);
      else $("over-cachegen").textContent = "…";
      number("share", [(100 * (answer.limit_s / ours.latency_s)).toFixed(0), "%"]);
      $("about").textContent = `${answer.steps} steps; means over ${answer.requests} requests, thin lines from the fastest to the slowest.`;
      $("limit").textContent = `The limit, ${said(sakura.time(answer.limit_s))}: the active tokens alone and one round trip. The device alone takes ${said(sakura.time(answer.on_device_s))}.`;
      drawRows(answer);
      $("facts").replaceChildren(...Object.entries({
        "All tokens, a step": `${answer.full_tflop.toFixed(1)} TFLOP`,
        "Active tokens, a step": `${answer.active_tflop.toFixed(1)} TFLOP`,
        "So at best": `${answer.limit.toFixed(1)} times faster`,
        "Uncompressed cache": said(gigabytes(answer.cache_bytes)),
        "Rate that hides it raw": `${Math.round((8e-6 * answer.cache_bytes) / answer.limit_s).toLocaleString("en")} Mbit/s`,
      }).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
    }

    const gigabytes = (bytes) => (bytes >= 1e9 ? [(bytes / 1e9).toFixed(1), "GB"] : sakura.bytes(bytes));

    function drawRows(answer) {
      const end_s = ROOM * answer.on_device_s;
      const percent = (seconds) => `${Math.min(100, (100 * seconds) / end_s).toFixed(2)}%`;
      const head = h("div", { class: "scale-row scale-names micro", role: "row" }, ...["System", "", "Latency", "PSNR", "Received", "On the device"].map((name) => h("span", { role: "columnheader" }, name)));
      $("rows").replaceChildren(head, ...answer.lines.map((line) => {
        const name = SYSTEMS[line.system];
        const beyond = line.latency_s > end_s;
        const span = line.greatest_s - line.least_s > 0.01 * line.latency_s && !beyond;
        return h(
          "div", { class: "scale-row", role: "row", "data-system": line.system },
          h("span", { class: "scale-name", role: "rowheader" }, name, line.fastest ? h("small", {}, "fastest level") : null),
          h("span", { class: "scale-track", role: "cell", "aria-hidden": "true" },
            h("i", { class: `scale-fill${beyond ? " beyond" : ""}`, style: `width: ${percent(line.latency_s)}; background-color: var(--sys-${COLOURS[line.system]})` }),
            span ? h("i", { class: "scale-span", style: `left: ${percent(line.least_s)}; right: calc(100% - ${percent(line.greatest_s)})` }) : null,
            h("i", { class: "scale-limit", style: `left: ${percent(answer.limit_s)}` })),
          h("span", { class: "n", role: "cell" }, said(sakura.time(line.latency_s))),
          h("span", { class: "n", role: "cell", "data-unit": "PSNR" }, line.psnr_db >= 99.95 ? "exact" : `${line.psnr_db.toFixed(1)} dB`),
          h("span", { class: "n", role: "cell", "data-unit": "received" }, line.bytes ? said(gigabytes(line.bytes)) : "nothing"),
          h("span", { class: "n", role: "cell", "data-unit": "on the device" }, `${line.local_percent.toFixed(0)} %`),
        );
      }));
    }

    // Choices

    const opened = await sakura.asked(server.scale_open(Object.fromEntries(new URL(location).searchParams)));
    if (!opened) return say(sakura.UNREACHED);
    view.chosen = opened.chosen;
    for (const [name, list] of Object.entries(CHOICES)) {
      $(name).replaceChildren(...Object.entries(opened[list]).map(([value, title]) => h("option", { value }, title)));
      $(name).value = view.chosen[name];
      $(name).addEventListener("change", () => {
        view.chosen[name] = $(name).value;
        if (name === "device") {
          view.chosen.changed = {};
          showDevice();
        }
        ask();
      });
    }
    $("rtt_ms").value = view.chosen.rtt_ms;
    $("rtt_ms").addEventListener("change", () => {
      const value = $("rtt_ms").valueAsNumber;
      if (!Number.isFinite(value)) $("rtt_ms").value = view.chosen.rtt_ms;
      else view.chosen.rtt_ms = value;
      ask();
    });
    showDevice();
    ask(opened.error);
  };
})();
