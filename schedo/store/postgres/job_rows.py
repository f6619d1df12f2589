"""The rows of the jobs of a commit, and the statements that write them.

Nearly all jobs have the same values in half of their columns: no unique key, no failures, no
schedule. Of these a commit sends the other half only, and the statement has the usual values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from schedo.core import limits
from schedo.core.keep import NOT_KEPT
from schedo.core.model import PLAIN, Job, Trigger
from schedo.core.states import State
from schedo.store import rows
from schedo.store.columns import Row
from schedo.store.postgres import tables
from schedo.store.postgres.tables import Statement, columns_of

_INSERT_PAYLOADS = (
    "INSERT INTO job_payload (job_id, payload) SELECT * FROM unnest($1::bigint[], $2::bytea[])"
)
_INSERT_TAGS = (
    "INSERT INTO job_tag (tag, job_id) SELECT * FROM unnest($1::text[], $2::bigint[])"
    " ON CONFLICT DO NOTHING"
)
_KEY = tables.CHANGED_JOB.index("unique_key")
# Of a job that has neither a unique key nor a deadline, and was never lost or retried.
_USUAL: Mapping[str, Any] = {
    **dict.fromkeys(("failures", "losses", "missed_count", "due_elapsed", "expires_elapsed"), 0),
    **dict.fromkeys(("unique_key", "expires_at", "cancel_requested_at", "failure", "kept_until")),
}
_USUAL_NEW: Mapping[str, Any] = {
    **_USUAL,
    **{"state": str(State.QUEUED.value), "trigger": str(Trigger.SUBMIT.value), "requirements": ""},
    **dict.fromkeys(("picked_at", "started_at", "ended_at", "worker", "result")),
    **dict.fromkeys(("schedule_id", "scheduled_for")),
    **dict.fromkeys(("attempt", "epoch"), 0),
}


class Form:
    """How the rows of some columns are made, and sent as arrays of two composite types.

    whole: the type of all columns, in the order of `columns`. usual: the type of those columns
    that have no usual value, first of all the id (see migrations/0012_usual_job_rows.sql).
    """

    def __init__(
        self,
        columns: Sequence[str],
        values: Mapping[str, Any],
        types: tuple[str, str],
        parameters: Iterable[str] = (),
    ) -> None:
        """parameters: of `make`, as Columns.compile_row takes them."""
        self._columns, self._values, self._types = columns, values, types
        sent = ("id", *(name for name in columns if name not in {"id", *values}))
        made = [name for name in (*sent, *values) if name in rows.JOB.inserted]
        self.make = rows.JOB.compile_row(made, *parameters)
        self.width = len(made) - len(values)
        self.tail = tuple(values.values())
        # Puts a made row into the order of `columns`, apart from the shard, which is the last one.
        self.order: Callable[[Row], Row] = itemgetter(
            *(made.index(name) for name in columns if name in made)
        )

    def source(self, usual_at: int, whole_at: int | None) -> str:
        """Return the query for the rows of two parameters, or of one: the usual ones come first."""
        whole, usual = self._types
        columns = ", ".join(
            _literal(name, self._values[name]) if name in self._values else name
            for name in self._columns
        )
        query = f"SELECT {columns} FROM unnest(${usual_at}::{usual}[])"
        if whole_at is not None:
            query += f" UNION ALL SELECT * FROM unnest(${whole_at}::{whole}[])"
        return query


def _literal(name: str, value: Any) -> str:
    text = "NULL" if value is None else f"'{value}'"
    return f"{text}::{tables.JOB_TYPES[name]} AS {name}"


_NEW = Form(
    tables.JOB.names,
    _USUAL_NEW,
    ("new_job", "usual_new_job"),
    ("payload", "options", "requirements", "offset_us"),
)
_CHANGED = Form(tables.CHANGED_JOB, _USUAL, ("changed_job", "usual_changed_job"), ("offset_us",))

_NAMES = ", ".join(tables.JOB.names)
_SET = ", ".join(f"{name} = changed.{name}" for name in tables.CHANGED_JOB if name != "id")


# PostgreSQL runs the insert after all updates, because it asks for their number. The updates of
# jobs of the usual type come first: they may free a unique key that another job takes.
def _write_jobs(known: str, new: str) -> str:
    return f"""
