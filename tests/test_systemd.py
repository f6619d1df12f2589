"""The sockets that systemd passes, and the messages that it gets."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from schedo.config import Config
from schedo.config_checks import check_config
from schedo.errors import Invalid
from schedo.systemd import STORED_NAME, Inherited, Notifier, take_sockets

MORE_THAN_A_SOCKET_HOLDS = int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text()) + 20


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def port_of(sock: socket.socket) -> int:
    return int(sock.getsockname()[1])


def test_without_variables_there_are_no_sockets() -> None:
    assert take_sockets({}) == Inherited()


@pytest.mark.parametrize(
    "environ",
    [
        {"LISTEN_FDS": "1", "LISTEN_PID": "1"},
        {"LISTEN_FDS": "1"},
        {"LISTEN_FDS": "", "LISTEN_PID": str(os.getpid())},
        {"LISTEN_FDS": "x", "LISTEN_PID": str(os.getpid())},
    ],
    ids=["of another process", "without a process", "empty", "not a number"],
)
def test_variables_for_another_process_are_removed_and_ignored(environ: dict[str, str]) -> None:
    assert take_sockets(environ) == Inherited()
    assert environ == {}


def test_the_address_of_a_socket_unit_comes_before_host_and_port(listener: socket.socket) -> None:
    settings = Inherited([listener]).settle(Config(host="127.0.0.2", port=1))

    assert (settings.host, settings.port) == ("127.0.0.1", port_of(listener))
    assert settings.sources["port"] == "the socket of systemd"


def test_a_socket_that_other_machines_reach_needs_a_token(listener: socket.socket) -> None:
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        settings = Inherited([listener, everywhere]).settle(Config())

        with pytest.raises(Invalid, match=r"the socket of systemd.*without a token"):
            check_config(settings)


def test_a_unix_socket_of_a_unit_needs_no_token(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "api.sock"))

        settings = Inherited([local]).settle(Config(host="127.0.0.2"))

        assert settings.host == f"unix:{tmp_path}/api.sock"
        check_config(settings)


def test_a_stored_unix_socket_is_used_if_its_path_is_set(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "api.sock"))
        inherited = Inherited([local], is_stored=True)

        assert inherited.choose(f"unix:{tmp_path}/api.sock", 8080) == [local]
        assert inherited.choose(f"unix:{tmp_path}/other.sock", 8080) == ()


def test_without_a_socket_unit_the_settings_stay(listener: socket.socket) -> None:
    config = Config(port=7)

    assert Inherited().settle(config) is config
    assert Inherited([listener], is_stored=True).settle(config) is config


def test_a_stored_listener_is_used_if_its_address_is_set(listener: socket.socket) -> None:
    inherited = Inherited([listener], is_stored=True)

    assert inherited.choose("127.0.0.1", port_of(listener)) == [listener]


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 1), ("127.0.0.2", None)])
def test_a_stored_listener_of_an_earlier_address_is_closed(host: str, port: int | None) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    inherited = Inherited([listener], is_stored=True)

    assert not inherited.choose(host, port or port_of(listener))
    assert listener.fileno() == -1


class Receiver:
    """The other end of NOTIFY_SOCKET."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        self._socket.setblocking(False)

    def receive(self) -> tuple[str, list[int]]:
        data, fds, _, _ = socket.recv_fds(self._socket, 4_096, 16)
        return data.decode(), fds

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    receiver = Receiver(str(tmp_path / "notify"))
    yield receiver
    receiver.close()


@pytest.fixture
def notifier(tmp_path: Path, receiver: Receiver) -> Notifier:
    return Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "20000"})


def test_a_message_has_a_line_for_each_field(notifier: Notifier, receiver: Receiver) -> None:
    notifier.send("MAINPID=7", "READY=1")

    assert receiver.receive() == ("MAINPID=7\nREADY=1", [])


def test_an_abstract_address_begins_with_at() -> None:
    receiver = Receiver(f"\0schedo-{os.getpid()}")
    Notifier({"NOTIFY_SOCKET": f"@schedo-{os.getpid()}"}).send("READY=1")

    assert receiver.receive() == ("READY=1", [])
    receiver.close()


def test_a_message_that_cannot_be_sent_is_no_error(tmp_path: Path) -> None:
    Notifier({}).send("READY=1")
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "missing")}).send("READY=1")


def test_the_listener_replaces_the_one_in_the_store(
    notifier: Notifier, receiver: Receiver, listener: socket.socket
) -> None:
    notifier.store([listener])

    assert receiver.receive() == (f"FDSTOREREMOVE=1\nFDNAME={STORED_NAME}", [])
    text, fds = receiver.receive()
    assert text == f"FDSTORE=1\nFDNAME={STORED_NAME}"
    assert ports_of(fds) == [port_of(listener)]


def ports_of(fds: Sequence[int]) -> list[int]:
    ports = []
    for fd in fds:
        with socket.socket(fileno=fd) as sock:
            ports.append(port_of(sock))
    return ports


def test_a_reload_ends_with_ready_even_if_it_fails(notifier: Notifier, receiver: Receiver) -> None:
    with pytest.raises(ValueError, match="bad"), notifier.reloading():
        raise ValueError("bad")

    assert receiver.receive()[0].startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert receiver.receive()[0] == "READY=1"


async def test_messages_wait_in_their_order_while_the_supervisor_reads_none(
    notifier: Notifier, receiver: Receiver
) -> None:
    count = MORE_THAN_A_SOCKET_HOLDS
    for number in range(count):
        notifier.send(f"STATUS={number}")
    received: list[str] = []
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def receive() -> None:
        received.append(receiver.receive()[0])
        if len(received) == count:
            done.set_result(None)

    loop.add_reader(receiver.fileno(), receive)
    await done
    loop.remove_reader(receiver.fileno())

    assert received == [f"STATUS={number}" for number in range(count)]


async def test_the_watchdog_is_fed_again_and_again(notifier: Notifier, receiver: Receiver) -> None:
    received = asyncio.Event()
    texts: list[str] = []

    def receive() -> None:
        texts.append(receiver.receive()[0])
        if len(texts) == 3:
            received.set()

    loop = asyncio.get_running_loop()
    loop.add_reader(receiver.fileno(), receive)
    notifier.feed_watchdog()
    await received.wait()
    loop.remove_reader(receiver.fileno())

    assert set(texts) == {"WATCHDOG=1"}


async def test_without_a_watchdog_nothing_is_sent(tmp_path: Path, receiver: Receiver) -> None:
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")}).feed_watchdog()

    with pytest.raises(BlockingIOError):
        receiver.receive()


def test_settled_settings_are_settings_that_can_be_replaced(listener: socket.socket) -> None:
    settings = Inherited([listener]).settle(Config())

    assert msgspec.structs.replace(settings, port=2).port == 2
