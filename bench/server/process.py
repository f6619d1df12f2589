"""Runs `schedo serve`, or an empty web server, as a child process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Self

import schedo

ROOT = Path(__file__).resolve().parents[2]
TREE = Path(schedo.__file__).resolve().parents[1]  # another one while two commits are compared
NOOP_APP = "bench.noop_app:app"
DEADLINE_S = 60.0


class Process:
    """A program of this project that prints its address when it listens."""

    def __init__(self, directory: Path, *words: str, **environment: str) -> None:
        self.directory = directory
        self._words = words
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None
        self.host = ""
        self.port = 0

    def start(self) -> float:
        """Start the process; return the seconds until it printed its address."""
        began = time.perf_counter()
        with (self.directory / "server.log").open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._words],
                cwd=TREE,
                env=make_environment() | self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        try:
            self._read_address(self._process)
        except BaseException:  # otherwise the process would keep running
            self.kill()
            raise
        return time.perf_counter() - began

    def _read_address(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"https?://([\d.]+):(\d+)", line)
        if not found:
            log_text = (self.directory / "server.log").read_text()
            raise RuntimeError(f"the server said {line!r}; its log: {log_text[-2000:]}")
        self.host, self.port = found[1], int(found[2])

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was started"
        return self._process.pid

    @property
    def rss_bytes(self) -> int:
        """The resident memory of the process itself, without its children."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found, "Linux says how much a process holds"
        return int(found[1]) * 1024

    @property
    def pids(self) -> list[int]:
        """The process and its children."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *map(int, children)]

    @property
    def cpu_s(self) -> float:
        """The processor time of the process and its children, without those that have ended."""
        return sum(map(read_cpu_s, self.pids))

    @property
    def memory_bytes(self) -> list[int]:
        """The memory of the process and of each child; what some share is divided among them."""
        return [read_memory_bytes(pid) for pid in self.pids]

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send the signal and wait for the end; kill the process if it does not end."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(DEADLINE_S)
        finally:  # also if this script is interrupted meanwhile
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.stop(signal.SIGKILL)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class Server(Process):
    """`schedo serve` on the file bench.db of a directory."""

    def __init__(self, directory: Path, *options: str, app: str | None = None) -> None:
        self.store = directory / "bench.db"
        words = ["-m", "schedo", "serve", "--port", "0", "--store", str(self.store)]
        super().__init__(
            directory,
            *words,
            "--log-level",
            "warning",
            *options,
            *([app] if app else []),
            BENCH_TALLY=str(directory),
        )

    def start_ready(self) -> float:
        """Start the server; return the seconds until /readyz answered 200."""
        began = time.perf_counter()
        self.start()
        deadline = began + DEADLINE_S
        while time.perf_counter() < deadline:
            try:
                with urllib.request.urlopen(self.url + "/readyz", timeout=DEADLINE_S):
                    return time.perf_counter() - began
            except urllib.error.HTTPError as error:
                error.close()
                time.sleep(0.002)
        raise RuntimeError(f"the server was not ready within {DEADLINE_S:g} s")

    def restart(self) -> None:
        """Stop the server with SIGTERM, and start it again on the same file."""
        self.stop()
        self.start_ready()


def make_environment() -> dict[str, str]:
    """Return the environment of a program of this project, without settings of schedo."""
    hidden = ("SCHEDO_", "PYTHONDONTWRITEBYTECODE")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
    return kept | {"PYTHONPATH": f"{TREE}:{ROOT}"}


def read_memory_bytes(pid: int) -> int:
    """Return the memory of a process, with its share of what it shares with others."""
    found = re.search(r"Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text())
    assert found, "Linux says how much a process holds"
    return int(found[1]) * 1024


def read_cpu_s(pid: int) -> float:
    """Return the processor time of a process, without its children."""
    clock = ~pid << 3 | 2  # Linux's number of the clock that counts a process's processor time
    return time.clock_gettime(clock)


def empty_server(directory: Path) -> Process:
    """Return uvicorn with a Starlette endpoint that does nothing, not yet started."""
    return Process(directory, "-m", "bench.server.empty")
