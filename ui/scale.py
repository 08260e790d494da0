"""The Paper scale view: a released model on a declared device, worked out by the pipeline in virtual time."""

from collections.abc import Callable
from typing import Any

import gradio as gr

from sakura.errors import UserError
from sakura.paper_scale.devices import LABELS, DeviceProfile
from sakura.paper_scale.models import CASES, MASK_SHARES
from sakura.paper_scale.networks import NETWORKS, RTT_S
from sakura.paper_scale.service import MACHINE_ID, REQUESTS, Answer, Question, Scales, checked_question
from ui.scale_parts import NUMBER_TITLES, WORKLOAD_TITLES, scale_markup

POLL_S = 1.0
MAX_NAME_LENGTH = 80
Reply = dict[str, Any]


class ScaleView:
    """Builds the view and answers its questions. Holds no state of any visitor: pages tell what they show."""

    def __init__(self, scales: Scales) -> None:
        self._scales = scales

    def build(self) -> gr.HTML:
        """The view as one piece that its script fills. Called inside a route of the page."""
        return gr.HTML(
            html_template=scale_markup(),
            js_on_load="sakura.mountScale(element, props, server);",
            apply_default_css=False,
            server_functions=self.functions(),
            elem_id="scale",
        )

    def functions(self) -> list[Callable[..., Reply]]:
        """The functions that scripts call by name. All answer with JSON; ``error`` holds a sentence."""

        def scale_open(address: dict[str, str]) -> Reply:
            return self.open(address)

        def scale_device(device_id: object) -> Reply:
            return _answered(lambda: profile_view(self._scales.profile(_name(device_id))))

        def scale_ask(asked: list[Any]) -> Reply:
            page, values, known = asked
            return _answered(lambda: self._ask(page, values, known))

        return [scale_open, scale_device, scale_ask]

    def open(self, address: dict[str, str]) -> Reply:
        """All that can be chosen, and what an address asks for; what is wrong in it is ``error``."""
        chosen: dict[str, object] = {
            "case": next(iter(CASES)),
            "workload": "MB",
            "device": next(iter(self._scales.declared)),
            "network": next(iter(NETWORKS)),
            "rtt_ms": 1000 * RTT_S,
            "changed": {},
        }
        asked, error = dict(chosen), ""
        try:
            asked.update({name: address[name] for name in ("case", "workload", "device", "network") if name in address})
            asked["rtt_ms"] = float(address.get("rtt_ms", 1000 * RTT_S))
            asked["changed"] = {
                name.removeprefix("set_"): float(value) for name, value in address.items() if name.startswith("set_")
            }
            question = checked_question(asked)
            self._scales.profile(question.device_id, question.changed)
        except ValueError:
            asked, error = chosen, "The address holds a number that cannot be read; the usual setting is shown."
        except UserError as wrong:
            asked, error = chosen, str(wrong)
        devices = {key: profile.title for key, profile in self._scales.declared.items()}
        return {
            "cases": {key: case.title for key, case in CASES.items()},
            "workloads": {
                key: f"{WORKLOAD_TITLES[key]}, mask {100 * share:.1f} %" for key, share in MASK_SHARES.items()
            },
            "devices": {**devices, MACHINE_ID: "This machine (measured now)"},
            "networks": NETWORKS,
            "chosen": asked,
            "error": error,
        }

    def _ask(self, page: object, values: object, known: object) -> Reply:
        if not isinstance(values, dict):
            raise UserError("The page's question cannot be read; reload it.")
        question = checked_question(values)
        seen = known if isinstance(known, int) else -1
        return answer_view(question, self._scales.ask(_name(page), question, seen, POLL_S))


def profile_view(profile: DeviceProfile) -> Reply:
    """A profile's numbers as fields."""
    return {
        "numbers": [
            {
                "name": name,
                "title": NUMBER_TITLES[name],
                "value": float(f"{number.value:.4g}"),
                "low": float(f"{number.low:.3g}"),
                "high": float(f"{number.high:.3g}"),
                "label": number.label,
                "known": LABELS[number.label],
                "source": number.source,
            }
            for name, number in profile.numbers()
        ]
    }


def answer_view(question: Question, answer: Answer) -> Reply:
    """What is worked out so far, with the model's own numbers."""
    case = question.case
    return {
        "lines": [
            {
                "system": line.system,
                "fastest": line.controller == "fixed:-1",
                "latency_s": line.latency_s,
                "least_s": line.least_s,
                "greatest_s": line.greatest_s,
                "bytes": line.received_bytes,
                "psnr_db": line.psnr_mask_db,
                "ssim": line.ssim_mask,
                "local_percent": 100 * line.local_share,
            }
            for line in answer.lines
        ],
        "total": answer.total,
        "requests": REQUESTS,
        "limit_s": answer.limit_s,
        "on_device_s": answer.on_device_s,
        "steps": case.steps,
        "full_tflop": case.full_step_flop / 1e12,
        "active_tflop": case.active_step_flop / 1e12,
        "limit": case.limit,
        "cache_bytes": case.geometry.full_cache_bytes,
        **({"error": answer.error} if answer.error else {}),
    }


def _answered(answer: Callable[[], Reply]) -> Reply:
    try:
        return answer()
    except UserError as error:
        return {"error": str(error)}


def _name(value: object) -> str:
    """A name from a page, of a bounded length. Raises UserError."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_LENGTH:
        raise UserError("The page's question cannot be read; reload it.")
    return value
