"""The two interfaces of systemd: the sockets that it passes, and the messages that it expects.

Sockets (LISTEN_FDS, sd_listen_fds(3)) come from a socket unit, whose address then is the
server's, or from the descriptor store, in which the server keeps its own listener. Either way the
socket stays open when the server dies, so new connections wait for the next one instead of being
refused.

Messages (NOTIFY_SOCKET, sd_notify(3)) are datagrams of a few lines. Other supervisors speak both
interfaces, too. Without them nothing here does anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import NamedTuple

import msgspec

from schedo.config import Config
from schedo.config_checks import is_loopback
from schedo.errors import Invalid
from schedo.setting_values import UNIX, unix_path

STORED_NAME = "schedo-listener"
_FIRST = 3
_RETRY_S = 0.1


class Inherited(NamedTuple):
    """Listening sockets. is_stored: from the descriptor store, not from a socket unit."""

    sockets: Sequence[socket.socket] = ()
    is_stored: bool = False

    def settle(self, config: Config) -> Config:
        """Return the settings with the address of a socket unit, which comes before host and port.

        So the rules about addresses, such as the token that one off loopback needs, hold for it.
        """
        if self.is_stored or not self.sockets:
            return config
        addresses = [_address(sock) for sock in self.sockets]
        reachable = [each for each in addresses if not is_loopback(each[0])]
        host, port = (reachable or addresses)[0]
        sources = config.sources | dict.fromkeys(("host", "port"), "the socket of systemd")
        if unix_path(host) is not None:
            del sources["port"]  # it has none
        return msgspec.structs.replace(config, host=host, port=port, sources=sources)

    def choose(self, host: str, port: int) -> Sequence[socket.socket]:
        """Return the sockets to listen on; close stored ones whose address is no longer set."""
        if not self.is_stored or {_address(each) for each in self.sockets} == _find(host, port):
            return self.sockets
        for sock in self.sockets:
            sock.close()
        return ()


def _address(sock: socket.socket) -> tuple[str, int]:
    """Return the host and the port of a socket, as the settings have them."""
    name = sock.getsockname()
    return (UNIX + os.fsdecode(name), 0) if sock.family == socket.AF_UNIX else (name[0], name[1])


def _find(host: str, port: int) -> set[tuple[str, int]]:
    """Return the hosts and ports of the sockets that the settings mean."""
    if unix_path(host) is not None:
        return {(host, 0)}
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return {(str(each[4][0]), int(each[4][1])) for each in found}


def take_sockets(environ: MutableMapping[str, str]) -> Inherited:
    """Return the sockets for this process, and remove the variables: no child shall take them.

    Raise Invalid if one of them is not a listening stream socket.
    """
    given = {name: environ.pop(name, "") for name in ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES")}
    if given["LISTEN_PID"] != str(os.getpid()) or not given["LISTEN_FDS"].isdecimal():
        return Inherited()
    names = given["LISTEN_FDNAMES"].split(":")
    stored: list[socket.socket] = []
    from_unit: list[socket.socket] = []
    for position in range(int(given["LISTEN_FDS"])):
        sock = _take_socket(_FIRST + position)
        is_stored = position < len(names) and names[position] == STORED_NAME
        (stored if is_stored else from_unit).append(sock)
    if from_unit:
        for sock in stored:
            sock.close()
        return Inherited(from_unit)
    return Inherited(stored, is_stored=True)


def _take_socket(descriptor: int) -> socket.socket:
    try:
        os.set_inheritable(descriptor, False)
        sock = socket.socket(fileno=descriptor)
    except OSError as error:
        raise _unusable(descriptor, error.strerror) from None
    families = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
    if sock.family not in families or sock.type != socket.SOCK_STREAM:
        raise _unusable(descriptor, f"it is {sock.family.name}, {sock.type.name}")
    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise _unusable(descriptor, "it does not listen, or the unit has Accept=yes")
    sock.setblocking(False)
    return sock


def _unusable(descriptor: int, reason: str | None) -> Invalid:
    return Invalid(
        f"LISTEN_FDS: descriptor {descriptor} is not a listening stream socket ({reason});"
        " the socket unit needs ListenStream= with a port or a path"
    )


class Notifier:
    """Sends messages to the supervisor, if there is one; a lost one is no error of the server."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        interval = environ.get("WATCHDOG_USEC", "")
        # WATCHDOG_PID is the first process of the service; after an upgrade it is another one.
        self._interval_s = int(interval) / 2_000_000 if interval.isdecimal() else 0.0
        self._feeding: asyncio.TimerHandle | None = None
        self._unsent: deque[tuple[bytes, Sequence[socket.socket]]] = deque()

    def send(self, *fields: str, sockets: Sequence[socket.socket] = ()) -> None:
        """Send the fields, such as READY=1, and the sockets, which stay open.

        It never waits. If the supervisor does not read, the running loop sends them later.
        """
        if not self._address:
            return
        self._unsent.append(("\n".join(fields).encode(), sockets))
        if len(self._unsent) == 1:
            self._send_all()

    def _send_all(self) -> None:
        while self._unsent:
            try:
                self._send_first()
            except BlockingIOError:
                asyncio.get_running_loop().call_later(_RETRY_S, self._send_all)
                return
            except OSError:
                self._unsent.clear()
                return
            self._unsent.popleft()

    def _send_first(self) -> None:
        text, sockets = self._unsent[0]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.connect(self._address)
            socket.send_fds(sender, [text], [sock.fileno() for sock in sockets])

    def store(self, sockets: Sequence[socket.socket]) -> None:
        """Keep the listener in the descriptor store, if the service has one, instead of others."""
        self.send("FDSTOREREMOVE=1", f"FDNAME={STORED_NAME}")
        self.send("FDSTORE=1", f"FDNAME={STORED_NAME}", sockets=sockets)

    def feed_watchdog(self) -> None:
        """Report from the running loop, twice an interval, that it turns."""
        if self._interval_s:
            self.send("WATCHDOG=1")
            loop = asyncio.get_running_loop()
            self._feeding = loop.call_later(self._interval_s, self.feed_watchdog)

    def leave_watchdog(self) -> None:
        """Report nothing of the running loop any more: another process is the main one now."""
        if self._feeding is not None:
            self._feeding.cancel()

    @contextlib.contextmanager
    def reloading(self) -> Iterator[None]:
        """Report a reload of the settings while the block runs."""
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000
        self.send("RELOADING=1", f"MONOTONIC_USEC={now_us}")
        try:
            yield
        finally:
            self.send("READY=1")
