"""`python -m device_bridge agent`: make this machine a device of a studio."""

from device_bridge.cli import app

app()
