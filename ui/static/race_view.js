// The race card, its action in the setup, the keys, and the timeline of SAKURA's run on the clock of the race.
"use strict";

(() => {
  const HOW = "The device is one processor: the systems are measured one after another on the same stretch of the network trace, then replayed together on one clock.";
  const CHANGED = "You changed the setup; start the race to see its result.";
  const enabled = (button) => button.getAttribute("aria-disabled") !== "true";

  function enable(button, on, reason) {
    button.setAttribute("aria-disabled", String(!on));
    if (on || !reason) button.removeAttribute("data-tip");
    else button.dataset.tip = reason;
  }

  sakura.mountRace = (element, props, server, watch) => {
    const $ = (name) => element.querySelector(`[data-part=${name}]`);
    const { race } = sakura;
    race.server = server;
    document.title = "SAKURA: race";
    const rows = sakura.raceRows($("rows"), $("table-rows"), props.runners);
    $("how").textContent = HOW;

    const clock = (seconds) => $("clock").replaceChildren(seconds.toFixed(2), sakura.h("span", { class: "u" }, "s"));

    function measured(answer) {
      const place = answer.measured.length + 1;
      const name = answer.runners.find(({ system }) => system === answer.measuring)?.name;
      $("title").textContent = name
        ? `Measuring ${place} of ${answer.runners.length}: ${name}`
        : `Getting the device ready${answer.prepared ? `, ${Math.round(100 * answer.prepared)} %` : ""}`;
      rows.measured(answer);
      told();
    }

    // What the race is about; a setup that is another by now says so.
    function told() {
      const changed = race.changed && race.mode === "done";
      $("network").classList.toggle("changed", changed);
      $("network").textContent = changed ? CHANGED : [race.answer?.network, race.answer?.device && `on ${race.answer.device}`].filter(Boolean).join(", ");
      if (race.mode === "done") $("title").textContent = rows.verdict();
    }

    race.listen((what, detail) => {
      if (!element.isConnected) return;
      if (what === "mode") {
        element.dataset.race = detail;
        if (detail === "plan" || detail === "measuring") {
          rows.clear();
          clock(0);
          $("title").textContent = detail === "plan" ? "Race" : "Getting the device ready";
        } else if (detail === "playing") $("title").textContent = "Race";
        if (detail === "measuring" && innerWidth < 1100) element.scrollIntoView({ behavior: sakura.calm() ? "auto" : "smooth", block: "start" });
        enable($("again"), detail === "done" || detail === "playing", "There is no race to show again yet.");
        if (detail === "done") rows.tabulate();
        told();
      }
      if (what === "measured") measured(detail);
      if (what === "play") rows.play(detail);
      if (what === "frame") {
        rows.draw(detail);
        clock(detail);
        if (race.mode === "done") told();
      }
      if (what === "setup") told();
      if (what === "lost" || what === "back") $("lost").hidden = what === "back";
    });

    watch("setup", () => race.setSetup(props.setup));
    watch("started", () => props.started && race.follow(props.started.race_id));
    $("again").addEventListener("click", () => enabled($("again")) && race.replay());
    $("next").addEventListener("click", () => race.trigger?.("network"));
    $("change").addEventListener("click", () => {
      const root = document.documentElement;
      if (root.dataset.setup) delete root.dataset.setup;
      else root.dataset.setup = "open";
    });
    for (const input of element.querySelectorAll("[name=race-speed]")) {
      input.addEventListener("change", () => race.setSpeed(Number(input.value)));
    }
    // N chooses the next network. R shows the race again, or starts one where the setup is another by now.
    document.addEventListener("keydown", (event) => {
      const typing = event.target.closest?.("textarea, input:not([type=radio]), dialog");
      if (!element.isConnected || typing || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
      const key = event.key.toLowerCase();
      if (key === "n") $("next").click();
      if (key === "r" && enabled($("again")) && !race.changed) $("again").click();
      else if (key === "r") document.querySelector("#action [data-part=go]")?.click();
    });
    const asked = new URL(location).searchParams.get("race");
    if (asked) race.follow(asked);
  };

  sakura.mountRaceAction = (element, props, trigger, watch) => {
    const $ = (name) => element.querySelector(`[data-part=${name}]`);
    const { race } = sakura;
    let pressed = false;
    let stopping = false;
    race.trigger = trigger;

    function draw() {
      const measuring = race.mode === "measuring";
      const alone = sakura.devices.list?.length === 0 ? "No device is connected; start one." : "";
      const reason = measuring || pressed ? "" : props.blocked || alone;
      const done = race.answer?.measured.length ?? 0;
      const total = race.answer?.runners.length ?? 1;
      $("words").textContent = measuring ? (race.answer?.measuring ? `Measuring ${done + 1} of ${total}` : "Getting ready") : pressed ? "Starting" : "Start the race";
      enable($("go"), !(measuring || pressed || reason), reason);
      $("go").classList.toggle("off", Boolean(reason));
      $("fill").hidden = !measuring;
      $("fill").style.width = `${(100 * done) / total}%`;
      $("stop").hidden = !measuring;
      $("stop").textContent = stopping ? "Stopping" : "Stop";
      element.querySelector(".act").classList.toggle("one", !measuring);
    }

    function refuse(sentence) {
      $("refused").textContent = sentence;
      $("refused").classList.toggle("asked", sentence === "You stopped this race.");
      $("refused").hidden = !sentence;
    }

    race.listen((what, detail) => {
      if (!element.isConnected) return;
      if (what === "mode") pressed = stopping = false;
      if (what === "mode" && detail === "measuring") refuse("");
      if (what === "refused") refuse(detail);
      if (what !== "frame") draw();
    });
    watch("blocked", draw);
    watch("answered", () => {
      pressed = false;
      draw();
    });
    sakura.redrawAction = draw;
    $("go").addEventListener("click", () => {
      if (!enabled($("go"))) return;
      pressed = true;
      refuse("");
      draw();
      trigger("start", { device_id: sakura.devices.chosen() });
    });
    $("stop").addEventListener("click", () => {
      stopping = true;
      draw();
      sakura.asked(race.server.race_stop(race.id));
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && element.isConnected && event.target.matches("#prompt textarea")) $("go").click();
    });
  };

  // The timeline follows a store: on this page one whose run is SAKURA's, played by the clock of the race.
  sakura.mountRaceTimeline = (element) => {
    const { race } = sakura;
    const views = [];
    let waiting = [];
    const store = {
      mode: "plan",
      run: null,
      get server() {
        return race.server;
      },
      listen: (view) => views.push(view),
    };
    const tell = (what, detail) => views.forEach((view) => view(what, detail));
    const rest = (sentence) => {
      store.run = null;
      store.mode = "plan";
      tell("plan", { plan: null, waiting: sentence });
    };

    function advance(t) {
      if (!store.run || store.run.over) return;
      const due = race.mode === "done" ? waiting.length : waiting.findIndex(({ at_s }) => at_s > t);
      const fresh = waiting.splice(0, due < 0 ? waiting.length : due);
      store.run.events.push(...fresh);
      if (fresh.length) tell("events", fresh);
      if (waiting.length) return;
      store.run.over = true;
      store.mode = "done";
      tell("over", store.run);
    }

    sakura.store = store;
    sakura.mountTimeline(element);
    element.querySelector("header").prepend(sakura.raceMark("sakura"), sakura.h("b", { class: "race-mine" }, "SAKURA"));
    race.listen((what, detail) => {
      if (!element.isConnected) return;
      if (what === "mode" && detail === "plan") rest("The run of SAKURA appears here during the race.");
      if (what === "mode" && detail === "measuring") rest("The run of SAKURA appears here when all are measured.");
      if (what === "play" && !detail.timeline) rest("SAKURA did not begin, so there is nothing to draw.");
      else if (what === "play") {
        const { view, events } = detail.timeline;
        waiting = [...events];
        store.run = { id: detail.race_id, view, events: [], over: false, now: () => race.now() };
        store.mode = "running";
        tell("start", store.run);
      }
      if (what === "frame") advance(detail);
    });
  };
})();
