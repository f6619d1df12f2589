"""The egress rules of http jobs: they reach public addresses, and targets on the allow-list.

Rule 1: a name is resolved once, all of its addresses must pass, and the connection goes to one of
them, so that a second DNS answer cannot lead elsewhere.
Rule 2: an address passes when it is global unicast and embeds no other address (mapped, NAT64,
6to4). ipaddress alone is not enough: Python 3.11 calls 224.0.0.1, 192.0.0.192, 64:ff9b::/96,
2002::/16 and fec0::/10 global, and 100.64.0.0/10 not private.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from schedo.errors import Invalid

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# In addition to what ipaddress knows, in any Python from 3.11 on.
_DENIED: tuple[Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT, and some clouds' metadata
        "168.63.129.16/32",  # a public address that is Azure's host agent to its guests
        "192.0.0.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "198.18.0.0/15",
        "240.0.0.0/4",
        "::/96",  # embeds an IPv4 address
        "::ffff:0:0/96",  # the same, mapped
        "::ffff:0:0:0/96",  # the same, translated
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",  # Teredo, ORCHID and other special purposes
        "2002::/16",  # 6to4
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
    )
)
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"  # of 63 characters at most
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?\Z")
_HOST_CHARACTERS_MAX = 253
PORT_MAX = 65_535


class _Entry(NamedTuple):
    """One entry of the allow-list: a name or a network, at one port or at all ports."""

    name: str | None
    network: Network | None
    port: int | None


class TargetRefused(Exception):
    """The job names a host that the egress rules refuse; the message says which and why."""


class AddressRules:
    """The egress rules; each entry of `allow` is "host", "host:port" or a network."""

    def __init__(self, allow: Iterable[str] = ()) -> None:
        self._entries = tuple(_parse_entry(text) for text in allow)

    def check(self, host: str, port: int, addresses: Sequence[str]) -> list[str]:
        """Return the addresses without duplicates; raise TargetRefused unless all of them pass."""
        if not addresses:
            raise TargetRefused(f"{host} has no address")
        if not self._is_named(host, port):
            for text in addresses:
                self._check_address(host, port, text)
        return list(dict.fromkeys(addresses))

    def _is_named(self, host: str, port: int) -> bool:
        name = host.lower().rstrip(".")
        return any(e.name == name and e.port in (None, port) for e in self._entries)

    def _check_address(self, host: str, port: int, text: str) -> None:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            raise TargetRefused(f"{host} has an address that cannot be parsed: {text!r}") from None
        for entry in self._entries:
            if entry.network and entry.port in (None, port) and address in entry.network:
                return
        if not is_public(address):
            shown = host if host == text else f"{host} ({text})"
            raise TargetRefused(
                f"{shown} is not a public address; the operator can allow it with --webhook-allow"
            )


def is_public(address: Address) -> bool:
    """Return whether the address is global unicast and embeds no other address."""
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        return False
    if address.is_multicast or not address.is_global:
        return False
    return not any(address in network for network in _DENIED)


def is_host_name(text: str) -> bool:
    """Return whether the text is an ASCII host name, or an IPv4 address in any notation."""
    return len(text) <= _HOST_CHARACTERS_MAX and _HOST.match(text.lower()) is not None


def _parse_entry(text: str) -> _Entry:
    network = _find_network(text)
    if network is not None:
        return _Entry(None, network, None)
    host, colon, port_text = text.rpartition(":")
    port = None
    if colon:
        port = int(port_text) if re.fullmatch("[0-9]{1,5}", port_text) else 0
        if not 1 <= port <= PORT_MAX:
            raise _bad_entry(text)
    else:
        host = text
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    network = _find_network(host) if "/" not in host else None
    if network is not None:
        return _Entry(None, network, port)
    if not is_host_name(host):
        raise _bad_entry(text)
    return _Entry(host.lower().rstrip("."), None, port)


def _find_network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


def _bad_entry(text: str) -> Invalid:
    return Invalid(
        f"{text!r} is not a target that http jobs can be allowed to call: "
        'write "host", "host:port", an address or a network such as "10.0.0.0/8"'
    )
