// The setup card: pictures to choose from, the visitor's own picture, and the one action.
"use strict";

(() => {
  const { h } = sakura;
  const MAX_BYTES = 20e6;

  // Thumbnails that behave as one radio group. `props.items` is [{id, src, alt}], `props.value` the chosen id.
  function thumbs(box, name, props, choose) {
    box.replaceChildren(...props.items.map(({ id, src, alt }) => {
      const input = h("input", { type: "radio", name, value: id, "aria-label": alt, onchange: () => choose(id) });
      input.checked = id === props.value;
      return h("label", { class: "thumb", title: alt }, input, h("img", { src, alt: "" }));
    }));
    // In a row that scrolls the chosen one is in view.
    const chosen = box.querySelector("label:has(:checked)");
    if (chosen && box.scrollWidth > box.clientWidth) box.scrollLeft = chosen.offsetLeft - (box.clientWidth - chosen.offsetWidth) / 2;
  }

  sakura.mountThumbs = (element, props, trigger, watch) => {
    const box = element.querySelector(".thumbs");
    const draw = () => thumbs(box, props.name, props, (id) => {
      props.value = id;
      trigger("select", { id });
    });
    draw();
    watch(["items", "value"], draw);
  };

  // Four shipped references and the visitor's own picture: dropped, chosen, pasted or photographed.
  sakura.mountReferences = (element, props, trigger, upload, watch) => {
    const $ = (name) => element.querySelector(`[data-part=${name}]`);
    const draw = () => {
      const own = props.own ? [{ id: props.own.id, src: props.own.src, alt: "Your picture" }] : [];
      thumbs($("thumbs"), "reference", { items: [...own, ...props.items], value: props.value }, (id) => {
        props.value = id;
        trigger("select", { id });
      });
      $("drop-words").hidden = false;
      $("drop-busy").hidden = true;
    };
    draw();
    watch(["items", "value", "own"], draw);

    async function take(file) {
      if (!file) return;
      if (!file.type.startsWith("image/") && file.type !== "") return trigger("refuse", { reason: `${file.name} is not a picture; choose a PNG, JPEG or WebP file.` });
      if (file.size > MAX_BYTES) return trigger("refuse", { reason: `${file.name} is larger than 20 MB; choose a smaller picture.` });
      $("drop-words").hidden = true;
      $("drop-busy").hidden = false;
      try {
        const { path } = await upload(file);
        trigger("picture", { path, name: file.name });
      } catch {
        trigger("refuse", { reason: `${file.name} could not be sent to the device; try it again.` });
      }
      draw();
    }

    const drop = $("drop");
    drop.addEventListener("dragover", (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("over");
      take(event.dataTransfer.files[0]);
    });
    for (const name of ["file", "camera-file"]) {
      $(name).addEventListener("change", () => {
        take($(name).files[0]);
        $(name).value = "";
      });
    }
    $("choose").addEventListener("click", () => $("file").click());
    document.addEventListener("paste", (event) => {
      if (element.isConnected && element.offsetParent && !document.querySelector("dialog[open]")) take([...event.clipboardData.files].find((file) => file.type.startsWith("image/")));
    });

    // A phone's own camera where there is one, else the camera of the laptop in a dialog.
    const direct = matchMedia("(pointer: coarse)").matches;
    const possible = direct || Boolean(navigator.mediaDevices?.getUserMedia);
    $("photo-words").hidden = !possible;
    $("photo").addEventListener("click", async () => {
      if (direct) return $("camera-file").click();
      const dialog = $("camera");
      const video = dialog.querySelector("video");
      try {
        video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { width: 720, height: 720 } });
      } catch {
        return trigger("refuse", { reason: "The camera could not be opened; allow it in the browser, or choose a file." });
      }
      dialog.showModal();
    });
    $("camera").addEventListener("close", () => {
      const video = $("camera").querySelector("video");
      video.srcObject?.getTracks().forEach((track) => track.stop());
      video.srcObject = null;
    });
    $("camera-take").addEventListener("click", () => {
      const video = $("camera").querySelector("video");
      const side = Math.min(video.videoWidth, video.videoHeight);
      const canvas = h("canvas", { width: side, height: side });
      canvas.getContext("2d").drawImage(video, (video.videoWidth - side) / 2, (video.videoHeight - side) / 2, side, side, 0, 0, side, side);
      canvas.toBlob((blob) => take(new File([blob], "photo.png", { type: "image/png" })), "image/png");
      $("camera").close();
    });
    $("camera-cancel").addEventListener("click", () => $("camera").close());
  };

  // The edit that runs, and how long since it began; null where none does.
  sakura.runningEdit = () => {
    const { mode, starting, run } = sakura.store;
    if (mode !== "running" || !starting) return null;
    return { run_id: starting, at_s: run?.id === starting ? Math.max(run.now(), 0) : 0 };
  };

  // The network field takes a dropped file wherever it falls, and tells the timeline of a switch.
  sakura.mountNetwork = (element, props, trigger, watch) => {
    const field = element.closest(".field-network");
    const input = () => field.querySelector("input[type=file]");
    const refused = (files) =>
      files.length > 1 ? "These are several files; drop one trace file."
      : files[0].size > MAX_BYTES ? `${files[0].name} is larger than 20 MB; cut it to the part that you need.`
      : "";
    field.addEventListener("dragover", (event) => {
      if (![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      field.classList.add("over");
    });
    field.addEventListener("dragleave", (event) => {
      if (!field.contains(event.relatedTarget)) field.classList.remove("over");
    });
    field.addEventListener("drop", (event) => {
      field.classList.remove("over");
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      const reason = refused(event.dataTransfer.files);
      if (reason) return trigger("refuse", { reason });
      input().files = event.dataTransfer.files;
      input().dispatchEvent(new Event("change", { bubbles: true }));
    });
    // A file that was chosen passes here before the button takes it.
    field.addEventListener("change", (event) => {
      const reason = event.target.type === "file" && event.target.files.length ? refused(event.target.files) : "";
      if (!reason) return;
      event.stopImmediatePropagation();
      event.target.value = "";
      trigger("refuse", { reason });
    }, true);
    watch("switched", () => {
      const run = sakura.store.run;
      if (props.switched && run?.id === props.switched.run_id) sakura.switchTrace(run, props.switched.trace);
    });
  };

  sakura.mountExamples = (element, props, trigger, watch) => {
    const draw = () => element.querySelector(".examples").replaceChildren(...props.examples.map((words) =>
      h("button", { type: "button", class: "example", onclick: () => trigger("example", { words }) }, words)));
    draw();
    watch("examples", draw);
  };

  // Edit, then progress with Stop beside it, then Edit again.
  sakura.mountAction = (element, props, trigger, watch) => {
    const $ = (name) => element.querySelector(`[data-part=${name}]`);
    const store = sakura.store;
    let pressed = false;
    let stopping = false;
    let done = 0;
    let steps = 1;

    function draw() {
      const running = store.mode === "running";
      const waits = store.plan && !store.plan.ready && !store.plan.failed;
      const alone = sakura.devices.list?.length === 0 ? "No device is connected; start one." : "";
      const reason = running || pressed ? "" : props.blocked || alone || (waits ? store.plan.waiting : "");
      const button = $("go");
      $("words").textContent = running && !store.run
        ? "Getting ready"
        : running ? `Editing, step ${Math.min(done + 1, steps)} of ${steps}`
        : pressed ? "Starting"
        : waits && !alone && !props.blocked ? (store.plan.share ? `Getting ready, ${store.plan.share} %` : "Getting ready")
        : store.mode === "plan" || store.changed ? "Edit" : "Edit again";
      button.setAttribute("aria-disabled", String(Boolean(running || pressed || reason)));
      button.classList.toggle("off", Boolean(reason));
      if (reason) button.dataset.tip = reason;
      else button.removeAttribute("data-tip");
      $("fill").hidden = !running;
      $("fill").style.width = `${(100 * done) / steps}%`;
      $("stop").hidden = !running;
      $("stop").textContent = stopping ? "Stopping" : "Stop";
      element.querySelector(".act").classList.toggle("one", !running);
    }

    // The bar counts shards that ran; steps are counted by what came out of them.
    let executed = 0;
    store.listen((what, detail) => {
      if (!element.isConnected) return;
      if (what === "starting") [pressed, stopping, done, executed] = [false, false, 0, 0];
      if (what === "start") {
        [pressed, stopping, done, executed, steps] = [false, false, 0, 0, detail.view.plan.steps];
      }
      if (what === "events") {
        done += detail.filter((event) => event.kind === "step_finished").length;
        executed += detail.filter((event) => event.kind === "lane_finished" && event.lane === "execute").length;
      }
      if (what === "refused") {
        pressed = false;
        $("refused").textContent = detail;
        $("refused").classList.toggle("asked", detail === sakura.STOPPED);
        $("refused").hidden = false;
      }
      draw();
      if (store.mode === "running" && store.run) $("fill").style.width = `${(100 * executed) / (steps * store.run.view.plan.shards_per_step)}%`;
    });
    draw();
    watch("blocked", draw);
    watch("answered", () => {
      pressed = false;
      draw();
    });
    sakura.redrawAction = draw;
    $("go").addEventListener("click", () => {
      if ($("go").getAttribute("aria-disabled") === "true") return;
      pressed = true;
      $("refused").hidden = true;
      draw();
      trigger("edit", { device_id: sakura.devices.chosen() });
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && event.target.matches("#prompt textarea")) $("go").click();
    });
    $("stop").addEventListener("click", () => {
      stopping = true;
      draw();
      trigger("stop", { run_id: store.starting });
    });
  };

  // Tooltips of everything that carries data-tip: on hover, focus and tap; Escape closes.
  const tip = h("div", { class: "tip", role: "tooltip", hidden: true });
  const openTip = (event) => {
    const owner = event.target.closest?.("[data-tip]");
    tip.hidden = !owner;
    if (!owner) return;
    // An open dialog lies over everything outside of it.
    (owner.closest("dialog") ?? document.body).append(tip);
    tip.textContent = owner.dataset.tip;
    const box = owner.getBoundingClientRect();
    const half = tip.offsetWidth / 2 + 8;
    tip.style.left = `${Math.min(Math.max(box.left + box.width / 2, half), innerWidth - half)}px`;
    tip.style.top = `${box.top - 6}px`;
  };
  for (const name of ["pointerover", "focusin", "click"]) document.addEventListener(name, openTip);
  document.addEventListener("keydown", (event) => event.key === "Escape" && (tip.hidden = true));
  addEventListener("scroll", () => (tip.hidden = true), true);
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("[data-close]")) event.target.closest(".error").remove();
  });
})();
