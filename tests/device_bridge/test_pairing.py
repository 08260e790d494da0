"""Codes and tokens: who may be a device, for how long, and what happens to whom is no longer."""

import asyncio
import stat
import time
from pathlib import Path

import pytest
from bridges import TOKEN, Bridge, Phone, Play, ignore, phone_of
from websockets.exceptions import ConnectionClosed
from worlds import until

from device_bridge.agent import RejectedError
from device_bridge.hub import Hub
from device_bridge.pairing import (
    CODE_LENGTH,
    CODE_LIFETIME_S,
    MAX_CODES,
    MAX_PAIRED,
    MAX_WRONG_CODES,
    WRONG_CODES_WINDOW_S,
    Pairing,
)
from device_bridge.protocol import Accepted, Rejected
from device_bridge.tokens import keep_token, known_tokens
from sakura.errors import UserError
from sakura.events import RunFinished


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_code_works_once() -> None:
    pairing = Pairing()
    code = pairing.new_code().code
    device, token = pairing.pair(code, "Phone")
    assert pairing.known(token) == device
    assert pairing.known("another") is None
    assert not pairing.is_open(code)
    with pytest.raises(UserError, match="ask the page for a new one"):
        pairing.pair(code, "Other phone")


def test_code_expires() -> None:
    clock = Clock()
    pairing = Pairing(clock=clock)
    code = pairing.new_code().code
    clock.now_s += CODE_LIFETIME_S - 0.1
    assert pairing.is_open(code)
    clock.now_s += 0.2
    assert not pairing.is_open(code)
    with pytest.raises(UserError, match="not valid, or no longer"):
        pairing.pair(code, "Phone")


def test_code_may_be_typed_in_lower_case_and_with_spaces() -> None:
    pairing = Pairing()
    code = pairing.new_code().code.lower()
    assert pairing.pair(f" {code[:3]} {code[3:]}\n", "Phone")[0].name == "Phone"


def test_wrong_codes_are_limited_for_a_minute() -> None:
    clock = Clock()
    pairing = Pairing(clock=clock)
    code = pairing.new_code().code
    for _ in range(MAX_WRONG_CODES):
        with pytest.raises(UserError, match="not valid"):
            pairing.pair("0" * CODE_LENGTH, "Guesser")
    with pytest.raises(UserError, match="Too many wrong codes"):
        pairing.pair(code, "Phone")
    clock.now_s += WRONG_CODES_WINDOW_S + 0.1
    pairing.pair(code, "Phone")


def test_of_too_many_codes_the_oldest_stop() -> None:
    pairing = Pairing()
    codes = [pairing.new_code().code for _ in range(MAX_CODES + 2)]
    assert [pairing.is_open(code) for code in codes] == [False] * 2 + [True] * MAX_CODES


def test_devices_are_bounded() -> None:
    pairing = Pairing()
    for number in range(MAX_PAIRED):
        pairing.pair(pairing.new_code().code, f"Phone {number}")
    code = pairing.new_code().code
    with pytest.raises(UserError, match="revoke one first"):
        pairing.pair(code, "One more")
    pairing.revoke(pairing.paired()[0].device_id)
    pairing.pair(code, "One more")


def test_tokens_survive_a_restart_in_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "devices.json"
    device, token = (pairing := Pairing(path)).pair(pairing.new_code().code, "Phone")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token not in path.read_text()
    again = Pairing(path)
    assert again.known(token) == device
    again.revoke(device.device_id)
    assert Pairing(path).known(token) is None
    with pytest.raises(UserError, match="not paired"):
        again.revoke(device.device_id)


