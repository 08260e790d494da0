// The charts of the lab: drawn anew from all that is measured, on axes that are known from the plan.
"use strict";

(() => {
  const { h, s } = sakura;
  const PETAL = "M0 -1.2C-3.6 -3.4 -3.9 -7.6 -1.9 -10L0 -8.5L1.9 -10C3.9 -7.6 3.6 -3.4 0 -1.2Z";
  const NAMES = { sakura: "SAKURA", intq: "INTQ", cachegen: "CacheGen", uncompressed: "Full cache" };
  const COLOURS = { sakura: "var(--sys-sakura)", intq: "var(--sys-intq)", cachegen: "var(--sys-cachegen)", uncompressed: "var(--sys-full)" };
  const DASHES = ["1.5 3.5", "5 3", "9 3 2 3", "12 3", ""];
  const LABEL_PX = 14; // labels at the ends of lines stand at least this far apart
  const FLOOR_DB = 15;
  const TOP_DB = 55;

  // A mark in the shape of its system, around (0, 0).
  function mark(system) {
    const fill = COLOURS[system];
    if (system === "intq") return s("rect", { x: -4, y: -4, width: 8, height: 8, fill });
    if (system === "cachegen") return s("path", { d: "M0 -5L5 4L-5 4Z", fill });
    if (system === "uncompressed") return s("circle", { r: 4.8, fill: "none", stroke: fill, "stroke-width": 2.2 });
    return s("g", { fill }, ...[0, 72, 144, 216, 288].map((angle) => s("path", { d: PETAL, transform: `rotate(${angle}) scale(.675)` })));
  }

  const at = (node, cx, cy, tip = null) => s("g", { transform: `translate(${cx.toFixed(1)} ${cy.toFixed(1)})`, ...(tip && { "data-tip": tip }) }, node);
  const path = (points, attributes) => s("path", { d: `M${points.map(([px, py]) => `${px.toFixed(1)} ${py.toFixed(1)}`).join("L")}`, fill: "none", "stroke-linejoin": "round", ...attributes });

  // An empty plot with its axes; `x` and `y` are [first, last], a logarithm where `log` says so.
  sakura.plot = (box, { height, left, right, top, bottom, x: [x0, x1], y: [y0, y1], log, xTicks, yTicks, xTitle, yTitle, xFormat, label }) => {
    const width = Math.max(box.clientWidth, 200);
    const on = (value) => (log ? Math.log(value) : value);
    const x = (value) => left + ((on(value) - on(x0)) / (on(x1) - on(x0))) * (width - left - right);
    const y = (value) => height - bottom - ((value - y0) / (y1 - y0)) * (height - bottom - top);
    const text = (tx, ty, words, more = {}) => s("text", { x: tx, y: ty, "font-size": 12, fill: "var(--sk-ink-2)", class: "halo", "stroke-linejoin": "round", ...more }, words);
    const line = (ax, bx, ay, by, stroke = "var(--sk-line)", more = {}) => s("line", { x1: ax, x2: bx, y1: ay, y2: by, stroke, ...more });
    const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
    for (const tick of yTicks) svg.append(line(left, width - right, y(tick), y(tick)), text(left - 8, y(tick) + 4.2, String(tick), { "text-anchor": "end" }));
    for (const tick of xTicks) {
      svg.append(line(x(tick), x(tick), height - bottom, height - bottom + 4, "var(--sk-edge)"), text(x(tick), height - bottom + 17, (xFormat ?? String)(tick), { "text-anchor": "middle" }));
    }
    svg.append(line(left, width - right, height - bottom, height - bottom, "var(--sk-edge)"));
    svg.append(text(0, 12, yTitle), text(width - right, height - 4, xTitle, { "text-anchor": "end" }));
    box.replaceChildren(svg);
    return { svg, width, x, y, text, line };
  };

  // Ticks at 1, 2 and 5 times powers of ten, fewer of them on a narrow axis.
  function logTicks([first, last], few) {
    const ticks = [];
    for (let power = 10 ** Math.floor(Math.log10(first)); power <= last; power *= 10) ticks.push(...(few ? [1, 3] : [1, 2, 5]).map((factor) => factor * power));
    return ticks.filter((tick) => tick >= first && tick <= last);
  }

  const sizeTick = (bytes) => String(Number((bytes / 1e6).toPrecision(2)));
  const range = (first, last, step) => Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, i) => first + i * step);

  // From 15 to 55 dB; more in steps of 10 dB where something lies outside.
  function decibels(points) {
    const seen = points.map((point) => point.psnr_db).filter((value) => value !== null);
    const [least, most] = [Math.min(...seen), Math.max(...seen)];
    const low = least < FLOOR_DB ? Math.floor(least / 10) * 10 : FLOOR_DB;
    const high = most > TOP_DB ? Math.ceil(most / 10) * 10 : TOP_DB;
    return { y: [low, high], yTicks: range(Math.ceil(low / 10) * 10, high, 10), yTitle: "PSNR in the edited region, dB" };
  }

  const widest = (points) => {
    const sizes = points.map((point) => point.received_bytes);
    return [Math.min(...sizes) / 1.15, Math.max(...sizes) * 1.1];
  };
  const said = (point) => `${sakura.said(sakura.bytes(point.received_bytes))}, ${point.psnr_db.toFixed(1)} dB, SSIM ${point.ssim.toFixed(3)}`;

  // Labels at the ends of lines, moved apart where they would overlap.
  function endLabels(plot, labels) {
    labels.sort((a, b) => a.y - b.y);
    labels.forEach((label, i) => {
      if (i > 0) label.y = Math.max(label.y, labels[i - 1].y + LABEL_PX);
      plot.svg.append(plot.text(label.x + 9, label.y + 4, label.words, { "font-weight": 600, fill: "var(--sk-ink)", ...label.more }));
    });
  }

  const charts = {
    precision(box, { points, best, under_best_db: under }, mine) {
      const shown = points.filter((point) => point.kind === "rung" ? point.codec === "sakura" : point.kind === "pair");
      const x = widest(shown);
      const plot = sakura.plot(box, {
        height: 322, left: 30, right: 74, top: 30, bottom: 40, x, log: true, xTicks: logTicks(x, box.clientWidth < 420), xFormat: sizeTick,
        xTitle: "cache of one template, MB (log)", ...decibels(shown),
        label: "Quality over size for pairs of bits and ranks, and the best at each size. The CSV file holds the same numbers.",
      });
      const place = ([size, db]) => [plot.x(size), plot.y(db)];
      if (best.length > 1) plot.svg.append(path(best.map(place), { stroke: "var(--sys-sakura)", "stroke-width": 7, opacity: 0.2 }));
      const labels = [];
      const pairs = Map.groupBy(shown.filter((point) => point.kind === "pair"), (point) => `${point.left_bits}+${point.right_bits} bits`);
      [...pairs].forEach(([words, all], i) => {
        const measured = all.filter((point) => point.psnr_db !== null);
        if (!measured.length) return;
        const places = measured.map((point) => place([point.received_bytes, point.psnr_db]));
        plot.svg.append(path(places, { stroke: "var(--sk-edge)", "stroke-width": 1.6, "stroke-dasharray": DASHES[i] }));
        measured.forEach((point, n) => plot.svg.append(at(s("circle", { r: 2.6, fill: "var(--sk-edge)", stroke: "var(--sk-surface)", "stroke-width": 1.2 }), ...places[n], `Rank ${point.rank}, ${words}: ${said(point)}.`)));
        if (measured.length === all.length) labels.push({ x: places.at(-1)[0], y: places.at(-1)[1], words });
      });
      if (best.length > 1) plot.svg.append(path(best.map(place), { stroke: "var(--sys-sakura)", "stroke-width": 2.2 }));
      for (const point of shown.filter((rung) => rung.kind === "rung" && rung.psnr_db !== null)) {
        plot.svg.append(at(s("circle", { r: 4, fill: "var(--sys-sakura)", stroke: "var(--sk-surface)", "stroke-width": 1.2 }), ...place([point.received_bytes, point.psnr_db]), `Level ${point.level + 1} of the stored ladder: ${said(point)}.`));
      }
      endLabels(plot, labels);
      if (best.length > 2) {
        const [bx, by] = place(best[Math.floor(best.length * 0.4)]);
        plot.svg.append(plot.text(bx - 10, by - 6, "best at each size", { "text-anchor": "end", "font-weight": 650, fill: "var(--sys-sakura)" }));
      }
      if (mine?.db != null && mine.bytes >= x[0] && mine.bytes <= x[1]) ring(plot, mine, under);
    },

    codecs(box, { points, full_bytes: full, fewer }) {
      const shown = points.filter((point) => point.kind === "rung");
      const x = [widest(shown)[0], full * 1.25];
      const plot = sakura.plot(box, {
        height: 322, left: 30, right: 16, top: 30, bottom: 40, x, log: true, xTicks: logTicks(x, box.clientWidth < 520), xFormat: sizeTick,
        xTitle: "cache of one template, MB (log)", ...decibels(shown),
        label: "Quality over size of SAKURA, INTQ and CacheGen. The CSV file holds the same numbers.",
      });
      plot.svg.append(plot.line(plot.x(full), plot.x(full), 34, 282, COLOURS.uncompressed, { "stroke-width": 1.4, "stroke-dasharray": "2 3" }), at(mark("uncompressed"), plot.x(full), 34));
      for (const system of ["cachegen", "intq", "sakura"]) {
        const measured = shown.filter((point) => point.codec === system && point.psnr_db !== null);
        if (!measured.length) continue;
        const places = measured.map((point) => [plot.x(point.received_bytes), plot.y(point.psnr_db)]);
        plot.svg.append(path(places, { stroke: COLOURS[system], "stroke-width": system === "sakura" ? 2.4 : 2 }));
        measured.forEach((point, i) => plot.svg.append(at(mark(system), ...places[i], `${NAMES[system]}, level ${point.level + 1}: ${said(point)}.`)));
        const own = system === "sakura";
        const [lx, ly] = places[Math.min(own ? 5 : 1, places.length - 1)];
        plot.svg.append(plot.text(lx + (own ? -12 : 11), ly + (own ? -4 : 8), NAMES[system], { "font-size": 13, "font-weight": 650, "text-anchor": own ? "end" : "start", fill: COLOURS[system] }));
      }
      plot.svg.append(plot.text(plot.x(full) - 10, 38, `Full cache, ${sakura.said(sakura.bytes(full))}, exact`, { "font-weight": 650, "text-anchor": "end", fill: COLOURS.uncompressed }));
      if (!fewer) return;
      const [ax, bx, by] = [plot.x(fewer.sakura_bytes) + 8, plot.x(fewer.other_bytes) - 8, plot.y(fewer.psnr_db)];
      plot.svg.append(
        path([[ax, by], [bx, by]], { stroke: "var(--sk-ink)", "stroke-width": 1.2 }),
        s("path", { d: `M${ax} ${by - 4}v8M${bx} ${by - 4}v8`, stroke: "var(--sk-ink)", "stroke-width": 1.2 }),
        plot.text((ax + bx) / 2, by + 16, `${sakura.said(sakura.times(fewer.ratio))} fewer bytes`, { "text-anchor": "middle", "font-weight": 600, fill: "var(--sk-ink)" }),
      );
    },

    exponent(box, { points }, mine) {
      const shown = points.filter((point) => point.kind === "exponent");
      const plot = sakura.plot(box, {
        height: 262, left: 30, right: 70, top: 30, bottom: 40, x: [0, 1.5], xTicks: [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5], xTitle: "importance exponent q", ...decibels(shown),
        label: "Quality over the importance exponent at fixed numbers of bytes. The CSV file holds the same numbers.",
      });
      if (mine) plot.svg.append(plot.line(plot.x(mine.q), plot.x(mine.q), 30, 222, "var(--sk-edge)", { "stroke-dasharray": "2 3" }), plot.text(plot.x(mine.q), 26, "your q", { "text-anchor": mine.q > 1.3 ? "end" : mine.q < 0.2 ? "start" : "middle", fill: "var(--sk-ink)" }));
      const labels = [];
      [...Map.groupBy(shown, (point) => point.budget_bytes)].forEach(([budget, all], i) => {
        const measured = all.filter((point) => point.psnr_db !== null);
        if (!measured.length) return;
        const places = measured.map((point) => [plot.x(point.q), plot.y(point.psnr_db)]);
        plot.svg.append(path(places, { stroke: COLOURS.sakura, "stroke-width": 2.2, "stroke-dasharray": i ? "" : "5 3" }));
        measured.forEach((point, n) => plot.svg.append(at(mark("sakura"), ...places[n], `q ${point.q}: ${said(point)}.`)));
        labels.push({ x: places.at(-1)[0], y: places.at(-1)[1], words: sakura.said(sakura.bytes(budget)), more: { fill: COLOURS.sakura } });
      });
      endLabels(plot, labels);
    },

    storage(box, { stored }) {
      const whole = ({ parts_bytes: parts }) => parts.reduce((sum, part) => sum + part, 0);
      const last = Math.max(...stored.map(whole));
      const step = [1, 2, 5, 10, 20, 50].map((mega) => mega * 1e6).find((size) => last / size <= 5) ?? last;
      const width = Math.max(box.clientWidth, 200);
      const [left, right, row] = [84, 16, 46];
      const plot = sakura.plot(box, {
        height: 262, left, right, top: 24, bottom: 40, x: [0, last * 1.02], y: [0, 1], yTicks: [], yTitle: "", xTicks: range(0, last, step),
        xFormat: (bytes) => String(bytes / 1e6), xTitle: "stored for this template, MB",
        label: "What is stored of this template by codec. The CSV file holds the same numbers.",
      });
      const order = Object.keys(NAMES);
      [...stored].sort((a, b) => order.indexOf(a.codec) - order.indexOf(b.codec)).forEach((kept, i) => {
        const top = 26 + i * row;
        let from = 0;
        plot.svg.append(plot.text(left - 8, top + 15, NAMES[kept.codec], { "font-size": 13, "font-weight": 650, "text-anchor": "end", fill: COLOURS[kept.codec] }));
        for (const part of kept.parts_bytes) {
          const [a, b] = [plot.x(from), plot.x(from + part)];
          if (b - a > 0.2) plot.svg.append(s("rect", { x: a, y: top, width: Math.max(b - a - (kept.parts_bytes.length > 1 ? 1 : 0), 0.5), height: 20, rx: 2, fill: COLOURS[kept.codec] }));
          from += part;
        }
        const levels = kept.parts_bytes.length - 1;
        const words = `${sakura.said(sakura.bytes(from))}, ${kept.codec === "sakura" ? (width < 420 ? "one object" : "one object for every rank and precision") : kept.codec === "uncompressed" ? "one precision" : `${levels} levels side by side`}`;
        const end = plot.x(from) + 8;
        const inside = end + 7 * words.length > width - right;
        plot.svg.append(plot.text(inside ? left : end, inside ? top + 34 : top + 14, words, { fill: "var(--sk-ink)" }));
      });
    },
  };

  // The setting in view: a ring, and how far it is under the best at its size.
  function ring(plot, mine, under) {
    const [cx, cy] = [plot.x(mine.bytes), plot.y(mine.db)];
    const size = sakura.said(sakura.bytes(mine.bytes));
    const apart = under === null ? size
      : Math.abs(under) < 0.05 ? `${mine.db.toFixed(1)} dB, the best at ${size}`
      : `${mine.db.toFixed(1)} dB, ${Math.abs(under).toFixed(1)} dB ${under > 0 ? "under" : "over"} the best at ${size}`;
    // The upper left is free: small caches are never good.
    const narrow = plot.width < 420;
    const from = narrow ? [70, 66] : [150, 66];
    const way = Math.hypot(cx - from[0], cy - from[1]);
    plot.svg.append(
      s("circle", { cx, cy, r: 8, fill: "none", stroke: "var(--sk-ink)", "stroke-width": 2 }),
      path([from, [cx - (8 * (cx - from[0])) / way, cy - (8 * (cy - from[1])) / way]], { stroke: "var(--sk-ink)" }),
      plot.text(38, 44, narrow ? "your setting" : `your setting: rank ${mine.rank}, ${mine.left}+${mine.right} bits, q ${mine.q}`, { "font-weight": 650, fill: "var(--sk-ink)" }),
      plot.text(38, 60, narrow ? apart.replace(/ at [^ ]+ [a-zA-Z]+$/, "") : apart),
    );
  }

  sakura.drawChart = (name, box, data, mine) => charts[name](box, data, mine);

  // The drawing as a file of its own: colours as they are now instead of names that only the page knows.
  sakura.chartFile = (box) => {
    const style = getComputedStyle(document.body);
    const svg = box.querySelector("svg").cloneNode(true);
    svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    svg.setAttribute("font-family", "Atkinson Hyperlegible Next, system-ui, sans-serif");
    svg.prepend(s("rect", { width: "100%", height: "100%", fill: "var(--sk-surface)" }));
    for (const text of svg.querySelectorAll(".halo")) for (const [key, value] of [["paint-order", "stroke"], ["stroke", "var(--sk-surface)"], ["stroke-width", 3]]) text.setAttribute(key, value);
    return new XMLSerializer().serializeToString(svg).replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
  };

  sakura.saveText = (name, text, type) => {
    const link = h("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
})();
