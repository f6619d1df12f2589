"""What really happened: the lines of the handlers, the log of the clients, and the store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from schedo.core.ids import render_id

# /bin/sh reads the time without another process. Its clock has a resolution of 10 ms.
_LINE = (
    "read now _ </proc/uptime; echo {what} {token} $SCHEDO_JOB_ID $SCHEDO_ATTEMPT $SCHEDO_EPOCH"
    " $SCHEDO_SCHEDULED_FOR $now {place} >>{runs}; "
)


TRAFFIC = "traffic"  # the token of jobs that only make load
WAITING = "far"  # the task of jobs that only wait in the file


class Line(NamedTuple):
    """One line of a handler. at: seconds of CLOCK_MONOTONIC; due: RFC 3339."""

    what: Literal["start", "end"]
    token: str
    job: str
    attempt: int
    epoch: int
    due: str
    at: float
    place: str


class Kill(NamedTuple):
    """A process that was killed. at: seconds of CLOCK_MONOTONIC; ready_at: when requests passed.

    is_warm: a standby was warm then. stolen_s: processor time that the host took from the machine
    in between.
    """

    what: str
    pid: int
    at: float
    ready_at: float
    is_warm: bool = True
    stolen_s: float = 0.0


class Row(NamedTuple):
    """A job in the store."""

    id: str
    state: str
    schedule: str | None
    scheduled_for: int | None  # microseconds since 1970


class StreamEvent(NamedTuple):
    """What a client of an event stream saw: an event with its id, or its own `begin` or `end`."""

    name: str
    ident: str  # the epoch and the number; empty for the client's own ones
    at: float


@dataclass
class Submission:
    """A job as its client knows it. Only an acknowledged one has an id."""

    token: str
    place: str
    delivery: str = "at_least_once"
    job: str | None = None
    is_rejected: bool = False
    may_be_cancelled: bool = False  # a cancel was sent
    cancelled_at: float | None = None  # the cancel was acknowledged with the state "cancelled"


@dataclass
class ClientLog:
    """What the clients sent, and what they got."""

    submissions: list[Submission] = field(default_factory=list)
    schedules: dict[str, float] = field(default_factory=dict)  # Unix second of the first answer
    requests: int = 0
    refused: int = 0  # connects
    broken: int = 0  # connections that ended in the middle of a request
    unfinished: int = 0  # requests that got no response in time
    server_errors: dict[str, int] = field(default_factory=dict)  # status and code
    wrong: list[str] = field(default_factory=list)  # responses that contradict a promise
    streams: list[list[StreamEvent]] = field(default_factory=list)

    def count_error(self, what: str) -> None:
        """Count a response that says that the server failed."""
        self.server_errors[what] = self.server_errors.get(what, 0) + 1


def command(token: str, runs: Path, place: str, ms: int) -> str:
    """Return a shell command that writes a line at its start and one at its end."""
    start, end = (
        _LINE.format(what=what, token=token, place=place, runs=runs) for what in ("start", "end")
    )
    # The output that the attempt must have is written at its end.
    return f"{start}sleep {ms / 1000}; {end}" + f"echo {token}"


def read_lines(path: Path) -> list[Line]:
    """Return the lines of the handlers, in the order in which they were written."""
    lines = []
    for text in path.read_text().splitlines():
        what, token, job, attempt, epoch, due, at, place = text.split()
        assert what in ("start", "end"), text
        lines.append(
            Line(what, token, job, int(attempt), int(epoch), due, float(at), place)  # type: ignore[arg-type]
        )
    return lines


def read_store(path: Path) -> tuple[list[Row], str]:
    """Return the jobs of a store whose server has stopped, and SQLite's own check of the file.

    Jobs that only wait are left out.
    """
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        check = "; ".join(text for (text,) in connection.execute("PRAGMA integrity_check"))
        rows = connection.execute(
            "SELECT job.id, state, name, scheduled_for FROM job"
            " LEFT JOIN schedule ON schedule.id = schedule_id WHERE task <> ?",
            (WAITING,),
        )
        return [Row(render_id(number), *rest) for number, *rest in rows], check