@pytest.mark.parametrize("content", [b"", b"[{}]", b"\xff", b'{"a": 1}', b"[" * 100_000])
def test_damaged_file_is_told_of(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "devices.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"devices\.json cannot be read .* remove it, then pair the devices again"):
        Pairing(path)


def test_file_that_cannot_be_written_costs_no_code(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.write_text("in the way")
    pairing = Pairing(folder / "devices.json")
    code = pairing.new_code().code
    with pytest.raises(UserError, match="cannot be written"):
        pairing.pair(code, "Phone")
    assert not pairing.paired()
    folder.unlink()
    pairing.pair(code, "Phone")


def test_device_keeps_its_tokens_by_hub(home: Path) -> None:
    keep_token("ws://one:1", "first")
    keep_token("ws://two:2", "second")
    assert known_tokens() == {"ws://one:1": "first", "ws://two:2": "second"}
    file = home / "hub-tokens.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_bytes(b"damaged")
    assert known_tokens() == {}
    keep_token("ws://one:1", "third")
    assert known_tokens() == {"ws://one:1": "third"}


def test_paired_agent_comes_back_to_a_hub_that_restarted(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("websockets.client.BACKOFF_INITIAL_DELAY", 0.1)
    path = tmp_path / "devices.json"

    async def scenario(bridge: Bridge) -> None:
        tokens: list[str] = []
        async with Hub(TOKEN, pairing=Pairing(path)) as hub:
            here = Bridge(hub, bridge.editor, bridge.cloud_url)
            code = hub.pairing.new_code().code
            async with here.agent("", pairing_code=code, on_token=tokens.append) as task:
                device = await here.device()
                assert device.paired
                await hub.__aexit__()
                async with Hub(TOKEN, port=hub.port, pairing=Pairing(path)) as restarted:
                    there = Bridge(restarted, bridge.editor, bridge.cloud_url)
                    back = await there.device()
                    assert (back.device_id, back.paired) == (device.device_id, True)
                    assert isinstance((await there.run(there.job("one"), back, ignore))[-1], RunFinished)
                    assert not task.done()
            async with Hub(TOKEN, pairing=Pairing(path)) as later:
                there = Bridge(later, bridge.editor, bridge.cloud_url)
                async with there.agent(tokens[0]):
                    assert (await there.device()).device_id == device.device_id
        assert len(tokens) == 1

    play(scenario)


def test_revoked_device_is_gone_within_a_second_for_good(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        tokens: list[str] = []
        code = bridge.hub.pairing.new_code().code
        async with bridge.agent("", pairing_code=code, on_token=tokens.append) as task:
            device = await bridge.device()
            began_s = time.monotonic()
            await bridge.hub.revoke(device.device_id)
            assert not bridge.hub.devices
            with pytest.raises(RejectedError, match="revoked in the page"):
                await task
            assert time.monotonic() - began_s < 1.0
        async with bridge.agent(tokens[0]) as task:
            with pytest.raises(RejectedError, match="does not know the device, or it was revoked"):
                await task
        async with bridge.agent("", pairing_code=code) as task:
            with pytest.raises(RejectedError, match="That code is not valid"):
                await task

    play(scenario)


def test_revoking_does_not_wait_for_a_device_that_reads_nothing(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with phone_of(bridge.hub.url) as phone:
            await phone.hello("", pairing_code=bridge.hub.pairing.new_code().code)
            await phone.hear(Accepted)
            device = await bridge.device()
            phone.connection.transport.pause_reading()
            began_s = time.monotonic()
            await bridge.hub.revoke(device.device_id)
            assert time.monotonic() - began_s < 1.0

    play(scenario)


def test_two_machines_with_one_token_do_not_chase_each_other(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        hub = bridge.hub
        async with phone_of(hub.url) as first, phone_of(hub.url) as second:
            await first.hello("", pairing_code=hub.pairing.new_code().code)
            accepted = await first.hear(Accepted)
            await second.hello(accepted.token)
            assert (await second.hear(Accepted)) == Accepted(accepted.version, accepted.device_id)
            told = await first.hear(Rejected)
            assert "connected again from elsewhere" in told.reason
            assert told.final
            with pytest.raises(ConnectionClosed):
                await first.hear(Accepted)
            assert list(hub.devices) == [accepted.device_id]

    play(scenario)


async def _try(bridge: Bridge, token: str, code: str) -> Accepted | Rejected:
    async with phone_of(bridge.hub.url) as phone:
        await phone.hello(token, pairing_code=code)
        return await Phone(phone.connection).hear(Accepted | Rejected)


def test_guessing_over_the_bridge_is_limited(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        code = bridge.hub.pairing.new_code().code
        answers = await asyncio.gather(*(_try(bridge, "", f"GUESS{n}") for n in range(MAX_WRONG_CODES)))
        assert all(isinstance(answer, Rejected) and "not valid" in answer.reason for answer in answers)
        limited = await _try(bridge, "", code)
        assert isinstance(limited, Rejected)
        assert "Too many wrong codes" in limited.reason
        assert isinstance(await _try(bridge, TOKEN, ""), Accepted)

    play(scenario)


def test_empty_token_opens_nothing(play: Play) -> None:
    async def scenario(bridge: Bridge) -> None:
        assert isinstance(await _try(bridge, "", ""), Rejected)
        async with Hub("") as hub:
            assert isinstance(await _try(Bridge(hub, bridge.editor, ""), "", ""), Rejected)
            await until(lambda: not hub.devices)

    play(scenario)
