"""At which addresses a hub can be reached, and with which certificate."""

import ipaddress
import socket
import ssl

import psutil

from device_bridge.hub import Hub, host_from_here, url_of
from sakura.errors import UserError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def reachable_urls(hub: Hub) -> list[str]:
    """The hub's address, or one for each of this machine's where it listens on all of them."""
    scheme = "wss" if hub.tls else "ws"
    if hub.host not in ("0.0.0.0", "::"):
        return [hub.url]
    family = socket.AF_INET6 if hub.host == "::" else socket.AF_INET  # asyncio listens on IPv6 only for "::"
    every = (each for addresses in psutil.net_if_addrs().values() for each in addresses)
    here = [ipaddress.ip_address(each.address) for each in every if each.family == family]
    found = [each for each in here if not (each.is_loopback or each.is_link_local)]
    return [url_of(scheme, host, hub.port) for host in map(str, found)] or [
        url_of(scheme, host_from_here(hub.host), hub.port)
    ]


def tls_from(certificate: str) -> ssl.SSLContext:
    """For wss, with a PEM file that holds certificate and key, which has no password. Raises UserError."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        tls.load_cert_chain(certificate, password="")  # without one, OpenSSL would ask the terminal
    except OSError as error:  # ssl.SSLError is one
        raise UserError(
            f"{certificate} cannot be used ({error}); it must be a PEM file with a certificate and its key."
        ) from error
    return tls
