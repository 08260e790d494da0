// The compression lab: which template and setting are in view, and asking the server until each answer is there.
"use strict";

(() => {
  const { h, said } = sakura;
  const NAMES = ["q", "rank", "left", "right"];
  const CHARTS = ["precision", "codecs", "exponent", "storage"];
  const AGAIN_MS = 1000;
  const GATHER_MS = 200;

  const pause = (ms) => new Promise((resume) => setTimeout(resume, ms));

  sakura.mountLab = async (element, props, server) => {
    const $ = (name) => element.querySelector(`[data-part=${name}]`);
    const maps = sakura.mountMaps(element);
    const { ranks } = props;
    const page = `page-${Math.random().toString(36).slice(2)}`;
    const view = { templates: [], template: null, setting: null, request: 0, mine: null, charts: null };
    const turns = { importance: 0, edit: 0, charts: 0 }; // a newer question of a kind ends the older one
    document.title = "SAKURA: compression lab";

    // Asks until there is an answer, something newer is asked for, or the view is gone; null in these two cases.
    async function patiently(kind, ask, waiting = () => {}) {
      const mine = (turns[kind] += 1);
      for (;;) {
        const answer = await sakura.asked(ask());
        if (mine !== turns[kind] || !element.isConnected) return null;
        if (answer && answer.status === undefined) return answer;
        waiting(answer ? answer.status : sakura.UNREACHED);
        await pause(answer ? 0 : AGAIN_MS);
        if (mine !== turns[kind]) return null;
      }
    }

    function say(sentence) {
      $("error").textContent = sentence;
      $("error").hidden = !sentence;
    }

    // The address holds what is in view, so that a reload or a link shows it again.
    function remember() {
      const url = new URL(location);
      url.search = "";
      url.searchParams.set("template", view.template.id);
      NAMES.forEach((name, i) => url.searchParams.set(name, view.setting[i]));
      if (view.request) url.searchParams.set("request", view.request);
      history.replaceState(history.state, "", url);
    }

    // Sliders

    const field = (name, part) => $(`${name}-${part}`);
    const toSlider = (name, value) => (name === "rank" ? ranks.indexOf(value) : value);
    const fromSlider = (name, value) => (name === "rank" ? ranks[Math.round(value)] : Number(value));
    const nearest = (name, value) => {
      if (name === "rank") return ranks.reduce((best, rank) => (Math.abs(rank - value) < Math.abs(best - value) ? rank : best));
      const { min, max, step } = field(name, "range");
      const inside = Math.min(Math.max(value, Number(min)), Number(max));
      return Number((Math.round(inside / Number(step)) * Number(step)).toFixed(2));
    };

    function showSetting() {
      NAMES.forEach((name, i) => {
        field(name, "range").value = toSlider(name, view.setting[i]);
        mirror(name);
      });
    }

    // The number and the filled part of the track follow the slider at once.
    function mirror(name) {
      const range = field(name, "range");
      const value = fromSlider(name, range.value);
      field(name, "number").value = value;
      range.style.setProperty("--share", (range.value - range.min) / (range.max - range.min));
      range.setAttribute("aria-valuetext", String(value));
    }

    NAMES.forEach((name, i) => {
      const change = (value) => {
        if (value === view.setting[i]) return;
        view.setting[i] = value;
        tryIt();
      };
      field(name, "range").addEventListener("input", () => mirror(name));
      field(name, "range").addEventListener("change", () => change(fromSlider(name, field(name, "range").value)));
      field(name, "number").addEventListener("change", () => {
        const typed = field(name, "number").valueAsNumber;
        const value = Number.isFinite(typed) ? nearest(name, typed) : view.setting[i];
        field(name, "range").value = toSlider(name, value);
        mirror(name);
        change(value);
      });
    });

    // What a setting costs and does

    // A sentence about the address stays until something else is chosen.
    async function tryIt(sentence = "") {
      remember();
      say(sentence);
      // What is shown is of the choice before: dimmed, and not to be edited with.
      document.documentElement.dataset.lab = "measuring";
      $("go").removeAttribute("href");
      $("go").setAttribute("aria-disabled", "true");
      const [asked, request] = [[...view.setting], view.request];
      $("status").textContent = "measuring";
      const answer = await patiently("edit", () => server.lab_try([page, view.template.id, asked, request]), (status) => {
        $("status").textContent = status || "measuring";
      });
      if (!answer) return;
      $("status").textContent = "";
      if (answer.error) return say(answer.error);
      showBytes(answer);
      delete document.documentElement.dataset.lab;
      view.mine = { bytes: answer.bytes, db: answer.edit?.chart_db ?? null, q: asked[0], rank: asked[1], left: asked[2], right: asked[3] };
      const shown = await showEdit(answer.edit);
      if (shown) follow();
      else noCharts("");
    }

    function number(part, [value, unit]) {
      $(part).replaceChildren(value, h("span", { class: "u" }, unit));
    }

    function showBytes(answer) {
      number("bytes", sakura.bytes(answer.bytes));
      $("smaller").replaceChildren(h("b", { class: "n" }, said(sakura.times(answer.full_bytes / answer.bytes))), " smaller", h("br"), `than ${said(sakura.bytes(answer.full_bytes))}`);
      $("bar").style.width = `${(100 * answer.bytes) / answer.full_bytes}%`;
      answer.parts.forEach((bytes, i) => ($(`part${i}`).textContent = said(sakura.bytes(bytes))));
      $("lost").textContent = `${answer.lost_percent.toPrecision(2)} %`;
      $("left-help").textContent = `of ${answer.planes[0]} bit planes of the basis`;
      $("right-help").textContent = `of ${answer.planes[1]} of the coefficients`;
      const address = new URL("./", location);
      address.search = new URLSearchParams({ template: view.template.id, budget_kb: (Math.ceil(answer.bytes / 100) / 10).toFixed(1) });
      $("go").href = address.href;
      $("go").removeAttribute("aria-disabled");
    }

    async function showEdit(edit) {
      $("none").hidden = Boolean(edit);
      $("pics").hidden = !edit;
      $("next").hidden = !edit;
      $("none").textContent = "This template is a picture of your own: held-out requests with a known outcome exist for drawn templates only, so there is no edit to compare and there are no charts of quality.";
      element.querySelector(".lab-charts").hidden = !edit;
      if (!edit) return false;
      $("request-name").textContent = `Request ${view.request + 1}`;
      $("reference").hidden = !edit.reference;
      $("words").hidden = Boolean(edit.reference);
      $("words").textContent = `“${edit.words}”`;
      for (const [part, src] of [["reference", edit.reference], ["picture", edit.picture], ["full", edit.full]]) {
        if (!src) continue;
        $(part).src = src;
        $(part).hidden = false;
      }
      await sakura.paintHeat($("difference"), edit.difference);
      const { scores } = edit;
      const decibels = (value) => (value >= 100 ? "same" : value.toFixed(1));
      $("mask-psnr").textContent = decibels(scores.mask_psnr_db);
      $("mask-ssim").textContent = scores.mask_ssim.toFixed(3);
      $("psnr").textContent = decibels(scores.psnr_db);
      $("ssim").textContent = scores.ssim.toFixed(3);
      view.edit = edit;
      return true;
    }

    // Charts

    async function follow() {
      let known = -1;
      for (;;) {
        const mine = view.mine?.db == null ? null : [view.mine.bytes, view.mine.db];
        const answer = await patiently("charts", () => server.lab_charts([page, view.template.id, known, mine]), (status) => {
          if (!view.charts) tellProgress(status || "Measuring");
        });
        if (!answer) return;
        if (answer.error) return noCharts(answer.error);
        view.charts = answer;
        known = answer.measured;
        drawCharts();
        const complete = answer.measured === answer.total;
        tellProgress(complete ? "" : `Measuring ${answer.measured + 1} of ${answer.total}`);
        if (complete) return;
        await pause(GATHER_MS);
      }
    }

    // Each chart says it for the eye; for the ear it is said once, when all is done.
    function tellProgress(words) {
      for (const place of element.querySelectorAll("[data-progress]")) place.textContent = words;
      $("progress").textContent = words ? "" : "All charts are measured.";
    }

    function drawCharts() {
      if (!view.charts) return;
      for (const name of CHARTS) sakura.drawChart(name, $(name), view.charts, view.mine);
      element.querySelectorAll("[data-svg], [data-csv]").forEach((button) => button.setAttribute("aria-disabled", "false"));
    }

    function noCharts(sentence) {
      view.charts = null;
      turns.charts += 1;
      for (const place of element.querySelectorAll("[data-progress]")) place.textContent = "";
      for (const name of CHARTS) $(name).replaceChildren(...(sentence ? [h("p", { class: "lab-none" }, sentence)] : []));
      element.querySelectorAll("[data-svg], [data-csv]").forEach((button) => button.setAttribute("aria-disabled", "true"));
    }

    element.addEventListener("click", async (event) => {
      const button = event.target.closest("[data-svg], [data-csv]");
      if (!button || button.getAttribute("aria-disabled") === "true") return;
      if (button.dataset.svg) return sakura.saveText(`sakura-${view.template.id}-${button.dataset.svg}.svg`, sakura.chartFile($(button.dataset.svg)), "image/svg+xml");
      const file = await sakura.asked(server.lab_csv([page, view.template.id, button.dataset.csv]));
      if (file?.text) sakura.saveText(file.name, file.text, "text/csv");
      else say(file?.error ?? sakura.UNREACHED);
    });

    // The template

    async function showTemplate(template, sentence) {
      view.template = template;
      view.mine = null;
      $("thumb").src = template.picture;
      $("title").textContent = template.title;
      $("task").textContent = `${template.task}, ${template.side_px} px`;
      maps.showTemplate(template);
      noCharts("");
      tryIt(sentence);
      const facts = await patiently("importance", () => server.lab_importance([page, template.id]));
      if (facts && !facts.error) maps.show(facts);
    }

    function showChoices() {
      const tasks = Map.groupBy(view.templates, (template) => template.task);
      $("choices").replaceChildren(...[...tasks].flatMap(([task, templates]) => [
        h("h3", {}, task),
        h("div", { class: "lab-choices" }, ...templates.map((template) => h(
          "button",
          { type: "button", class: "lab-pick", "aria-current": String(template === view.template), onclick: () => pick(template) },
          h("span", { class: "thumb" }, h("img", { src: template.picture, alt: "" })), template.title,
        ))),
      ]));
      $("choice").showModal();
    }

    function pick(template) {
      $("choice").close();
      if (template === view.template) return;
      view.request = 0;
      showTemplate(template);
    }

    $("change").addEventListener("click", showChoices);
    $("choice-close").addEventListener("click", () => $("choice").close());
    $("next").addEventListener("click", () => {
      view.request = (view.request + 1) % 100;
      tryIt();
    });

    // Drawings follow the width and the theme.
    let width = 0;
    new ResizeObserver(() => {
      if (element.clientWidth === width) return;
      width = element.clientWidth;
      maps.draw();
      drawCharts();
    }).observe(element);
    const repaint = () => {
      maps.draw();
      if (view.edit) sakura.paintHeat($("difference"), view.edit.difference);
    };
    new MutationObserver(repaint).observe(document.body, { attributes: true, attributeFilter: ["class"] });

    noCharts("");
    const opened = await patiently("edit", () => server.lab_open(Object.fromEntries(new URL(location).searchParams)), (status) => say(status));
    if (!opened) return;
    Object.assign(view, { templates: opened.templates, setting: opened.setting, request: opened.request });
    showSetting();
    showTemplate(view.templates.find((template) => template.id === opened.template), opened.error);
  };
})();
