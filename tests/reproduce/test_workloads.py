"""Requests are dealt out to templates, the same each time, and none of them is one that a cache was captured with."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakura.errors import UserError
from sakura.reproduce.workloads import WORKLOADS, held_out_requests, plan_cases
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


def test_held_out_requests_are_repeatable_and_differ_from_the_captured_ones(shipped: TemplateLibrary) -> None:
    for template in shipped:
        first, again = held_out_requests(template, 4), held_out_requests(template, 6)[:4]
        captured = template.typical_requests()
        seeds = {request.seed for request in (*first, *captured)}
        assert len(seeds) == len(first) + len(captured)
        for one, other in zip(first, again, strict=True):
            assert (one.words, one.seed) == (other.words, other.seed)
            assert np.array_equal(one.reference, other.reference) if one.reference is not None else True  # type: ignore[arg-type]
        if template.has_reference:
            pictures = [request.reference.tobytes() for request in (*first, *captured) if request.reference is not None]
            assert len(set(pictures)) == len(pictures)


def test_instructions_are_new_where_there_are_others(shipped: TemplateLibrary) -> None:
    for template_id in ("say-outfit", "say-hair", "say-hat"):  # hundreds of instructions each
        template = shipped.get(template_id)
        words = [request.words for request in (*template.typical_requests(), *held_out_requests(template, 5))]
        assert len(set(words[4:])) == 5
        assert not set(words[4:]) & set(words[:4])


def test_requests_run_out_of_content_but_not_of_seeds(shipped: TemplateLibrary) -> None:
    requests = held_out_requests(shipped.get("say-beard"), 20)
    assert len({request.words for request in requests}) < 20
    assert len({request.seed for request in requests}) == 20
