"""Operations and cache sizes are those that were counted on the models themselves."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakura.errors import UserError
from sakura.paper_scale.models import CASES, MASK_SHARES, model_case

# A step at a mask of 19.3 %: full TFLOP, active TFLOP, limit, MB of cache; as counted, to the digits given.
COUNTED = {
    "klein-512": (19.7, 6.8, 2.9, 568),
    "klein-768": (44.9, 12.1, 3.7, 1279),
    "klein-1024": (88.8, 21.3, 4.2, 2274),
    "klein-1024-full-reference": (128.9, 54.4, 2.4, 2274),
    "sd35-768": (6.0, 1.9, 3.2, 423),
    "sd35-1024": (11.7, 3.1, 3.8, 751),
}


@pytest.mark.parametrize("case_id", CASES)
def test_formulas_match_what_was_counted(case_id: str) -> None:
    case, (full, active, limit, megabytes) = model_case(case_id), COUNTED[case_id]
    assert case.full_step_flop / 1e12 == pytest.approx(full, abs=0.1)
    assert case.active_step_flop / 1e12 == pytest.approx(active, abs=0.1)
    assert case.limit == pytest.approx(limit, abs=0.06)
    assert case.step_cache_bytes / 1e6 == pytest.approx(megabytes, abs=0.6)


@pytest.mark.parametrize(("workload", "limit"), [("FS", 4.9), ("VTON", 3.7)])
def test_limits_of_the_other_workloads(workload: str, limit: float) -> None:
    assert model_case("klein-1024", workload).limit == pytest.approx(limit, abs=0.06)


@given(
    case_id=st.sampled_from(list(CASES)), mask_share=st.floats(0.01, 0.99), shards_per_step=st.sampled_from([4, 8, 16])
)
def test_a_geometry_holds_the_cache(case_id: str, mask_share: float, shards_per_step: int) -> None:
    case = dataclasses.replace(CASES[case_id], mask_share=mask_share, shards_per_step=shards_per_step)
    geometry = case.geometry
    assert geometry.shards == case.steps * shards_per_step
    # Tokens are whole there.
    token_bytes = case.step_cache_bytes / case.reusable_tokens
    assert abs(geometry.full_cache_bytes / case.steps - case.step_cache_bytes) <= 0.51 * token_bytes
    assert case.limit > 1


@given(low=st.floats(0.01, 0.98), more=st.floats(1e-3, 0.01))
def test_a_larger_mask_leaves_less_to_reuse(low: float, more: float) -> None:
    small, large = (CASES["klein-1024"].with_mask(share) for share in (low, low + more))
    assert small.limit > large.limit
    assert small.step_cache_bytes > large.step_cache_bytes
    assert small.full_step_flop == large.full_step_flop


def test_unknown_names_are_said() -> None:
    with pytest.raises(UserError, match="no model case 'dall-e'; use one of klein-1024"):
        model_case("dall-e")
    with pytest.raises(UserError, match="no workload 'XX'; use one of FS"):
        model_case("klein-1024", "XX")
    assert set(MASK_SHARES) == {"FS", "VTON", "MB"}
