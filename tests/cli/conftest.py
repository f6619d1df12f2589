"""Runs the command line in this process against an HTTP server with prepared responses."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from schedo.cli.main import cli
from tests.client.server import FakeServer, fake_server

Call = Callable[..., Result]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as running:
        yield running


@pytest.fixture
def schedo(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run schedo with these arguments; SCHEDO_URL is the server's."""
    for name in ("SCHEDO_TOKEN", "SCHEDO_TOKEN_FILE", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SCHEDO_URL", server.url)
    monkeypatch.setenv("TZ", "UTC")

    def call(*args: str, **options: str) -> Result:
        return CliRunner().invoke(cli, args, prog_name="schedo", **options)  # type: ignore[arg-type]

    return call


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT end this process and its children; a shell starts background ones without it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
