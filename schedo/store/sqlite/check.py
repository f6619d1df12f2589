"""The check of a store or a backup: it reads everything and changes nothing.

A server may use the store meanwhile: each query of the check has a snapshot of its own.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from urllib.parse import quote

from schedo.core.states import FINAL, State
from schedo.core.triggers import next_after
from schedo.errors import StoreDamaged, StoreUnsuitable
from schedo.store import rows
from schedo.store.sqlite.buffer_entries import find_unreadable
from schedo.store.sqlite.connection import open_reader, store_error
from schedo.store.sqlite.last_commit import read_mark
from schedo.store.sqlite.reads import load_clock
from schedo.store.sqlite.schema import check_file, list_migrations
from schedo.store.sqlite.startup_checks import describe_loss, find_damage, size_of

_SHOWN_MAX = 20  # of the problems that SQLite finds


def _listed(states: frozenset[State] | type[State]) -> str:
    return ", ".join(f"'{state.value}'" for state in states)


# Each query counts the rows that break the claim.
_CLAIMS = {
    "each job is in one known state": (
        f"SELECT count(*) FROM job NOT INDEXED WHERE state NOT IN ({_listed(State)})"
    ),
    "a job has an end exactly if its state is final": (
        "SELECT count(*) FROM job NOT INDEXED"
        f" WHERE (ended_at IS NOT NULL) <> (state IN ({_listed(FINAL)}))"
    ),
    "a running job has a worker and an attempt": (
        "SELECT count(*) FROM job NOT INDEXED"
        " WHERE state = 'running' AND (worker IS NULL OR attempt < 1)"
    ),
    "each job has its payload": (
        "SELECT count(*) FROM job NOT INDEXED WHERE payload IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM job_payload WHERE job_id = job.id)"
    ),
    "each queued job is found by its ready key": (
        "SELECT abs((SELECT count(*) FROM job NOT INDEXED WHERE state = 'queued')"
        " - (SELECT count(*) FROM job INDEXED BY job_ready WHERE state = 'queued'))"
    ),
    "each job that waits for an instant is found by it": (
        "SELECT abs((SELECT count(*) FROM job NOT INDEXED"
        " WHERE state = 'scheduled' OR state = 'retrying')"
        " - (SELECT count(*) FROM job INDEXED BY job_timers"
        " WHERE state = 'scheduled' OR state = 'retrying'))"
    ),
    "no two jobs have one unique key": (
        "SELECT count(*) FROM (SELECT 1 FROM job NOT INDEXED WHERE unique_key IS NOT NULL"
        " GROUP BY unique_key HAVING count(*) > 1)"
    ),
    "no instant of a schedule fired twice": (
        "SELECT count(*) FROM (SELECT 1 FROM job NOT INDEXED"
        " WHERE trigger = 'schedule' OR trigger = 'catchup'"
        " GROUP BY schedule_id, scheduled_for, offset_us HAVING count(*) > 1)"
    ),
}
_SCHEDULES = f"SELECT {', '.join(rows.SCHEDULE.names)} FROM schedule"
_FACTS = {
    "jobs": "SELECT count(*) FROM job",
    "schedules": "SELECT count(*) FROM schedule",
    "commits": "SELECT value FROM meta WHERE name = 'commits'",
    "backed_up_at": "SELECT value FROM meta WHERE name = 'backed_up_at'",
}


@dataclass
class Findings:
    """What a check has found; facts: numbers by name, instants in microseconds."""

    path: str
    is_held: bool = False  # a server uses the store
    facts: dict[str, int] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def note(self, claim: str, problem: str | None) -> None:
        """Note that the claim holds, or what is wrong with it."""
        if problem is None:
            self.passed.append(claim)
        else:
            self.problems.append(problem)


def check_store(path: str, *, is_full: bool = False) -> Findings:
    """Check the store or backup at the path.

    is_full: also compare each index with its table. Raises StoreUnsuitable if there is no store, or
    one of a newer version.
    """
    path = os.path.realpath(path)
    if not os.path.isfile(path):
        raise StoreUnsuitable(f"there is no store at {path}")
    report = Findings(path, is_held=_is_held(path))
    damage = find_damage(path, read_mark(path))
    problem = None if damage is None else describe_loss(path, damage)
    report.note("no commit is missing", problem)
    if damage is not None and damage.is_unusable:
        return report
    try:
        with closing(_connect(path, is_held=report.is_held)) as connection:
            check_file(connection, path)
            _check(connection, report, "integrity_check" if is_full else "quick_check")
    except sqlite3.Error as error:
        report.problems.append(str(store_error(error, path)))
    except StoreDamaged as error:
        report.problems.append(str(error))
    return report


def _is_held(path: str) -> bool:
    """Return whether a server holds the store; this leaves the lock file as it is."""
    try:
        descriptor = os.open(path + ".lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _connect(path: str, *, is_held: bool) -> sqlite3.Connection:
    if is_held or size_of(path + "-wal"):
        return open_reader(path)
    # Without a log the file is complete, and reading it so makes no files beside it.
    uri = f"file:{quote(path)}?mode=ro&immutable=1"
    return sqlite3.connect(uri, uri=True, isolation_level=None)


def _check(connection: sqlite3.Connection, report: Findings, pragma: str) -> None:
    found = [row[0] for row in connection.execute(f"PRAGMA {pragma}({_SHOWN_MAX})")]
    report.note(f"SQLite's {pragma}", None if found == ["ok"] else "; ".join(found))
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    newest = len(list_migrations())
    report.facts["schema"] = version
    for name, query in _FACTS.items():
        value = connection.execute(query).fetchone()
        if value is not None:
            report.facts[name] = value[0]
    if version < newest:
        report.passed.append(f"schema {version}; the next start brings it to {newest}")
        return
    report.passed.append(f"schema {version}, the newest")
    report.facts["buffered_commits"], unreadable = find_unreadable(connection)
    report.note(
        "the write buffer can be replayed",
        f"entries of the write buffer are unreadable: {unreadable}" if unreadable else None,
    )
    for claim, query in _CLAIMS.items():
        (count,) = connection.execute(query).fetchone()
        report.note(claim, f"{claim}: {count} do not" if count else None)
    _check_schedules(connection, report)


def _check_schedules(connection: sqlite3.Connection, report: Findings) -> None:
    offset_us = load_clock(connection).offset_us
    wrong = []
    for row in connection.execute(_SCHEDULES):
        schedule = rows.schedule_from_row(row, offset_us)
        expected = next_after(schedule.rule, schedule.evaluated_through)
        if not schedule.paused and schedule.next_fire_at != expected:
            wrong.append(schedule.name)
    claim = "the next fire of each schedule follows from its rule"
    report.note(claim, f"{claim}: not for {', '.join(wrong[:_SHOWN_MAX])}" if wrong else None)
