"""Signals to a server and a worker that are still loading what they run."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.server import DEADLINE_S

LOADING = """\
with open("loading", "rb") as waiting:
    waiting.read()
"""


def wait_until_it_reads(process: subprocess.Popen[bytes]) -> None:
    """Return when the process waits for the kernel, as in a read of the pipe.

    Python calls the handler of a signal that comes just before such a call only after the call, and
    this one does not end by itself.
    """
    stat = Path(f"/proc/{process.pid}/stat")
    while stat.read_text().rpartition(")")[2].split()[0] != "S":
        assert process.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "arguments",
    [
        ("worker", "loading_app:app"),
        ("serve", "--config", "loading"),
        ("serve", "--port", "0", "loading_app:app"),
    ],
    ids=str,
)
def test_a_signal_before_the_start_ends_the_process_as_a_drain_does(
    tmp_path: Path, arguments: tuple[str, ...], number: signal.Signals
) -> None:
    os.mkfifo(tmp_path / "loading")
    (tmp_path / "loading_app.py").write_text(LOADING)
    process = subprocess.Popen([sys.executable, "-m", "schedo", *arguments], cwd=tmp_path)
    with (tmp_path / "loading").open("wb"):  # returns when the process reads it
        wait_until_it_reads(process)
        process.send_signal(number)

        assert process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_server_whose_database_does_not_answer(
    tmp_path: Path, number: signal.Signals
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as database:
        url = f"postgresql://schedo@127.0.0.1:{database.getsockname()[1]}/schedo"
        command = [sys.executable, "-m", "schedo", "serve", "--store", url, "--port", "0"]
        process = subprocess.Popen(command, cwd=tmp_path)
        connection, _ = database.accept()
        with connection:
            process.send_signal(number)

            assert process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR2])
def test_a_signal_to_reload_or_upgrade_does_not_end_a_server_that_does_not_serve_yet(
    tmp_path: Path, number: signal.Signals
) -> None:
    os.mkfifo(tmp_path / "loading")
    command = [sys.executable, "-m", "schedo", "serve", "--config", "loading"]
    process = subprocess.Popen(command, cwd=tmp_path)
    with (tmp_path / "loading").open("wb"):  # returns when the process reads it
        wait_until_it_reads(process)
        process.send_signal(number)
        process.send_signal(signal.SIGTERM)

        assert process.wait(DEADLINE_S) == 0
