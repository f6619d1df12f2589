"""The file of a Unix socket, which stays when the server that made it has ended."""

from __future__ import annotations

import errno
import os
import stat


def remove_left(path: str) -> None:
    """Remove the socket at the path, if there is one; raise FileExistsError for any other file."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "there is a file that is not a socket", path)
    os.unlink(path)
