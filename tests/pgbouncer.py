"""A PgBouncer before the PostgreSQL server of a test."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from tests.postgres import USER, PostgresServer

_PORTS = {"session": 6432, "transaction": 6433}
_CONFIGURATION = """
[databases]
* = host={directory} user={user}
[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {directory}
auth_type = any
pool_mode = {mode}
default_pool_size = 8
logfile = {directory}/pgbouncer.log
"""


@contextmanager
def pooling(server: PostgresServer, mode: Literal["session", "transaction"]) -> Iterator[str]:
    """Run PgBouncer in this mode; yield the URL of the store `jobs` through it."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("there is no PgBouncer: apt install pgbouncer")
    settings = server.directory / f"pgbouncer-{mode}.ini"
    port = _PORTS[mode]
    text = _CONFIGURATION.format(directory=server.directory, user=USER, mode=mode, port=port)
    settings.write_text(text, encoding="ascii")
    account = None if server.uid is None else pwd.getpwuid(server.uid)
    with subprocess.Popen(
        [program, "--quiet", settings],
        user=account and account.pw_uid,
        group=account and account.pw_gid,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            _wait_for_socket(process, server.directory / f".s.PGSQL.{port}")
            yield server.url(schema="jobs", port=str(port))
        finally:
            process.terminate()


def _wait_for_socket(process: subprocess.Popen[bytes], path: Path) -> None:
    while not _listens(path):
        try:
            process.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
        assert process.stderr is not None
        raise AssertionError(process.stderr.read().decode())


def _listens(path: Path) -> bool:
    """Return whether a connection succeeds: the path exists a moment earlier."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0
