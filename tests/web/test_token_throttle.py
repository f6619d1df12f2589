"""Guessing tokens is slow and is logged; the right token always works."""

from __future__ import annotations

import logging

import pytest

from schedo.errors import Overloaded
from schedo.web import token_throttle
from schedo.web.server import HttpServer
from schedo.web.token_throttle import TokenThrottle
from tests.web.connecting import open_connection
from tests.web.world import World, secured

TOKEN = "correct-horse-battery-staple-0123456789"
SECURED = secured(TOKEN)
RIGHT = [("authorization", f"Bearer {TOKEN}")]
WRONG = [("authorization", "Bearer guess")]


def refused(counted: TokenThrottle, address: str, now_s: float, times: int) -> int:
    """Return how many of the guesses must wait."""
    count = 0
    for _ in range(times):
        try:
            counted.count(address, now_s)
        except Overloaded:
            count += 1
    return count


def test_an_address_may_send_five_wrong_tokens_a_second() -> None:
    counted = TokenThrottle()

    assert refused(counted, "10.0.0.1", 100.0, 8) == 3
    assert refused(counted, "10.0.0.2", 100.0, 5) == 0
    assert refused(counted, "10.0.0.1", 100.4, 4) == 2
    assert refused(counted, "10.0.0.1", 200.0, 5) == 0


def test_wrong_tokens_of_one_ipv6_network_count_together() -> None:
    counted = TokenThrottle()

    assert refused(counted, "2001:db8::1", 0.0, 5) == 0
    assert refused(counted, "2001:db8::ffff:1", 0.0, 1) == 1
    assert refused(counted, "2001:db8:0:1::1", 0.0, 1) == 0
    assert refused(counted, "::ffff:10.0.0.1", 0.0, 5) == 0
    assert refused(counted, "10.0.0.1", 0.0, 1) == 1
    assert refused(counted, "fe80::1%eth0", 0.0, 6) == 1


def test_only_the_addresses_with_the_latest_wrong_tokens_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_throttle, "_ADDRESSES_MAX", 2)
    counted = TokenThrottle()
    for address in ("a", "b", "a", "c"):  # b is the one that was silent longest
        refused(counted, address, 0.0, 5)

    assert refused(counted, "a", 0.0, 1) == 1
    assert refused(counted, "b", 0.0, 5) == 0


def test_a_burst_of_wrong_tokens_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    counted = TokenThrottle()
    with caplog.at_level(logging.WARNING, "schedo.web"):
        for tick in range(100):
            refused(counted, "10.0.0.1", tick / 10, 5)
        refused(counted, "10.0.0.1", 60.0, 6)

    assert [record.getMessage() for record in caplog.records] == [
        "more than 5 wrong tokens a second come from 10.0.0.1"
    ] * 2


async def test_the_right_token_is_accepted_while_other_clients_send_wrong_ones() -> None:
    async with World(SECURED) as world:
        wrong = [await world.get("/v1/jobs", WRONG) for _ in range(50)]
        right = await world.get("/v1/jobs", RIGHT)
        without = await world.get("/v1/jobs")
        health = await world.get("/healthz", WRONG)

    assert [reply.status for reply in wrong[:5]] == [401] * 5
    assert (wrong[-1].status, wrong[-1].code) == (429, "overloaded")
    assert wrong[-1].headers["retry-after"] == "1"
    assert (right.status, without.status, health.status) == (200, 401, 200)


async def test_the_log_names_the_address_of_a_connection(caplog: pytest.LogCaptureFixture) -> None:
    request = b"GET /v1/jobs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer guess\r\n\r\n"
    server = HttpServer()
    async with World(SECURED) as world:
        port = await server.start(world.app, "127.0.0.1", 0)
        reader, writer = await open_connection(port)
        for _ in range(6):
            writer.write(request)
            await reader.readuntil(b'"request_id"')
        writer.close()
        await server.stop()

    (line,) = [record.getMessage() for record in caplog.records if record.name == "schedo.web"]
    assert line == "more than 5 wrong tokens a second come from 127.0.0.1"
