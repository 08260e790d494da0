// The one place that knows which edit is in view. It follows the events of a run; the views listen.
"use strict";

(() => {
  const GATHER_MS = 60; // events that follow each other closely come in one answer
  const SCORES_WITHIN_MS = 60000;
  const listeners = [];
  let generation = 0;

  const store = {
    server: null,
    plan: null, // what would happen with the present setup
    run: null, // {id, view, events, now(), over}
    mode: "plan", // plan, running, done or failed
    template: null,

    // A view is called with every change: plan, start, events, over, lost or back.
    listen(view) {
      listeners.push(view);
      if (store.plan) view("plan", store.plan);
      if (store.run) {
        view("start", store.run);
        view("events", store.run.events);
        if (store.run.over) view("over", store.run);
      }
    },

    setPlan(plan) {
      const changed = store.plan && plan.template.id !== store.plan.template.id;
      store.plan = plan;
      if (store.run && store.mode !== "running" && changed) store.leave();
      else if (!store.run) setMode("plan");
      tell("plan", plan);
    },

    // Back from a finished run to the plan of the present setup.
    leave() {
      generation += 1;
      store.run = null;
      remember(null);
      setMode("plan");
    },

    async follow(id) {
      const mine = (generation += 1);
      const view = await patiently(mine, () => store.server.run_view(id));
      if (mine !== generation) return;
      if (view.error) {
        store.leave();
        if (store.plan) tell("plan", store.plan);
        tell("refused", view.error);
        return;
      }
      const run = { id, view, events: [], over: false, origin: Infinity };
      run.now = () => (performance.now() - run.origin) / 1000;
      store.run = run;
      remember(id);
      setMode("running");
      tell("start", run);
      while (mine === generation) {
        const answer = await patiently(mine, () => store.server.run_events([id, run.events.length]));
        if (mine !== generation) return;
        take(run, answer.events);
        if (run.over && (answer.complete || performance.now() - run.endedAt > SCORES_WITHIN_MS)) return;
        await new Promise((resume) => setTimeout(resume, GATHER_MS));
      }
    },
  };

  function take(run, events) {
    if (!events.length) return;
    const arrived = performance.now();
    // The event that came with the least delay tells best when the run began on this page's clock.
    for (const event of events) run.origin = Math.min(run.origin, arrived - event.at_s * 1000);
    run.events.push(...events);
    tell("events", events);
    const last = events.find((event) => event.kind === "run_finished" || event.kind === "run_failed");
    if (last) {
      run.over = true;
      run.endedAt = performance.now();
      setMode(last.kind === "run_finished" ? "done" : "failed");
      tell("over", run);
    }
  }

  // Asks again until the server answers: a lost connection must not end what the page shows.
  async function patiently(mine, ask) {
    for (let lost = false; mine === generation; ) {
      try {
        const answer = await ask();
        if (lost) tell("back");
        return answer;
      } catch {
        lost = true;
        tell("lost");
        await new Promise((resume) => setTimeout(resume, 1000));
      }
    }
    return null;
  }

  function tell(what, detail) {
    for (const view of listeners) view(what, detail);
  }

  function setMode(mode) {
    store.mode = mode;
    document.documentElement.dataset.mode = mode;
    if (mode !== "plan") delete document.documentElement.dataset.setup;
  }

  // The run in the address lets a reload show it again.
  function remember(id) {
    const url = new URL(location);
    if (id) url.searchParams.set("run", id);
    else url.searchParams.delete("run");
    history.replaceState(history.state, "", url);
  }

  document.documentElement.dataset.mode = "plan";
  sakura.store = store;

  sakura.mountLink = (props, server, watch) => {
    store.server = server;
    if (props.plan) store.setPlan(props.plan);
    watch("plan", () => store.setPlan(props.plan));
    watch("started", () => props.started && store.follow(props.started.run_id));
    const asked = new URL(location).searchParams.get("run");
    if (asked) store.follow(asked);
  };
})();
