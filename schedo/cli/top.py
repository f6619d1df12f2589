"""`schedo top`: shows live figures of a server."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.errors import explain
from schedo.cli.numbers import FiniteRange
from schedo.cli.screen import fit_height, mark_stale, render_frame
from schedo.cli.tables import has_colors, has_screen, make_printable, print_json, print_text
from schedo.cli.times import read_now
from schedo.cli.top_figures import (
    FAILING_MAX,
    SCHEDULES_MAX,
    Figures,
    Lists,
    Reading,
    compute_figures,
    reading_at_start,
)
from schedo.client import operations, schedule_operations
from schedo.client.messages import Record
from schedo.client.sync import Client
from schedo.core.limits import SECOND
from schedo.errors import SchedoError

# The server counts jobs and computes fires for each request of a list. So lists are requested less
# often than metrics, the less often the longer they take, and in small pages, because the server
# serves no other request while it renders a page.
_LISTS_S = 10.0
_LISTS_PAUSE = 50  # the pause is this many times as long as the last request took
_PAGE_SCHEDULES = 100
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # other screen, no cursor; back
_HOME, _LINE_END, _SCREEN_END = "\x1b[H", "\x1b[K", "\x1b[J"
_QUIT_KEYS = frozenset(b"qQ\x03\x04")


@click.command()
@click.option("--once", is_flag=True, help="Print the figures once and exit.")
@click.option(
    "--interval",
    type=FiniteRange(0, 3600),
    default=1.0,
    show_default=True,
    help="Seconds between two frames.",
)
@as_json
@connected
def top(client: Client, once: bool, interval: float, is_json: bool) -> None:
    """Show live figures of the server; press q to quit.

    Rates are averages since the previous frame, or since the server's start in the first frame.
    """
    observer = Observer(client)
    figures = observer.observe()
    if is_json or once or not has_screen():
        time.sleep(interval)
        figures = observer.observe()
        if is_json:
            print_json(figures.plain())
        else:
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            now, is_coloured = read_now(), has_colors()
            frame = render_frame(figures, client.url, now, width=width, is_coloured=is_coloured)
            print_text("\n".join(frame))
        return
    with _terminal() as keys, contextlib.suppress(KeyboardInterrupt):
        _run_live(observer, figures, client.url, max(interval, 0.1), keys)


class Observer:
    """Requests the data of each frame from the server, and keeps the previous reading."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._last: Reading | None = None
        self._lists = Lists([], [])
        self._lists_at_s = 0.0  # when the lists are requested again
        self._lists_problems: list[str] = []

    def observe(self) -> Figures:
        """Return the figures since the last call; at first, since the start of the server."""
        send = self._client.send
        if time.monotonic() >= self._lists_at_s:
            self._load_lists()  # before the metrics, so that its cost is part of this interval
        scrape = send(operations.get_metrics())
        at_s, now_s = time.monotonic(), read_now() / SECOND
        reasons: list[str] = []
        if not scrape.value("schedo_ready"):
            reasons = send(operations.get_readiness()).get("reasons", [])
        paused = scrape.by_label("schedo_paused", "scope")
        reasons += [f"{scope} are paused" for scope, value in paused.items() if value]
        after = Reading(at_s, now_s, scrape, [*reasons, *self._lists_problems])
        before, self._last = self._last or reading_at_start(after), after
        return compute_figures(before, after, self._lists)

    def _load_lists(self) -> None:
        began_s = time.monotonic()
        try:
            queues = self._client.send(operations.list_queues())
            schedules, has_more = self._load_schedules()
            failing = schedule_operations.list_schedules(FAILING_MAX, failing=True)
            self._lists = Lists(queues, schedules, has_more, self._client.send(failing)["items"])
            self._lists_problems = []
        except SchedoError as error:
            if error.code == "unreachable":
                raise
            # The metrics alone still help, above all if the server's disk is full.
            self._lists_problems = [f"queues and schedules cannot be listed: {error}"]
        now_s = time.monotonic()
        self._lists_at_s = now_s + max(_LISTS_S, (now_s - began_s) * _LISTS_PAUSE)

    def _load_schedules(self) -> tuple[list[Record], bool]:
        """Return the schedules, and whether there are more."""
        found: list[Record] = []
        cursor: str | None = None
        while len(found) < SCHEDULES_MAX:
            page = self._client.send(schedule_operations.list_schedules(_PAGE_SCHEDULES, cursor))
            found += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return found, False
        return found, True


def _run_live(observer: Observer, figures: Figures, url: str, interval: float, keys: Keys) -> None:
    """Draw these figures at once, and newer ones after each interval, until the user quits."""
    problem: SchedoError | None = None
    read_at_s = time.monotonic()
    while True:
        _draw(figures, url, problem, time.monotonic() - read_at_s)
        if keys.wait_for_quit(interval):
            return
        try:
            figures, problem = observer.observe(), None
            read_at_s = time.monotonic()
        except SchedoError as error:  # the server may come back
            problem = error


def _draw(figures: Figures, url: str, problem: SchedoError | None, age_s: float) -> None:
    size = shutil.get_terminal_size()
    width, is_coloured = size.columns, has_colors()
    lines = render_frame(figures, url, read_now(), width=width, is_coloured=is_coloured)
    if problem is not None:
        lines = mark_stale(lines, explain(problem), age_s, width=width, is_coloured=is_coloured)
    frame = [make_printable(line) + _LINE_END for line in fit_height(lines, size.lines - 1)]
    click.echo(_HOME + "\r\n".join(frame) + _SCREEN_END, nl=False, color=True)


class Keys:
    """The keyboard, if there is one."""

    def __init__(self, is_there: bool) -> None:
        self._is_there = is_there

    def wait_for_quit(self, seconds: float) -> bool:
        """Return True as soon as the user presses a key to quit, False when the time is up."""
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
    """Use the whole screen and single keys, and restore the terminal at the end."""
    import termios
    import tty

    is_there = sys.stdin.isatty()
    before = termios.tcgetattr(sys.stdin) if is_there else None
    handler = signal.signal(signal.SIGTERM, _end)
    try:
        click.echo(_ENTER, nl=False, color=True)
        if is_there:
            tty.setcbreak(sys.stdin)
        yield Keys(is_there)
    finally:
        if before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        click.echo(_LEAVE, nl=False, color=True)
        signal.signal(signal.SIGTERM, handler)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Exit by an exception, so that the terminal is restored."""
    sys.exit(128 + number)
