"""Commands and tasks cannot read the memory or environment of the process that started them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.server import Server, eventually
from tests.sources import ROOT

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc"),
]
TOKEN = "correct-horse-battery-staple-0123456789"
OTHER = "a-secret-of-the-server-that-is-not-its-token"
NOBODY = 65_534
# Prints all environments that the command can read, except its own.
LOOK = "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -a -e '{}' || true"
READ_PARENTS = """
pid=$PPID
while [ "$pid" -gt 1 ]; do
  if cat /proc/$pid/environ >/dev/null 2>&1; then echo "$pid: open"; else echo "$pid: closed"; fi
  [ "$pid" = {server} ] && break
  pid=$(sed 's/.*) //' /proc/$pid/stat | cut -d' ' -f2)
done
"""


AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
PATHS = os.pathsep.join((str(ROOT), sysconfig.get_path("purelib")))


@pytest.fixture
def directory() -> Iterator[Path]:
    """Return a directory that an ordinary user can write to."""
    path = Path(tempfile.mkdtemp())
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    yield path
    shutil.rmtree(path)


def start(directory: Path, *arguments: str, ordinary: bool, **environment: str) -> Server:
    """Start a server, if `ordinary` as an ordinary user, as far as root runs the test."""
    environment |= {"SCHEDO_TOKEN": TOKEN, "OTHER_SECRET": OTHER, "PYTHONPATH": PATHS}
    environment["HOME"] = str(directory)
    server = Server(
        directory, "--allow-shell", "--drain-grace", "0s", *arguments, environment=environment
    )
    if ordinary and os.geteuid() == 0:
        server.python = find_python_for_nobody(directory)
        server.prefix = AS_NOBODY
    server.token = TOKEN
    server.start()
    return server


def find_python_for_nobody(directory: Path) -> str:
    """Return an interpreter like this one that other users may start, or skip the test."""
    if shutil.which("setpriv") is None:
        pytest.skip("there is no setpriv here")
    version = "{}.{}".format(*sys.version_info)
    for python in (sys.executable, f"/usr/bin/python{version}", f"/usr/local/bin/python{version}"):
        look = [*AS_NOBODY, "sh", "-c", f"exec {python} -c 'import schedo.serve, uvloop'"]
        environment = {"PYTHONPATH": PATHS}
        found = subprocess.run(
            look, cwd=directory, env=environment, check=False, capture_output=True
        )
        if found.returncode == 0:
            return python
    pytest.skip("the user `nobody` cannot start an interpreter here")


def output(server: Server, line: str) -> str:
    job = server.submit(task="shell", payload={"command": line})["id"]
    assert server.ended(job)["state"] == "completed"
    return server.output(job)


def read_metrics(server: Server) -> str:
    headers = {"authorization": f"Bearer {TOKEN}"}
    request = urllib.request.Request(server.url + "/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("ordinary", [True, False], ids=["ordinary user", "this user"])
def test_no_command_finds_the_token_in_any_environment(directory: Path, ordinary: bool) -> None:
    server = start(directory, "tests.e2e.small_app:app", ordinary=ordinary)
    try:
        assert output(server, LOOK.format(TOKEN)) == ""
        assert TOKEN.encode() not in Path(f"/proc/{server.pid}/environ").read_bytes()
        task = server.submit(task="look_at_parent")["id"]
        assert TOKEN not in str(server.ended(task)["result"])
    finally:
        server.terminate()


def test_no_command_of_an_ordinary_user_can_read_the_server_or_its_processes(
    directory: Path,
) -> None:
    server = start(directory, "tests.e2e.small_app:app", ordinary=True)
    try:
        parents = output(server, READ_PARENTS.format(server=server.pid)).split()
        assert parents[1::2] == ["closed"] * 2, parents  # the spawner and the server
        assert output(server, LOOK.format(OTHER)) == ""
        task = server.submit(task="look_at_parent")["id"]
        assert server.ended(task)["result"] == "PermissionError"
        assert server.ask("GET", "/readyz")[0] == 200
        assert "process_open_fds" in read_metrics(server)
    finally:
        server.terminate()


def test_a_variable_lets_debuggers_attach_to_the_server(directory: Path) -> None:
    server = start(directory, ordinary=True, SCHEDO_DEBUGGABLE="1")
    try:
        parents = output(server, READ_PARENTS.format(server=server.pid)).split()
        assert parents[1::2] == ["open"] * 2, parents
        assert output(server, LOOK.format(TOKEN)) == ""
    finally:
        server.terminate()


def test_an_ordinary_users_server_kills_the_commands_of_a_killed_server(directory: Path) -> None:
    server = start(directory, ordinary=True)
    line = "setsid sleep 300 & exec sleep 300"
    server.submit(task="shell", payload={"command": line, "grace": "0.1s"})
    job = server.submit(task="shell", payload={"command": "exec sleep 300"})["id"]
    output(server, "true")
    server.kill()
    server.start()
    try:
        said = "commands that an earlier server left running"
        eventually(lambda: said in server.log(), "the server has logged what it killed")
        assert server.ask("POST", f"/v1/jobs/{job}:cancel")[0] == 200
    finally:
        server.terminate()
