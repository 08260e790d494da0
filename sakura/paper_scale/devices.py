"""Device profiles: how fast a device computes, rebuilds and decodes, each number with its source."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from sakura.errors import UserError
from sakura.settings import DATA

DEVICES_FILE = DATA / "devices.json"
SUSTAINED_S, THROTTLED_S = 60.0, 120.0  # of steady work: up to the first at one speed, from the second on at another

Label: TypeAlias = Literal["read", "derived", "assumed", "measured", "changed"]
LABELS: dict[Label, str] = {
    "read": "read in a public source",
    "derived": "derived from a public source",
    "assumed": "assumed",
    "measured": "measured on this machine",
    "changed": "changed by you",
}


class Number(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number of a profile, where it comes from, and the range in which it may well lie."""

    value: float
    low: float
    high: float
    label: Label
    source: str

    def changed(self, value: float) -> "Number":
        source = f"Changed by you from {self.value:g}."
        return Number(value, min(self.low, value), max(self.high, value), "changed", source)


class DeviceProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device as the models of its processors see it.

    ``npu_tflops`` executes the transformer, ``gpu_tflops`` multiplies low-rank factors, which writes
    ``gpu_write_gb_per_s`` of fp16 at most; ``dequantise_gb_per_s`` and ``entropy_decode_gb_per_s`` count fp16 bytes
    that come out.
    ``dispatch_ms`` is what a shard costs beside its arithmetic. Speeds hold at rest; ``sustained_share`` of them is
    left in the first minute of work, ``throttled_share`` beyond two. ``concurrent`` if reconstruction runs beside
    execution.
    """

    device_id: str
    title: str
    concurrent: bool
    npu_tflops: Number
    gpu_tflops: Number
    gpu_write_gb_per_s: Number
    dequantise_gb_per_s: Number
    entropy_decode_gb_per_s: Number
    dispatch_ms: Number
    sustained_share: Number
    throttled_share: Number

    def numbers(self) -> Iterator[tuple[str, Number]]:
        """All numbers with their names, which have their units."""
        for field in self.__struct_fields__:
            number = getattr(self, field)
            if isinstance(number, Number):
                yield field, number

    def changed(self, name: str, value: float) -> "DeviceProfile":
        """This profile with another value of one number. Raises UserError where there is no such number or value."""
        known = dict(self.numbers())
        if name not in known:
            raise UserError(f"A device profile has no {name!r}; its numbers are {', '.join(known)}.")
        profile = msgspec.structs.replace(self, **{name: known[name].changed(value)})
        fault = profile_fault(profile)
        if fault:
            raise UserError(f"{fault[0].upper()}{fault[1:]}.")
        return profile

    def speed_share(self, at_s: float) -> float:
        """Which share of its speed the device has after so many seconds of work."""
        throttled = min(1.0, max(0.0, (at_s - SUSTAINED_S) / (THROTTLED_S - SUSTAINED_S)))
        return self.sustained_share.value + throttled * (self.throttled_share.value - self.sustained_share.value)

    def assumptions(self) -> list[str]:
        """A sentence for each number: its value, how sure it is, and its source."""
        return [
            f"{name} = {number.value:g} ({LABELS[number.label]}): {number.source}" for name, number in self.numbers()
        ]


# What any device could have; beyond, times are no longer numbers that mean something.
LEAST, MOST = 1e-6, 1e6


def profile_fault(profile: DeviceProfile) -> str | None:
    """What cannot be in a profile, as a sentence without its end; None where nothing is."""
    for name, number in profile.numbers():
        if not all(LEAST <= value <= MOST for value in (number.value, number.low, number.high)):
            return f"{name} of {profile.title} must be a number from {LEAST:.6f} to {MOST:,.0f}"
        if not number.low <= number.value <= number.high:
            return f"{name} of {profile.title} is {number.value:g}, outside its range {number.low:g} to {number.high:g}"
        if name.endswith("_share") and number.value > 1:
            return f"{name} of {profile.title} is {number.value:g}; a share is at most 1"
        if not number.source.strip():
            return f"{name} of {profile.title} has no source; say where the number comes from"
    return None


class _DeviceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    devices: list[DeviceProfile]


def read_profiles(path: Path) -> dict[str, DeviceProfile]:
    """The profiles of a file by their id. Raises UserError that names the file and what is wrong in it."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_DeviceFile).devices
    except OSError as error:
        raise UserError(f"{path.name} cannot be read ({error.strerror}); restore the file.") from error
    except msgspec.DecodeError as error:
        raise UserError(f"{path.name} is no list of device profiles: {error}.") from error
    profiles = {profile.device_id: profile for profile in found}
    if len(profiles) != len(found) or not profiles:
        raise UserError(f"{path.name} needs at least one profile, and each device_id once.")
    for profile in found:
        fault = profile_fault(profile)
        if fault:
            raise UserError(f"{path.name}: {fault}; correct the file.")
    return profiles


@functools.cache
def device_profiles() -> dict[str, DeviceProfile]:
    """The declared devices, the main one first."""
    return read_profiles(DEVICES_FILE)


def device_profile(device_id: str) -> DeviceProfile:
    """Raises UserError if there is no such device."""
    profiles = device_profiles()
    if device_id not in profiles:
        raise UserError(f"There is no device profile {device_id!r}; use one of {', '.join(profiles)}.")
    return profiles[device_id]
