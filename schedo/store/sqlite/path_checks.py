"""The checks of a database's path: a private directory on a local disk.

SQLite's write-ahead log needs shared memory and locks, which network file systems do not have.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from schedo.errors import StoreUnsuitable

# Types as /proc/self/mountinfo names them.
_NETWORK = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone"),
}


def prepare_directory(path: str, mountinfo: str | None = None) -> None:
    """Create the database's directory if it is missing; raise StoreUnsuitable if it is not safe.

    mountinfo: the text of mountinfo(5), by default that of this system.
    """
    directory = Path(path).parent
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = directory.stat().st_mode
    except OSError as error:
        raise StoreUnsuitable(f"cannot use the directory {directory}: {error.strerror}") from error
    if os.path.isdir(path):
        raise StoreUnsuitable(f"{path} is a directory; give the path of a file")
    if mode & stat.S_IWOTH:
        raise StoreUnsuitable(_explain_open(directory, is_sticky=bool(mode & stat.S_ISVTX)))
    mounts = _read_mounts() if mountinfo is None else mountinfo
    kind = find_filesystem(directory.resolve(), mounts)
    if kind in _NETWORK:
        raise StoreUnsuitable(
            f"{directory} is on a network file system ({kind}), where SQLite's log and locks do not"
            " work; use a local disk"
        )


def _explain_open(directory: Path, *, is_sticky: bool) -> str:
    if not is_sticky:
        return (
            f"every user may write to {directory}, and so could replace the database;"
            f" use a directory of your own (chmod o-w {directory})"
        )
    # No user can replace another's file here. But any user can create a file with an unused name,
    # and the names of the log and the lock file are known in advance.
    return (
        f"every user may create files in {directory}, also in place of the database's log and"
        f" lock file; make a directory of your own with `mkdir -m 700 {directory / 'schedo'}`"
        " and put the database there"
    )


def find_filesystem(directory: Path, mountinfo: str) -> str | None:
    """Return the type of the file system of an absolute path, from the text of mountinfo(5)."""
    found, depth = None, -1
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        mounted_on = Path(_unescape(before.split(" ")[4]))
        # A later line is mounted over an earlier one at the same path.
        if directory.is_relative_to(mounted_on) and len(mounted_on.parts) >= depth:
            found, depth = after.split(" ")[0], len(mounted_on.parts)
    return found


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _read_mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""  # not Linux: the mounts are unknown


def size_bytes(path: str) -> int:
    """Return the size of the database, its log and the log's index."""
    total = 0
    for suffix in ("", "-wal", "-shm"):
        try:
            total += os.stat(path + suffix).st_size
        except FileNotFoundError:
            continue
    return total
