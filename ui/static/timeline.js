// The timeline of one edit: bandwidth, receive, reconstruct, execute and representation on one time axis.
// Events come in and marks are added or lengthened; only a new width or a longer axis lays everything out again.
"use strict";

(() => {
  const { h, s, said } = sakura;
  const LANES = ["receive", "reconstruct", "execute"];
  const NAMES = { receive: "Receive", reconstruct: "Reconstruct", execute: "Execute" };
  const RANK_PX = 42;
  const TINY_PX = 8; // what is received in narrower pieces shares a block
  const LEAST_PX = { receive: 3, reconstruct: 1.5, execute: 1.5 };
  const MANY_DOTS = 40;
  const RANKS_AT_FIRST = 16; // the height of a bar counts from here; a higher rank rescales all bars

  const WIDE = {
    left: 124, right: 118, height: 366, top: 22, band: [37, 114], lanes: [126.8, 172.8, 218.8], lane_px: 38,
    rep: 310, axis: 344, tick_px: 76, wide: true,
  };
  const NARROW = {
    left: 0, right: 22, height: 262, top: 20, band: [43, 70], lanes: [93, 133, 173], lane_px: 17,
    rep: 236, axis: 239, tick_px: 62, wide: false,
  };

  // Ticks at 1, 2 or 5 times a power of ten, about `count` of them.
  function niceStep(span, count, factors = [1, 2, 5, 10]) {
    const raw = span / count;
    const power = 10 ** Math.floor(Math.log10(raw));
    return power * factors.find((factor) => factor * power >= raw * 0.999);
  }

  function drawing(box, tip, openShard) {
    let plan = null;
    let system = null;
    let trace = null;
    let units = null;
    let layout = WIDE;
    let width = 0;
    let end_s = 1;
    let top_mbps = 50;
    let top_rank = RANKS_AT_FIRST;
    let live = null; // the run, while and after it runs
    let events = [];
    let shards = new Map();
    let marks = {};
    let frame = 0;
    let lag_s = 0;
    let facts = new WeakMap(); // the spans of events that each block shows

    const svg = s("svg", {
      role: "group",
      "aria-label": "Timeline of one edit: bandwidth, receive, reconstruct, execute and the representation of each shard on one time axis. The shard table holds the same facts.",
    });
    box.replaceChildren(svg);

    const x = (t) => layout.left + (t / end_s) * (width - layout.left - layout.right);
    const right = () => width - layout.right;
    const y = (mbps) => layout.band[1] - (Math.min(mbps, top_mbps) / top_mbps) * (layout.band[1] - layout.band[0]);
    const plannedEnd = () => (plan.start_s + plan.steps * plan.step_s) * 1.08;
    const shardCount = () => plan.steps * plan.shards_per_step;
    const plannedStart = (shard) => plan.start_s + (shard * plan.step_s) / plan.shards_per_step;
    const text = (tx, ty, words, attributes = {}) => s("text", { x: tx, y: ty, "font-size": 12, fill: "var(--sk-ink-2)", ...attributes }, words);
    const line = (x1, x2, y1, y2, stroke = "var(--sk-line)", more = {}) => s("line", { x1, x2, y1, y2, stroke, ...more });
    const dataset = (shard) => {
      if (!shards.has(shard)) shards.set(shard, { shard });
      return shards.get(shard);
    };

    function layoutAll() {
      width = box.clientWidth;
      if (!width || !plan) return;
      scaleBandwidth();
      layout = width < 560 ? { ...NARROW, right: NARROW.right + 7 * Math.max(String(Number(top_mbps.toFixed(1))).length - 2, 0) } : WIDE;
      svg.setAttribute("viewBox", `0 0 ${width} ${layout.height}`);
      svg.setAttribute("height", layout.height);
      const focused = svg.contains(document.activeElement) ? document.activeElement.dataset.key : null;
      svg.replaceChildren();
      shards = new Map();
      facts = new WeakMap();
      lag_s = 0;
      drawFrame();
      nameStep(-1);
      events.forEach(add);
      advance();
      if (focused) svg.querySelector(`[data-key="${focused}"]`)?.focus();
    }

    function scaleBandwidth() {
      const seen = trace.rates.filter((_, i) => trace.times[i] <= end_s);
      top_mbps = 2 * niceStep(Math.max(...seen, 1) * 1.02, 2, [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10]);
    }

    function drawFrame() {
      const names = s("g");
      const grid = s("g");
      const tracks = s("g");
      marks = {
        later: s("g"), trace: s("g"), predicted: s("path", { fill: "none", stroke: "var(--sk-accent)", "stroke-width": 2, "stroke-dasharray": "4 3" }),
        measured: s("g"), guesses: s("g"), blocks: s("g"), reps: s("g"), repNames: s("g"), labels: s("g"), ticks: s("g"), now: s("g"), laterReps: s("g"),
        laterRepNames: s("g"), hint: s("g"), repHint: s("g"),
      };
      const clip = s("rect", { x: layout.left, y: 0, width: Math.max(right() - layout.left, 0), height: layout.height });
      marks.clip = clip;
      const ahead = { "clip-path": "url(#axis-clip)" };
      svg.append(
        s("defs", {},
          s("clipPath", { id: "trace-clip" }, clip),
          // What is planned may be pushed beyond the axis; the names of steps have room beside it.
          s("clipPath", { id: "axis-clip" },
            s("rect", { x: 0, y: 0, width, height: layout.top }), s("rect", { x: 0, y: layout.top, width: right() + 1, height: layout.height })),
          s("pattern", { id: "wait-hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
            s("rect", { width: 6, height: 6, fill: "var(--sk-sunken)" }), s("rect", { width: 2, height: 6, fill: "var(--sk-warn)" }))),
        tracks, grid, s("g", ahead, marks.later), marks.trace, marks.predicted, marks.measured, marks.guesses, marks.blocks,
        s("g", ahead, marks.laterReps, marks.laterRepNames), marks.reps, marks.repNames, names, marks.labels, marks.ticks, marks.now, marks.hint, marks.repHint,
      );
      for (const level of layout.wide ? [0, 0.5, 1] : [0, 1]) {
        const mbps = level * top_mbps;
        grid.append(line(layout.left, right(), y(mbps), y(mbps)));
        const label = String(Number(mbps.toFixed(1)));
        grid.append(layout.wide
          ? text(layout.left - 6, y(mbps) + 4.2, label, { "text-anchor": "end" })
          : text(right() + 4, y(mbps) + 4.2, label));
      }
      grid.append(line(layout.left, right(), layout.rep, layout.rep));
      marks.stepNames = [];
      for (let step = 0; step <= plan.steps; step += 1) {
        const at = x(plannedStart(step * plan.shards_per_step));
        const bar = line(at, at, layout.top, layout.wide ? layout.axis : layout.axis - 1);
        const group = s("g", {}, bar);
        if (step < plan.steps) {
          const name = text(step === 0 && !layout.wide ? at : at + 4, layout.wide ? 14 : 12, `Step ${step + 1}`, { "font-weight": 500 });
          group.append(name);
          marks.stepNames.push(name);
        }
        (step === 0 ? grid : marks.later).append(group);
        marks[`step${step}`] = group;
      }
      LANES.forEach((lane, i) => {
        const top = layout.lanes[i];
        tracks.append(s("rect", { x: layout.left, y: top, width: right() - layout.left, height: layout.lane_px, rx: 2, fill: "var(--sk-sunken)" }));
        if (layout.wide) {
          names.append(
            s("rect", { x: 0, y: top + 5.4, width: 4, height: 27.3, rx: 1, fill: `var(--lane-${lane})` }),
            text(12, top + 16.7, NAMES[lane], { "font-size": 13, "font-weight": 600, fill: "var(--sk-ink)" }),
            text(12, top + 31, units[i]),
          );
        } else names.append(heading(top - 6, NAMES[lane], units[i]));
      });
      if (layout.wide) {
        names.append(
          text(0, 65.7, "Bandwidth", { "font-size": 13, "font-weight": 600, fill: "var(--sk-ink)" }), text(0, 80, "Mbit/s"),
          text(0, 301.7, "Representation", { "font-size": 13, "font-weight": 600, fill: "var(--sk-ink)" }), text(0, 316, "rank, bits"),
        );
      } else names.append(heading(32, "Bandwidth", "Mbit/s"), heading(207, "Representation", "rank as height, bits as shade"));
      drawTrace();
      drawTicks();
      marks.planned = new Map();
      if (!live || !live.over) for (let shard = 0; shard < shardCount(); shard += 1) drawPlanned(shard);
      const flag = s("g", { visibility: "hidden" },
        line(0, 0, layout.top - 2, layout.lanes[2] + layout.lane_px + 3, "var(--sk-accent)", { "stroke-width": 2 }),
        s("rect", { x: -24, y: layout.axis + 3, width: 48, height: 18, rx: 3, fill: "var(--sk-accent)" }),
        text(0, layout.axis + 16.4, "", { "text-anchor": "middle", "font-weight": 650, fill: "var(--sk-on-accent)" }));
      marks.now.append(flag);
      marks.flag = flag;
      if (system === "on_device") {
        marks.hint.append(text(layout.left + 8, layout.lanes[0] + layout.lane_px / 2 + 4, "Nothing is received."),
          text(layout.left + 8, layout.lanes[1] + layout.lane_px / 2 + 4, "Nothing is reconstructed."));
      } else if (system === "full_cache") {
        marks.hint.append(text(layout.left + 8, layout.lanes[1] + layout.lane_px / 2 + 4, "The full cache needs no reconstruction."));
        marks.repHint.append(text(layout.left + 8, layout.rep - 8, "The full cache is sent as it is."));
      }
    }

    function heading(at, name, unit) {
      return s("text", { x: 0, y: at, "font-size": 12, "font-weight": 600, fill: "var(--sk-ink)", class: "halo" }, name,
        s("tspan", { dx: 6, "font-weight": 400, fill: "var(--sk-ink-2)" }, unit));
    }

    // A rate holds from its time to the next one: a step line.
    function drawTrace() {
      const first = Math.max(trace.times.findLastIndex((t) => t <= 0), 0);
      let path = `M${layout.left} ${y(trace.rates[first]).toFixed(1)}`;
      for (let i = first + 1; i < trace.times.length && trace.times[i] < end_s; i += 1) {
        path += `H${x(trace.times[i]).toFixed(1)}V${y(trace.rates[i]).toFixed(1)}`;
      }
      path += `H${right()}`;
      const clipped = { "clip-path": "url(#trace-clip)" };
      marks.trace.append(
        s("path", { d: `${path}V${layout.band[1]}H${layout.left}Z`, fill: "var(--sk-ink)", opacity: 0.09, ...clipped }),
        s("path", { d: path, fill: "none", stroke: "var(--sk-edge)", "stroke-width": 1.5, ...clipped }),
      );
      for (const [at_s, network] of trace.switches ?? []) drawSwitch(at_s, network);
    }

    // Where another network took over, and which one.
    function drawSwitch(at_s, network) {
      if (at_s >= end_s) return;
      const at = x(at_s);
      const ends = at > (layout.left + right()) / 2;
      marks.trace.append(
        line(at, at, layout.band[0], layout.band[1], "var(--sk-ink-2)", { "stroke-dasharray": "2 2", class: "switch" }),
        text(at + (ends ? -5 : 5), layout.band[0] + 11, network, { "text-anchor": ends ? "end" : "start", class: "halo" }),
      );
    }

    function drawTicks() {
      marks.ticks.append(line(layout.left, right(), layout.axis, layout.axis, "var(--sk-edge)"));
      const step = niceStep(end_s, (right() - layout.left) / layout.tick_px);
      const places = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
      marks.tickNames = [];
      for (let i = 0; i * step <= end_s; i += 1) {
        const at = x(i * step);
        marks.ticks.append(line(at, at, layout.axis, layout.axis + 4, "var(--sk-edge)"));
        if (at > right() - 16) continue;
        const anchor = at < 10 ? "start" : "middle";
        const name = text(at, layout.axis + 17.2, (i * step).toFixed(places), { "text-anchor": anchor });
        marks.ticks.append(name);
        marks.tickNames.push([at, name]);
      }
      marks.ticks.append(text(right(), layout.axis + 17.2, "s", { "text-anchor": "end" }));
    }

    function drawPlanned(shard) {
      const from = x(plannedStart(shard));
      const wide = x(plannedStart(shard + 1)) - from;
      const mark = s("rect", {
        x: from + 0.8, y: layout.lanes[2] + 0.8, width: Math.max(wide - 1.6, 1), height: layout.lane_px - 1.6, rx: 2, fill: "none",
        stroke: "var(--sk-edge)", "stroke-dasharray": "2 3", opacity: 0.7,
      });
      marks.planned.set(shard, mark);
      marks.later.append(mark);
    }

    function add(event) {
      const handler = handlers[event.kind];
      if (handler) handler(event);
    }

    const handlers = {
      bandwidth_measured(event) {
        Object.assign(dataset(event.shard), { measured_mbps: event.measured_mbps });
        measured(event);
        marks.predictions ??= [];
        marks.predictions.push([event.at_s, event.predicted_mbps]);
        marks.lastMeasured = event.measured_mbps;
      },
      // The first choice for a shard decides it; later ones fetch refinements that it and later steps share.
      representation_chosen(event) {
        const data = dataset(event.shard);
        if (event.wanted_bytes > 0) {
          data.orders = (data.orders || 0) + 1;
          data.asked_s = event.at_s;
        }
        if (data.chosen) return;
        data.chosen = { rank: event.rank, left_bits: event.left_bits, right_bits: event.right_bits };
        Object.assign(data, { predicted_mbps: event.predicted_mbps, reason: event.reason });
        drawRepresentation(event.shard);
      },
      shard_used(event) {
        const data = dataset(event.shard);
        data.used = { rank: event.rank, left_bits: event.left_bits, right_bits: event.right_bits };
        Object.assign(data, { slack_s: event.slack_s, cut: event.cut });
        if (event.rank > top_rank) {
          top_rank = event.rank;
          queueMicrotask(layoutAll);
          return;
        }
        drawRepresentation(event.shard);
      },
      // A shard may come in several parts, and be computed again where its step is begun anew.
      lane_finished(event) {
        const data = dataset(event.shard);
        const span = { shard: event.shard, started_s: event.started_s, ended_s: event.at_s, bytes: event.received_bytes, cut: event.cut, on_device: event.on_device };
        (data[event.lane] ??= []).push(span);
        if (event.lane === "execute") {
          span.local = event.on_device && system !== "on_device" ? marks.fell ?? {} : null;
          data.local = span.local;
          if (!event.on_device) marks.fell = undefined;
        }
        if (event.lane !== "receive" || !joins(span)) block(event.lane, span);
        if (event.lane !== "execute") return;
        executing(event.shard, event.started_s);
        marks.planned.get(event.shard)?.remove();
        drawRepresentation(event.shard);
      },
      network_wait(event) {
        const data = dataset(event.shard);
        data.waited_s = (data.waited_s || 0) + event.at_s - event.started_s;
        marks.openWait?.remove();
        marks.openWait = null;
        marks.blocks.prepend(wait(event.started_s, event.at_s, event.shard));
      },
      step_finished(event) {
        endStep(event.step, event.at_s);
      },
      // Until a later shard is there in time again.
      fell_back(event) {
        marks.fell = { at_s: event.at_s, reason: event.reason, planned: event.planned };
      },
      run_failed() {
        marks.later.replaceChildren();
      },
      run_finished() {
        endStep(plan.steps - 1, Math.max(...[...shards.values()].map((data) => endOf(data.execute) ?? 0)));
        marks.later.replaceChildren();
      },
    };

    // The line between two steps moves from where it was planned to where it came.
    function endStep(step, at_s) {
      const group = marks[`step${step + 1}`];
      const shift = x(at_s) - x(plannedStart((step + 1) * plan.shards_per_step));
      group.setAttribute("transform", `translate(${shift.toFixed(1)} 0)`);
      marks.guesses.before(group);
      nameStep(step + 1 < plan.steps ? step + 1 : -1);
    }

    function nameStep(current) {
      marks.stepNames.forEach((name, step) => {
        const on = step === current;
        name.textContent = on && layout.wide ? `Step ${step + 1} of ${plan.steps}` : `Step ${step + 1}`;
        name.setAttribute("font-weight", on ? 650 : 500);
        name.setAttribute("fill", on ? "var(--sk-ink)" : "var(--sk-ink-2)");
      });
      // Where steps came closer together than their names are wide, the names that do not fit are left out.
      let free_px = -Infinity;
      for (const name of marks.stepNames) {
        const { left, right: end } = name.getBoundingClientRect();
        name.setAttribute("visibility", left < free_px ? "hidden" : "visible");
        if (left >= free_px) free_px = end + 6;
      }
    }

    // A rate above the axis is a triangle at its top; where many come at once they are small.
    function measured(event) {
      const cx = x(event.at_s);
      const cy = y(event.measured_mbps);
      const look = { fill: "var(--sk-ink)", stroke: "var(--sk-surface)", "stroke-width": 1 };
      const r = events.filter(({ kind }) => kind === "bandwidth_measured").length > MANY_DOTS ? 2 : 3;
      marks.measured.append(event.measured_mbps > top_mbps
        ? s("path", { d: `M${cx} ${cy - r - 1}l${r + 1} ${2 * r}h${-2 * (r + 1)}Z`, ...look })
        : s("circle", { cx, cy, r, ...look }));
    }

    // Execution of a shard began: what is still planned moves by the delay so far.
    function executing(shard, at_s) {
      if (shard === 0) nameStep(0);
      lag_s = Math.max(at_s - plannedStart(shard), 0);
      const mark = marks.planned.get(shard);
      if (mark) {
        mark.setAttribute("x", x(at_s) + 0.8);
        marks.blocks.before(mark);
      }
      drawRepresentation(shard);
    }

    const place = (lane, spans) => {
      const from = x(spans[0].started_s);
      return { from, top: layout.lanes[LANES.indexOf(lane)], wide: Math.max(x(spans.at(-1).ended_s) - from - 1, LEAST_PX[lane]) };
    };
    const one = (spans) => spans.every(({ shard }) => shard === spans[0].shard);

    function block(lane, span) {
      const spans = [span];
      const number = dataset(span.shard)[lane].length - 1;
      const mark = s("g", { class: "shard", tabindex: -1, role: "button", "data-lane": lane, "data-shard": span.shard, "data-key": `${lane}-${span.shard}${number ? `-${number}` : ""}` });
      if (lane === "reconstruct") marks.hint.replaceChildren();
      facts.set(mark, spans);
      shape(mark);
      if (!marks.blocks.querySelector("[tabindex='0']")) mark.setAttribute("tabindex", 0);
      marks.blocks.append(mark);
      if (lane === "receive") marks.received = mark;
    }

    // Parts that follow each other at once lengthen one block: those of one shard, and those too narrow to tell apart.
    function joins(span) {
      const spans = facts.get(marks.received);
      if (!spans || spans.at(-1).cut) return false;
      const before = place("receive", spans);
      const after = place("receive", [span]);
      if (after.from > before.from + before.wide + 2) return false;
      const same = one([...spans, span]);
      if (!same && (before.wide > TINY_PX || after.wide > TINY_PX)) return false;
      spans.push(span);
      shape(marks.received);
      return true;
    }

    // A block as long as its spans are; a torn edge where the rest was not waited for.
    function shape(mark) {
      const { lane } = mark.dataset;
      const spans = facts.get(mark);
      const { from, top, wide } = place(lane, spans);
      const { on_device } = spans[0];
      const fill = on_device ? "var(--sys-device)" : `var(--lane-${lane})`;
      mark.replaceChildren(spans.at(-1).cut
        ? s("path", { d: torn(from, top, wide, layout.lane_px), fill })
        : s("rect", { x: from, y: top, width: wide, height: layout.lane_px, rx: Math.min(2, wide / 3), fill }));
      mark.setAttribute("aria-label", words(mark));
      if (one(spans)) label(mark, from, wide, top, lane, spans[0].shard, on_device);
    }

    // The number where it fits; what the device computed without the cache has a diamond, also where only that fits.
    function label(mark, from, wide, top, lane, shard, on_device) {
      const name = String(shard + 1);
      const middle = top + layout.lane_px / 2;
      const fits = layout.wide && wide >= name.length * 7 + 4;
      const fill = on_device ? "var(--sk-surface)" : `var(--on-${lane})`;
      const beside = fits && on_device && wide >= name.length * 7 + 22;
      const above = fits && on_device && !beside;
      if (on_device && wide >= 10) {
        const cx = from + wide / 2 - (beside ? 3.5 * name.length + 3 : 0);
        mark.append(s("path", { d: `M${cx} ${middle - (above ? 13 : 4)}l4 4l-4 4l-4 -4Z`, fill }));
      }
      if (!fits) return;
      const tx = from + wide / 2 + (beside ? 6 : 0);
      mark.append(text(tx, middle + (above ? 9.2 : 4.2), name, { "text-anchor": "middle", "font-weight": 600, fill }));
    }

    function torn(from, top, wide, high) {
      const teeth = Math.max(Math.round(high / 8), 2);
      const tooth = high / teeth;
      let path = `M${from} ${top}H${from + wide}`;
      for (let i = 0; i < teeth; i += 1) path += `l${i % 2 ? 3 : -3} ${tooth}`;
      return `${path}H${from}Z`;
    }

    function wait(from_s, to_s, shard) {
      const mark = s("g", { class: "shard", tabindex: -1, role: "button", "data-lane": "wait", "data-shard": shard, "data-key": `wait-${shard}` },
        s("rect", { x: x(from_s), y: layout.lanes[2], width: Math.max(x(to_s) - x(from_s) - 1, 1.5), height: layout.lane_px, rx: 2, fill: "url(#wait-hatch)" }));
      facts.set(mark, [{ shard, started_s: from_s, ended_s: to_s }]);
      mark.setAttribute("aria-label", words(mark));
      return mark;
    }

    // One sentence about a block, for the tooltip and for screen readers.
    function words(mark) {
      const spans = facts.get(mark);
      const data = dataset(spans[0].shard);
      const name = `Shard ${data.shard + 1}`;
      const lasts = said(sakura.time(spans.at(-1).ended_s - spans[0].started_s));
      if (mark.dataset.lane === "wait") return `Waiting ${lasts} for shard ${data.shard + 1}.`;
      if (mark.dataset.lane === "receive") {
        const size = said(sakura.bytes(spans.reduce((sum, span) => sum + (span.bytes || 0), 0)));
        const parts = spans.length > 1 ? ` and ${spans.length} parts` : "";
        const cut = spans.at(-1).cut ? "; the rest was not waited for" : "";
        return `${one(spans) ? name : `Shards ${listed(spans)}`}: received ${size} in ${lasts}${parts}${cut}.`;
      }
      if (mark.dataset.lane === "reconstruct") {
        const used = represented(data.used);
        return `${name}: reconstructed in ${lasts}${used ? ` at ${used}` : ""}${data.cut ? ", less than was chosen" : ""}.`;
      }
      if (spans[0].local) return `${name}: computed on the device in ${lasts}. ${because(spans[0].local)}`.trim();
      return `${name}: executed in ${lasts}.`;
    }

    function listed(spans) {
      const numbers = [...new Set(spans.map(({ shard }) => shard + 1))].sort((a, b) => a - b);
      return numbers.length > 6 ? `${numbers[0]} to ${numbers.at(-1)}` : `${numbers.slice(0, -1).join(", ")} and ${numbers.at(-1)}`;
    }

    function drawRepresentation(shard) {
      const data = dataset(shard);
      const finest = data.used ?? data.chosen;
      data.repMark?.remove();
      data.rep = null;
      // What was chosen for a shard that the device then computed by itself was not used.
      if (finest?.rank && !data.local) {
        const span = data.execute?.at(-1);
        const from = x(span?.started_s ?? plannedStart(shard)) + 1.5;
        const length_s = span ? span.ended_s - span.started_s : plan.step_s / plan.shards_per_step;
        const wide = Math.max(x(length_s) - x(0) - 3, 2);
        const high = Math.max((Math.min(finest.rank, top_rank) / top_rank) * (layout.wide ? RANK_PX : 21), 2);
        const bits = finest.left_bits + finest.right_bits;
        const look = data.used
          ? { fill: "var(--sk-ink)", opacity: Math.min(Math.max(0.52 + (bits - 8) * 0.0633, 0.4), 0.94).toFixed(2) }
          : { fill: "none", stroke: "var(--sk-edge)" };
        data.repMark = s("rect", { x: from, y: layout.rep - high, width: wide, height: high, rx: 1, ...look });
        data.rep = { shard, from, to: from + wide, later: !span, names: [String(finest.rank), `${finest.left_bits}+${finest.right_bits}`] };
        (span ? marks.reps : marks.laterReps).append(data.repMark);
      }
      if (layout.wide) nameRepresentations();
    }

    // Neighbours of one representation share a name; names that would touch are left out.
    function nameRepresentations() {
      const groups = [];
      for (const rep of [...shards.values()].map((data) => data.rep).filter(Boolean).sort((a, b) => a.shard - b.shard)) {
        const last = groups.at(-1);
        const alike = last && last.later === rep.later && last.shard === rep.shard - 1 && String(last.names) === String(rep.names);
        if (alike) Object.assign(last, { shard: rep.shard, to: rep.to });
        else groups.push({ ...rep });
      }
      const names = { false: [], true: [] };
      let free_px = -Infinity;
      for (const { from, to, later, names: [rank, bits] } of groups) {
        const middle = (from + to) / 2;
        const half = 3.5 * Math.max(rank.length, bits.length);
        const shift = later ? x(lag_s) - x(0) : 0;
        if (middle + shift - half < free_px) continue;
        free_px = middle + shift + half + 8;
        names[later].push(
          text(middle, layout.rep + 13.4, rank, { "text-anchor": "middle", "font-weight": 600, fill: "var(--sk-ink)" }),
          text(middle, layout.rep + 27, bits, { "text-anchor": "middle" }),
        );
      }
      marks.repNames.replaceChildren(...names.false);
      marks.laterRepNames.replaceChildren(...names.true);
    }

    // The present moment: unfinished blocks grow, the trace is uncovered, the plan waits its turn.
    function advance() {
      const running = live && !live.over && events.length > 0;
      marks.flag?.setAttribute("visibility", running ? "visible" : "hidden");
      const now_s = running ? Math.max(live.now(), 0) : null;
      if (running && now_s > end_s) {
        while (now_s > end_s) end_s *= 1.25;
        layoutAll();
        return;
      }
      const covered = running ? x(now_s) - layout.left : right() - layout.left;
      marks.clip.setAttribute("width", Math.max(covered, 0));
      drawPredicted(now_s);
      if (running) {
        marks.flag.setAttribute("transform", `translate(${x(now_s).toFixed(1)} 0)`);
        const flagX = Math.min(Math.max(x(now_s), layout.left + (layout.wide ? 0 : 24)), width - 24) - x(now_s);
        for (const part of [...marks.flag.children].slice(1)) part.setAttribute("transform", `translate(${flagX.toFixed(1)} 0)`);
        marks.flag.lastChild.textContent = `${now_s.toFixed(2)} s`;
        for (const [at, name] of marks.tickNames) name.setAttribute("opacity", Math.abs(at - x(now_s)) < 40 ? 0 : 1);
        waitNow(now_s, guess(now_s));
      } else {
        marks.guesses.replaceChildren();
        for (const [, name] of marks.tickNames) name.setAttribute("opacity", 1);
      }
      const shift = (x(lag_s) - x(0)).toFixed(1);
      for (const group of [marks.later, marks.laterReps, marks.laterRepNames]) group.setAttribute("transform", `translate(${shift} 0)`);
      drawValues(now_s);
    }

    // Events tell the end of a stage: what the device must be doing now follows from what it has finished.
    // Returns whether a shard is executing.
    function guess(now_s) {
      const all = [...shards.values()];
      const lastEnd = (lane) => Math.max(0, ...all.map((data) => endOf(data[lane]) ?? 0));
      const spans = {};
      const asked = all.filter((data) => (data.orders || 0) > (data.receive?.length || 0));
      if (asked.length) {
        // The first bytes take a round trip, and while the link carries nothing nothing comes.
        const first_s = Math.min(...asked.map((data) => data.asked_s)) + (system === "on_device" ? 0 : plan.start_s);
        const piece = Math.max(trace.times.findLastIndex((time) => time <= now_s), 0);
        spans.receive = [Math.max(first_s, lastEnd("receive")), trace.rates[piece] > 0 ? now_s : trace.times[piece]];
      }
      const next = all.filter((data) => data.execute).length;
      const rebuilt_s = endOf(shards.get(next)?.reconstruct);
      const alone = system === "on_device" || (marks.fell !== undefined && rebuilt_s === undefined);
      const ready_s = alone ? marks.fell?.at_s ?? 0 : rebuilt_s;
      if (ready_s !== undefined && next < shardCount()) {
        const start_s = Math.max(ready_s, lastEnd("execute"));
        spans.execute = [start_s, now_s];
        lag_s = Math.max(start_s - plannedStart(next), now_s - plannedStart(next + 1), 0);
      }
      marks.guesses.replaceChildren(...Object.entries(spans).filter(([, [from_s, to_s]]) => from_s < to_s).map(([lane, [from_s, to_s]]) =>
        s("rect", {
          x: x(from_s), y: layout.lanes[LANES.indexOf(lane)], width: Math.max(x(to_s) - x(from_s) - 1, 1.5), height: layout.lane_px, rx: 2,
          fill: alone && lane === "execute" ? "var(--sys-device)" : `var(--lane-${lane})`,
        })));
      return spans.execute !== undefined;
    }

    // Execution stands still when no shard runs although the next one was due.
    function waitNow(now_s, busy) {
      const done = [...shards.values()].filter((data) => data.execute);
      const free_s = Math.max(plan.start_s, ...done.map((data) => endOf(data.execute)));
      const next = done.length;
      const late = !busy && next < shardCount() && now_s - free_s > 0.05;
      marks.openWait?.remove();
      marks.openWait = null;
      if (!late) return;
      lag_s = Math.max(lag_s, now_s - plannedStart(next));
      marks.openWait = wait(free_s, now_s, next);
      marks.blocks.prepend(marks.openWait);
    }

    function drawPredicted(now_s) {
      const points = marks.predictions || [];
      if (!points.length) return;
      let path = `M${x(points[0][0]).toFixed(1)} ${y(points[0][1]).toFixed(1)}`;
      points.forEach(([, mbps], i) => {
        const until = points[i + 1]?.[0] ?? now_s ?? points[i][0];
        path += `V${y(mbps).toFixed(1)}H${Math.min(x(until), right()).toFixed(1)}`;
      });
      marks.predicted.setAttribute("d", path);
    }

    // Labels at the end of the lines, moved apart where they would touch.
    function drawValues(now_s) {
      if (!layout.wide) return;
      const at = right() + 8;
      const show = (mbps) => (mbps === undefined ? "" : ` ${mbpsOf(mbps)}`);
      const rows = [];
      const t = Math.min(now_s ?? end_s, end_s);
      const i = trace.times.findLastIndex((time) => time <= t);
      const rate = trace.rates[Math.max(i, 0)];
      const key = { "stroke-width": 1.6 };
      rows.push({ y: y(rate ?? 0), name: `Trace${events.length ? show(rate) : ""}`, fill: "var(--sk-ink-2)", key: s("path", { d: "M0 0h12", stroke: "var(--sk-edge)", ...key }) });
      const predictions = marks.predictions || [];
      if (predictions.length) {
        rows.push({ y: y(marks.lastMeasured), name: `Measured${show(marks.lastMeasured)}`, fill: "var(--sk-ink)", key: s("circle", { cx: 6, r: 3, fill: "var(--sk-ink)" }) });
        const predicted = predictions.at(-1)[1];
        rows.push({ y: y(predicted), name: `Predicted${show(predicted)}`, fill: "var(--sk-accent)", key: s("path", { d: "M0 0h12", stroke: "var(--sk-accent)", "stroke-width": 2, "stroke-dasharray": "4 2.6" }) });
      }
      rows.sort((a, b) => a.y - b.y);
      rows.forEach((row, n) => n && (row.y = Math.max(row.y, rows[n - 1].y + 15)));
      const over = rows.at(-1).y - (layout.band[1] + 8);
      if (over > 0) for (const row of rows) row.y -= over;
      rows.forEach((row, n) => n && (row.y = Math.max(row.y, rows[n - 1].y + 15)));
      marks.labels.replaceChildren(...rows.map((row) =>
        s("g", { transform: `translate(${at} ${row.y.toFixed(1)})` }, row.key, text(17, 4.2, row.name, { "font-weight": 600, fill: row.fill }))));
    }

    function beat() {
      cancelAnimationFrame(frame);
      let drawn = 0;
      const step = (now) => {
        if (!box.isConnected || !live || live.over) return;
        if (!sakura.calm() || now - drawn >= 500) {
          drawn = now;
          if (events.length && width) advance();
        }
        frame = requestAnimationFrame(step);
      };
      frame = requestAnimationFrame(step);
    }

    // Keyboard and pointer: arrows move between blocks, Enter opens the shard in the table.
    function go(from, key) {
      const lane = from.dataset.lane === "wait" ? "execute" : from.dataset.lane;
      const blocks = [...marks.blocks.children];
      const peers = blocks.filter((item) => item.dataset.lane === from.dataset.lane)
        .sort((a, b) => facts.get(a)[0].started_s - facts.get(b)[0].started_s);
      let to = null;
      if (key === "ArrowRight") to = peers[peers.indexOf(from) + 1];
      if (key === "ArrowLeft") to = peers[peers.indexOf(from) - 1];
      if (key === "Home") to = peers[0];
      if (key === "End") to = peers.at(-1);
      const rows = key === "ArrowDown" ? LANES.slice(LANES.indexOf(lane) + 1) : LANES.slice(0, LANES.indexOf(lane)).reverse();
      if (key === "ArrowDown" || key === "ArrowUp") {
        to = rows.map((row) => blocks.find((item) => item.dataset.lane === row && facts.get(item).some(({ shard }) => shard === Number(from.dataset.shard)))).find(Boolean);
      }
      if (!to) return;
      for (const item of marks.blocks.querySelectorAll("[tabindex='0']")) item.setAttribute("tabindex", -1);
      to.setAttribute("tabindex", 0);
      to.focus();
    }

    svg.addEventListener("keydown", (event) => {
      const mark = event.target.closest(".shard");
      if (!mark) return;
      if (event.key === "Escape") tip.hidden = true;
      else if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        openShard(Number(mark.dataset.shard), mark.dataset.key);
      } else if (/^(Arrow|Home|End)/.test(event.key)) {
        event.preventDefault();
        go(mark, event.key);
      }
    });
    svg.addEventListener("click", (event) => showTip(event.target.closest(".shard")));
    svg.addEventListener("dblclick", (event) => {
      const mark = event.target.closest(".shard");
      if (mark) openShard(Number(mark.dataset.shard), mark.dataset.key);
    });
    svg.addEventListener("pointerover", (event) => showTip(event.target.closest(".shard")));
    svg.addEventListener("pointerleave", () => (tip.hidden = true));
    svg.addEventListener("focusin", (event) => showTip(event.target.closest(".shard")));
    svg.addEventListener("focusout", () => (tip.hidden = true));

    function showTip(mark) {
      tip.hidden = !mark;
      if (!mark) return;
      tip.textContent = words(mark);
      const outer = box.getBoundingClientRect();
      const inner = mark.getBoundingClientRect();
      const middle = inner.left + inner.width / 2 - outer.left;
      const half = tip.offsetWidth / 2;
      tip.style.left = `${Math.min(Math.max(middle, half), outer.width - half)}px`;
      tip.style.top = `${inner.top - outer.top - 8}px`;
    }

    let lastWidth = 0;
    new ResizeObserver(() => {
      // Where the drawing was hidden it is laid out anew when it shows again: events came meanwhile.
      if (box.clientWidth !== lastWidth) {
        lastWidth = box.clientWidth;
        layoutAll();
      }
    }).observe(box);

    return {
      show(view, run = null) {
        plan = view.plan;
        system = view.system;
        trace = view.trace;
        units = view.units;
        live = run;
        events = [];
        top_rank = RANKS_AT_FIRST;
        end_s = plannedEnd();
        layoutAll();
        if (run) beat();
      },
      take(fresh) {
        const last_s = Math.max(...fresh.filter((event) => handlers[event.kind]).map((event) => event.at_s), 0);
        events.push(...fresh);
        if (last_s > end_s) {
          while (last_s > end_s) end_s *= 1.25;
          layoutAll();
          return;
        }
        if (!width) return;
        fresh.forEach(add);
        advance();
      },
      // Another network takes over: what was drawn of the trace holds up to now.
      switchTrace(next) {
        trace = next;
        layoutAll();
      },
      shards: () => shards,
      // Whether the device computes because the network is too slow.
      alone: () => Boolean(marks.fell && !marks.fell.planned),
      focus(key) {
        svg.querySelector(`[data-key="${key}"]`)?.focus();
      },
      // After the run the axis ends where the work ended.
      finish() {
        const failed = events.some((event) => event.kind === "run_failed");
        const last_s = Math.max(0, ...events.filter((event) => failed || event.kind === "lane_finished").map((event) => event.at_s));
        end_s = plannedEnd();
        while (last_s > end_s) end_s *= 1.25;
        if (width) layoutAll();
      },
    };
  }

  // Two lines a column name, so that a row of figures fits on a laptop.
  const COLUMNS = [
    ["Shard", "", (d) => String(d.shard + 1)],
    ["Step", "", (d, plan) => String(Math.floor(d.shard / plan.shards_per_step) + 1)],
    ["Chosen,", "rank, bits", (d) => figures(d.chosen)],
    ["Used,", "rank, bits", (d) => figures(d.used)],
    ["Received,", "kB", (d) => d.receive && (d.receive.reduce((sum, span) => sum + (span.bytes || 0), 0) / 1000).toFixed(1)],
    ["Receive,", "ms", (d) => lasting(d.receive)],
    ["Reconstruct,", "ms", (d) => lasting(d.reconstruct)],
    ["Execute,", "ms", (d) => lasting(d.execute)],
    ["Ready before", "need, ms", (d) => d.slack_s !== undefined && signed(d.slack_s * 1000)],
    ["Waited,", "ms", (d) => d.waited_s && (d.waited_s * 1000).toFixed(1)],
    ["Predicted,", "Mbit/s", (d) => d.predicted_mbps && mbpsOf(d.predicted_mbps)],
    ["Measured,", "Mbit/s", (d) => d.measured_mbps && mbpsOf(d.measured_mbps)],
    ["Why", "", (d) => why(d)],
  ];
  const endOf = (spans) => spans && Math.max(...spans.map((span) => span.ended_s));
  const figures = (used) => used && (used.rank ? `${used.rank}, ${used.left_bits}+${used.right_bits}` : used.left_bits ? `${used.left_bits} bits` : "as it is");
  const represented = (used) => used && (used.rank ? `rank ${used.rank}, ${used.left_bits}+${used.right_bits} bits` : used.left_bits ? `${used.left_bits} bits` : "");
  const lasting = (spans) => spans && (spans.reduce((sum, span) => sum + span.ended_s - span.started_s, 0) * 1000).toFixed(1);
  const signed = (value) => value.toFixed(1).replace("-", "\u2212");
  const mbpsOf = (mbps) => (mbps === 0 ? "0" : mbps < 0.01 ? "<0.01" : mbps < 1 ? mbps.toFixed(2) : mbps < 10 ? mbps.toFixed(1) : String(Math.round(mbps)));
  // A reason says at its end that the device computes; the block that it is about says so already.
  const because = ({ planned, reason = "" }) => (planned ? "The first bytes were still on their way." : reason.replace(/, so the device computes .*$/, "."));
  const lower = (words) => words.charAt(0).toLowerCase() + words.slice(1);
  const capital = (words = "") => words.charAt(0).toUpperCase() + words.slice(1);

  function why(d) {
    const words = d.local ? `On the device: ${lower(because(d.local))}` : `${capital(d.reason)}.`;
    if (d.execute?.at(-1).on_device) return d.local ? words : "Computed on the device; nothing is streamed.";
    return d.cut ? `Cut: not all that was chosen came in time. ${words}` : d.reason ? words : "";
  }

  sakura.mountTimeline = (element) => {
    const $ = (name) => element.querySelector(`[data-part=${name}]`);
    const store = sakura.store;
    // On a phone the table has a button of its own, below the drawing.
    const tableButtons = [$("table-button"), $("table-button-phone")];
    const ALONE = "The network is too slow just now, so the device computes by itself.";
    let cameFrom = null;
    const draw = drawing($("drawing"), $("tip"), (shard, key) => {
      cameFrom = key;
      showTable(true);
      focusRow(shard);
    });

    store.listen((what, detail) => {
      if (!element.isConnected) return;
      if (what === "plan" && store.mode === "plan") {
        heading("What the device will do", detail.plan ? "The plan for this network. Press Edit to run it." : "");
        showTable(false);
        tools(false, false);
        $("waiting").textContent = detail.plan ? "" : detail.waiting;
        $("waiting").hidden = Boolean(detail.plan);
        $("drawing").classList.toggle("under", !detail.plan);
        device(detail.device);
        if (detail.plan) draw.show(detail);
      }
      if (what === "starting") heading("What the device is doing", "Getting ready for this template.");
      if (what === "start") {
        $("waiting").hidden = true;
        heading("What the device is doing", working(detail.view.system));
        showTable(false);
        tools(true, false);
        device(detail.view.device);
        $("live").textContent = "The edit has begun.";
        draw.show(detail.view, detail);
      }
      if (what === "events") {
        draw.take(detail);
        const step = detail.findLast((event) => event.kind === "step_finished");
        if (store.mode === "running") $("sentence").textContent = draw.alone() ? ALONE : working(store.run.view.system);
        if (step) $("live").textContent = `Step ${step.step + 1} of ${store.run.view.plan.steps} is done.`;
        if (!$("table").hidden) fillTable();
      }
      if (what === "network") draw.switchTrace(detail.view.trace);
      if (what === "over") {
        draw.finish();
        const end = summary(detail);
        heading("What the device did", end);
        $("live").textContent = end;
        tools(true, true);
      }
      if (what === "changed") {
        $("sentence").textContent = detail ? sakura.CHANGED : summary(store.run);
        $("sentence").classList.toggle("changed", detail);
      }
    });

    function heading(title, sentence) {
      $("title").textContent = title;
      $("sentence").textContent = sentence;
      $("sentence").classList.remove("changed");
    }

    // Which device runs, with its engine and clock; in full where it does not fit.
    function device(words) {
      $("device").textContent = words ? `On ${words}` : "";
      if (words) $("device").dataset.tip = `On ${words}`;
      else $("device").removeAttribute("data-tip");
    }

    function working(system) {
      if (system === "on_device") return "The device computes every step by itself.";
      return "While one shard runs, the next is already arriving.";
    }

    function summary(run) {
      if (run.events.some((event) => event.kind === "run_failed")) return "The edit ended before its last step.";
      if (run.view.system === "on_device") return "The device computed every step by itself.";
      const alone = new Set(run.events.filter((event) => event.kind === "lane_finished" && event.on_device).map((event) => event.shard)).size;
      const waited_s = run.events.find((event) => event.kind === "run_finished").network_wait_s;
      const waited = waited_s < 0.001 ? "" : ` and waited ${said(sakura.time(waited_s))} for the network`;
      if (run.events.some((event) => event.kind === "fell_back" && !event.planned)) return `The device computed ${alone} of ${run.view.plan.steps * run.view.plan.shards_per_step} shards without the cache${waited}.`;
      if (alone) return `The device began by itself while the first bytes were on their way${waited}.`;
      if (waited_s < 0.001) return "Each shard arrived while an earlier one was running.";
      const first = run.events.find((event) => event.kind === "network_wait" && event.shard === 0);
      const first_s = first ? first.at_s - first.started_s : 0;
      const [total, part] = [waited_s, first_s].map((seconds) => said(sakura.time(seconds)));
      const most = first_s > waited_s / 2 ? `, ${part === total ? "all" : part} of it for the first shard` : "";
      return `The device waited ${total} for the network${most}.`;
    }

    function tools(table, save) {
      for (const node of tableButtons) button(node, table, "There are no shards before the first edit.");
      button($("save-button"), save, "The timeline can be saved when the edit is done.");
      $("save-menu").hidden = true;
    }

    function button(node, enabled, reason) {
      node.setAttribute("aria-disabled", String(!enabled));
      if (enabled) node.removeAttribute("data-tip");
      else node.dataset.tip = reason;
    }

    function showTable(on) {
      $("table").hidden = !on;
      $("drawing").classList.toggle("under", on);
      for (const node of tableButtons) node.textContent = on ? "Timeline" : "Shard table";
      if (on) fillTable();
    }

    function fillTable() {
      const plan = store.run.view.plan;
      const focused = document.activeElement?.closest("[data-part=rows] tr")?.dataset.shard;
      const rows = [...draw.shards().values()].sort((a, b) => a.shard - b.shard);
      $("rows").replaceChildren(...rows.map((data, i) =>
        h("tr", { tabindex: i ? -1 : 0, "data-shard": data.shard }, ...COLUMNS.map(([, , read]) => h("td", {}, String(read(data, plan) || ""))))));
      if (focused) focusRow(focused);
    }

    function focusRow(shard) {
      const row = $("rows").querySelector(`[data-shard="${shard}"]`);
      if (!row) return;
      for (const other of $("rows").querySelectorAll("[tabindex='0']")) other.setAttribute("tabindex", -1);
      row.setAttribute("tabindex", 0);
      row.focus({ preventScroll: true });
      row.scrollIntoView({ block: "nearest", inline: "nearest" });
    }

    $("head").append(...COLUMNS.map(([name, more]) => h("th", { scope: "col" }, name, more && h("br"), more)));
    const enabled = (node) => node.getAttribute("aria-disabled") !== "true";
    for (const node of tableButtons) {
      node.addEventListener("click", () => {
        cameFrom = null;
        if (enabled(node)) showTable($("table").hidden);
      });
    }
    // Arrows move between rows; left and right scroll where the table is wider than its card.
    $("table").addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        showTable(false);
        if (cameFrom) draw.focus(cameFrom);
        else tableButtons.find((node) => node.checkVisibility())?.focus();
        return;
      }
      const row = event.target.closest("tr");
      const to = { ArrowDown: row?.nextElementSibling, ArrowUp: row?.previousElementSibling, Home: row?.parentNode.firstElementChild, End: row?.parentNode.lastElementChild }[event.key];
      if (!to) return;
      event.preventDefault();
      focusRow(to.dataset.shard);
    });
    $("save-button").addEventListener("click", () => {
      if (enabled($("save-button"))) $("save-menu").hidden = !$("save-menu").hidden;
    });
    $("save-menu").addEventListener("click", async (event) => {
      const format = event.target.closest("[data-format]")?.dataset.format;
      if (!format) return;
      $("save-menu").hidden = true;
      const file = await sakura.asked(store.server.saved_timeline([store.run.id, format]));
      if (!file?.text) {
        $("sentence").textContent = file?.error ?? sakura.UNREACHED;
        return;
      }
      const link = h("a", { href: URL.createObjectURL(new Blob([file.text], { type: "application/json" })), download: file.name });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || $("save-menu").hidden) return;
      $("save-menu").hidden = true;
      $("save-button").focus();
    });
  };
})();
