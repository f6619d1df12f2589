"""`schedo open`: the address of the page, with a one-time link if the server needs a token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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


def open_here(server: FakeServer, browser: Path | None) -> subprocess.CompletedProcess[str]:
    """Run the command as a user of a machine with this browser, or without any."""
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    return subprocess.run(
        [sys.executable, "-m", "schedo", "open", "--url", server.url],
        env=environment if browser is None else environment | {"BROWSER": f"{browser} %s"},
        capture_output=True,
        text=True,
        check=True,
    )


def test_a_browser_gets_the_link(server: FakeServer, tmp_path: Path) -> None:
    server.on("GET", "/v1/me", 200, {"access": "token"})
    server.on("POST", "/v1/session:link", 201, LINK)
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)

    assert open_here(server, browser).stdout == ""
    assert (tmp_path / "opened").read_text() == f"{server.url}/login#link=abc\n"


@pytest.mark.parametrize(
    ("access", "place", "within"),
    [("open", "/", ""), ("token", "/login#link=abc", " within a minute")],
)
def test_a_machine_without_a_browser_shows_the_link(
    server: FakeServer, access: str, place: str, within: str
) -> None:
    server.on("GET", "/v1/me", 200, {"access": access})
    server.on("POST", "/v1/session:link", 201, LINK)

    result = open_here(server, None)

    assert result.stdout == f"{server.url}{place}\n"
    assert result.stderr == f"There is no browser here. Open this in one{within}:\n"
