"""The statements for attempts and outputs of jobs, and for decisions about instants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from schedo.core import limits
from schedo.core.changes import Changes
from schedo.core.model import DecisionRecord
from schedo.store import rows
from schedo.store.columns import Row
from schedo.store.postgres import tables
from schedo.store.postgres.tables import Statement, Table, columns_of


def _numbered(table: Table, owner: str, condition: str = "TRUE") -> str:
    """Return the statement that inserts rows with numbers, which continue for each owner."""
    names = ", ".join(table.names)
    return f"""
INSERT INTO {table.name} (number, {names})
SELECT coalesce((SELECT max(number) FROM {table.name} AS old WHERE old.{owner} = added.{owner}), 0)
    + row_number() OVER (PARTITION BY added.{owner} ORDER BY added.place), {names}
FROM {table.arrays(table.names)} WITH ORDINALITY AS added ({names}, place)
WHERE {condition}"""


# A late result may belong to a pruned job; its record would never be deleted. Or its job may belong
# to another server, which may add a record with the same number at the same time.
_HAS_JOB = "EXISTS (SELECT 1 FROM job WHERE job.id = added.job_id)"
_OWNS_JOB = f"""EXISTS (
    SELECT 1 FROM job WHERE job.id = added.job_id
    AND shard = ANY(${len(tables.ATTEMPT.names) + 1}::smallint[])
)"""
_INSERT_ATTEMPTS = _numbered(tables.ATTEMPT, "job_id", _OWNS_JOB)
_TRIM_ATTEMPTS = f"""
DELETE FROM attempt USING unnest($1::bigint[]) AS changed (id)
WHERE attempt.job_id = changed.id AND attempt.number <= (
    SELECT max(number) FROM attempt AS last WHERE last.job_id = changed.id
) - {limits.ATTEMPTS_MAX}"""

_INSERT_OUTPUTS = f"""
INSERT INTO output (job_id, attempt, stream, head, tail, total_bytes)
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::text[], $4::bytea[], $5::bytea[], $6::bigint[]
) AS added (job_id, attempt, stream, head, tail, total_bytes)
WHERE {_HAS_JOB}
ON CONFLICT (job_id, attempt, stream) DO UPDATE
SET head = excluded.head, tail = excluded.tail, total_bytes = excluded.total_bytes"""
# The sum runs back from the latest attempt. The streams of an attempt are deleted together.
_TRIM_OUTPUTS = f"""
DELETE FROM output USING unnest($1::bigint[]) AS changed (id)
WHERE output.job_id = changed.id AND output.attempt <= (
    SELECT max(summed.attempt) FROM (
        SELECT attempt, sum(octet_length(head) + octet_length(tail)) OVER (ORDER BY attempt DESC)
            AS total
        FROM output AS last WHERE last.job_id = changed.id
    ) AS summed WHERE summed.total > {limits.OUTPUTS_BYTES_MAX}
)"""

_INSERT_DECISIONS = _numbered(tables.DECISION, "schedule_id")
# The number of the second decision, if it is old. Each commit with a decision deletes two old ones
# at most, so that it stays cheap, and the old ones become fewer.
_OLD = """
SELECT CASE WHEN second.decided_at < decided.old_before THEN second.number END
FROM decision AS second WHERE second.schedule_id = decided.schedule_id
ORDER BY second.number LIMIT 1 OFFSET 1"""
_LAST = "SELECT max(last.number) FROM decision AS last WHERE last.schedule_id = decided.schedule_id"
_TRIM_DECISIONS = f"""
DELETE FROM decision USING unnest($1::bigint[], $2::bigint[]) AS decided (schedule_id, old_before)
WHERE decision.schedule_id = decided.schedule_id AND decision.number <= greatest(
    ({_LAST}) - {limits.DECISIONS_KEPT},
    least(({_LAST}) - {limits.DECISIONS_KEPT_MIN}, coalesce(({_OLD}), 0))
)"""


class Evidence(NamedTuple):
    """The rows of the attempts and the outputs of a commit; each begins with the id of its job.

    shards: those of the server. Attempts of jobs in other shards are not written.
    """

    attempts: Sequence[Row] = ()
    outputs: Sequence[Row] = ()
    shards: Sequence[int] = ()

    @classmethod
    def of(cls, changes: Changes, shards: Sequence[int]) -> Evidence:
        """Return the rows of the changes."""
        attempts = [rows.attempt_row(each, has_job=True) for each in changes.attempts]
        # The last one of each stream, because a statement changes each row once.
        outputs = {
            (each.job_id, each.attempt, str(each.capture.stream)): each.capture
            for each in changes.outputs
        }
        return cls(
            [tuple(row[name] for name in tables.ATTEMPT.names) for row in attempts],
            [(*key, found.head, found.tail, found.total_bytes) for key, found in outputs.items()],
            [*shards],
        )

    def of_each_job(self) -> Iterator[tuple[int, Evidence]]:
        """Return the rows of each job by itself."""
        for job_id in dict.fromkeys(row[0] for row in (*self.attempts, *self.outputs)):
            attempts, outputs = (
                [row for row in found if row[0] == job_id]
                for found in (self.attempts, self.outputs)
            )
            yield job_id, Evidence(attempts, outputs, self.shards)

    def statements(self) -> Iterator[Statement]:
        """Return the statements that write them, and delete the oldest ones of their jobs."""
        if self.attempts:
            columns = columns_of(self.attempts, len(tables.ATTEMPT.names))
            yield Statement(_INSERT_ATTEMPTS, (*columns, self.shards))
            yield Statement(_TRIM_ATTEMPTS, ([*{row[0] for row in self.attempts}],))
        if self.outputs:
            yield Statement(_INSERT_OUTPUTS, columns_of(self.outputs, 6))
            # The output of a first attempt is always within the limit.
            repeated = {row[0] for row in self.outputs if row[1] > 1}
            if repeated:
                yield Statement(_TRIM_OUTPUTS, ([*repeated],))


def keep_decisions(decisions: Sequence[DecisionRecord]) -> Iterator[Statement]:
    """Return the statements that write decisions, and delete old ones of their schedules."""
    if decisions:
        found = [rows.decision_row(each) for each in decisions]
        yield Statement(_INSERT_DECISIONS, columns_of(found, len(tables.DECISION.names)))
        decided = {each.schedule_id: each.decided_at for each in decisions}
        old_before = [at - limits.DECISIONS_KEPT_US for at in decided.values()]
        yield Statement(_TRIM_DECISIONS, ([*decided], old_before))
