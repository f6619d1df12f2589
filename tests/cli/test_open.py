"""`schedo open`: the address of the page, with a one-time link if the server needs a token."""

from __future__ import annotations

import json

import click
import pytest

from tests.cli.conftest import Call
from tests.client.server import FakeServer

LINK = {"link": "abc", "expires_at": "2026-11-20T11:05:05Z"}


@pytest.mark.parametrize("access", ["open", "anonymous", "none"])
def test_without_a_token_it_opens_the_page(server: FakeServer, schedo: Call, access: str) -> None:
    server.on("GET", "/v1/me", 200, {"access": access})

    assert schedo("open", "--print").stdout == f"{server.url}/\n"


def test_with_a_token_the_link_logs_in(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/me", 200, {"access": "token"})
    server.on("POST", "/v1/session:link", 201, LINK)

    url = f"{server.url}/login#link=abc"
    assert schedo("open", "--print").stdout == f"{url}\n"
    made = json.loads(schedo("open", "--json").stdout)
    assert made == {"url": url, "expires_at": LINK["expires_at"]}


@pytest.mark.parametrize("status", [0, 1])
def test_a_machine_without_a_browser_shows_the_link(
    server: FakeServer, schedo: Call, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    server.on("GET", "/v1/me", 200, {"access": "open"})
    opened: list[str] = []

    def launch(url: str) -> int:
        opened.append(url)
        return status

    monkeypatch.setattr(click, "launch", launch)

    result = schedo("open")

    assert opened == [f"{server.url}/"]
    assert result.stdout == ("" if status == 0 else f"{server.url}/\n")
