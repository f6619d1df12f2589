"""`schedo top`: how a server does, live."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import time
from collections.abc import Iterator

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.escapes import escape, truncate
from schedo.cli.failures import explain
from schedo.cli.figures import Figures, Reading, work_out
from schedo.cli.moments import read_now
from schedo.cli.screen import render_frame
from schedo.cli.tables import has_colors, print_json
from schedo.client import operations
from schedo.client.messages import Record
from schedo.client.sync import Client
from schedo.core.limits import SECOND
from schedo.errors import SchedoError

# Queues are counted and schedules computed by the server each time, so they are asked less often.
_SLOW_S = 10.0
_SCHEDULES_MAX = 100
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # other screen, no cursor; back
_HOME, _LINE_END, _SCREEN_END = "\x1b[H", "\x1b[K", "\x1b[J"
_QUIT_KEYS = frozenset(b"qQ\x03\x04")


@click.command()
@click.option("--once", is_flag=True, help="Print one frame and end.")
@click.option(
    "--interval",
    type=click.FloatRange(0, 3600),
    default=1.0,
    show_default=True,
    help="Seconds between two frames.",
)
@as_json
@connected
def top(client: Client, once: bool, interval: float, is_json: bool) -> None:
    """Show how the server does, live; q ends it. Rates are those since the frame before."""
    observer = Observer(client)
    observer.observe()
    if is_json or once or not sys.stdout.isatty():
        time.sleep(interval)
        figures = observer.observe()
        assert figures is not None, "it is the second time"
        if is_json:
            print_json(figures.plain())
        else:
            _print(render_frame(figures, client.url, read_now(), is_coloured=has_colors()))
        return
    with _terminal() as keys, contextlib.suppress(KeyboardInterrupt):
        _show_always(observer, client.url, max(interval, 0.1), keys)


class Observer:
    """Asks the server what a frame needs, and remembers what it said the last time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._last: Reading | None = None
        self._queues: list[Record] = []
        self._schedules: list[Record] = []
        self._slow_at = 0.0

    def observe(self) -> Figures | None:
        """Return the figures since the last call, or None the first time."""
        send = self._client.send
        scrape = send(operations.get_metrics())
        at_s = time.monotonic()
        reasons: list[str] = []
        if not scrape.value("schedo_ready"):
            reasons = send(operations.get_readiness()).get("reasons", [])
        if self._last is None or at_s >= self._slow_at:
            self._slow_at = at_s + _SLOW_S
            self._queues = send(operations.list_queues())
            self._schedules = send(operations.list_schedules(_SCHEDULES_MAX))["items"]
        before, after = self._last, Reading(at_s, read_now() / SECOND, scrape, reasons)
        self._last = after
        if before is None:
            return None
        return work_out(before, after, self._queues, self._schedules)


def _show_always(observer: Observer, url: str, interval: float, keys: Keys) -> None:
    lines: list[str] = []
    while not keys.wait_for_quit(interval):
        size = shutil.get_terminal_size()
        try:
            figures = observer.observe()
            if figures is not None:
                lines = render_frame(
                    figures, url, read_now(), width=size.columns, is_coloured=has_colors()
                )
            shown = lines
        except SchedoError as error:  # it may come back
            shown = [truncate(escape(explain(error)), size.columns), *lines[1:]]
        frame = [line + _LINE_END for line in shown[: size.lines - 1]]
        click.echo(_HOME + "\r\n".join(frame) + _SCREEN_END, nl=False, color=True)


class Keys:
    """The keyboard, if there is one."""

    def __init__(self, is_there: bool) -> None:
        self._is_there = is_there

    def wait_for_quit(self, seconds: float) -> bool:
        """Return True as soon as a key says to end, False when the time is up."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self._is_there:
                time.sleep(left)
            elif select.select([sys.stdin], [], [], left)[0]:
                pressed = os.read(sys.stdin.fileno(), 64)
                if not pressed or _QUIT_KEYS.intersection(pressed):
                    return True
        return False


@contextlib.contextmanager
def _terminal() -> Iterator[Keys]:
    """Take the whole screen and single keys, and give both back whatever happens."""
    import termios
    import tty

    is_there = sys.stdin.isatty()
    before = termios.tcgetattr(sys.stdin) if is_there else None
    click.echo(_ENTER, nl=False, color=True)
    try:
        if is_there:
            tty.setcbreak(sys.stdin)
        yield Keys(is_there)
    finally:
        if before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        click.echo(_LEAVE, nl=False, color=True)


def _print(lines: list[str]) -> None:
    for line in lines:
        click.echo(line, color=True)
