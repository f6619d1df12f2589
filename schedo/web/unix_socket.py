"""The Unix socket on which a server listens in place of a port.

The file stays when the server ends, because a standby or the next process of an upgrade listens on
the same socket. So a start finds the files of servers that have ended, and takes only their place.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
from collections.abc import Iterator, Sequence

from schedo.errors import Invalid, SchedoError, Unavailable
from schedo.left_sockets import remove_left

log = logging.getLogger("schedo")

_BACKLOG = 4_096


def listen_at(path: str, mode: int, left: Sequence[socket.socket]) -> list[socket.socket]:
    """Return the sockets that the server before has left, or else a new one at the path.

    If the file of theirs at the path was removed, no client finds it: a new one replaces it. If
    that is impossible, the log has the reason, and the server runs its jobs all the same.
    """
    removed = [each for each in left if _is_at(each, path)] if not os.path.lexists(path) else []
    if left and not removed:
        return list(left)
    try:
        made = bind_unix(path, mode)
    except SchedoError as error:
        if not left:
            raise
        log.error("unix:%s was removed, so no client finds this server: %s", path, error)
        return list(left)
    if removed:
        log.warning("unix:%s was removed; this server has made it again", path)
    for sock in removed:
        sock.close()
    return [made, *(each for each in left if each not in removed)]


def _is_at(sock: socket.socket, path: str) -> bool:
    return sock.family == socket.AF_UNIX and sock.getsockname() == path


def bind_unix(path: str, mode: int) -> socket.socket:
    """Return a listening socket at the path, with these permissions.

    Raise Unavailable if another server listens there, and Invalid if the path cannot have one.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _alone_in(os.path.dirname(path)):
            _refuse_live(path)
            remove_left(path)
            sock.bind(path)
            os.chmod(path, mode)  # before it listens, nothing can connect
            sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise Invalid(f"host = 'unix:{path}': {_explain(error, path)}") from error
    except BaseException:
        sock.close()
        raise
    return sock


def _explain(error: OSError, path: str) -> str:
    directory = os.path.dirname(path)
    if isinstance(error, FileNotFoundError):
        return f"the directory {directory} does not exist; create it, or give another path"
    if isinstance(error, NotADirectoryError):
        return f"{directory} is not a directory"
    if isinstance(error, PermissionError):
        return f"this user cannot create a socket in {directory}: {error.strerror}"
    return error.strerror or str(error)


@contextlib.contextmanager
def _alone_in(directory: str) -> Iterator[None]:
    """Keep other servers from taking the place of the same file between the check and listen()."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _refuse_live(path: str) -> None:
    """Raise Unavailable if a server listens at the path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return
        except BlockingIOError:  # it listens, and has not accepted those before
            pass
    raise Unavailable(f"another server listens at unix:{path}; choose another path with --host")
