"""The control socket: what a client gets, and how little a hostile one achieves."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from schedo.errors import SchedoError
from schedo.handover import socket_file
from schedo.handover.client import connected, introduce, read_status
from schedo.handover.control import LINKS_MAX, Control
from schedo.handover.link import Link, LinkLost, close_all
from schedo.handover.listeners import ListenerPair, close_sockets, take_listeners
from schedo.handover.messages import (
    DESCRIPTORS_MAX,
    MESSAGE_BYTES_MAX,
    BadMessage,
    GetListeners,
    Hello,
    Listeners,
    Ping,
    Pong,
    Refused,
    encode,
)
from schedo.server.control import ControlSocket
from tests.handover.active import SCHEMA, FakeActive, Served, make_status, open_descriptors, serving

HELLO = Hello(role="observer", version="1.0", schema=SCHEMA, pid=1)


def raw(served: Served) -> socket.socket:
    """Return a client that sends what it likes and waits for responses."""
    sock = socket_file.connect(served.control_path)
    sock.setblocking(False)
    return sock


async def response(sock: socket.socket) -> bytes:
    """Return what the server sends, or nothing if it closes the connection."""
    async with asyncio.timeout(10):
        return await asyncio.get_running_loop().sock_recv(sock, MESSAGE_BYTES_MAX)


async def refusal(sock: socket.socket) -> str:
    """Return the reason, after which the server closes the connection."""
    with sock:
        text = await response(sock)
        assert await response(sock) == b""
    assert b'"type":"refused"' in text
    return text.decode()


async def test_an_observer_gets_the_status_with_each_standby(served: Served) -> None:
    async with connected(served.control_path) as link:
        await introduce(link, "standby", SCHEMA)
        link.send(make_status(is_warm=True, warmed_ms=12.5))

        status = await read_status(served.control_path)

    assert status.epoch == 3
    assert [(each.is_warm, each.warmed_ms) for each in status.standbys] == [(True, 12.5)]


async def test_a_standby_gets_the_very_listener_and_may_outlive_the_server(served: Served) -> None:
    async with connected(served.control_path) as link:
        await introduce(link, "standby", SCHEMA)
        link.send(GetListeners())
        message, descriptors = await link.expect_descriptors(Listeners)
    sockets = take_listeners(descriptors)
    address = served.active.sockets[0].getsockname()
    client = socket.create_connection(address)
    close_sockets(served.active.sockets)

    accepted, _ = sockets[0].accept()  # the connection waited in the queue of the listener
    accepted.close()
    client.close()

    assert message.addresses == [f"127.0.0.1:{address[1]}"]
    assert not os.get_inheritable(sockets[0].fileno())
    close_sockets(sockets)


async def test_a_standby_can_tell_the_listeners_of_grpc_from_the_others(served: Served) -> None:
    grpc = socket.create_server(("127.0.0.1", 0))
    served.active.grpc_sockets.append(grpc)
    async with connected(served.control_path) as link:
        await introduce(link, "standby", SCHEMA)
        link.send(GetListeners(takes_grpc=True))
        pair = ListenerPair.take(*await link.expect_descriptors(Listeners))
        link.send(GetListeners())  # as a version before gRPC does
        older = ListenerPair.take(*await link.expect_descriptors(Listeners))

    http_address = served.active.sockets[0].getsockname()
    found = [[sock.getsockname() for sock in sockets] for sockets in (*pair, *older)]
    assert found == [[http_address], [grpc.getsockname()], [http_address], []]
    pair.close()
    older.close()


async def test_the_active_server_knows_how_many_standbys_there_are(served: Served) -> None:
    async with connected(served.control_path) as first:
        await introduce(first, "standby", SCHEMA)
        async with connected(served.control_path) as second:
            await introduce(second, "standby", SCHEMA)
    await served.socket.close()

    assert served.active.counts == [1, 2, 1, 0]


async def test_a_ping_is_answered_with_its_number(served: Served) -> None:
    async with connected(served.control_path) as link:
        await introduce(link, "observer", SCHEMA)
        link.send(Ping(41))

        assert await link.expect(Pong) == Pong(41)


async def test_a_standby_that_cannot_open_the_store_is_refused(served: Served) -> None:
    with pytest.raises(BadMessage, match="it knows schema 6, and the store needs 7"):
        async with connected(served.control_path) as link:
            await introduce(link, "standby", SCHEMA - 1)

    assert served.active.counts == []


async def test_another_version_of_the_protocol_is_refused(served: Served) -> None:
    hello = Hello(protocol=9, role="standby", version="2.0", schema=SCHEMA, pid=1)
    with raw(served) as sock:
        sock.send(encode(hello))

        assert "speaks version 9 of the control socket" in await refusal(sock)


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"{}",
        b"null",
        b'{"type":"hello"}',
        b'{"type":"ping","number":1}',  # before the introduction
        encode(HELLO)[:-1],
        b'{"type":"hello","role":"king","version":"1","schema":1,"pid":1}',
        b"\xff" * 100,
        b"[" * 10_000,
    ],
)
async def test_what_is_no_introduction_is_refused(served: Served, data: bytes) -> None:
    sock = raw(served)
    sock.send(data)

    await refusal(sock)

    assert (await read_status(served.control_path)).epoch == 3


async def test_a_message_that_is_too_long_is_refused(served: Served) -> None:
    sock = raw(served)
    sock.send(b"x" * (MESSAGE_BYTES_MAX + 1))

    assert "too long" in await refusal(sock)


@pytest.mark.parametrize("count", [1, DESCRIPTORS_MAX, DESCRIPTORS_MAX + 1, 100])
async def test_stray_descriptors_are_closed(served: Served, count: int) -> None:
    sock = raw(served)
    stray = os.memfd_create("stray")
    socket.send_fds(sock, [encode(HELLO)], [stray] * count)
    os.close(stray)

    assert "descriptors" in await refusal(sock)
    assert not [name for name in open_descriptors() if "stray" in name]


async def test_descriptors_without_a_message_are_closed(served: Served) -> None:
    sock = raw(served)
    stray = os.memfd_create("stray")
    sock.sendmsg([b""], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", stray))])
    os.close(stray)

    assert await response(sock) == b""
    sock.close()
    assert not [name for name in open_descriptors() if "stray" in name]


async def test_an_observer_gets_no_listener(served: Served) -> None:
    sock = raw(served)
    sock.send(encode(HELLO))
    await response(sock)
    sock.send(encode(GetListeners()))

    assert "only a standby" in await refusal(sock)


async def test_an_observer_is_no_standby(served: Served) -> None:
    sock = raw(served)
    sock.send(encode(HELLO))
    await response(sock)
    sock.send(encode(make_status()))

    assert "only a standby" in await refusal(sock)


async def test_one_connection_too_many_is_closed(served: Served) -> None:
    socks = [raw(served) for _ in range(LINKS_MAX)]
    for sock in socks:
        sock.send(encode(HELLO))
        await response(sock)
    with raw(served) as last:
        assert await response(last) == b""

    for sock in socks:
        sock.close()


async def send_without_end(sock: socket.socket) -> None:
    while True:
        await asyncio.get_running_loop().sock_sendall(sock, encode(Ping(1)))


async def test_a_client_that_reads_nothing_is_dropped(served: Served) -> None:
    sock = raw(served)
    sock.send(encode(HELLO))
    await response(sock)

    with pytest.raises(ConnectionError):
        await send_without_end(sock)
    sock.close()


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let the process open nothing more during the block."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(int(name.split()[0]) for name in open_descriptors())
    resource.setrlimit(resource.RLIMIT_NOFILE, (most + 1, limits[1]))
    fillers = []
    with suppress(OSError):
        while True:
            fillers.append(os.dup(0))
    try:
        yield
    finally:
        close_all(fillers)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_without_a_free_descriptor_a_client_waits(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedo.server.control._PAUSE_S", 0.001)
    sock = raw(served)
    sock.send(encode(HELLO))
    with no_descriptor_left():
        for _ in range(10):
            await asyncio.to_thread(os.sched_yield)

    assert b'"type":"welcome"' in await response(sock)
    sock.close()


async def test_the_client_closes_what_it_did_not_expect(served: Served) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link = Link(ours)
    stray = os.memfd_create("stray")
    socket.send_fds(theirs, [encode(Pong(1))], [stray])
    os.close(stray)
    with pytest.raises(BadMessage, match="Pong does not belong here"):
        await link.expect_descriptors(Listeners)
    assert not [name for name in open_descriptors() if "stray" in name]
    link.close()
    theirs.close()


async def test_a_descriptor_that_is_no_listener_is_refused_and_closed() -> None:
    first, second = os.pipe()
    others = socket.socketpair()
    before = open_descriptors()
    for stray in (first, others[0].fileno()):
        with pytest.raises(BadMessage, match="no listening socket"):
            take_listeners([os.dup(stray), os.dup(second)])
    assert open_descriptors() <= before
    close_all([first, second])
    for each in others:
        each.close()


async def test_closing_a_link_ends_its_receive() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link = Link(ours)
    receiving = asyncio.create_task(link.receive())
    theirs.close()
    with pytest.raises(LinkLost):
        await receiving
    link.close()
    link.close()


async def test_a_refusal_is_the_reason_of_the_error() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link = Link(ours)
    theirs.send(encode(Refused("go away")))
    with pytest.raises(BadMessage, match=r"^go away$"):
        await link.expect(Pong)
    link.close()
    theirs.close()


# The file.


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


async def test_only_the_user_can_open_the_socket(served: Served) -> None:
    assert mode_of(served.control_path) == 0o600


async def test_the_socket_of_a_dead_server_is_replaced(tmp_path: Path) -> None:
    left = socket_file.listen(f"{tmp_path}/jobs.db.ctl")
    left.close()
    with FakeActive() as active:
        async with serving(active, tmp_path / "jobs.db") as served:
            assert (await read_status(served.control_path)).epoch == 3

    assert os.listdir(tmp_path) == []


async def test_another_file_in_its_place_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "jobs.db.ctl").write_text("mine")
    with FakeActive() as active:
        async with serving(active, tmp_path / "jobs.db"):
            pass

    assert (tmp_path / "jobs.db.ctl").read_text() == "mine"
    assert "that is not a socket" in caplog.text


async def test_a_long_directory_is_no_obstacle(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 100) / ("e" * 100)
    directory.mkdir(parents=True)
    with FakeActive() as active:
        async with serving(active, directory / "jobs.db") as served:
            assert (await read_status(served.control_path)).epoch == 3


async def test_a_long_name_leaves_the_server_without_the_socket(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / ("n" * 120)
    with FakeActive() as active:
        async with serving(active, path):
            pass
    with pytest.raises(SchedoError, match="too long"):
        socket_file.connect(f"{path}.ctl")

    assert "this server has no standby" in caplog.text


async def test_a_store_in_memory_has_no_control_socket() -> None:
    with FakeActive() as active:
        control = ControlSocket(lambda: Control(active), None)
        before = open_descriptors()

        control.open()

        assert open_descriptors() == before
        await control.close()


async def test_without_a_server_the_error_names_the_socket(tmp_path: Path) -> None:
    with pytest.raises(LinkLost, match=r"no server answers at .*jobs\.db\.ctl"):
        await read_status(f"{tmp_path}/jobs.db.ctl")
