"""Every command of the README does what the README says, typed in its order.

The command `schedo` is the installed one, or the binary. In PATH there are only the tools of a
plain system beside it, and so no Python for the binary. What needs one is in SKIPPED and EMBEDDED.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.deploy.binary import BINARY, skip_unless_built
from tests.e2e.remote import find_port
from tests.e2e.server import DEADLINE_S, eventually
from tests.sources import ROOT

pytestmark = pytest.mark.e2e

README = (ROOT / "README.md").read_text()
TOOLS = ("sh", "cat", "curl", "date", "echo", "env", "openssl")
# What installs, builds or tests schedo itself, and so needs Python.
SKIPPED = ("pipx install", "pip install", "python -m bench.report", "make check")
DATABASE = "postgresql://schedo@db/jobs"
# In the program that has schedo in its own event loop.
EMBEDDED = "asyncio.run(main())"
# What commands in the text of the README need besides what is written there.
COMPLETED = {
    "schedo open": "schedo open --print",
    "schedo backup": "schedo backup first.db",
    "schedo backup FILE": "schedo backup second.db",
    "schedo apply --diff": "schedo apply --diff jobs.toml",
    "schedo worker": "schedo worker myapp:app --label region=eu",
    "schedo serve --standby": "schedo serve myapp:app --allow-shell --standby",
}
# Those of which the text has only the second word.
MORE = ("schedo pause", "schedo resume", "schedo check", "schedo restore --force first.db")
_BLOCK = re.compile(r"^```python\n(?P<python>.*?)^```|(?P<lines>(?:^ {4}[^\n]*\n)+)", re.S | re.M)
_SHOWN = re.compile(r"`(schedo [^`]+)`")


class Terminal:
    """Types commands into a shell; servers and workers go on beside those that follow."""

    def __init__(self, directory: Path, program: str, hook: str) -> None:
        self.directory = directory
        self.port = find_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ready = directory / "ready"
        self._replaced = {
            "127.0.0.1:9000": hook,
            "scheduler:8080": f"127.0.0.1:{self.port}",
            "127.0.0.1:8080": f"127.0.0.1:{self.port}",
            "localhost:8080": f"127.0.0.1:{self.port}",
            "/etc/": "etc/",
            "/var/lib/schedo/": "data/",
            "curl ": "curl -sS --fail-with-body ",
            "make run ARGS=": "schedo serve ",
            " 5s": " 1s",
        }
        path = directory / "bin"
        path.mkdir()
        for tool in TOOLS:
            (path / tool).symlink_to(str(shutil.which(tool)))
        (path / "schedo").write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        (path / "schedo").chmod(0o755)
        self._environment = {
            "PATH": str(path),
            "HOME": str(directory),
            "SCHEDO_URL": f"http://127.0.0.1:{self.port}",
            "SCHEDO_PORT": self.port,
            "SCHEDO_WORKER_READY_FILE": str(self._ready),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(directory / "cache")),
        }

    def type(self, line: str) -> str:
        """Return what the command prints; a server or a worker is ready when this returns."""
        for written, meant in self._replaced.items():
            line = line.replace(written, meant)
        if line.startswith("schedo serve"):
            self._serve(line)
            return ""
        if line.startswith("schedo worker "):
            self._ready.unlink(missing_ok=True)
            self.begin(line)
            eventually(self._ready.exists, f"the worker of {line}")
            return ""
        ran = subprocess.run(
            ["sh", "-c", line],
            cwd=self.directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert ran.returncode == 0, (line, ran.returncode, ran.stdout, ran.stderr, self.log())
        return ran.stdout

    def run_python(self, program: str) -> str:
        """Return what a program prints that imports schedo."""
        command = (sys.executable, "-c", program)
        return subprocess.run(
            command,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        ).stdout

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def end(self) -> None:
        """End what still runs, also the process that an upgrade has started."""
        lock = self.directory / "data" / "schedo.db.lock"
        held = re.match(r"pid (\d+)", lock.read_text()) if lock.exists() else None
        for process in reversed(self._processes):  # workers before their server
            process.terminate()
            process.wait(DEADLINE_S)
        if held and Path(f"/proc/{held[1]}").exists():
            os.kill(int(held[1]), signal.SIGKILL)
        self._processes.clear()

    def _serve(self, line: str) -> None:
        if "--standby" in line:
            self.begin(line)
            wanted = '"is_warm": true'
            eventually(lambda: wanted in self.type("schedo status --json"), "a warm standby")
            return
        self.end()
        self.begin(line)
        eventually(self._answers, f"the server of {line}: {self.log()}")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz"):
                return True
        except OSError:
            return False

    def begin(self, line: str) -> None:
        with (self.directory / "log").open("a") as log:
            self._processes.append(
                subprocess.Popen(
                    ["sh", "-c", f"exec {line}"],
                    cwd=self.directory,
                    env=self._environment,
                    stdout=log,
                    stderr=log,
                )
            )


@pytest.fixture(params=["installed", "binary"])
def program(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> str:
    """The command `schedo`."""
    if request.param == "installed":
        return f"{sys.executable} -m schedo"
    skip_unless_built(capsys)
    return str(BINARY)


@contextmanager
def hook() -> Iterator[tuple[str, list[bytes]]]:
    """Take webhooks; yield the address and the bodies that have come."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}", bodies
        server.shutdown()


