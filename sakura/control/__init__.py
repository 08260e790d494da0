"""Controllers: which segments to ask for next. To add one, write a file and name it in ``CONTROLLERS``."""

import dataclasses
from collections.abc import Callable

from sakura.control.cachegen import CacheGenRule
from sakura.control.choose_before_send import ChooseBeforeSendRule
from sakura.control.deadline import DeadlineRule
from sakura.control.fixed import FixedRule
from sakura.control.interface import Controller
from sakura.control.progressive import ProgressiveController
from sakura.control.robust_mpc import RobustMpcController
from sakura.control.shard_by_shard import ShardByShard
from sakura.errors import UserError


@dataclasses.dataclass(frozen=True)
class ControllerKind:
    """How to make a controller, and the estimator (of ``sakura.control.estimators``) that its authors use with it."""

    new: Callable[[], Controller]
    estimator: str


CONTROLLERS: dict[str, ControllerKind] = {
    "deadline-progressive": ControllerKind(ProgressiveController, "discounted"),
    "deadline": ControllerKind(lambda: ShardByShard(DeadlineRule()), "discounted"),
    # The paper does not name an estimator: it gets the best that we have.
    "choose-before-send": ControllerKind(lambda: ShardByShard(ChooseBeforeSendRule()), "discounted"),
    "robust-mpc": ControllerKind(RobustMpcController, "robust"),
    "cachegen": ControllerKind(lambda: ShardByShard(CacheGenRule()), "last-transfer"),
    "fixed": ControllerKind(lambda: ShardByShard(FixedRule()), "discounted"),
}


MAX_LEVEL = 64  # no ladder is as long


def new_controller(name: str) -> Controller:
    """The controller of that name; "fixed:2" is the third finest representation, "fixed:-1" the coarsest.

    Raises UserError if there is none.
    """
    kind, colon, level = name.partition(":")
    if kind == "fixed" and level.removeprefix("-").isdecimal():
        if not -MAX_LEVEL <= int(level) < MAX_LEVEL:
            raise UserError(f"{name!r} counts beyond all ladders; fixed:0 is the finest level, fixed:-1 the coarsest.")
        return ShardByShard(FixedRule(int(level)))
    if colon or kind not in CONTROLLERS:
        raise UserError(f"There is no controller {name!r}; use one of {', '.join(CONTROLLERS)}, or fixed:LEVEL.")
    return CONTROLLERS[kind].new()


def estimator_of(controller: str) -> str:
    """The name of the estimator that a controller works with. Raises UserError if there is no such controller."""
    kind, _, _ = controller.partition(":")
    if kind not in CONTROLLERS:
        raise UserError(f"There is no controller {controller!r}; use one of {', '.join(CONTROLLERS)}, or fixed:LEVEL.")
    return CONTROLLERS[kind].estimator
