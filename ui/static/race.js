// Which race is in view: it is followed while it is measured, then replayed on one clock. The views listen.
"use strict";

(() => {
  const RETRY_MS = 1000;
  const CALM_MS = 500; // with reduced motion the replay advances this seldom
  const listeners = [];
  let generation = 0;
  let frame = 0;
  let base_s = 0;
  let since_ms = 0;

  const race = {
    server: null,
    trigger: null, // tells the server what the action asks for: start or network
    setup: null, // what a race would be about now, as one word to compare
    id: null,
    answer: null, // what the server last said of it
    mode: "plan", // plan, measuring, playing or done
    speed: 1,
    end_s: 0,

    // A view is called with every change: mode, measured, play, frame, setup, refused, lost or back.
    listen(view) {
      listeners.push(view);
      view("mode", race.mode);
    },

    get changed() {
      return Boolean(race.answer?.over && race.setup && race.setup !== race.answer.setup);
    },

    now() {
      const passed_s = ((performance.now() - since_ms) / 1000) * race.speed;
      return race.mode === "playing" ? Math.min(base_s + passed_s, race.end_s) : base_s;
    },

    setSpeed(speed) {
      base_s = race.now();
      since_ms = performance.now();
      race.speed = speed;
    },

    setSetup(setup) {
      race.setup = setup;
      tell("setup");
    },

    async follow(id) {
      const mine = (generation += 1);
      cancelAnimationFrame(frame);
      race.id = id;
      race.answer = null;
      remember(id);
      setMode("measuring");
      let asked = 0;
      for (let lost = false; ; asked += 1) {
        const answer = await sakura.asked(race.server.race_state([id, race.answer?.version ?? -1]));
        if (mine !== generation) return;
        if (!answer) {
          lost = true;
          tell("lost");
          await new Promise((resume) => setTimeout(resume, RETRY_MS));
          continue;
        }
        if (lost) tell("back");
        lost = false;
        if (answer.unknown || (answer.error && !answer.laps?.length)) return give(answer.error);
        race.answer = answer;
        tell("measured", answer);
        if (answer.over) break;
      }
      if (!race.answer.laps.some((lap) => lap.latency_s !== null)) return give(race.answer.laps[0].reason);
      race.end_s = Math.max(...race.answer.laps.map((lap) => lap.ended_s));
      // What was over when it was first asked for is a reload: it shows how the race ended.
      if (asked > 0) race.replay();
      else finish();
    },

    replay() {
      cancelAnimationFrame(frame);
      base_s = 0;
      since_ms = performance.now();
      setMode("playing");
      tell("play", race.answer);
      const mine = generation;
      let drawn_ms = -CALM_MS;
      const step = (at_ms) => {
        if (mine !== generation || race.mode !== "playing") return;
        if (race.now() >= race.end_s) return end();
        if (!sakura.calm() || at_ms - drawn_ms >= CALM_MS) {
          drawn_ms = at_ms;
          tell("frame", race.now());
        }
        frame = requestAnimationFrame(step);
      };
      frame = requestAnimationFrame(step);
    },
  };

  function finish() {
    tell("play", race.answer);
    end();
  }

  function end() {
    base_s = race.end_s;
    setMode("done");
    tell("frame", race.end_s);
  }

  // There is nothing to show: back to the setup, with the sentence that says why.
  function give(sentence) {
    race.id = race.answer = null;
    remember(null);
    setMode("plan");
    tell("refused", sentence);
  }

  function setMode(mode) {
    race.mode = mode;
    const known = { measuring: "running", playing: "running" };
    document.documentElement.dataset.mode = known[mode] ?? mode;
    if (mode !== "plan") delete document.documentElement.dataset.setup;
    tell("mode", mode);
  }

  function tell(what, detail) {
    for (const view of listeners) view(what, detail);
  }

  // The race in the address lets a reload show it again.
  function remember(id) {
    const url = new URL(location);
    if (id) url.searchParams.set("race", id);
    else url.searchParams.delete("race");
    history.replaceState(history.state, "", url);
  }

  sakura.race = race;
})();
