"""The listening sockets that one server gives to the next."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence

from schedo.handover.messages import BadMessage


def describe_addresses(sockets: Iterable[socket.socket]) -> list[str]:
    """Return the addresses of listening sockets, as "127.0.0.1:8080" and "[::1]:8080"."""
    return [describe_address(sock.family, sock.getsockname()) for sock in sockets]


def describe_address(family: int, address: Sequence[object] | str | bytes) -> str:
    """Return an address as "127.0.0.1:8080", "[::1]:8080" or "unix:/run/schedo/api.sock"."""
    if isinstance(address, str | bytes):  # bytes: a name outside of the file system
        return f"unix:{os.fsdecode(address)}"
    host, port = str(address[0]), address[1]
    return f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}"


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
