"""The file of the control socket: a Unix socket beside the database, for its user only.

Only the holder of the store's lock makes the file, so it may replace what a dead server left. The
path is used through a descriptor of its directory, because an address has at most 107 bytes.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

from schedo.errors import StoreUnsuitable
from schedo.left_sockets import remove_left

SUFFIX = ".ctl"
_ADDRESS_BYTES_MAX = 107  # sun_path of unix(7), without its end
_WAITING_MAX = 64  # connections that are not accepted yet


def make_socket() -> socket.socket:
    """Return a Unix socket that keeps the bounds of messages and does not block."""
    kind = socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    return socket.socket(socket.AF_UNIX, kind)


def listen(path: str) -> socket.socket:
    """Return a listening socket at the path; the caller holds the store's lock.

    Raise StoreUnsuitable if the path cannot have a socket.
    """
    try:
        remove_left(path)
    except FileExistsError as error:
        reason = f"{path}: {error.strerror}, so the control socket cannot be there"
        raise StoreUnsuitable(reason) from error
    sock = make_socket()
    try:
        with _address(path) as address:
            sock.bind(address)
        os.chmod(path, 0o600)
        sock.listen(_WAITING_MAX)
    except BaseException:
        sock.close()
        raise
    return sock


def connect(path: str) -> socket.socket:
    """Return a socket that is connected to the server at the path; raise OSError."""
    sock = make_socket()
    try:
        with _address(path) as address:
            sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


def remove(path: str, sock: socket.socket) -> None:
    """Close the listening socket and remove its file; the caller still holds the store's lock."""
    sock.close()
    with contextlib.suppress(OSError):
        remove_left(path)


@contextlib.contextmanager
def _address(path: str) -> Iterator[str]:
    """Yield an address for the path that is short enough."""
    directory, name = os.path.split(os.path.abspath(path))
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        address = f"/proc/self/fd/{descriptor}/{name}"
        if len(os.fsencode(address)) > _ADDRESS_BYTES_MAX:
            raise StoreUnsuitable(f"the name {name!r} is too long for a control socket")
        yield address
    finally:
        os.close(descriptor)
