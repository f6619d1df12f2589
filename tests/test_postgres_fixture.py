"""The PostgreSQL server of the tests ends with them, also if they are killed."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgres import VARIABLE, find_binaries

PROGRAM = """
from tests.postgres import running_server
with running_server() as server:
    print(server.directory, flush=True)
    input()
"""


def test_the_server_of_killed_tests_ends() -> None:
    if find_binaries() is None:
        pytest.skip(f"there is no PostgreSQL server: apt install postgresql, or set {VARIABLE}")
    tests = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert tests.stdout is not None
    directory = Path(tests.stdout.readline().strip())
    pid = int((directory / "data" / "postmaster.pid").read_text().splitlines()[0])
    ended = os.pidfd_open(pid)

    tests.kill()
    tests.communicate()

    assert select.select([ended], [], [], 20)[0], "PostgreSQL still runs"
    os.close(ended)
