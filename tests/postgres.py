"""A PostgreSQL server for the tests, and a schema of its own for each of them.

`SCHEDO_TEST_POSTGRES` may name a database that exists. Otherwise the installed programs start a
server in a temporary directory, as an ordinary user, on a Unix socket only.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Literal

import pytest

from schedo.errors import StoreError
from schedo.store import open_store

VARIABLE = "SCHEDO_TEST_POSTGRES"
USER = "schedo"
_ORDINARY_USERS = ("postgres", "nobody")
_numbers = count(1)
# Ends the server, and removes its directory, when the process that holds the pipe has ended.
_WATCH = """
read -r _
if pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null); then
    kill -QUIT "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
fi
rm -rf "$1"
"""


class PostgresServer:
    """A server in a directory; only tests that restart it need it, others only a URL."""

    def __init__(self, binaries: Path, directory: Path, uid: int | None) -> None:
        self.directory = directory
        self._binaries, self.uid = binaries, uid
        self._data = directory / "data"

    def initialize(self) -> None:
        """Make the files of an empty server."""
        words = [f"--username={USER}", "--auth=trust", "--encoding=UTF8", "--locale=C", "-N"]
        self._run("initdb", *words, "-D", str(self._data))
        self._configure()

    def follow(self, primary: PostgresServer) -> None:
        """Make the files of a standby that streams from the primary."""
        source = ["-h", str(primary.directory), "-U", USER]
        self._run("pg_basebackup", *source, "-D", str(self._data), "-R", "-N", "-c", "fast")
        self._configure()

    def _configure(self) -> None:
        settings = {
            "listen_addresses": "''",
            "unix_socket_directories": f"'{self.directory}'",
            "fsync": "off",  # only a power cut would lose something
            "max_connections": "200",
        }
        with (self._data / "postgresql.conf").open("a", encoding="ascii") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())

    @property
    def socket(self) -> str:
        """The path of its Unix socket."""
        return f"{self.directory}/.s.PGSQL.5432"

    def url(self, database: str = "postgres", **options: str) -> str:
        """Return the URL of a database with query options."""
        more = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql://{USER}@/{database}?host={self.directory}{more}"

    def start(self) -> None:
        log = str(self.directory / "log")
        self._run("pg_ctl", "-w", "-D", str(self._data), "-l", log, "start")

    def promote(self) -> None:
        """Let a standby become a primary."""
        self._run("pg_ctl", "-w", "-D", str(self._data), "promote")

    def stop(self, mode: Literal["fast", "immediate"] = "immediate") -> None:
        """Stop the server; `immediate` is a crash, from which the next start recovers."""
        self._run("pg_ctl", "-w", "-D", str(self._data), "-m", mode, "stop")

    def set(self, **settings: str) -> None:
        """Change settings and load them."""
        for name, value in settings.items():
            self.sql(f"ALTER SYSTEM SET {name} = {value}")
        self.sql("SELECT pg_reload_conf()")

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Return what psql prints for a statement."""
        return self._psql(database, "-v", "ON_ERROR_STOP=1", "-c", statement).strip()

    def copy(self, database: str, other: str) -> None:
        """Restore a dump of a database into a new one."""
        dump = str(self.directory / f"{other}.sql")
        self._run("pg_dump", "-h", str(self.directory), "-U", USER, "-f", dump, database)
        self.sql(f"CREATE DATABASE {other} TEMPLATE template0")
        self._psql(other, "-q", "-v", "ON_ERROR_STOP=1", "-f", dump)

    def copy_schema(self, schema: str, other: str, database: str = "postgres") -> None:
        """Restore a dump of a schema into the same database, under another name."""
        dump = self.directory / f"{other}.sql"
        where = ["-h", str(self.directory), "-U", USER, "-n", schema]
        self._run("pg_dump", *where, "-f", str(dump), database)
        dump.write_text(dump.read_text("utf-8").replace(schema, other), encoding="utf-8")
        self._psql(database, "-q", "-v", "ON_ERROR_STOP=1", "-f", str(dump))

    def script(self, file: Path, **variables: str) -> None:
        """Run a script of psql, which any user of the machine may read."""
        words = [word for name, text in variables.items() for word in ("-v", f"{name}={text}")]
        self._psql("postgres", *words, "-f", str(file))

    def _psql(self, database: str, *words: str) -> str:
        where = ["-h", str(self.directory), "-U", USER, "-d", database]
        return self._run("psql", "-X", "-A", "-t", *where, *words)

    def _run(self, program: str, *words: str) -> str:
        done = subprocess.run(
            [self._binaries / program, *words],
            check=False,
            stdout=subprocess.PIPE if program == "psql" else subprocess.DEVNULL,
            stderr=subprocess.PIPE if program == "psql" else subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            cwd=self.directory,
            user=self.uid,
            group=self.uid and pwd.getpwuid(self.uid).pw_gid,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            text=True,
        )
        assert done.returncode == 0, f"{program} {' '.join(words)}: {done.stderr}"
        return done.stdout or ""


async def refused(url: str, message: str) -> StoreError:
    """Check that the store cannot be opened, with this message; return the error."""
    store = open_store(url)
    with pytest.raises(StoreError, match=message) as caught:
        await store.open()
    await store.close()
    return caught.value


def find_binaries() -> Path | None:
    """Return the directory of the newest installed server, or None."""
    found = shutil.which("postgres")
    if found is not None:
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return installed[-1].parent if installed else None


@contextmanager
def running_server(primary: PostgresServer | None = None) -> Iterator[PostgresServer]:
    """Run a server of its own, or a standby of the primary; skip the test without the programs."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip(f"there is no PostgreSQL server: apt install postgresql, or set {VARIABLE}")
    directory = Path(tempfile.mkdtemp(prefix="schedo-pg-"))
    uid = _ordinary_uid() if os.getuid() == 0 else None  # PostgreSQL refuses to run as root
    if uid is not None:
        os.chown(directory, uid, pwd.getpwuid(uid).pw_gid)
    with ended_with_tests(directory):
        server = PostgresServer(binaries, directory, uid)
        if primary is None:
            server.initialize()
        else:
            server.follow(primary)
        server.start()
        try:
            yield server
        finally:
            if (directory / "data" / "postmaster.pid").exists():
                server.stop()


@contextmanager
def ended_with_tests(directory: Path) -> Iterator[None]:
    """Remove the directory at the end, and end its server, also if this process is killed."""
    watch = subprocess.Popen(
        ["/bin/sh", "-c", _WATCH, "watch", str(directory)],
        stdin=subprocess.PIPE,
        start_new_session=True,  # an interrupt from the terminal is for the tests only
    )
    assert watch.stdin is not None
    try:
        yield
    finally:
        watch.stdin.close()
        watch.wait()


@cache
def _ordinary_uid() -> int:
    known = {each.pw_name: each.pw_uid for each in pwd.getpwall()}
    return next(known[name] for name in _ORDINARY_USERS if name in known)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Yield the URL of a database for all tests."""
    given = os.environ.get(VARIABLE)
    if given:
        yield given
        return
    with running_server() as server:
        yield server.url()


@pytest.fixture
def postgres_store_url(postgres_url: str) -> str:
    """Return the URL of a store that does not exist yet."""
    separator = "&" if "?" in postgres_url else "?"
    return f"{postgres_url}{separator}schema=test_{os.getpid()}_{next(_numbers)}"
