// The rows of a race: who is where at a moment of the replay, and the same in figures as a table.
"use strict";

(() => {
  const { h, s } = sakura;
  const PETAL = "M0 -1.2C-3.6 -3.4 -3.9 -7.6 -1.9 -10L0 -8.5L1.9 -10C3.9 -7.6 3.6 -3.4 0 -1.2Z";
  const SHAPES = {
    sakura: () => [0, 72, 144, 216, 288].map((angle) => s("path", { d: PETAL, transform: `rotate(${angle}) scale(1.05)` })),
    intq: () => [s("rect", { x: -8, y: -8, width: 16, height: 16 })],
    cachegen: () => [s("path", { d: "M0 -9L9.5 8H-9.5Z" })],
    full_cache: () => [s("circle", { r: 7, fill: "none", stroke: "currentColor", "stroke-width": 3.4 })],
    on_device: () => [s("path", { d: "M0 -10L10 0L0 10L-10 0Z" })],
  };
  const COLOURS = { sakura: "sakura", intq: "intq", cachegen: "cachegen", full_cache: "full", on_device: "device" };
  const EVERY_MS = 100; // numbers change at most ten times a second
  const SAME_DB = 100;

  sakura.raceMark = (system) =>
    s("svg", { viewBox: "-11 -11 22 22", class: "race-mark", "aria-hidden": "true", fill: "currentColor", style: `color:var(--sys-${COLOURS[system]})` }, ...SHAPES[system]());

  const unit = (value, name) => [value, h("span", { class: "u" }, name)];
  const seconds = (value) => value.toFixed(2);
  const megabytes = (bytes) => (bytes / 1e6).toFixed(2);
  const word = (text) => [h("span", { class: "off" }, text)];
  const received = (bytes) => (bytes ? unit(megabytes(bytes), "MB") : word("nothing"));
  const quality = (lap) => (lap.psnr_db === null ? word("not compared") : lap.psnr_db >= SAME_DB ? word("same") : unit(lap.psnr_db.toFixed(1), "dB"));

  const remark = (lap) => (lap.alone ? `${lap.alone} of ${lap.total} shards without the cache` : "");

  // How much of a lap is done: stretches of work count alike, waiting counts nothing.
  function shareAt(lap, t) {
    if (lap.latency_s !== null && t >= lap.latency_s) return 1;
    const done = lap.stretches.reduce((sum, [from, to]) => sum + Math.min(Math.max((t - from) / Math.max(to - from, 1e-6), 0), 1), 0);
    return lap.total ? Math.min(done / lap.total, 0.99) : 0;
  }

  // Finished ones by their time, then by share; who gave up has no place.
  function placesAt(laps, t) {
    const standing = laps
      .map((lap, i) => ({ i, ended_s: lap.latency_s !== null && t >= lap.latency_s ? lap.latency_s : Infinity, share: shareAt(lap, t), out: lap.latency_s === null && t >= lap.ended_s }))
      .filter(({ out, share }) => !out && share > 0)
      .sort((a, b) => (a.ended_s === b.ended_s ? b.share - a.share : a.ended_s - b.ended_s));
    return new Map(standing.map(({ i }, place) => [i, place + 1]));
  }

  sakura.raceRows = (list, table, runners) => {
    const rows = new Map(runners.map((runner) => [runner.system, row(runner)]));
    const names = new Map(runners.map(({ system, name }) => [system, name]));
    let laps = [];
    let written_ms = 0;
    list.replaceChildren(...[...rows.values()].map(({ item }) => item));

    function row({ system, name }) {
      const parts = {
        place: h("span", { class: "race-place n" }),
        thumb: h("div", { class: "thumb" }),
        fill: h("i", { style: `background:var(--sys-${COLOURS[system]})` }),
        note: h("span", { class: "race-note micro" }),
        time: h("span", { class: "race-time n" }),
        bytes: h("span", { class: "race-bytes n" }),
        psnr: h("span", { class: "race-psnr n" }),
        reason: h("span", { class: "race-reason", hidden: true }),
        open: h("a", { class: "race-open link", hidden: true, "aria-label": `Open the run of ${name}` }, "Open this run"),
      };
      const bar = h("div", { class: "race-lane" }, h("div", { class: "race-bar" }, parts.fill), parts.note);
      parts.item = h("li", { class: "race-row", "data-system": system }, parts.place, parts.thumb, sakura.raceMark(system),
        h("b", { class: "race-name" }, name), bar, parts.time, parts.bytes, parts.psnr, parts.reason, parts.open);
      return parts;
    }

    function clear() {
      for (const parts of rows.values()) {
        for (const part of ["place", "note", "time", "bytes", "psnr", "thumb"]) parts[part].replaceChildren();
        parts.fill.style.width = "0%";
        parts.item.className = "race-row";
        parts.reason.hidden = parts.open.hidden = true;
      }
      table.replaceChildren();
    }

    function measured(answer) {
      for (const [system, parts] of rows) {
        const done = answer.measured.includes(system);
        parts.time.textContent = done ? "measured" : system === answer.measuring ? "measuring" : "";
        parts.item.classList.toggle("measuring", system === answer.measuring);
        if (!parts.thumb.childElementCount) parts.thumb.append(h("img", { src: answer.picture, alt: "", class: "on" }));
      }
    }

    // Every picture is there from the start and shows when its time comes.
    function play(answer) {
      clear();
      laps = [...answer.laps].sort((a, b) => a.ended_s - b.ended_s); // however rarely it is drawn, rows end in order
      written_ms = 0;
      for (const lap of laps) {
        const parts = rows.get(lap.system);
        parts.images = lap.pictures.map(({ src, at_s }) => ({ at_s, node: h("img", { src, alt: "" }) }));
        parts.thumb.replaceChildren(h("img", { src: answer.picture, alt: "", class: "on" }), ...parts.images.map(({ node }) => node));
        parts.reason.textContent = lap.reason;
        if (lap.run_id) parts.open.href = `./?run=${encodeURIComponent(lap.run_id)}`;
      }
    }

    function draw(t) {
      const write = t === 0 || performance.now() - written_ms >= EVERY_MS;
      const places = placesAt(laps, t);
      laps.forEach((lap, i) => {
        const parts = rows.get(lap.system);
        const ended = t >= lap.ended_s;
        const share = shareAt(lap, t);
        parts.fill.style.width = `${(100 * share).toFixed(1)}%`;
        for (const { at_s, node } of parts.images) node.classList.toggle("on", at_s <= t);
        if (ended) return close(lap, parts, places.get(i));
        if (!write) return;
        parts.place.textContent = places.get(i) ?? "";
        parts.time.replaceChildren(...unit(String(Math.floor(100 * share)), "%"));
      });
      if (write) written_ms = performance.now();
    }

    function close(lap, parts, place) {
      if (parts.item.classList.contains("over")) return;
      const finished = lap.latency_s !== null;
      parts.item.classList.add("over");
      parts.item.classList.toggle("first", place === 1);
      parts.item.classList.toggle("failed", !finished);
      parts.place.textContent = place ?? "–";
      parts.time.replaceChildren(...(finished ? unit(seconds(lap.latency_s), "s") : []));
      parts.bytes.replaceChildren(...(finished ? received(lap.received_bytes) : []));
      parts.psnr.replaceChildren(...(finished ? quality(lap) : []));
      parts.note.textContent = finished ? remark(lap) : "";
      parts.reason.hidden = finished;
      parts.open.hidden = !lap.run_id;
      const last = parts.images.at(-1)?.node;
      if (last) last.alt = `Picture of ${names.get(lap.system)}`;
    }

    function tabulate() {
      const places = placesAt(laps, Infinity);
      const ordered = laps.map((lap, i) => ({ lap, place: places.get(i) })).sort((a, b) => (a.place ?? 99) - (b.place ?? 99));
      table.replaceChildren(...ordered.map(({ lap, place }) => h("tr", {}, h("td", {}, String(place ?? "none")), h("th", { scope: "row" }, names.get(lap.system)),
        ...(lap.latency_s === null
          ? ["", "", "", ""]
          : [seconds(lap.latency_s), megabytes(lap.received_bytes), lap.psnr_db === null ? "" : lap.psnr_db >= SAME_DB ? "same picture" : lap.psnr_db.toFixed(1), lap.ssim?.toFixed(3) ?? ""]
        ).map((text) => h("td", {}, text)), h("td", {}, lap.reason || remark(lap)))));
    }

    // One sentence on who was first and how far before the next one.
    function verdict() {
      const [first, second] = laps.filter((lap) => lap.latency_s !== null).sort((a, b) => a.latency_s - b.latency_s);
      if (!first) return "";
      const name = names.get(first.system);
      if (!second) return `${name} finished after ${seconds(first.latency_s)} s, alone.`;
      const ratio = second.latency_s / first.latency_s;
      const lead = ratio < 1.05 ? `closely before ${names.get(second.system)}` : `${sakura.times(ratio)[0]} times faster than ${names.get(second.system)}`;
      return `${name} was first after ${seconds(first.latency_s)} s, ${lead}.`;
    }

    clear();
    return { clear, measured, play, draw, tabulate, verdict };
  };
})();
