"""Profiles carry a source with each number, can be changed, and are refused in one sentence where they are wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakura.errors import UserError
from sakura.paper_scale.devices import DEVICES_FILE, DeviceProfile, device_profile, device_profiles, read_profiles


def written(folder: Path, devices: object) -> Path:
    path = folder / "devices.json"
    path.write_text(json.dumps({"devices": devices}), encoding="utf-8")
    return path


def declared() -> list[dict[str, Any]]:
    return json.loads(DEVICES_FILE.read_text("utf-8"))["devices"]


def test_the_three_phones_are_declared() -> None:
    assert list(device_profiles()) == ["8-elite-gen-5", "8-elite", "8-gen-3"]
    speeds = [profile.npu_tflops.value for profile in device_profiles().values()]
    assert speeds == sorted(speeds, reverse=True)


@pytest.mark.parametrize("device_id", ["8-elite-gen-5", "8-elite", "8-gen-3"])
def test_every_number_says_where_it_comes_from(device_id: str) -> None:
    profile = device_profile(device_id)
    numbers = dict(profile.numbers())
    assert len(profile.assumptions()) == len(numbers) == 8
    for name, number in numbers.items():
        assert name.endswith(("_tflops", "_gb_per_s", "_ms", "_share"))
        assert len(number.source) > 20
        assert number.low <= number.value <= number.high


@given(name=st.sampled_from(["npu_tflops", "dispatch_ms", "sustained_share"]), value=st.floats(0.01, 1))
def test_a_number_can_be_changed(name: str, value: float) -> None:
    profile = device_profile("8-elite")
    changed = profile.changed(name, value)
    number = dict(changed.numbers())[name]
    assert (number.value, number.label) == (value, "changed")
    assert number.low <= value <= number.high
    assert [each for each in changed.numbers() if each[0] != name] == [
        each for each in profile.numbers() if each[0] != name
    ]


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("speed", 1.0, "A device profile has no 'speed'; its numbers are npu_tflops"),
        ("npu_tflops", 0.0, "npu_tflops of Snapdragon 8 Elite must be a number from 0.000001 to 1,000,000."),
        ("npu_tflops", 1e99, "must be a number from 0.000001 to 1,000,000."),
        ("npu_tflops", float("nan"), "must be a number from 0.000001 to 1,000,000."),
        ("sustained_share", 1.5, "a share is at most 1."),
    ],
)
def test_impossible_changes_are_refused(name: str, value: float, sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        device_profile("8-elite").changed(name, value)
    assert sentence.lower() in str(refused.value).lower()


def test_a_device_slows_down_as_it_gets_hot() -> None:
    profile = device_profile("8-elite-gen-5")
    shares = [profile.speed_share(at_s) for at_s in (0, 60, 90, 120, 600)]
    assert shares == pytest.approx([0.9, 0.9, 0.775, 0.65, 0.65])


def broken(change: object) -> list[dict[str, Any]]:
    devices = declared()
    assert callable(change)
    change(devices)
    return devices


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda devices: devices.clear(), "needs at least one profile"),
        (lambda devices: devices.append(devices[0]), "each device_id once"),
        (lambda devices: devices[0].pop("gpu_tflops"), "missing required field `gpu_tflops`"),
        (lambda devices: devices[0].update(colour="red"), "unknown field `colour`"),
        (lambda devices: devices[0]["npu_tflops"].update(value="fast"), "Expected `float`, got `str`"),
        (lambda devices: devices[0]["npu_tflops"].update(label="guessed"), "Invalid enum value 'guessed'"),
        (lambda devices: devices[0]["npu_tflops"].update(value=90), "outside its range 5 to 15; correct the file"),
        (lambda devices: devices[0]["npu_tflops"].update(source=" "), "has no source; say where the number comes from"),
    ],
)
def test_bad_files_get_a_sentence(change: object, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^devices.json") as refused:
        read_profiles(written(tmp_path, broken(change)))
    assert sentence in str(refused.value)


def test_missing_files_and_devices_are_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing.json cannot be read \(No such file or directory\)"):
        read_profiles(tmp_path / "nothing.json")
    (tmp_path / "cut.json").write_text('{"devices": [', encoding="utf-8")
    with pytest.raises(UserError, match=r"cut.json is no list of device profiles"):
        read_profiles(tmp_path / "cut.json")
    with pytest.raises(UserError, match="no device profile '3310'; use one of 8-elite-gen-5"):
        device_profile("3310")


def test_profiles_read_back_as_they_were(tmp_path: Path) -> None:
    read = read_profiles(written(tmp_path, declared()))
    assert read == device_profiles()
    assert all(isinstance(profile, DeviceProfile) for profile in read.values())
