"""Where a server cannot be replaced, `schedo upgrade` says why and starts nothing."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schedo.config import Config
from schedo.core.limits import SECOND
from schedo.handover.command import Command
from schedo.handover.messages import UpgradeFailed
from schedo.protocol.query import WAIT_US_MAX
from schedo.server import replaced, to_standby, upgrade
from schedo.server.server import Server
from schedo.server.start import Start
from schedo.web import holding

COMMAND = Command(["/no/such/program"], {}, "/")


def make_server(path: Path, **start: object) -> Server:
    fields = {"command": COMMAND, **start}
    config = Config(store=str(path / "jobs.db"))
    return Server(config, Start(**fields), lambda: config)  # type: ignore[arg-type]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = make_server(tmp_path)
    yield server
    await server.leave()


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ({"has_test_clock": True}, "--test-clock"),
        ({"is_reloading": True}, "--reload"),
        ({"command": None}, "does not know how it was started"),
    ],
)
async def test_some_servers_cannot_be_replaced(
    tmp_path: Path, start: dict[str, object], reason: str
) -> None:
    server = make_server(tmp_path, **start)

    with pytest.raises(UpgradeFailed, match=reason):
        await server.upgrades.run(1.0)
    await server.leave()


async def test_a_store_in_memory_cannot_be_passed() -> None:
    config = Config(store=":memory:")
    server = Server(config, Start(command=COMMAND), lambda: config)

    with pytest.raises(UpgradeFailed, match="this one is :memory:"):
        await server.upgrades.run(1.0)
    await server.leave()


async def test_the_first_process_of_a_container_cannot_be_replaced(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)

    with pytest.raises(UpgradeFailed, match="first one of its container"):
        await server.upgrades.run(1.0)


async def test_a_server_that_stops_is_not_replaced(server: Server) -> None:
    server.shutdown.request()

    with pytest.raises(UpgradeFailed, match="stopping"):
        await server.upgrades.run(1.0)


async def test_a_program_that_is_gone_is_the_reason_and_the_log_has_it(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UpgradeFailed, match=r"cannot be started: .*No such file"):
        await server.upgrades.run(1.0)

    assert (
        "No such file or directory: '/no/such/program'; this process was not replaced"
        in caplog.text
    )


def test_what_only_one_start_does_is_not_repeated() -> None:
    arguments = ["python", "-m", "schedo", "serve", "--resume", "--accept-loss", "--port", "1"]

    command = Command.of_this_process(arguments, "/usr/bin/python3", {"PWD": "/nowhere", "A": "b"})

    assert command.arguments == ["/usr/bin/python3", "-m", "schedo", "serve", "--port", "1"]
    assert command.environment == {"PWD": "/nowhere", "A": "b"}
    assert command.directory == os.getcwd()


def test_the_directory_keeps_the_name_that_the_shell_has_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "release").mkdir()
    (tmp_path / "current").symlink_to(tmp_path / "release")
    monkeypatch.chdir(tmp_path / "current")

    command = Command.of_this_process(["python"], "python", {"PWD": str(tmp_path / "current")})

    assert command.directory == str(tmp_path / "current")


def test_a_request_waits_for_longer_than_a_new_process_may_hang() -> None:
    assert holding.HELD_S > upgrade.ACTIVE_S + 1
    assert holding.HELD_S > to_standby.ACTIVE_S + 1


def test_an_old_process_forwards_the_longest_wait_to_its_end() -> None:
    assert replaced.CONNECTIONS_S * SECOND > WAIT_US_MAX
