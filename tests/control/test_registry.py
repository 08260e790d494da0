import pytest
from hypothesis import given
from hypothesis import strategies as st
from offers import equal_offer

from sakura.control import CONTROLLERS, estimator_of, new_controller
from sakura.control.estimators import ESTIMATORS, new_estimator
from sakura.errors import UserError


@pytest.mark.parametrize("name", CONTROLLERS)
def test_every_controller_can_be_made_and_has_an_estimator(name: str) -> None:
    order = new_controller(name).next(equal_offer(4).state(10))
    assert order is not None
    assert order.shard == 0
    assert estimator_of(name) in ESTIMATORS


def test_baselines_have_the_estimators_of_their_authors() -> None:
    assert estimator_of("cachegen") == "last-transfer"
    assert estimator_of("robust-mpc") == "robust"


@given(st.integers(-3, 2))
def test_a_fixed_level_is_part_of_the_name(level: int) -> None:
    offer = equal_offer(1)
    order = new_controller(f"fixed:{level}").next(offer.state(10))
    assert order is not None
    assert order.rung.size_bytes == offer.ladders[0].rungs[-1 - level].size_bytes
    assert estimator_of(f"fixed:{level}") == estimator_of("fixed")


@pytest.mark.parametrize("name", ["", "mpc", "fixed:", "fixed:x", "fixed:--1", "deadline:1"])
def test_unknown_controllers_are_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(UserError, match="robust-mpc"):
        new_controller(name)


def test_unknown_estimators_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"'median'.*harmonic"):
        new_estimator("median")
    with pytest.raises(UserError, match="robust-mpc"):
        estimator_of("mpc")


@pytest.mark.parametrize("name", ["fixed:64", "fixed:-65", "fixed:99999"])
def test_levels_beyond_all_ladders_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="fixed:-1 the coarsest"):
        new_controller(name)
