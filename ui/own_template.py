"""A template of one's own: what the panel asks the server, from the picture to the finished template."""

import base64
import binascii
from collections.abc import Callable
from typing import Any, get_args

import gradio as gr
import numpy as np

from sakura.errors import UserError
from sakura.pictures import fit_square, fit_square_mask, read_mask, read_picture
from sakura.portraits.tasks import INSTRUCTION_SUBJECTS, Subject, task_of
from sakura.studio import Studio
from sakura.templates import PICTURE_PX
from ui.fields import FieldError, at_field, uploaded_path
from ui.markup import picture_uri

PANEL_PX = 512
"""Side of the square that is shown and painted on; the same number stands in ``static/brush.js``."""
MAX_MARKS_LENGTH = 1_000_000
MARKS = "The marked region"
SUBJECTS: list[Subject] = sorted(INSTRUCTION_SUBJECTS)
Answer = dict[str, Any]

OWN_TEMPLATE = """
<button type="button" class="link own-open" data-part="open" aria-haspopup="dialog">Use your own picture</button>
<dialog class="own" data-part="dialog" aria-labelledby="own-title">
  <header><h2 id="own-title">A template of your own</h2><button type="button" class="btn small" data-part="close">Close
    </button></header>
  <div class="own-body">
    <div class="own-picture">
      <div class="drop own-drop" data-part="drop"><span data-part="drop-words"><span class="wide">Drop a picture
        here, or </span><button type="button" class="link" data-part="choose">choose a file</button></span></div>
      <div class="own-stage" data-part="stage" hidden><img alt="The square of your picture that is used"
        data-part="picture"><canvas data-part="canvas" tabindex="0" role="application"
        aria-label="What the edit may change: arrow keys move the brush, space uses it"></canvas></div>
      <div class="own-tools" data-part="tools" role="group" aria-label="Tools">
        <span class="own-seg"><label><input type="radio" name="own-tool" value="brush" checked>Brush</label><label>
          <input type="radio" name="own-tool" value="eraser">Eraser</label></span>
        <label class="own-size"><span>Size</span><input type="range" min="12" max="160" value="56"
          data-part="size"></label>
        <button type="button" class="btn small" data-part="clear">Clear</button>
        <button type="button" class="btn small" data-part="invert"
          data-tip="Swaps what the edit may change and what it keeps.">Invert</button></div>
    </div>
    <div class="own-fields">
      <div class="field"><div class="lab">Picture<button type="button" class="link" data-part="other" hidden>Choose
        another</button></div><p class="sub" data-part="picture-hint">Its middle square is used; the cloud keeps it to
        compute the cache.</p><div data-part="picture-said" aria-live="polite"></div></div>
      <div class="field"><div class="lab">What the edit may change<output data-part="share"></output></div>
        <p class="sub">Paint it on the picture, or <button type="button" class="link" data-part="choose-mask">choose a
        mask file</button>: white is edited.</p><div data-part="mask-said" aria-live="polite"></div></div>
      <div class="field"><div class="lab" id="own-subject">What it is about</div>
        <div class="own-subjects" role="radiogroup" aria-labelledby="own-subject" data-part="subjects"></div>
        <p class="sub" data-part="subject-given"></p><div data-part="subject-said" aria-live="polite"></div></div>
      <div class="field"><label class="lab" for="own-name">Title<i>if you like</i></label><input type="text"
        id="own-name" maxlength="60" placeholder="My template" autocomplete="off" data-part="name"></div>
    </div>
  </div>
  <footer><div data-part="said" aria-live="polite"></div><button type="button" class="btn primary"
    data-part="add">Add template</button></footer>
  <input type="file" accept="image/*" data-part="file" hidden aria-label="Choose a picture for the template">
  <input type="file" accept="image/*" data-part="mask-file" hidden aria-label="Choose a mask file">
</dialog>
"""


