"""Which addresses may be called: the traps of ipaddress and of resolvers are all in the tables."""

from __future__ import annotations

import ipaddress

import pytest

from schedo.errors import Invalid
from schedo.tasks.http.egress import AddressRules, TargetRefused, is_host_name, is_public

DENIED = """
0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 169.254.169.254
168.63.129.16 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1
198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
:: ::1 ::7f00:1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:8.8.8.8 ::ffff:0:127.0.0.1 64:ff9b::7f00:1
64:ff9b:1::1 100::1 2001::1 2001:20::1 2001:db8::1 2002:7f00:1:: 3fff::1 5f00::1 fc00::1
fd00:ec2::254 fe80::1 fe80::1%1 fec0::1 ff02::1
"""
PUBLIC = "1.1.1.1 8.8.8.8 93.184.215.14 172.32.0.1 100.128.0.1 2606:4700::1111 2a00::1"


@pytest.mark.parametrize("text", DENIED.split())
def test_only_global_unicast_addresses_are_public(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", PUBLIC.split())
def test_ordinary_internet_addresses_are_public(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


def test_one_private_address_of_a_name_refuses_the_whole_name() -> None:
    with pytest.raises(TargetRefused, match=r"mixed\.example \(10\.0\.0\.1\) is not a public"):
        AddressRules().check("mixed.example", 443, ["8.8.8.8", "10.0.0.1"])


def test_vetted_addresses_are_returned_in_order_without_repeats() -> None:
    vetted = AddressRules().check("a.example", 443, ["8.8.8.8", "1.1.1.1", "8.8.8.8"])

    assert vetted == ["8.8.8.8", "1.1.1.1"]


def test_a_name_without_addresses_is_refused() -> None:
    with pytest.raises(TargetRefused, match="has no address"):
        AddressRules(["a.example"]).check("a.example", 80, [])


@pytest.mark.parametrize("allow", [[], ["10.0.0.0/8", "hook.internal"]])
def test_an_address_that_cannot_be_read_is_refused(allow: list[str]) -> None:
    with pytest.raises(TargetRefused, match="cannot be parsed"):
        AddressRules(allow).check("a.example", 80, ["localhost"])


@pytest.mark.parametrize(
    ("entry", "host", "port", "address"),
    [
        ("hook.internal", "hook.internal", 80, "10.0.0.1"),
        ("Hook.Internal", "hook.internal.", 80, "10.0.0.1"),
        ("hook.internal:8080", "hook.internal", 8080, "127.0.0.1"),
        ("10.0.0.0/8", "any.example", 443, "10.9.8.7"),
        ("127.0.0.1", "localhost", 8080, "127.0.0.1"),
        ("127.0.0.1:8080", "127.0.0.1", 8080, "127.0.0.1"),
        ("::1", "localhost", 80, "::1"),
        ("[::1]:8080", "::1", 8080, "::1"),
        ("fd00::/8", "any.example", 443, "fd00::7"),
    ],
)
def test_the_allow_list_permits_the_addresses_that_it_names(
    entry: str, host: str, port: int, address: str
) -> None:
    assert AddressRules([entry]).check(host, port, [address]) == [address]


@pytest.mark.parametrize(
    ("entry", "host", "port", "address"),
    [
        ("hook.internal", "xhook.internal", 80, "10.0.0.1"),
        ("hook.internal", "hook.internal.evil.example", 80, "10.0.0.1"),
        ("hook.internal:8080", "hook.internal", 8081, "10.0.0.1"),
        ("127.0.0.1:8080", "127.0.0.1", 8081, "127.0.0.1"),
        ("10.0.0.0/8", "any.example", 443, "10.0.0.256"),
        ("10.0.0.0/8", "any.example", 443, "192.168.0.1"),
        ("127.0.0.0/8", "any.example", 443, "::ffff:127.0.0.1"),
    ],
)
def test_the_allow_list_permits_no_other_address(
    entry: str, host: str, port: int, address: str
) -> None:
    with pytest.raises(TargetRefused):
        AddressRules([entry]).check(host, port, [address])


@pytest.mark.parametrize(
    "entry", ["", " ", "http://a", "a:0", "a:65536", "a:b", "a b", "10.0.0.1/8", "*", "a/8", "-a"]
)
def test_an_invalid_entry_of_the_allow_list_is_refused_at_the_start(entry: str) -> None:
    with pytest.raises(Invalid, match="http jobs can be allowed to call"):
        AddressRules([entry])


@pytest.mark.parametrize("text", ["a", "a.b-c.example", "xn--bcher-kva.example", "1.2.3.4", "a_b"])
def test_a_valid_host_name_is_accepted(text: str) -> None:
    assert is_host_name(text)


@pytest.mark.parametrize(
    "text", ["", ".", "a..b", "-a", "a-", "a b", "a\n", "ä", "①", "a/b", "a%b", "a" * 254]
)
def test_a_text_that_is_no_host_name_is_refused(text: str) -> None:
    assert not is_host_name(text)
