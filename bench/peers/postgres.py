"""A PostgreSQL server in a temporary directory, with the settings of a new installation."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER = "postgres"


def find_binaries() -> Path:
    """Return the directory of the newest installed server; raise FileNotFoundError without one."""
    found = shutil.which("postgres")
    if found is not None:
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not installed:
        raise FileNotFoundError("there is no PostgreSQL server; install it: apt install postgresql")
    return installed[-1].parent


@contextmanager
def cluster() -> Iterator[Path]:
    """Run a server that listens only on a socket in the directory that this yields."""
    binaries = find_binaries()
    directory = Path(tempfile.mkdtemp(prefix="peers-"))
    user = None
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        user = pwd.getpwnam(USER)
        os.chown(directory, user.pw_uid, user.pw_gid)
    data = directory / "data"

    def run(*words: str | Path) -> None:
        subprocess.run(
            words,
            check=True,
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            cwd=directory,
            user=user.pw_uid if user else None,
            group=user.pw_gid if user else None,
        )

    try:
        run(binaries / "initdb", "--auth=trust", f"--username={USER}", "-D", data)
        options = f"-c listen_addresses= -c unix_socket_directories={directory}"
        log = directory / "log"
        run(binaries / "pg_ctl", "-w", "-D", data, "-l", log, "-o", options, "start")
        try:
            yield directory
        finally:
            run(binaries / "pg_ctl", "-w", "-m", "immediate", "-D", data, "stop")
    finally:
        shutil.rmtree(directory)


def read_cpu_s(directory: Path) -> float:
    """Return the processor time that the server in the directory has spent, with all sessions."""
    postmaster = int((directory / "data" / "postmaster.pid").read_text().splitlines()[0])
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    own = _read_ticks(postmaster, 4) + sum(_read_ticks(int(pid), 2) for pid in children)
    return own / os.sysconf("SC_CLK_TCK")


def _read_ticks(pid: int, count: int) -> int:
    """Return the sum of utime and stime, and of those of reaped children (man 5 proc)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:  # it has just ended
        return 0
    return sum(map(int, stat.rpartition(")")[2].split()[11 : 11 + count]))


@contextmanager
def database(socket: Path) -> Iterator[str]:
    """Create an empty database, and drop it at the end; yield its address as a URL."""
    binaries = find_binaries()
    words = [f"--host={socket}", f"--username={USER}", "bench"]
    subprocess.run([binaries / "createdb", *words], check=True)
    try:
        yield f"postgresql://{USER}@/bench?host={socket}"
    finally:
        subprocess.run([binaries / "dropdb", "--force", *words], check=True)
