"""How the machine of a device is: temperature, battery, memory, where it tells."""

import psutil

from device_bridge.protocol import DeviceStatus


def read_status() -> DeviceStatus:
    """What this machine offers; each may be absent."""
    percent, charging = _battery()
    return DeviceStatus(
        temperature_c=_temperature_c(),
        battery_percent=percent,
        charging=charging,
        memory_bytes=psutil.Process().memory_info().rss,
    )


def _battery() -> tuple[float | None, bool | None]:
    """Percent, and whether it is being charged."""
    try:
        battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    except OSError:
        return None, None
    if battery is None:
        return None, None
    return min(100.0, max(0.0, battery.percent)), battery.power_plugged  # a new battery may hold more than it should


def _temperature_c() -> float | None:
    """The hottest sensor that gives a plausible number."""
    try:
        sensors = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
    except OSError:
        return None
    found = [each.current for group in sensors.values() for each in group if each.current and 0 < each.current < 150]
    return max(found, default=None)
