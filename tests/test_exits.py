"""The exit codes: the code, the help, README.md and the docs have the same table."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from schedo import serve
from schedo.cli.main import cli
from schedo.config import Config
from schedo.errors import (
    Exit,
    Overloaded,
    SchedoError,
    ServerBroken,
    StoreBroken,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreUnsuitable,
    Unavailable,
    exit_of_server,
)
from schedo.server.shutdown import Shutdown
from schedo.server.start import PLAIN_START
from schedo.systemd import take_sockets
from tests.sources import ROOT


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_the_documents_have_the_table_of_exit_codes(page: str) -> None:
    lines = (ROOT / page).read_text().splitlines()
    at = lines.index("| code | meaning |")

    table = lines[at + 2 : at + 2 + len(Exit)]

    assert table == [f"| {code.value} | {code.meaning} |" for code in Exit]


def test_the_help_lists_every_exit_code() -> None:
    text = " ".join(CliRunner().invoke(cli, ["--help"]).output.split())

    assert all(f"{code.value} {code.meaning}" in text for code in Exit)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreDamaged("x"), 65),
        (StoreBroken("x"), 70),
        (StoreFull("x"), 70),
        (StoreError("x"), 70),
        (ServerBroken("x"), 70),
        (StoreLocked("x"), 73),
        (StoreUnsuitable("x"), 78),
        (Unavailable("the port is taken"), 78),
        (OSError("no such address"), 78),
        (Overloaded("x"), 78),
    ],
    ids=repr,
)
def test_a_failed_server_exits_with_the_code_of_its_error(error: SchedoError, code: int) -> None:
    assert exit_of_server(error) == code


class Breaking:
    """A server whose store breaks while it begins to serve."""

    def __init__(self, *_: object) -> None:
        self.shutdown = Shutdown()
        self.workers = SimpleNamespace(stop_now=None)
        self.store = SimpleNamespace(path=None)
        self.has_left = False

    async def bind(self, _: object) -> None:
        """Bind nothing."""

    async def open(self) -> None:
        """Break, and wait for what does not come."""
        self.shutdown.fail(StoreBroken("it was replaced"))
        await asyncio.get_running_loop().create_future()

    async def leave(self) -> None:
        self.has_left = True


async def test_a_server_whose_store_breaks_while_it_starts_ends_with_the_code_of_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, config = Breaking(), Config()
    monkeypatch.setattr(serve, "Server", lambda *_: server)
    monkeypatch.setattr(serve, "handle_signals", lambda *_: None)

    code = await serve._serve(config, PLAIN_START, lambda: config, take_sockets({}), None)

    assert (code, server.has_left) == (Exit.BROKEN, True)
