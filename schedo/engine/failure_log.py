"""Logs each failed or lost attempt: the task, the job, the error, and what happens next.

A task that fails again and again gets a few lines a minute, and then one with the number of the
others. The log shows no part of a payload: texts of the payload in an error are replaced, and so is
what a command printed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from schedo.core.ids import render_id
from schedo.core.instants import describe_duration
from schedo.core.limits import MILLISECOND, MINUTE, SECOND
from schedo.core.model import Failure
from schedo.core.outcomes import FailedAttempt, find_reason
from schedo.core.states import State

log = logging.getLogger("schedo.jobs")

LINES_MAX = 10  # for each task and window
WINDOW_US = MINUTE
TASKS_MAX = 1_000  # further tasks share the lines of one
_MESSAGE_CHARACTERS_MAX = 200
_REDACTED_CHARACTERS_MIN = 3  # shorter texts of a payload identify nothing
# The messages of these errors end with a line that the command wrote.
_WITH_OUTPUT = ("exit-code", "signal")


class _Window:
    """The failures of one task since an instant."""

    __slots__ = ("hidden", "lines", "since", "task")

    def __init__(self, task: str, since: int) -> None:
        self.task = task
        self.since = since
        self.lines = 0
        self.hidden = 0


class FailureLog:
    """Writes the lines, and limits them for each task."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def note(self, attempts: Iterable[FailedAttempt], now: int) -> None:
        """Log each attempt, or count it if its task has had its lines."""
        for failed in attempts:
            self._note(failed, now)

    def _note(self, failed: FailedAttempt, now: int) -> None:
        window = self._find_window(failed.task, now)
        if window.lines == LINES_MAX:
            window.hidden += 1
            return
        window.lines += 1
        level = logging.ERROR if failed.state is State.FAILED else logging.WARNING
        if log.isEnabledFor(level):
            log.log(level, "%s", _sentence(failed, now), extra={"fields": _fields(failed, now)})

    def end_windows(self, now: int) -> None:
        """Log how many attempts were not logged in the windows that have passed."""
        for key, window in [*self._windows.items()]:
            if not window.since <= now < window.since + WINDOW_US:  # or the clock was set back
                del self._windows[key]
                if window.hidden:
                    log.warning(
                        "%s: %d further failed %s not logged within a minute; see schedo jobs ls",
                        window.task,
                        window.hidden,
                        "attempt was" if window.hidden == 1 else "attempts were",
                        extra={"fields": {"task": window.task, "failed": window.hidden}},
                    )

    def _find_window(self, task: str, now: int) -> _Window:
        key, name = task, f"task {task}"
        if len(self._windows) >= TASKS_MAX and task not in self._windows:
            key, name = "", "other tasks"
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(name, now)
        return window


def _sentence(failed: FailedAttempt, now: int) -> str:
    how = "was lost" if failed.outcome == "lost" else "failed"
    of = f"task {failed.task}" + (f", schedule {failed.schedule}" if failed.schedule else "")
    if not failed.attempt:
        job_id = render_id(failed.job_id)
        return (
            f"job {job_id} of {of}, which SQL has submitted, is refused and never runs;"
            f" schedo jobs show {job_id} says why"
        )
    text = f"job {render_id(failed.job_id)} of {of}: attempt {failed.attempt} {how}"
    if failed.failure is not None:
        text += f": {_describe_error(failed)}"
    return f"{text}; {_describe_next(failed, now)}"


def _describe_next(failed: FailedAttempt, now: int) -> str:
    count = f"failure {failed.failures} of {failed.failures_max}"
    if failed.state is State.FAILED:
        reason = "" if failed.failure is None else find_reason(failed.failure.message)
        return f"{reason.removeprefix('; ') or 'it is not repeated'} ({count})"
    if failed.state is State.RETRYING:
        return f"it runs again in {describe_duration(_wait_us(failed, now))} ({count})"
    return "it runs again as soon as a worker has room"


def _fields(failed: FailedAttempt, now: int) -> dict[str, Any]:
    """Return the members of the line in JSON."""
    fields: dict[str, Any] = {
        "job": render_id(failed.job_id),
        "task": failed.task,
        "attempt": failed.attempt,
        "failures": failed.failures,
        "failures_max": failed.failures_max,
        "outcome": failed.outcome,
        "state": failed.state.value,
    }
    if failed.schedule is not None:
        fields["schedule"] = failed.schedule
    if failed.failure is not None:
        fields["error"] = _describe_error(failed)
    if failed.state is State.RETRYING:
        fields["retry_in_s"] = _wait_us(failed, now) / SECOND
    return fields


def _wait_us(failed: FailedAttempt, now: int) -> int:
    """Return the wait before the next attempt, in whole seconds, or milliseconds if it is short."""
    wait_us = max(0, failed.due_at - now)
    return wait_us - wait_us % (SECOND if wait_us >= SECOND else MILLISECOND)


def _describe_error(failed: FailedAttempt) -> str:
    failure = failed.failure
    assert failure is not None, "the caller has checked it"
    message = _redact(failure, failed.payload)[:_MESSAGE_CHARACTERS_MAX]
    parts = (failure.type if failed.outcome != failure.type else "", message)
    return ": ".join(filter(None, parts))


def _redact(failure: Failure, payload: bytes | None) -> str:
    """Return the message without texts of the payload and without output of a command."""
    message = failure.message.removesuffix(find_reason(failure.message))
    if failure.type in _WITH_OUTPUT:
        return message.partition(": ")[0]
    if payload is None:  # it is large, and not in memory
        return ""
    for text in sorted(_texts(orjson.loads(payload)), key=len, reverse=True):
        message = message.replace(text, "[payload]")
    return message


def _texts(value: object) -> Iterator[str]:
    """Yield the texts and numbers of a JSON value that are worth hiding."""
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        text = str(value)
        if len(text) >= _REDACTED_CHARACTERS_MIN:
            yield text
