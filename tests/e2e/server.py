"""A real `schedo serve` process on a free port."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tests.stores import serve_options

T = TypeVar("T")
DEADLINE_S = 20.0


class Server:
    """A server on a data directory; a test may kill it and start it again."""

    prefix: tuple[str, ...] = ()  # of the command line
    python = sys.executable
    module = "schedo"
    token: str | None = None  # sent with each request
    tls: ssl.SSLContext | None = None  # of a client that trusts its certificate

    def __init__(self, directory: Path, *arguments: str, environment: dict[str, str] | None = None):
        self.directory = directory
        self._arguments = arguments
        self._environment = environment or {}
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self.grpc_address = ""  # with --grpc-port

    def start(self) -> None:
        """Start the server; return once it has printed its address."""
        self.launch()
        self.wait_for_address()

    def launch(self) -> None:
        """Start the server, which may be a standby; return at once."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SCHEDO_")}
        command = [*self.prefix, self.python, "-m", self.module, "serve", "--port", "0"]
        if not ("--store" in self._arguments or "SCHEDO_STORE" in self._environment):
            command += serve_options(self.directory)
        with (self.directory / "server.log").open("a") as log:
            self._process = subprocess.Popen(
                [*command, *self._arguments],
                cwd=self.directory,
                env=environment | self._environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def wait_for_address(self) -> None:
        """Return once the server has printed its address."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"https?://[\d.:]+", line)
        assert found, f"the server said {line!r}; its log: {self.log()}"
        self.url = found.group()
        grpc = re.search(r"gRPC listens on ([\d.:]+)", line)
        self.grpc_address = grpc[1] if grpc is not None else ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        self.signal(signal.SIGKILL)

    def terminate(self) -> int:
        """Stop the server with SIGTERM, and return its exit code."""
        return self.signal(signal.SIGTERM)

    def signal(self, number: int) -> int:
        """Send the signal, wait for the end and return the exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return self.reap()

    def reap(self) -> int:
        """Wait for the end and return the exit code."""
        process = self._process
        assert process is not None
        code = process.wait(DEADLINE_S)
        assert process.stdout is not None
        process.stdout.close()
        return code

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        return (self.directory / "server.log").read_text()

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send a request; return the status and the parsed body."""
        data = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"content-type": "application/json"}
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S, context=self.tls) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def submit(self, **job: object) -> dict[str, Any]:
        """Submit a job; return its record."""
        status, accepted = self.ask("POST", "/v1/jobs", job)
        assert status == 201, accepted
        return dict(accepted)

    def ended(self, job_id: str) -> dict[str, Any]:
        """Wait for the end of the job; return its record."""
        status, job = self.ask("GET", f"/v1/jobs/{job_id}/wait?timeout={DEADLINE_S:g}s")
        assert status == 200, job
        return dict(job)

    def output(self, job_id: str) -> str:
        """Return the standard output of the job's last attempt."""
        _, output = self.ask("GET", f"/v1/jobs/{job_id}/output")
        return "".join(item["text"] for item in output["items"] if item["stream"] == "stdout")


@contextlib.contextmanager
def serving(directory: Path, *arguments: str, **environment: str) -> Iterator[Server]:
    """Run a server during the block, and stop it at the end if it still runs."""
    server = Server(directory, *arguments, environment=environment)
    server.start()
    try:
        yield server
    finally:
        if server.is_running:
            server.kill()


def eventually(find: Callable[[], T | bool | None], what: str) -> T:
    """Call `find` repeatedly until it returns a true value or the deadline passes."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        found = find()
        if found:
            return found  # type: ignore[return-value]
        time.sleep(0.02)
    raise AssertionError(f"within {DEADLINE_S:g} s there was no {what}")
