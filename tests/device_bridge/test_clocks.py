"""How well a device's clock is known from probes, in numbers and over a socket."""

import asyncio
import time

from bridges import Bridge, Play, phone_of
from hypothesis import given
from hypothesis import strategies as st
from worlds import until

from device_bridge.clocks import KEPT_PROBES, OffsetEstimator
from device_bridge.hub import QUICK_PROBES
from device_bridge.protocol import Accepted, ClockProbe, ClockReply

ROUNDING_S = 1e-6
DELAYS_S = st.floats(0, 5)
PROBES = st.lists(st.tuples(st.floats(0, 1e5), DELAYS_S, DELAYS_S), min_size=1, max_size=3 * KEPT_PROBES)


@given(offset_s=st.floats(-1e6, 1e6), probes=PROBES)
def test_offset_is_wrong_by_no_more_than_it_says(offset_s: float, probes: list[tuple[float, float, float]]) -> None:
    estimator = OffsetEstimator()
    for sent_s, there_s, back_s in probes:
        estimator.add(sent_s, sent_s + there_s + offset_s, sent_s + there_s + back_s)
    found = estimator.offset()
    assert found is not None
    assert abs(found.offset_s - offset_s) <= found.uncertainty_s + ROUNDING_S
    quickest_s = min(there_s + back_s for _, there_s, back_s in probes[-KEPT_PROBES:])
    assert abs(found.uncertainty_s - quickest_s / 2) <= ROUNDING_S


@given(offset_s=st.floats(-1e6, 1e6), drift_s=st.floats(-1, 1), probes=PROBES)
def test_clock_that_was_set_anew_is_known_after_as_many_probes_as_are_kept(
    offset_s: float, drift_s: float, probes: list[tuple[float, float, float]]
) -> None:
    estimator = OffsetEstimator()
    for sent_s, there_s, back_s in probes:
        estimator.add(sent_s, sent_s + there_s + offset_s, sent_s + there_s + back_s)
    for _ in range(KEPT_PROBES):
        estimator.add(1.0, 1.25 + offset_s + drift_s, 1.5)
    found = estimator.offset()
    assert found is not None
    assert abs(found.offset_s - offset_s - drift_s) <= ROUNDING_S


def test_without_probes_nothing_is_known() -> None:
    assert OffsetEstimator().offset() is None


def test_shifted_clock_over_a_socket(play: Play) -> None:
    shift_s = 4321.0

    async def scenario(bridge: Bridge) -> None:
        async with phone_of(bridge.hub.url) as phone:
            await phone.hello()
            await phone.hear(Accepted)
            device = await bridge.device()
            assert device.clock is None
            for number in range(QUICK_PROBES):
                probe = await phone.hear(ClockProbe)
                await phone.say(ClockReply(probe.sent_s, time.monotonic() + shift_s))
                if number == 0:  # what no probe asked for, or comes far too late, is not believed
                    await phone.say(ClockReply(probe.sent_s - 100.0, 0.0))
                    await phone.say(ClockReply(probe.sent_s + 100.0, 0.0))
                    await until(lambda: device.clock is not None)
                await asyncio.sleep(0)
            clock = device.clock
            assert clock is not None
            assert abs(clock.offset_s - shift_s) <= clock.uncertainty_s + ROUNDING_S
            assert clock.uncertainty_s < 0.5

    play(scenario)


def test_agent_tells_its_time(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with bridge.agent():
            device = await bridge.device()
            await until(lambda: device.clock is not None)
            clock = device.clock
            assert clock is not None
            assert abs(clock.offset_s) <= clock.uncertainty_s + ROUNDING_S  # it is the same clock

    play(scenario)
