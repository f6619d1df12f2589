"""`schedo top` on a terminal: redrawing, a server that ends, and restoring the terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.test_top import serve_pages
from tests.client.server import FakeServer, Reply


class Terminal:
    """A terminal in which `schedo top` runs."""

    def __init__(self, screen: int, process: subprocess.Popen[bytes]) -> None:
        self._screen = screen
        self.process = process
        self.shown = b""

    def type(self, keys: bytes) -> None:
        os.write(self._screen, keys)

    def wait_until_shown(self, wanted: bytes) -> None:
        """Read the terminal's output until the text appears, for at most 30 s."""
        while wanted not in self.shown and select.select([self._screen], [], [], 30)[0]:
            self.shown += os.read(self._screen, 65_536)


@contextmanager
def run_top(
    server: FakeServer, folder: Path, interval: str, **variables: str
) -> Iterator[Terminal]:
    """Run `schedo top` during the block; then check that it restored the terminal."""
    screen, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    environment = {**os.environ, "SCHEDO_URL": server.url, "NO_COLOR": "1", "TERM": "xterm"}
    environment |= variables
    with subprocess.Popen(
        [sys.executable, "-m", "schedo", "top", "--interval", interval],
        stdin=terminal,
        stdout=terminal,
        env=environment,
        cwd=folder,
    ) as process:
        try:
            yield Terminal(screen, process)
        finally:
            process.kill()  # a failed test must not wait for it; no effect if it has ended
    assert termios.tcgetattr(terminal) == before
    os.close(terminal)
    os.close(screen)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("ending", "code"), [("q", 0), (signal.SIGINT, 0), (signal.SIGTERM, 143)], ids=str
)
def test_top_redraws_until_it_is_quit_and_restores_the_terminal(
    server: FakeServer, ending: str | signal.Signals, code: int, tmp_path: Path
) -> None:
    serve_pages(server)

    with run_top(server, tmp_path, "0.1") as terminal:
        terminal.wait_until_shown(b"mail")
        if isinstance(ending, str):
            terminal.type(ending.encode())
        else:
            terminal.process.send_signal(ending)
        terminal.wait_until_shown(b"\x1b[?1049l")
        assert terminal.process.wait(20) == code

    assert terminal.shown.startswith(b"\x1b[?1049h\x1b[?25l")
    assert terminal.shown.endswith(b"\x1b[?25h\x1b[?1049l")
    assert b"\x1b[3" not in terminal.shown  # no colour


def test_the_first_frame_does_not_wait_for_the_interval(server: FakeServer, tmp_path: Path) -> None:
    serve_pages(server)

    with run_top(server, tmp_path, "3600") as terminal:
        terminal.wait_until_shown(b"mail")
        terminal.type(b"q")
        assert terminal.process.wait(20) == 0


def test_figures_of_an_unreachable_server_are_marked_stale(
    server: FakeServer, tmp_path: Path
) -> None:
    serve_pages(server)
    server.reply("GET", "/metrics", Reply(0))

    with run_top(server, tmp_path, "0.1") as terminal:
        terminal.wait_until_shown(b"the figures below are 0s old")
        terminal.type(b"q")
        assert terminal.process.wait(20) == 0

    last = terminal.shown.rpartition(b"\x1b[H")[2]
    assert b"broke before the response" in last
    assert b"ready" not in last


def test_top_prints_one_plain_frame_on_a_terminal_that_cannot_be_redrawn(
    server: FakeServer, tmp_path: Path
) -> None:
    serve_pages(server)

    with run_top(server, tmp_path, "0.1", TERM="dumb", NO_COLOR="") as terminal:
        terminal.wait_until_shown(b"mail")
        assert terminal.process.wait(20) == 0

    assert b"\x1b" not in terminal.shown
