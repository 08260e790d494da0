"""Notices a peer that takes nothing any more. Pings alone do not: they wait in line behind what is not taken."""

import asyncio

from websockets.asyncio.connection import Connection
from websockets.protocol import State

from device_bridge.protocol import PING_TIMEOUT_S

LOOK_S = 0.5


async def end_when_stuck(connection: Connection) -> None:
    """Break a connection off when nothing of what waits in it was taken for PING_TIMEOUT_S. Goes on for ever."""
    left_bytes, since_s = 0, 0.0
    while True:
        await asyncio.sleep(LOOK_S)
        before_bytes, left_bytes = left_bytes, connection.transport.get_write_buffer_size()
        since_s = since_s + LOOK_S if 0 < before_bytes <= left_bytes else 0.0
        if since_s >= PING_TIMEOUT_S:
            break_off(connection)


def break_off(connection: Connection) -> None:
    """Reset a connection without a word."""
    if connection.state is not State.CLOSED:  # asyncio's transports of lost connections do not bear it
        connection.transport.abort()
