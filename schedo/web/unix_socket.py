"""The Unix socket on which a server listens in place of a port.

The file stays when the server ends, because a standby or the next process of an upgrade listens on
the same socket. So a start finds the files of servers that have ended, and takes only their place.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator

from schedo.errors import Invalid, Unavailable
from schedo.left_sockets import remove_left

_BACKLOG = 4_096


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
