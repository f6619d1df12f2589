"""Changes many jobs with one operation of the server: counts, asks, begins, shows the progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import click

from schedo.cli.escapes import escape
from schedo.cli.follow import INTERRUPTED
from schedo.cli.job_filters import given_filters, takes_filters_of_change
from schedo.cli.tables import make_printable, print_json
from schedo.client import bulk
from schedo.client.messages import Record
from schedo.client.sync import Client

F = TypeVar("F", bound=Callable[..., Any])

_POLL_S = 0.3
_LINE_EVERY_S = 10.0  # where no bar can be drawn
_BAR_CHARACTERS = 30
_ERROR_CHARACTERS = 40
_DONE = {"cancel": "cancelled", "retry": "queued again", "run": "made due", "delete": "deleted"}
_NOTES = {
    "cancel": " Those that run are stopped, which cannot be undone.",
    "delete": " This cannot be undone.",
}
ACTIVE = ("counting", "running")


class Wish(NamedTuple):
    """What the user wants beyond the filter."""

    is_dry_run: bool
    is_sure: bool
    is_detached: bool
    is_json: bool


def takes_many(command: F) -> F:
    """Add the options of a change of many jobs: the filters, and how to go about it."""
    for option in (
        click.option("--max-jobs", type=click.IntRange(1), help="Change none if more jobs match."),
        click.option(
            "--expected-count",
            type=click.IntRange(0),
            help="Change none unless this many jobs match, which --dry-run has counted.",
        ),
        click.option("--no-wait", is_flag=True, help="Begin, and do not wait for the end."),
        click.option("--yes", "-y", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Only count the jobs that match."),
    ):
        command = option(command)
    return takes_filters_of_change(command)


def change_many(client: Client, action: str, options: Mapping[str, Any], is_json: bool) -> None:
    """Change the jobs that the options select; exit with 1 if not all of them were changed."""
    where = given_filters(options)
    wish = Wish(options["dry_run"], options["yes"], options["no_wait"], is_json)
    limits = {name: options[name] for name in ("max_jobs", "expected_count")}
    counted = client.send(bulk.count_jobs(action, where))
    count = counted["matched"]
    if wish.is_dry_run or (count == 0 and not limits["expected_count"]):
        print_json(counted) if is_json else click.echo(_tell(counted))
        return
    if limits["expected_count"] in (None, count):  # else the server refuses it
        _confirm(action, counted, wish)
    operation = client.send(bulk.begin_operation(action, where, **limits))
    if wish.is_detached:
        _say_how_to_follow(operation, err=is_json)
    else:
        operation = follow_operation(client, operation, is_quiet=is_json)
    if is_json:
        print_json(operation)
    if not wish.is_detached:
        end_with(operation, is_json=is_json)


def _tell(counted: Record) -> str:
    text = _count_text(counted["matched"])
    if "counted_since" not in counted:
        return text
    return f"{text} of those created since {counted['counted_since']}; older ones were not counted"


def _count_text(count: int) -> str:
    if count == 0:
        return "no job matches"
    return "1 job matches" if count == 1 else f"{count:,} jobs match"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def _confirm(action: str, counted: Record, wish: Wish) -> None:
    """Ask on a terminal; without one, raise UsageError unless the user was sure."""
    if wish.is_sure:
        return
    if not _can_ask():
        raise click.UsageError(
            f"{_tell(counted)}; without a terminal to ask, give --yes to {action} them,"
            " or --dry-run to count them"
        )
    jobs = "all that match" if "counted_since" in counted else _jobs(counted["matched"])
    question = f"{_tell(counted)}. {action.capitalize()} {jobs}?"
    _ask(question + _NOTES.get(action, ""))


def _ask(question: str) -> None:
    """Ask the user; raise Abort after a no, and KeyboardInterrupt after Ctrl-C."""
    try:
        click.confirm(question, abort=True)
    except click.Abort as abort:
        # click makes one of both, and after Ctrl-C the loop of a shell must not go on.
        if isinstance(abort.__context__, KeyboardInterrupt):
            click.echo("", err=True)
            raise KeyboardInterrupt from None
        raise


def _can_ask() -> bool:
    return sys.stdin.isatty()


def _can_draw() -> bool:
    return sys.stderr.isatty()


def follow_operation(client: Client, operation: Record, *, is_quiet: bool = False) -> Record:
    """Show the progress until the operation has ended, and return it.

    Ctrl-C ends only the command: the operation goes on.
    """
    progress = _Progress(is_quiet)
    try:
        while operation["state"] in ACTIVE:
            progress.show(operation)
            time.sleep(_POLL_S)
            operation = client.send(bulk.get_operation(operation["id"]))
        progress.show(operation)
    except KeyboardInterrupt:
        progress.end()
        click.echo("", err=True)
        _say_how_to_follow(operation, err=True)
        click.get_current_context().exit(INTERRUPTED)
    progress.end()
    return operation


def _say_how_to_follow(operation: Record, *, err: bool) -> None:
    number = operation["id"]
    click.echo(
        f"operation {number} runs on the server;"
        f" follow it: schedo operations show {number} --follow,"
        f" stop it: schedo operations cancel {number}",
        err=err,
    )


class _Progress:
    """A bar on a terminal, else a line now and then; on stderr."""

    def __init__(self, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._is_drawn = _can_draw()
        self._is_open = False
        self._next_line_at = time.monotonic() + _LINE_EVERY_S

    def show(self, operation: Record) -> None:
        """Show how far the operation has come."""
        if self._is_quiet:
            return
        text = render_progress(operation)
        if "error" in operation:  # the line of a bar must not wrap
            text += f"; trying again: {escape(operation['error'])[:_ERROR_CHARACTERS]}"
        if self._is_drawn:
            click.echo(f"\r{make_printable(_bar(operation))} {text}\x1b[K", nl=False, err=True)
            self._is_open = True
        elif time.monotonic() >= self._next_line_at:
            click.echo(text, err=True)
            self._next_line_at = time.monotonic() + _LINE_EVERY_S

    def end(self) -> None:
        """End the line of the bar."""
        if self._is_open:
            click.echo("", err=True)
            self._is_open = False


def _bar(operation: Record) -> str:
    share = operation["matched"] / (operation.get("total") or 1)
    if operation["state"] == "done":
        share = 1.0
    filled = int(min(1.0, share) * _BAR_CHARACTERS)
    return f"[{'#' * filled}{'.' * (_BAR_CHARACTERS - filled)}]"


def render_progress(operation: Record) -> str:
    """Return how many jobs of how many the operation has come to."""
    total = operation.get("total")
    return "counting" if total is None else f"{operation['matched']:,} of {_jobs(total)}"


def end_with(operation: Record, *, is_json: bool) -> None:
    """Print how the operation ended; exit with 1 unless it changed all of its jobs."""
    is_good = operation["state"] == "done" and not operation["failed"]
    if not is_json:
        for line in _outcome(operation):
            click.echo(line, err=not is_good)
        say_how_to_undo(operation)
    click.get_current_context().exit(0 if is_good else 1)


def say_how_to_undo(operation: Record) -> None:
    """Print on stderr how to put back what an operation has changed, if that is possible."""
    is_undo = "undoes" in operation
    if operation["done"] and operation["action"] != "delete" and not is_undo:
        command = f"schedo operations undo {operation['id']}"
        click.echo(f"schedo: what has not started since can be put back:  {command}", err=True)


def _outcome(operation: Record) -> list[str]:
    if operation["state"] == "refused":
        expected, total = operation.get("expected_count"), operation["total"]
        reason = (
            f"more than --max-jobs {operation['max_jobs']}"
            if expected in (None, total)
            else f"not {expected:,} as expected"
        )
        return [f"{_count_text(total)}, {reason}; none was changed"]
    verb = "put back" if "undoes" in operation else _DONE[operation["action"]]
    text = f"{_jobs(operation['done'])} {verb}"
    if operation["skipped"]:
        text += f", {operation['skipped']:,} skipped because they had changed"
    if operation["failed"]:
        text += f", {operation['failed']:,} could not be changed:"
    if operation["state"] == "cancelled":
        text = f"the operation was cancelled: {text}"
    if operation["state"] == "failed":
        text = f"the operation failed: {escape(operation['error'])}; {text}"
    return [text, *(f"  {escape(error['message'])}" for error in operation["errors"])]