WITH updated AS (
    UPDATE job SET {_SET} FROM ({known}) AS changed WHERE job.id = changed.id RETURNING 1
), found AS MATERIALIZED (SELECT require_all(count(*), $1::bigint) AS all_jobs FROM updated),
inserted AS (
    INSERT INTO job ({_NAMES}) SELECT * FROM ({new}) AS new WHERE (SELECT all_jobs FROM found)
)
SELECT all_jobs FROM found"""


WRITE_USUAL_JOBS = _write_jobs(_CHANGED.source(2, None), _NEW.source(3, None))
WRITE_JOBS = _write_jobs(_CHANGED.source(2, 4), _NEW.source(3, 5))


@dataclass(slots=True)
class Rows:
    """Rows of new or of known jobs: of the usual type, with the id as the first value, or whole."""

    usual: list[Row] = field(default_factory=list)
    whole: list[Row] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.usual) + len(self.whole)


@dataclass(slots=True)
class JobRows:
    """The rows of the jobs of a commit, and of what belongs to them."""

    new: Rows = field(default_factory=Rows)
    known: Rows = field(default_factory=Rows)
    payloads: list[tuple[int, bytes]] = field(default_factory=list)
    tags: list[tuple[str, int]] = field(default_factory=list)
    unkept: list[int] = field(default_factory=list)

    def of_each_job(self) -> Iterator[tuple[int, JobRows]]:
        """Return the rows of each job by itself, in the order of writing."""
        for row in self.known.usual:
            yield row[0], JobRows(known=Rows(usual=[row]))
        for row in self.known.whole:
            yield row[-1], JobRows(known=Rows(whole=[row]))
        for row in self.new.usual:
            yield row[0], self._with_rest(row[0], Rows(usual=[row]))
        for row in self.new.whole:
            yield row[0], self._with_rest(row[0], Rows(whole=[row]))

    def _with_rest(self, job_id: int, new: Rows) -> JobRows:
        tags = [each for each in self.tags if each[1] == job_id]
        payloads = [each for each in self.payloads if each[0] == job_id]
        return JobRows(new, payloads=payloads, tags=tags)

    def statements(self) -> Iterator[Statement]:
        """Return the statements that write them."""
        # Updates without a unique key come first: they may free a key that another job takes.
        known = self.known
        keyed = [row for row in known.whole if row[_KEY] is not None]
        if keyed and len(keyed) < len(known):
            without = [row for row in known.whole if row[_KEY] is None]
            yield _write(Rows(), Rows(known.usual, without))
            known = Rows(whole=keyed)
        if self.new or known:
            yield _write(self.new, known)
        if self.payloads:
            yield Statement(_INSERT_PAYLOADS, columns_of(self.payloads, 2))
        if self.tags:
            yield Statement(_INSERT_TAGS, columns_of(self.tags, 2))


def _write(new: Rows, known: Rows) -> Statement:
    usual = len(known), known.usual, new.usual
    if new.whole or known.whole:
        return Statement(WRITE_JOBS, (*usual, known.whole, new.whole))
    return Statement(WRITE_USUAL_JOBS, usual)


def encode_jobs(jobs: Collection[Job], offset_us: int, place: Callable[[Job], int]) -> JobRows:
    """Return the rows of changed jobs. place: returns the shard of a new job."""
    found = JobRows(unkept=[job.id for job in jobs if job.kept_until == NOT_KEPT])
    kept = [job for job in jobs if job.kept_until != NOT_KEPT] if found.unkept else jobs
    _add_known(found, [job for job in kept if not job.is_new], offset_us)
    _add_new(found, [job for job in kept if job.is_new], offset_us, place)
    return found


def _add_known(found: JobRows, jobs: Iterable[Job], offset_us: int) -> None:
    known, make, width, tail = found.known, _CHANGED.make, _CHANGED.width, _CHANGED.tail
    for job in jobs:
        row = make(job, offset_us)
        if row[width:] == tail:
            known.usual.append(row[:width])
        else:
            known.whole.append(_CHANGED.order(row))


def _add_new(
    found: JobRows, jobs: Iterable[Job], offset_us: int, place: Callable[[Job], int]
) -> None:
    new, make, width, tail = found.new, _NEW.make, _NEW.width, _NEW.tail
    options, text, requirements = PLAIN, None, ""  # most jobs of a batch share their options
    for job in jobs:
        payload = job.payload
        assert payload is not None, "a new job has its payload"
        if job.options is not options:
            options = job.options
            text = rows.options_text(options)
            requirements = rows.requirements_text(options.requirements)
        if len(payload) > limits.PAYLOAD_INLINE_BYTES_MAX:
            found.payloads.append((job.id, payload))
            payload = None
        if options.tags:
            found.tags.extend((tag, job.id) for tag in options.tags)
        row = make(job, payload, text, requirements, offset_us)
        if row[width:] == tail:
            new.usual.append((*row[:width], place(job)))
        else:
            new.whole.append((*_NEW.order(row), place(job)))