def read_marks(encoded: str) -> tuple[np.ndarray, list[str]]:
    """The painted region, bool (PANEL_PX, PANEL_PX), and notes, from a base64 PNG. Raises UserError."""
    if len(encoded) > MAX_MARKS_LENGTH:
        raise UserError(f"{MARKS} is too large; clear it and paint it again.")
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UserError(f"{MARKS} did not arrive whole; paint it again.") from error
    marks = read_mask(data, MARKS, (PANEL_PX, PANEL_PX))
    if not fit_square_mask(marks.mask, PICTURE_PX).any():
        raise UserError(f"{MARKS} is too small to be edited; paint a larger part.")
    # Specks that an eraser leaves behind concern nobody: only what is said of the region itself is told.
    return marks.mask, [note for note in marks.notes if note.startswith(MARKS)]


class OwnTemplates:
    """Answers the panel's questions. Holds nothing of any visitor: their picture stays an upload until it is added."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio

    def read_picture(self, path: str, name: str) -> Answer:
        """The square of an uploaded picture that will be used, to show, and what was changed. Raises UserError."""
        picture = read_picture(uploaded_path(path), name)
        square = fit_square(picture.pixels, PICTURE_PX)
        return {
            "src": picture_uri(fit_square(picture.pixels, PANEL_PX).pixels),
            "notes": [*picture.notes, *square.notes],
        }

    def read_mask(self, path: str, name: str, picture_path: str) -> Answer:
        """The region of an uploaded mask inside the square, as a white on black picture. Raises UserError."""
        height, width = read_picture(uploaded_path(picture_path), "Your picture").pixels.shape[:2]
        mask = read_mask(uploaded_path(path), name, (width, height))
        region = fit_square_mask(mask.mask, PANEL_PX)
        if not region.any():
            raise UserError(f"{name} marks nothing inside the square of the picture; mark its middle part.")
        white_on_black = np.repeat(region[..., None].astype(np.uint8) * 255, 3, axis=-1)
        return {"src": picture_uri(white_on_black), "notes": list(mask.notes)}

    def add(self, picture_path: str, marks: str, task: str, subject: str, title: str) -> str:
        """Keep the template; returns its id. Raises FieldError for ``picture``, ``mask``, ``subject`` or ``all``."""
        with at_field("subject"):
            checked = self._subject(task, subject)
        with at_field("picture"):
            picture = read_picture(uploaded_path(picture_path), "Your picture")
        with at_field("mask"):
            region, _ = read_marks(marks)
        with at_field("all"):
            return self._studio.add_template(
                title, checked, fit_square(picture.pixels, PICTURE_PX).pixels, fit_square_mask(region, PICTURE_PX)
            )

    def _subject(self, task: str, subject: str) -> Subject:
        """What a template of this task is about: the task tells, but for instructions. Raises UserError."""
        if task == "instruction" and subject not in SUBJECTS:
            raise UserError("Say what the template is about: choose one of the words.")
        known = [s for s in get_args(Subject) if task_of(s) == task and (task != "instruction" or s == subject)]
        if not known:
            raise UserError("This kind of edit is not known; reload the page.")
        return known[0]

    def functions(self) -> list[Callable[[list[Any]], Answer]]:
        """The functions that the script calls by name. All answer with JSON; ``error`` holds a sentence."""

        def own_picture(question: list[Any]) -> Answer:
            return _answered(lambda: self.read_picture(*question))

        def own_mask(question: list[Any]) -> Answer:
            return _answered(lambda: self.read_mask(*question))

        def own_marks(question: list[Any]) -> Answer:
            return _answered(lambda: {"notes": read_marks(*question)[1]})

        def own_add(question: list[Any]) -> Answer:
            return _answered(lambda: {"id": self.add(*question)})

        return [own_picture, own_mask, own_marks, own_add]

    def component(self, task: str) -> gr.HTML:
        """The link and the panel it opens. ``added`` brings the ``id`` of a template that was added.

        The prop ``task`` is the task that a new template is for.
        """
        return gr.HTML(
            html_template=OWN_TEMPLATE,
            js_on_load="sakura.mountOwnTemplate(element, props, trigger, upload, server, watch); // 'added'",
            apply_default_css=False,
            server_functions=self.functions(),
            elem_id="own-template",
            task=task,
            subjects=SUBJECTS,
        )


def _answered(answer: Callable[[], Answer]) -> Answer:
    try:
        return answer()
    except FieldError as error:
        return {"error": str(error), "field": error.field}
    except UserError as error:
        return {"error": str(error)}
