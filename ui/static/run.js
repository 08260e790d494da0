// The one place that knows which edit is in view. It follows the events of a run; the views listen.
"use strict";

(() => {
  const GATHER_MS = 60; // events that follow each other closely come in one answer
  const listeners = [];
  let generation = 0;

  const store = {
    server: null,
    plan: null, // what would happen with the present setup; `ready` once the device can begin it at once
    brought: null, // what is brought to the edit and spent on it, as one word to compare
    run: null, // {id, view, events, now(), over}
    changed: false, // whether the setup is another than that of the finished run in view
    starting: null, // the id of the run that is followed, also before its first event
    mode: "plan", // plan, running, done or failed

    // A view is called with every change: plan, starting, start, events, network, over, changed, refused, lost
    // or back.
    listen(view) {
      listeners.push(view);
      if (store.plan) view("plan", store.plan);
      if (store.run) {
        view("start", store.run);
        view("events", store.run.events);
        if (store.run.over) view("over", store.run);
      }
    },

    // `fresh` where nothing that was known of the plan before holds.
    setPlan(plan, fresh = false) {
      // The device is prepared for a template, whatever the system and the network.
      plan.ready = Boolean(!fresh && store.plan?.ready && store.plan.template.id === plan.template.id);
      plan.waiting = "Getting the device ready for this template.";
      store.plan = plan;
      if (store.mode === "running") return;
      if (!store.run) store.showPlan();
      else if (plan.template.id !== store.run.view.template.id) store.leave();
      else {
        compare();
        prepare();
      }
    },

    setBrought(brought) {
      store.brought = brought;
      if (store.run?.over) compare();
    },

    // Shows what is known of the plan at once, the rest when it comes.
    showPlan() {
      setMode("plan");
      tell("plan", store.plan);
      prepare();
    },

    // Back from a finished run to the plan of the present setup.
    leave() {
      generation += 1;
      store.run = store.starting = null;
      store.changed = false;
      remember(null);
      if (store.plan) store.showPlan();
      else setMode("plan");
    },

    async follow(id) {
      const mine = (generation += 1);
      const wanted = () => mine === generation;
      store.starting = id;
      store.changed = false;
      remember(id);
      setMode("running");
      tell("starting", id);
      let view = null;
      do view = await patiently(wanted, () => store.server.run_view(id));
      while (wanted() && !view.plan && !view.error);
      if (!wanted()) return;
      if (view.error) {
        store.leave();
        tell("refused", view.error);
        return;
      }
      const run = { id, view, events: [], over: false, origin: Infinity };
      run.now = () => (performance.now() - run.origin) / 1000;
      store.run = run;
      tell("start", run);
      while (wanted()) {
        const answer = await patiently(wanted, () => store.server.run_events([id, run.events.length]));
        if (!wanted()) return;
        take(run, answer.events);
        if (answer.complete) return;
        await pause(GATHER_MS);
      }
    },
  };

  // Asks until the device has made the plan of the present setup: what that takes is no part of an edit.
  async function prepare() {
    const plan = store.plan;
    if (plan.asking) return;
    plan.asking = true;
    const wanted = () => store.plan === plan && store.mode !== "running";
    while (wanted() && !plan.plan) {
      tell("prepared", plan);
      const answer = await patiently(wanted, () => store.server.planned([plan.template.id, plan.system, sakura.devices.chosen()]));
      if (!wanted()) break;
      plan.failed = Boolean(answer.error);
      plan.share = Math.round(100 * (answer.progress ?? 0));
      if (answer.plan) Object.assign(plan, { plan: answer.plan, units: answer.units, device: answer.device, ready: true });
      else plan.waiting = answer.error || (plan.share ? `Building this template's cache, ${plan.share} %.` : plan.waiting);
      if (store.mode === "plan") tell("plan", plan);
      if (!answer.plan) await pause(answer.error ? 3000 : 300);
    }
    plan.asking = false;
    tell("prepared", plan);
  }

  function take(run, events) {
    if (!events.length) return;
    const arrived = performance.now();
    // The event that came with the least delay tells best when the run began on this page's clock.
    for (const event of events) run.origin = Math.min(run.origin, arrived - event.at_s * 1000);
    run.events.push(...events);
    tell("events", events);
    if (events.some((event) => event.kind === "network_changed")) followNetwork(run);
    const last = events.find((event) => event.kind === "run_finished" || event.kind === "run_failed");
    if (last) {
      run.over = true;
      setMode(last.kind === "run_finished" ? "done" : "failed");
      tell("over", run);
      compare();
      if (store.plan) prepare();
    }
  }

  // A result stays in view when anything but the template is chosen anew, and says that it is another one's.
  function compare() {
    const made = store.run.view;
    const brought = store.brought !== null && store.brought !== made.brought;
    // A run that was switched was made with all its networks, whichever of them this page's setup has.
    const changed = store.plan.system !== made.system || !made.trace.keys.includes(store.plan.trace.keys[0]) || brought;
    if (changed === store.changed) return;
    store.changed = changed;
    tell("changed", changed);
  }

  // Another page may have switched the network: what it carries from then on is asked for.
  async function followNetwork(run) {
    const told = run.events.filter((event) => event.kind === "network_changed").length;
    if ((run.view.trace.switches ?? []).length >= told) return;
    const view = await sakura.asked(store.server.run_view(run.id));
    if (view?.trace && run === store.run) sakura.switchTrace(run, view.trace);
  }

  const pause = (ms) => new Promise((resume) => setTimeout(resume, ms));

  // Asks again until the server answers: a lost connection must not end what the page shows.
  async function patiently(wanted, ask) {
    for (let lost = false; wanted(); ) {
      const answer = await sakura.asked(ask());
      if (answer && lost) tell("back");
      if (answer) return answer;
      lost = true;
      tell("lost");
      await pause(1000);
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

  sakura.STOPPED = "You stopped this edit."; // the reason of a run that ended as it was asked to
  sakura.CHANGED = "You changed the setup; press Edit to see its result.";
  document.documentElement.dataset.mode = "plan";
  sakura.store = store;

  // Another network takes over in a run; what was drawn of the one before holds up to then.
  sakura.switchTrace = (run, trace) => {
    run.view.trace = trace;
    tell("network", run);
    if (run.over) compare();
  };

  // Another device runs the next edit: what was planned for the one before says nothing of it.
  sakura.renewPlan = () => {
    const { plan } = store;
    if (plan) store.setPlan({ ...plan, plan: null, device: "", asking: false, failed: false, share: 0 }, true);
  };

  sakura.mountLink = (props, server, watch) => {
    store.server = server;
    if (props.plan) store.setPlan(props.plan);
    watch("plan", () => store.setPlan(props.plan));
    watch("brought", () => store.setBrought(props.brought));
    watch("started", () => props.started && store.follow(props.started.run_id));
    const asked = new URL(location).searchParams.get("run");
    if (asked) store.follow(asked);
  };
})();
