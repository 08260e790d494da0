"""This machine as a device profile."""

import torch

from sakura.paper_scale.devices import profile_fault
from sakura.paper_scale.this_machine import measure_this_machine


def test_it_is_a_valid_profile_with_its_ranges() -> None:
    threads = torch.get_num_threads()
    profile = measure_this_machine()
    assert torch.get_num_threads() == threads
    assert profile_fault(profile) is None
    labels = {name: number.label for name, number in profile.numbers()}
    assert labels.pop("sustained_share") == labels.pop("throttled_share") == "assumed"
    assert set(labels.values()) == {"measured"}
    assert 1e-4 < profile.npu_tflops.value < 100
