"""A hub over wss, with a certificate of its own."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from bridges import TOKEN, Bridge, Play, ignore
from worlds import device_of, until

from device_bridge.addresses import reachable_urls, tls_from
from device_bridge.agent import Agent
from device_bridge.hub import Hub
from sakura.errors import UserError
from sakura.events import RunFinished

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="These tests make a certificate with openssl; install it.")


def _openssl(*arguments: str | Path) -> None:
    assert OPENSSL
    subprocess.run([OPENSSL, *map(str, arguments)], check=True, capture_output=True, timeout=30)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificate and key for 127.0.0.1 in one file."""
    folder = tmp_path_factory.mktemp("certificate")
    key, certificate, both = folder / "key.pem", folder / "certificate.pem", folder / "hub.pem"
    _openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
        *("-subj", "/CN=hub", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate),
    )
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    return both


def test_edits_run_over_wss_and_beside_it(play: Play, pem: Path) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with Hub(TOKEN, tls=tls_from(str(pem))) as hub:
            assert hub.url.startswith("wss://127.0.0.1:")
            assert hub.local_url.startswith("ws://127.0.0.1:")
            assert hub.local_url != hub.url.replace("wss", "ws")
            assert reachable_urls(hub) == [hub.url]
            here = Bridge(hub, bridge.editor, bridge.cloud_url)
            for url, tls in ((hub.url, ssl.create_default_context(cafile=pem)), (hub.local_url, None)):
                async with here.agent(url=url, tls=tls):
                    device = await here.device()
                    assert isinstance((await here.run(here.job("run"), device, ignore))[-1], RunFinished)
                    await device.connection.close()

    play(scenario)


def test_agent_without_the_certificate_is_told_and_ends(play: Play, pem: Path) -> None:
    async def scenario(bridge: Bridge) -> None:
        async with Hub(TOKEN, tls=tls_from(str(pem))) as hub, device_of(bridge.editor) as device:
            with pytest.raises(UserError, match=r"is not trusted here \(self-signed certificate\); give .* with --ca"):
                await Agent(device, hub.url, TOKEN).run()
            with pytest.raises(UserError, match=r"is not trusted here .*localhost.* use a name or address"):
                tls = ssl.create_default_context(cafile=pem)
                await Agent(device, hub.url.replace("127.0.0.1", "localhost"), TOKEN, tls=tls).run()
            assert not hub.devices

    play(scenario)


def test_wrong_scheme_is_told(play: Play, pem: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bridge: Bridge) -> None:
        tls = ssl.create_default_context(cafile=pem)
        async with Hub(TOKEN, tls=tls_from(str(pem))) as hub:
            as_ws, as_wss = hub.url.replace("wss", "ws"), bridge.hub.url.replace("ws", "wss")
            async with bridge.agent(url=as_ws) as plain, bridge.agent(url=as_wss, tls=tls) as secure:
                for url in (as_ws, as_wss):
                    await until(lambda url=url: f"{url} cannot be reached" in caplog.text)  # type: ignore[misc]
                assert not (plain.done() or secure.done())

    play(scenario)
    assert caplog.text.count("trying on. Is it ws:// or wss://?") == 2


def test_bad_certificates_are_told(pem: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked.pem"
    key = tmp_path / "key.pem"
    _openssl("ec", "-in", pem, "-aes256", "-passout", "pass:secret", "-out", key)
    locked.write_bytes(pem.read_bytes().split(b"-----BEGIN PRIVATE")[0] + key.read_bytes())
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"")
    for path in (locked, empty, tmp_path / "nowhere.pem"):
        with pytest.raises(UserError, match="it must be a PEM file with a certificate and its key"):
            tls_from(str(path))
