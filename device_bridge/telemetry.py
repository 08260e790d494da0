"""How the machine of a device is: temperature, battery, memory, where it tells."""

import psutil

from device_bridge.protocol import DeviceStatus


def read_status() -> DeviceStatus:
    """What this machine offers; each may be absent."""
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return DeviceStatus(
        temperature_c=_temperature_c(),
        battery_percent=battery.percent if battery else None,
        charging=battery.power_plugged if battery else None,
        memory_bytes=psutil.Process().memory_info().rss,
    )


def _temperature_c() -> float | None:
    """The hottest sensor that gives a plausible number."""
    try:
        sensors = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
    except OSError:
        return None
    found = [each.current for group in sensors.values() for each in group if each.current and 0 < each.current < 150]
    return max(found, default=None)
