// Template, live picture, before and after, and the numbers of the edit.
"use strict";

(() => {
  const { h, s, said } = sakura;

  sakura.mountPictures = (element) => {
    const $ = (name) => element.querySelector(`[data-part=${name}]`);
    const store = sakura.store;
    let view = null;
    let numbers = null;
    let shownAt = 0;
    let frame = 0;

    function showTemplate(next) {
      view = next;
      const { template } = view;
      setPicture($("template"), template.picture, "Template");
      $("outline").replaceChildren(
        s("path", { d: template.outline, class: "outline-under" }),
        s("path", { d: template.outline, class: "outline-over" }),
      );
      $("region").textContent = `edited region ${template.edited_percent.toFixed(1)} %`;
      if (heat.of !== template.id) heat.off();
    }

    function showPlan(plan) {
      cancelAnimationFrame(frame);
      showTemplate(plan);
      $("error").hidden = true;
      element.firstElementChild.dataset.mode = "plan";
      $("state").textContent = "no edit yet";
      $("edit").replaceChildren(h("span", { class: "empty" }, "Your edit appears here, step by step."));
      $("edit").classList.add("none");
      const share = plan.template.edited_percent.toFixed(1);
      const own = { face_swap: "your new face", try_on: "your garment", instruction: "your words" };
      const device = plan.system === "on_device";
      const lines = device
        ? [
            ["The device computes everything itself.", "Nothing about the template is sent."],
            ["Every step covers the whole picture.", `The edited region is ${share} % of it.`],
            ["The network plays no part.", "The time depends on the device alone."],
          ]
        : [
            [
              plan.system === "sakura" ? "The cloud streams a prepared cache." : "The cloud sends the full cache.",
              "It holds what is known about this template, computed once for everyone.",
            ],
            [
              "The device computes only the edited region.",
              `That is ${share} % of the picture, plus ${own[plan.template.task]}.`,
            ],
            [
              "Each shard arrives while the one before it runs.",
              plan.system === "sakura"
                ? "If the network slows down, later shards are sent with less detail."
                : "Without compression the device waits when the network is slower.",
            ],
          ];
      $("how").replaceChildren(...lines.map(([title, text]) => h("li", {}, h("b", {}, title), h("span", {}, text))));
    }

    function showStarting() {
      $("error").hidden = true;
      $("state").textContent = "getting ready";
    }

    function showStart(run) {
      showTemplate(run.view);
      element.firstElementChild.dataset.mode = "running";
      numbers = { received: 0, shards: 0, waited_s: 0, waits: 0, executed: 0, step: 0, latency_s: null };
      $("error").hidden = true;
      $("edit").replaceChildren(h("img", { src: view.template.picture, alt: "The template, before the first step" }));
      $("edit").classList.remove("none");
      $("state").textContent = "starting";
      $("steps").replaceChildren(
        ...Array.from({ length: view.plan.steps }, (_, step) =>
          h("figure", { class: step === 0 ? "cur" : "" }, h("div", { class: "thumb" }), h("figcaption", {}, `Step ${step + 1}`)),
        ),
      );
      $("quality").replaceChildren();
      const streamed = view.system !== "on_device";
      shown("second", streamed);
      shown("third", streamed);
      shown("waiting", streamed);
      $("caption").hidden = true;
      $("hero-name").textContent = "Time since you pressed Edit";
      $("third-name").textContent = "Waiting for network";
      $("second-name").textContent = "Uncompressed";
      $("verdict").textContent = "";
      const thumbs = [view.template.picture, view.reference].filter(Boolean);
      $("pick").replaceChildren(
        ...thumbs.map((src, i) => h("div", { class: "thumb" }, h("img", { src, alt: i ? "What you brought" : "Template" }))),
        h("div", { class: "pick-words" }, h("b", {}, view.title), h("span", {}, view.prompt ? view.prompt : view.network)),
      );
      if (innerWidth < 1100) element.scrollIntoView({ behavior: sakura.calm() ? "auto" : "smooth", block: "start" });
      cancelAnimationFrame(frame);
      tick();
    }

    function take(event) {
      if (event.kind === "lane_finished") {
        // A shard comes in several parts, and what it brings may serve later ones: those that are rebuilt have come.
        if (event.lane === "receive") numbers.received += event.received_bytes;
        if (event.lane === "reconstruct") numbers.shards += 1;
        if (event.lane === "execute") numbers.executed += 1;
      }
      if (event.kind === "network_wait") {
        numbers.waited_s += event.at_s - event.started_s;
        numbers.waits += 1;
      }
      if (event.kind === "step_finished") showStep(event);
      if (event.kind === "run_finished") {
        numbers.latency_s = event.latency_s;
        thumb(view.plan.steps - 1, `data:image/png;base64,${event.picture_png}`);
        numbers.received = event.received_bytes;
        numbers.waited_s = event.network_wait_s;
        swap(`data:image/png;base64,${event.picture_png}`, "Your edit", () => beforeAfter(event));
      }
      if (event.kind === "run_failed") showError(event.reason);
      if (event.kind === "quality_measured") showQuality(event);
    }

    function showStep(event) {
      const src = `data:image/png;base64,${event.preview_png}`;
      numbers.step = event.step + 1;
      thumb(event.step, src);
      $("state").textContent = `step ${numbers.step} of ${view.plan.steps} done`;
      swap(src, `The edit after step ${numbers.step}`);
    }

    function thumb(step, src) {
      const figures = [...$("steps").children];
      figures[step]?.firstChild.replaceChildren(h("img", { src, alt: `Picture after step ${step + 1}` }));
      figures.forEach((figure, i) => (figure.className = i === step + 1 ? "cur" : ""));
    }

    // The new picture is decoded before it shows, and fades in over the old one: only what differs seems to move.
    async function swap(src, alt, then) {
      const next = h("img", { src, alt, class: "arriving" });
      await next.decode().catch(() => null);
      const box = $("edit");
      if (box.querySelector(".before")) return;
      const olds = [...box.children];
      box.append(next);
      requestAnimationFrame(() => next.classList.remove("arriving"));
      setTimeout(() => {
        olds.forEach((old) => old.remove());
        if (then) then();
      }, sakura.calm() ? 0 : 260);
    }

    function beforeAfter(event) {
      const after = h("img", { src: `data:image/png;base64,${event.picture_png}`, alt: "After", class: "after" });
      const range = h("input", { type: "range", min: 0, max: 100, value: 50, "aria-label": "Share of the picture that shows before" });
      const place = () => $("edit").style.setProperty("--cut", `${range.value}%`);
      range.addEventListener("input", place);
      place();
      $("edit").replaceChildren(
        h("img", { src: view.template.picture, alt: "Before", class: "before" }),
        after,
        h("span", { class: "slide" }),
        h("span", { class: "knob" }),
        h("span", { class: "tag l" }, "Before"),
        h("span", { class: "tag r" }, "After"),
        range,
      );
    }

    function showOver(run) {
      const last = run.events.find((event) => event.kind === "run_finished");
      cancelAnimationFrame(frame);
      if (!last) {
        element.firstElementChild.dataset.mode = "failed";
        $("state").textContent = stopped(run.events) ? "stopped" : "no picture";
        write(Math.max(...run.events.map((event) => event.at_s)));
        shown("second", numbers.shards > 0);
        for (const part of ["third", "waiting"]) shown(part, numbers.executed > 0 && view.system !== "on_device");
        return;
      }
      element.firstElementChild.dataset.mode = "done";
      $("state").textContent = `${view.plan.steps} steps done`;
      $("hero-name").textContent = "Time from press to picture";
      $("second-name").textContent = "Full cache";
      $("third-name").textContent = "Compression";
      const pressed_s = last.press_to_picture_s ?? last.latency_s;
      const fell_back = run.events.findLast((event) => event.kind === "fell_back" && !event.planned);
      write(pressed_s);
      number("second", sakura.bytes(view.plan.full_cache_bytes));
      const compressed = last.received_bytes && !fell_back;
      shown("third", Boolean(compressed));
      if (compressed) number("third", sakura.times(view.plan.full_cache_bytes / last.received_bytes));
      $("verdict").textContent = fell_back ? withoutCache(run, fell_back.reason, pressed_s) : verdict(pressed_s);
      // Only where even the smallest representations are more than was asked for, more is received.
      const asked = run.events.find((event) => event.kind === "run_started")?.rate_budget_bytes;
      $("caption").hidden = !(asked && compressed && last.received_bytes > asked);
      $("caption").textContent = `The smallest that works for this template was ${said(sakura.bytes(last.received_bytes))}.`;
      // After a reload the comparison comes in the same answer as the end of the run.
      const measured = run.events.find((event) => event.kind === "quality_measured");
      if (measured) showQuality(measured);
      else $("quality").replaceChildren(h("p", { class: "sub" }, "Comparing the picture with the full cache."));
    }

    // Why the device computed to the end by itself, or how much of it in between.
    function withoutCache(run, reason, pressed_s) {
      const executed = run.events.filter((event) => event.kind === "lane_finished" && event.lane === "execute");
      if (executed.at(-1)?.on_device) return reason;
      const alone = new Set(executed.filter((event) => event.on_device).map((event) => event.shard)).size;
      return `${verdict(pressed_s)} ${alone} of ${view.plan.steps * view.plan.shards_per_step} shards were computed without the cache.`.trim();
    }

    function verdict(pressed_s) {
      const { system } = view;
      const { on_device_s } = view.plan;
      if (system === "on_device") return "All of it was computed on this device; nothing was received.";
      if (!on_device_s) return "";
      const faster = on_device_s >= pressed_s;
      const ratio = faster ? on_device_s / pressed_s : pressed_s / on_device_s;
      if (ratio < 1.05) return `As fast as computing all of it on this device, measured at ${said(sakura.time(on_device_s))}.`;
      return `${sakura.times(ratio)[0]} times ${faster ? "faster" : "slower"} than computing all of it on this device, measured at ${said(sakura.time(on_device_s))}.`;
    }

    function showQuality(event) {
      const row = (name, psnr, ssim, lpips) => [name, psnr >= 100 ? "same" : psnr.toFixed(1), ssim.toFixed(3), lpips.toFixed(3)];
      const groups = [];
      const full = event.against_full_cache;
      const truth = event.against_truth;
      if (full) {
        groups.push(["With the full cache", [
          row("Edited region", full.mask_psnr_db, full.mask_ssim, full.mask_lpips),
          row("Whole picture", full.psnr_db, full.ssim, full.lpips),
        ]]);
      }
      if (truth) groups.push(["With the truth", [row("Edited region", truth.mask_psnr_db, truth.mask_ssim, truth.mask_lpips)]]);
      const table = h(
        "table",
        { class: "t n", "aria-label": "The edit compared" },
        ...groups.map(([title, rows], i) => h(
          "tbody",
          {},
          h("tr", {}, h("th", { scope: "rowgroup" }, title), ...["PSNR, dB", "SSIM", "LPIPS"].map((text) => h("th", i ? {} : { scope: "col" }, i ? "" : text))),
          ...rows.map((cells) => h("tr", {}, ...cells.map((text) => h("td", {}, text)))),
        )),
      );
      $("quality").replaceChildren(groups.length ? table : h("p", { class: "sub" }, "There is nothing to compare this picture with."));
    }

    function showError(reason) {
      $("error-text").textContent = reason;
      $("error").classList.toggle("asked", reason === sakura.STOPPED);
      $("error").hidden = false;
    }

    const stopped = (events) => events.some((event) => event.kind === "run_failed" && event.reason === sakura.STOPPED);

    // Numbers change at most ten times a second.
    function tick(now = 0) {
      if (!element.isConnected || !store.run || store.run.over) return;
      if (now - shownAt >= 100 || now === 0) {
        shownAt = now;
        if (store.run.events.length) write(Math.max(store.run.now(), 0));
      }
      frame = requestAnimationFrame(tick);
    }

    function number(part, pair) {
      for (const node of element.querySelectorAll(`[data-part=${part}]`)) {
        node.replaceChildren(...(pair ? [pair[0], h("span", { class: "u" }, pair[1])] : ["\u2007"]));
      }
    }

    function shown(part, on) {
      $(part).closest(".metric").hidden = !on;
    }

    function write(seconds) {
      number("time", [seconds.toFixed(2), "s"]);
      number("received", view.system === "on_device" ? ["nothing", ""] : sakura.bytes(numbers.received));
      const shards = view.plan.steps * view.plan.shards_per_step;
      number("second", numbers.shards ? sakura.bytes((view.plan.full_cache_bytes * Math.min(numbers.shards, shards)) / shards) : null);
      // A wait is known when it is over: until the first shard ran there may be one.
      const waited = numbers.executed || numbers.latency_s !== null ? sakura.time(numbers.waited_s) : null;
      number("third", waited);
      number("waiting", waited);
      if (view.system === "on_device") $("verdict").textContent = "Everything is computed on the device.";
      else if (!waited) $("verdict").textContent = store.run.over ? "" : "The first shard is on its way.";
      else if (numbers.waits === 0) $("verdict").textContent = "The device has not waited for the network.";
      else $("verdict").textContent = `The device has waited for the network ${numbers.waits === 1 ? "once" : `${numbers.waits} times`}.`;
    }

    // Where the attention of the edited region goes: one square a token, over the grey template.
    const heat = {
      of: null,
      off() {
        heat.of = null;
        $("heat-toggle").setAttribute("aria-pressed", "false");
        $("template-box").classList.remove("heated");
      },
      async show() {
        heat.of = view.template.id;
        $("heat-toggle").setAttribute("aria-pressed", "true");
        $("template-box").classList.add("heated");
        const step = Number($("heat-step").value);
        const block = Number($("heat-block").value);
        const map = await sakura.asked(store.server.importance_map([view.template.id, step - 1, block - 1]));
        if (!map || map.error || heat.of !== view.template.id) return;
        $("heat-block").max = map.blocks;
        $("heat-step").max = map.steps;
        $("heat-step-value").textContent = `Step ${step}`;
        $("heat-block-value").textContent = `Block ${block}`;
        const rows = map.levels.length;
        const columns = map.levels[0].length;
        const cells = [];
        map.levels.forEach((row, y) =>
          row.forEach((level, x) => {
            if (level === null) return;
            const stop = Math.min(Math.floor(level * 4), 3);
            const share = Math.round((level * 4 - stop) * 100);
            const fill = `color-mix(in oklab, var(--heat-${stop + 1}) ${share}%, var(--heat-${stop}))`;
            cells.push(
              s("rect", { x: (x * 100) / columns, y: (y * 100) / rows, width: 100 / columns + 0.1, height: 100 / rows + 0.1, style: `fill:${fill}` }),
            );
          }),
        );
        $("heat").replaceChildren(...cells);
      },
    };
    store.listen((what, detail) => {
      if (!element.isConnected) return;
      if (what === "plan" && store.mode === "plan") showPlan(detail);
      if (what === "starting") showStarting();
      if (what === "start") showStart(detail);
      if (what === "events") detail.forEach(take);
      if (what === "over") showOver(detail);
      if (what === "changed") $("changed").hidden = !detail;
      if (what === "starting" || what === "plan") $("changed").hidden = true;
      if (what === "lost") $("lost").hidden = false;
      if (what === "back") $("lost").hidden = true;
    });

    $("heat-toggle").addEventListener("click", () => (heat.of ? heat.off() : heat.show()));
    $("heat-step").addEventListener("input", () => heat.show());
    $("heat-block").addEventListener("input", () => heat.show());
    $("changed").textContent = sakura.CHANGED;
    $("error-close").addEventListener("click", () => ($("error").hidden = true));
    $("change").addEventListener("click", () => {
      const root = document.documentElement;
      if (root.dataset.setup) delete root.dataset.setup;
      else root.dataset.setup = "open";
    });
  };

  function setPicture(img, src, alt) {
    if (img.getAttribute("src") !== src) img.src = src;
    img.alt = alt;
  }
})();