@pytest.fixture
def received() -> Iterator[tuple[str, list[bytes]]]:
    with hook() as taken:
        yield taken


@pytest.fixture
def terminal(tmp_path: Path, program: str, received: tuple[str, list[bytes]]) -> Iterator[Terminal]:
    (tmp_path / "etc" / "schedo").mkdir(parents=True)
    (tmp_path / "etc" / "crontab").write_text("17 * * * * root run-parts /etc/cron.hourly\n")
    token = tmp_path / "schedo.token"
    token.write_text("0123456789abcdef0123")
    token.chmod(0o600)
    made = Terminal(tmp_path, program, received[0])
    try:
        yield made
    finally:
        made.end()


def commands(lines: str, *, of_database: bool = False) -> list[str]:
    """Return the commands of a block, without comments: those of a database, or the others."""
    text = re.sub(r"\\\n\s*", "", lines)
    found = [re.sub(r"\s{2,}#.*", "", line).strip() for line in text.splitlines()]
    return [
        line for line in found if not line.startswith(SKIPPED) and (DATABASE in line) is of_database
    ]


def test_the_commands_of_the_readme_do_what_it_says(
    terminal: Terminal, program: str, received: tuple[str, list[bytes]]
) -> None:
    printed: list[str] = []
    for block in _BLOCK.finditer(README):
        python, lines = block["python"], block["lines"]
        if lines is not None:
            printed += map(terminal.type, commands(lines))
        elif EMBEDDED in python:
            if program != str(BINARY):
                printed.append(terminal.run_python(python))
        else:
            with (terminal.directory / "myapp.py").open("a") as file:
                file.write(python)

    text = "\n".join(printed)
    assert "hello\n" in text
    assert "every-ten-seconds" in text
    assert '{"Num":2}' in text
    assert text.count("sent 'hi' to ada@example.org") == (1 if program == str(BINARY) else 2)
    assert received[1] == [b'{"order":7}']


@pytest.mark.parametrize("program", ["installed"], indirect=True)
def test_two_servers_of_the_readme_share_a_database(
    tmp_path: Path, terminal: Terminal, postgres_store_url: str
) -> None:
    (tmp_path / "myapp.py").write_text("from schedo import Schedo\n\napp = Schedo()\n")
    [line] = [
        line
        for block in _BLOCK.finditer(README)
        for line in commands(block["lines"] or "", of_database=True)
    ]
    line = line.replace(DATABASE, f"'{postgres_store_url}'").replace("0.0.0.0", "127.0.0.1")

    terminal.type(line)
    terminal.begin(f"{line} --port {find_port()}")

    def shares() -> list[int]:
        found = json.loads(terminal.type("schedo cluster --token-file schedo.token --json"))
        return [len(member["shards"]) for member in found["members"]]

    eventually(lambda: shares() == [16, 16], "two equal shares")


@pytest.mark.parametrize("program", ["binary"], indirect=True)
def test_the_commands_in_the_text_of_the_readme_succeed_with_the_binary(terminal: Terminal) -> None:
    for block in _BLOCK.finditer(README):
        if block["python"] and EMBEDDED not in block["python"]:
            with (terminal.directory / "myapp.py").open("a") as file:
                file.write(block["python"])
    terminal.type("schedo serve myapp:app --allow-shell")
    terminal.type("schedo export jobs.toml")
    job = json.loads(terminal.type("schedo run 'echo hello' --wait --json"))["id"]

    for shown in [*dict.fromkeys(_SHOWN.findall(README)), *MORE]:
        command = COMPLETED.get(shown, shown).replace(" ID", f" {job}")
        *before, last = command.split()
        if "restore" in before:
            terminal.end()
        if "workers" in before:
            terminal.type("schedo worker --name spare")
        for verb in last.split("|"):
            which = ["spare"] if "workers" in before and verb != "ls" else []
            terminal.type(" ".join([*before, verb, *which]))
