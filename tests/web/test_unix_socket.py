"""The file of a Unix socket: only that of a server that has ended is replaced."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest

from schedo.errors import Invalid, Unavailable
from schedo.web.server import HttpServer
from schedo.web.unix_socket import bind_unix, listen_at
from tests.web.connecting import HEAD, respond
from tests.web.world import World


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "api.sock")


@pytest.mark.parametrize("mode", [0o600, 0o660])
def test_the_file_has_the_permissions_of_the_setting(path: str, mode: int) -> None:
    with bind_unix(path, mode):
        assert stat.S_IMODE(os.stat(path).st_mode) == mode


def test_the_socket_of_a_server_that_has_ended_is_replaced(path: str) -> None:
    bind_unix(path, 0o600).close()
    with pytest.raises(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as client:
        client.connect(path)

    with bind_unix(path, 0o600), socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def test_the_socket_of_a_server_that_listens_is_left_alone(path: str) -> None:
    with bind_unix(path, 0o600), socket.socket(socket.AF_UNIX) as client:
        with pytest.raises(Unavailable, match=f"another server listens at unix:{path}"):
            bind_unix(path, 0o600)

        client.connect(path)


def test_the_socket_of_a_server_that_accepts_nothing_now_is_left_alone(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as client:
        busy.bind(path)
        busy.listen(0)
        client.connect(path)

        with pytest.raises(Unavailable):
            bind_unix(path, 0o600)


def test_a_socket_that_the_server_before_has_left_is_used(path: str) -> None:
    with bind_unix(path, 0o600) as left, socket.create_server(("127.0.0.1", 0)) as port:
        assert listen_at(path, 0o600, [left, port]) == [left, port]
        assert listen_at(f"{path}.other", 0o600, [left, port]) == [left, port]


def test_a_left_socket_whose_file_was_removed_is_replaced(path: str) -> None:
    with bind_unix(path, 0o600) as left, socket.create_server(("127.0.0.1", 0)) as port:
        os.unlink(path)

        made, other = listen_at(path, 0o660, [left, port])

        assert (other, left.fileno()) == (port, -1)
        with made, socket.socket(socket.AF_UNIX) as client:
            client.connect(path)


def test_a_left_socket_stays_if_its_file_cannot_be_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "run"
    place.mkdir()
    with bind_unix(f"{place}/api.sock", 0o600) as left:
        (place / "api.sock").unlink()
        place.rmdir()

        assert listen_at(f"{place}/api.sock", 0o600, [left]) == [left]

    assert f"no client finds this server: host = 'unix:{place}/api.sock'" in caplog.text
    with pytest.raises(Invalid, match="does not exist"):
        listen_at(f"{place}/api.sock", 0o600, [])


def test_another_file_is_left_alone(path: str) -> None:
    Path(path).write_text("mine")

    with pytest.raises(Invalid, match="there is a file that is not a socket"):
        bind_unix(path, 0o600)

    assert Path(path).read_text() == "mine"


async def test_the_file_stays_when_the_server_ends_for_the_next_one(
    world: World, path: str
) -> None:
    server = HttpServer()
    assert await server.listen(world.app, [bind_unix(path, 0o600)]) == 0
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(HEAD + b"\r\n")
    assert (await respond(reader))[0] == 200
    writer.close()

    await server.stop(grace_s=0.2)

    assert stat.S_ISSOCK(os.stat(path).st_mode)


@pytest.mark.parametrize(
    ("directory", "why"),
    [
        ("gone", "the directory .*/gone does not exist; create it, or give another path"),
        ("file", "/file is not a directory"),
    ],
)
def test_a_path_without_its_directory_is_an_error_that_names_it(
    tmp_path: Path, directory: str, why: str
) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(Invalid, match=f"^host = 'unix:.*/api.sock': .*{why}$"):
        bind_unix(str(tmp_path / directory / "api.sock"), 0o600)
