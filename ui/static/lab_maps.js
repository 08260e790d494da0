// Colours of heat as numbers, and the importance card of the lab: one map large, all small, and how uneven they are.
"use strict";

(() => {
  const { h, s } = sakura;
  const SHADES = 256;

  // The scale --heat-0 to --heat-4 as 256 colours, [red, green, blue] each, as the theme has it now.
  function shades() {
    const style = getComputedStyle(document.body);
    const stops = [0, 1, 2, 3, 4].map((stop) => style.getPropertyValue(`--heat-${stop}`).trim());
    const canvas = h("canvas", { width: SHADES, height: 1 });
    const ink = canvas.getContext("2d", { willReadFrequently: true });
    for (let shade = 0; shade < SHADES; shade += 1) {
      const level = (shade / (SHADES - 1)) * 4;
      const stop = Math.min(Math.floor(level), 3);
      ink.fillStyle = `color-mix(in oklab, ${stops[stop + 1]} ${100 * (level - stop)}%, ${stops[stop]})`;
      ink.fillRect(shade, 0, 1, 1);
    }
    return ink.getImageData(0, 0, SHADES, 1).data;
  }

  // Paints levels from 0 to 1, given row by row; null is left empty. `alpha` says how much a level covers.
  function paint(canvas, levels, alpha = () => 1) {
    [canvas.width, canvas.height] = [levels[0].length, levels.length];
    const ink = canvas.getContext("2d");
    const image = ink.createImageData(canvas.width, canvas.height);
    const scale = shades();
    levels.flat().forEach((level, i) => {
      if (level === null) return;
      const shade = Math.round(level * (SHADES - 1));
      for (let part = 0; part < 3; part += 1) image.data[4 * i + part] = scale[4 * shade + part];
      image.data[4 * i + 3] = 255 * alpha(level);
    });
    ink.putImageData(image, 0, 0);
  }

  // Paints a grey picture in the colours of heat.
  sakura.paintHeat = async (canvas, src) => {
    const picture = new Image();
    picture.src = src;
    await picture.decode();
    const { naturalWidth: width, naturalHeight: height } = picture;
    const grey = h("canvas", { width, height }).getContext("2d", { willReadFrequently: true });
    grey.drawImage(picture, 0, 0);
    const { data } = grey.getImageData(0, 0, width, height);
    paint(canvas, Array.from({ length: height }, (_, y) => Array.from({ length: width }, (_, x) => data[4 * (y * width + x)] / 255)));
  };

  sakura.mountMaps = (element) => {
    const $ = (name) => element.querySelector(`[data-part=${name}]`);
    let facts = null;
    let [step, block] = [1, 4]; // the second step and the fifth block, where there are so many

    function draw() {
      paint($("ramp"), [Array.from({ length: 96 }, (_, x) => x / 95)]);
      if (!facts) return;
      const steps = facts.levels.length;
      const blocks = facts.levels[0].length;
      [step, block] = [Math.min(step, steps - 1), Math.min(block, blocks - 1)];
      const grid = $("grid");
      const focused = grid.contains(document.activeElement);
      grid.style.setProperty("--blocks", blocks);
      const names = (of, chosen) => Array.from({ length: of }, (_, i) => h("span", { class: i === chosen ? "n on" : "n", "aria-hidden": "true" }, String(i + 1)));
      const columns = names(blocks, block);
      grid.replaceChildren(h("span"), ...columns);
      for (let row = 0; row < steps; row += 1) {
        grid.append(h("span", { class: row === step ? "on" : "", "aria-hidden": "true" }, `Step ${row + 1}`));
        for (let column = 0; column < blocks; column += 1) {
          const chosen = row === step && column === block;
          const canvas = h("canvas", { "aria-hidden": "true" });
          paint(canvas, facts.levels[row][column]);
          grid.append(h("button", {
            type: "button", role: "radio", class: "lab-cell", "aria-checked": String(chosen), tabindex: chosen ? 0 : -1,
            "aria-label": `Step ${row + 1}, block ${column + 1}: 10 % of tokens hold ${facts.top[row][column]} % of the attention`,
            onclick: () => choose(row, column),
          }, canvas));
        }
      }
      if (focused) grid.querySelector("[aria-checked=true]").focus();
      drawChosen();
    }

    function drawChosen() {
      $("where").textContent = `step ${step + 1}, block ${block + 1}`;
      paint($("map"), facts.levels[step][block], (level) => 0.25 + 0.69 * level);
      const top = facts.top[step][block];
      $("read").textContent = `10 % of tokens hold ${top} % of the attention.`;
      const all = facts.top.flat();
      $("stable").textContent = `${Math.min(...all)} to ${Math.max(...all)} % over all steps and blocks. ${stable()}`;
      drawCurve($("lorenz"), facts.at, facts.curves[step][block], top);
    }

    function stable() {
      if (facts.correlation === null) return "";
      const alike = facts.correlation >= 0.95 ? "nearly the same map" : facts.correlation >= 0.8 ? "a similar map" : "another map";
      return `Another request gives ${alike}: correlation ${facts.correlation.toFixed(2)} over ${facts.requests} of them.`;
    }

    function choose(row, column) {
      [step, block] = [row, column];
      draw();
    }

    $("grid").addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
      const move = moves[event.key];
      if (!move || !facts) return;
      event.preventDefault();
      const inside = (value, count) => Math.min(Math.max(value, 0), count - 1);
      choose(inside(step + move[0], facts.levels.length), inside(block + move[1], facts.levels[0].length));
    });

    return {
      draw,
      showTemplate(template) {
        facts = null;
        $("grey").src = template.picture;
        $("outline").replaceChildren(
          s("path", { d: template.outline, fill: "url(#lab-hatch)" }), s("path", { d: template.outline, class: "outline-under" }),
          s("path", { d: template.outline, class: "outline-over" }),
        );
        for (const name of ["read", "stable", "where"]) $(name).textContent = "\u2007";
        $("map").width = 1; // clears it
        for (const cell of $("grid").querySelectorAll("canvas")) cell.width = 1;
        $("lorenz").replaceChildren();
      },
      show(answer) {
        facts = answer;
        draw();
      },
    };
  };

  // The share of attention that the most important tokens hold, and what it would be if all were equal.
  function drawCurve(box, at, curve, top) {
    const { svg, x, y, text, line } = sakura.plot(box, {
      height: 180, left: 30, right: 14, top: 24, bottom: 38, x: [0, 100], y: [0, 100],
      yTitle: "share of attention, %", xTitle: "tokens, most important first, %", yTicks: [0, 50, 100], xTicks: [0, 10, 50, 100],
      label: `The share of attention that the most important tokens hold: the first 10 % hold ${top} %.`,
    });
    svg.append(
      line(x(0), x(100), y(0), y(100), "var(--sk-edge)", { "stroke-dasharray": "1.5 3" }),
      text(x(64), y(36), "if all were equal", { "text-anchor": "middle" }),
      s("path", { d: `M${at.map((share, i) => `${x(share)} ${y(curve[i])}`).join("L")}`, fill: "none", stroke: "var(--sk-accent)", "stroke-width": 2.2 }),
      line(x(10), x(10), y(0), y(top), "var(--sk-ink)"),
      s("circle", { cx: x(10), cy: y(top), r: 4.5, fill: "var(--sk-ink)", stroke: "var(--sk-surface)", "stroke-width": 1.5 }),
    );
  }
})();
