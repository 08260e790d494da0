// The panel for a template of one's own: a picture, the region that edits may change, what it is about, a title.
"use strict";

(() => {
  const { h } = sakura;
  const MAX_BYTES = 20e6;
  const SETTLE_MS = 200;

  sakura.mountOwnTemplate = (element, props, trigger, upload, server, watch) => {
    const $ = (name) => element.querySelector(`[data-part=${name}]`);
    const dialog = $("dialog");
    let picture = null; // the path of the upload
    let share = 0;
    let subject = "";
    let busy = "";
    let latest = 0; // the number of the last question about the region: older answers do not count
    let timer = 0;

    const brush = sakura.brush(
      $("canvas"),
      () => ({ erases: element.querySelector("[name=own-tool]:checked").value === "eraser", size_px: Number($("size").value) }),
      (next) => {
        share = next;
        draw();
      },
      () => judge(),
    );

    function reason() {
      if (busy) return busy;
      if (!picture) return "Choose a picture first.";
      if (share === 0) return "Mark first what the edit may change.";
      if (props.task === "instruction" && !subject) return "Say first what the template is about.";
      return "";
    }

    function draw() {
      $("stage").hidden = !picture;
      $("drop").hidden = Boolean(picture);
      $("drop-words").hidden = Boolean(busy);
      $("other").hidden = !picture;
      element.querySelectorAll("[data-part=tools] :is(input, button)").forEach((tool) => (tool.disabled = !picture));
      $("share").replaceChildren(picture ? `${(100 * share).toFixed(1)} % of the picture` : "");
      const why = reason();
      $("add").setAttribute("aria-disabled", String(Boolean(why)));
      $("add").classList.toggle("off", Boolean(why));
      $("add").textContent = busy || "Add template";
      if (why) $("add").dataset.tip = why;
      else $("add").removeAttribute("data-tip");
      const given = { face_swap: "The face, as the task is Face swap.", try_on: "The garment, as the task is Try-on." };
      $("subject-given").textContent = given[props.task] ?? "";
      $("subjects").hidden = props.task !== "instruction";
    }

    function say(part, { error = "", notes = [] }) {
      $(part).replaceChildren(...(error ? [h("div", { class: "error", role: "alert" }, h("span", {}, error))] : notes.map((note) => h("p", { class: "remark" }, note))));
    }

    const ask = async (name, question) => (await sakura.asked(server[name](question))) ?? { error: sakura.UNREACHED };

    async function send(file, part) {
      if (!file) return null;
      if (file.size > MAX_BYTES) say(part, { error: `${file.name} is larger than 20 MB; choose a smaller picture.` });
      else {
        try {
          return (await upload(file)).path;
        } catch {
          say(part, { error: `${file.name} could not be sent; try it again.` });
        }
      }
      return null;
    }

    async function working(words, work) {
      busy = words;
      draw();
      try {
        await work();
      } finally {
        busy = "";
        draw();
      }
    }

    const takePicture = (file) => working("Reading your picture", async () => {
      const path = await send(file, "picture-said");
      if (!path) return;
      const answer = await ask("own_picture", [path, file.name]);
      say("picture-said", answer);
      if (answer.error) return;
      $("picture").src = answer.src;
      picture = path;
    });

    const takeMask = (file) => working("Reading your mask", async () => {
      const path = await send(file, "mask-said");
      if (!path) return;
      const answer = await ask("own_mask", [path, file.name, picture]);
      if (!answer.error) await brush.load(answer.src);
      clearTimeout(timer);
      latest += 1;
      say("mask-said", answer);
    });

    // Asks what there is to say about the region, once it stays as it is for a moment.
    function judge() {
      clearTimeout(timer);
      const mine = (latest += 1);
      timer = setTimeout(async () => {
        const answer = share ? await ask("own_marks", [brush.encode()]) : {};
        if (mine === latest) say("mask-said", answer);
      }, SETTLE_MS);
    }

    const add = () => working("Adding your template", async () => {
      say("said", {});
      const answer = await ask("own_add", [picture, brush.encode(), props.task, subject, $("name").value]);
      if (answer.error) return say({ picture: "picture-said", mask: "mask-said", subject: "subject-said" }[answer.field] ?? "said", answer);
      trigger("added", { id: answer.id });
      dialog.close();
      picture = null;
      brush.clear();
      $("name").value = "";
      ["picture-said", "mask-said", "subject-said", "said"].forEach((part) => say(part, {}));
    });

    function drawSubjects() {
      $("subjects").replaceChildren(...props.subjects.map((name) =>
        h("label", {}, h("input", { type: "radio", name: "own-subject", value: name, onchange: () => {
          subject = name;
          say("subject-said", {});
          draw();
        } }), name[0].toUpperCase() + name.slice(1))));
    }

    $("open").addEventListener("click", () => {
      draw();
      dialog.showModal();
    });
    $("close").addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    $("choose").addEventListener("click", () => $("file").click());
    $("other").addEventListener("click", () => $("file").click());
    $("choose-mask").addEventListener("click", () => {
      if (picture) $("mask-file").click();
      else say("mask-said", { error: "Choose the picture first: its mask must have the same size." });
    });
    for (const [name, take] of [["file", takePicture], ["mask-file", takeMask]]) {
      $(name).addEventListener("change", async () => {
        await take($(name).files[0]);
        $(name).value = "";
      });
    }
    dialog.addEventListener("dragover", (event) => event.preventDefault());
    dialog.addEventListener("drop", (event) => {
      event.preventDefault();
      takePicture(event.dataTransfer.files[0]);
    });
    document.addEventListener("paste", (event) => {
      if (element.isConnected && dialog.open) takePicture([...event.clipboardData.files].find((file) => file.type.startsWith("image/")));
    });
    $("size").addEventListener("input", () => brush.redraw());
    $("clear").addEventListener("click", () => {
      brush.clear();
      judge();
    });
    $("invert").addEventListener("click", () => {
      brush.invert();
      judge();
    });
    $("add").addEventListener("click", () => reason() || add());
    watch("task", draw);
    drawSubjects();
    draw();
  };
})();
