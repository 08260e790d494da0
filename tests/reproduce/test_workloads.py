"""Requests are dealt out to templates, the same each time, and none of them is one that a cache was captured with."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakura.cache.store import CacheStore
from sakura.errors import UserError
from sakura.reproduce.workloads import WORKLOADS, each_case, held_out_request, plan_cases
from sakura.templates import TemplateLibrary


@given(requests=st.integers(1, 40))
def test_each_workload_gets_its_requests(shipped: TemplateLibrary, requests: int) -> None:
    plans = plan_cases(shipped, requests)
    for workload, task in WORKLOADS.items():
        own = [plan for plan in plans if plan.workload == workload]
        assert sum(plan.requests for plan in own) == requests
        assert {plan.template.task for plan in own} == {task}
        assert max(plan.requests for plan in own) - min(plan.requests for plan in own) <= 1


def test_no_templates_is_said(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(UserError, match="restore the data/templates folder"):
        plan_cases(TemplateLibrary(tmp_path_factory.mktemp("empty")), 1)


def test_held_out_requests_are_repeatable_and_differ_from_the_captured_ones(tiny_templates: TemplateLibrary) -> None:
    for template in tiny_templates:
        first, again, second = (held_out_request(template, number) for number in (0, 0, 1))
        assert first.words == again.words and first.seed == again.seed
        assert second.seed != first.seed
        if first.reference is not None and again.reference is not None:
            assert np.array_equal(first.reference, again.reference)
            captured = [request.reference for request in template.typical_requests()]
            assert not any(
                np.array_equal(first.reference, reference) for reference in captured if reference is not None
            )


def test_cases_come_one_by_one_with_progress(tiny_store: CacheStore, tiny_templates: TemplateLibrary) -> None:
    told: list[float] = []
    for case, inside in each_case(tiny_store, tiny_templates, 1, told.append):
        assert len(case.full) == len(case.requests) == 1
        assert case.full[0].shape == case.template.picture.shape
        inside(0.5)
    assert told == sorted(told)
    assert told[-1] == 1.0
