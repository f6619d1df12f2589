"""The listening sockets that one server gives to the next."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Self

from schedo.handover.messages import BadMessage, Listeners


def describe_addresses(sockets: Iterable[socket.socket]) -> list[str]:
    """Return the addresses of listening sockets, as "127.0.0.1:8080" and "[::1]:8080"."""
    return [describe_address(sock.family, sock.getsockname()) for sock in sockets]


def describe_address(family: int, address: Sequence[object] | str | bytes) -> str:
    """Return an address as "127.0.0.1:8080", "[::1]:8080" or "unix:/run/schedo/api.sock"."""
    if isinstance(address, str | bytes):  # bytes: a name outside of the file system
        return f"unix:{os.fsdecode(address)}"
    host, port = str(address[0]), address[1]
    return f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}"


class ListenerPair(NamedTuple):
    """The listening sockets of one server: for HTTP, and for gRPC if it has that."""

    http: Sequence[socket.socket] = ()
    grpc: Sequence[socket.socket] = ()

    def pass_by(
        self, send: Callable[[Listeners, Sequence[int]], None], *, takes_grpc: bool
    ) -> None:
        """Send them to a process; takes_grpc: as in its Hello."""
        grpc = self.grpc if takes_grpc else ()
        message = Listeners(describe_addresses(self.http), describe_addresses(grpc))
        send(message, [sock.fileno() for sock in (*self.http, *grpc)])

    @classmethod
    def take(cls, message: Listeners, descriptors: list[int]) -> Self:
        """Return those that came with the message; raise as take_listeners."""
        sockets = take_listeners(descriptors)
        count = len(sockets) - len(message.grpc)
        return cls(sockets[:count], sockets[count:])

    def close(self) -> None:
        """Close all of them; other processes that have them keep them open."""
        close_sockets([*self.http, *self.grpc])


def take_listeners(descriptors: list[int]) -> list[socket.socket]:
    """Return the listening sockets with these descriptors, which they own from now on.

    Raise BadMessage if one of them is no such socket; then all are closed.
    """
    sockets: list[socket.socket] = []
    try:
        for descriptor in descriptors:
            sockets.append(socket.socket(fileno=descriptor))
            _check_listening(sockets[-1])
    except (OSError, BadMessage):
        close_sockets(sockets)
        for descriptor in descriptors[len(sockets) :]:
            os.close(descriptor)
        raise BadMessage("a descriptor that the server sent is no listening socket") from None
    return sockets


def take_stream(descriptors: list[int]) -> socket.socket:
    """Return the Unix stream socket with this descriptor, which it owns from now on.

    Raise BadMessage if there is no such socket, or not only one; then all are closed.
    """
    sockets: list[socket.socket] = []
    try:
        for descriptor in descriptors:
            sockets.append(socket.socket(fileno=descriptor))
    except OSError:
        for descriptor in descriptors[len(sockets) :]:
            os.close(descriptor)
    if len(sockets) == len(descriptors) == 1:
        (sock,) = sockets
        if (sock.family, sock.type) == (socket.AF_UNIX, socket.SOCK_STREAM):
            return sock
    close_sockets(sockets)
    raise BadMessage("beside a ServeHttp there is one stream socket, and nothing else")


def close_sockets(sockets: Iterable[socket.socket]) -> None:
    """Close the sockets; other processes that have them keep them open."""
    for sock in sockets:
        sock.close()


def _check_listening(sock: socket.socket) -> None:
    is_listening = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    families = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
    if sock.family not in families or sock.type != socket.SOCK_STREAM or not is_listening:
        raise BadMessage("it does not listen for connections of clients")
