// Painting a region on a square: what is painted may be edited. White on nothing, 512 by 512, whatever size is shown.
"use strict";

(() => {
  const { h } = sakura;
  const SIDE_PX = 512;
  const STEP_PX = 16; // how far an arrow key moves the brush

  function layer() {
    const canvas = h("canvas", { width: SIDE_PX, height: SIDE_PX });
    return canvas.getContext("2d", { willReadFrequently: true });
  }

  // `tool()` is {erases, size_px}; `changed(share)` is called while the region changes, `settled()` after it.
  sakura.brush = (canvas, tool, changed, settled) => {
    canvas.width = canvas.height = SIDE_PX;
    const shown = canvas.getContext("2d");
    const marks = layer();
    const border = layer();
    let from = null; // where the stroke was last
    let cursor = null;
    let frame = 0;

    function stroke(to) {
      const { erases, size_px } = tool();
      marks.globalCompositeOperation = erases ? "destination-out" : "source-over";
      marks.lineWidth = size_px;
      marks.lineCap = marks.lineJoin = "round";
      marks.strokeStyle = "#fff";
      marks.beginPath();
      marks.moveTo(from.x, from.y);
      marks.lineTo(to.x, to.y + 0.01); // a line of no length would leave no dot
      marks.stroke();
      marks.globalCompositeOperation = "source-over";
      from = to;
      update();
    }

    function update() {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => {
        draw();
        changed(read().reduce((sum, on) => sum + on, 0) / SIDE_PX ** 2);
      });
    }

    // One byte a pixel: 1 where it may be edited.
    function read() {
      return bits(marks, 3);
    }

    function bits(layer_2d, channel) {
      const { data } = layer_2d.getImageData(0, 0, SIDE_PX, SIDE_PX);
      const pixels = new Uint8Array(SIDE_PX ** 2);
      for (let i = 0; i < pixels.length; i += 1) pixels[i] = data[4 * i + channel] >> 7;
      return pixels;
    }

    function write(pixels) {
      const image = new ImageData(SIDE_PX, SIDE_PX);
      pixels.forEach((on, i) => on && image.data.fill(255, 4 * i, 4 * i + 4));
      marks.putImageData(image, 0, 0);
      update();
    }

    // The region moved `width_px` to all sides, less the region itself, is its border.
    function outline(width_px, color) {
      border.globalCompositeOperation = "source-over";
      border.clearRect(0, 0, SIDE_PX, SIDE_PX);
      for (let turn = 0; turn < 16; turn += 1) {
        border.drawImage(marks.canvas, width_px * Math.cos((turn * Math.PI) / 8), width_px * Math.sin((turn * Math.PI) / 8));
      }
      border.globalCompositeOperation = "destination-out";
      border.drawImage(marks.canvas, 0, 0);
      border.globalCompositeOperation = "source-in";
      border.fillStyle = color;
      border.fillRect(0, 0, SIDE_PX, SIDE_PX);
      shown.drawImage(border.canvas, 0, 0);
    }

    function draw() {
      shown.clearRect(0, 0, SIDE_PX, SIDE_PX);
      shown.globalAlpha = 0.32;
      shown.drawImage(marks.canvas, 0, 0);
      shown.globalAlpha = 1;
      outline(5, "#1D1824");
      outline(2.5, "#fff");
      if (!cursor) return;
      for (const [width, color] of [[4, "#1D1824"], [1.6, "#fff"]]) {
        shown.beginPath();
        shown.arc(cursor.x, cursor.y, tool().size_px / 2, 0, 2 * Math.PI);
        shown.lineWidth = width;
        shown.strokeStyle = color;
        shown.stroke();
      }
    }

    function place(event) {
      const box = canvas.getBoundingClientRect();
      return { x: ((event.clientX - box.left) / box.width) * SIDE_PX, y: ((event.clientY - box.top) / box.height) * SIDE_PX };
    }

    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !event.isPrimary) return;
      canvas.setPointerCapture(event.pointerId);
      from = cursor = place(event);
      stroke(from);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!event.isPrimary) return;
      cursor = place(event);
      if (from) stroke(cursor);
      else draw();
    });
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, (event) => {
        if (!from) return;
        from = null;
        if (event.pointerType !== "mouse") cursor = null;
        update();
        settled();
      });
    }
    canvas.addEventListener("pointerleave", () => {
      if (from) return;
      cursor = null;
      draw();
    });
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    canvas.addEventListener("keydown", (event) => {
      const move = moves[event.key];
      if (!move && event.key !== " ") return;
      event.preventDefault();
      const at = cursor ?? { x: SIDE_PX / 2, y: SIDE_PX / 2 };
      const inside = (value) => Math.min(Math.max(value, 0), SIDE_PX);
      cursor = move ? { x: inside(at.x + move[0] * STEP_PX), y: inside(at.y + move[1] * STEP_PX) } : at;
      if (move) return draw();
      from = cursor;
      stroke(cursor);
      from = null;
      settled();
    });
    canvas.addEventListener("blur", () => {
      cursor = null;
      draw();
    });

    return {
      redraw: draw,
      clear() {
        marks.clearRect(0, 0, SIDE_PX, SIDE_PX);
        update();
      },
      invert() {
        write(read().map((on) => 1 - on));
      },
      // White on black, as a mask file is.
      async load(src) {
        const image = h("img", { src });
        await image.decode();
        const loaded = layer();
        loaded.drawImage(image, 0, 0, SIDE_PX, SIDE_PX);
        write(bits(loaded, 0));
      },
      // The region as a PNG in base64.
      encode() {
        const file = layer();
        const image = new ImageData(SIDE_PX, SIDE_PX);
        read().forEach((on, i) => image.data.set([255 * on, 255 * on, 255 * on, 255], 4 * i));
        file.putImageData(image, 0, 0);
        return file.canvas.toDataURL("image/png").split(",")[1];
      },
    };
  };
})();
