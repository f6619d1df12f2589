"""The statements for ended runs: they change the histories of their schedules."""

from __future__ import annotations

from collections.abc import Iterator

from schedo.core.changes import Changes
from schedo.core.limits import LAST_RUNS_MAX
from schedo.store.postgres.tables import Statement

# What the first run of a history writes: the columns, and their values of the run's row, which has
# the schedule, the state, the instant, the job, its failure and the run as JSON.
_FIRST = {
    "completed": "($2 = 'completed')::int",
    "failed": "($2 = 'failed')::int",
    "cancelled": "($2 = 'cancelled')::int",
    "expired": "($2 = 'expired')::int",
    "failed_in_row": "($2 = 'failed')::int",
    "last_completed_at": "CASE $2 WHEN 'completed' THEN $3::bigint END",
    "last_failed_at": "CASE $2 WHEN 'failed' THEN $3::bigint END",
    "last_failed_job": "CASE $2 WHEN 'failed' THEN $4::bigint END",
    "last_failure": "$5::text",
    "last_runs": "jsonb_build_array($6::text::jsonb)",
}
# What a later run changes in it; `excluded` has the values above.
_APPENDED = "history.last_runs || excluded.last_runs"
_LATER = {
    **{
        name: f"history.{name} + excluded.{name}"
        for name in ("completed", "failed", "cancelled", "expired")
    },
    "failed_in_row": "CASE WHEN excluded.completed = 1 THEN 0"
    " ELSE history.failed_in_row + excluded.failed END",
    "last_completed_at": "coalesce(excluded.last_completed_at, history.last_completed_at)",
    **{
        name: f"CASE WHEN excluded.failed = 1 THEN excluded.{name} ELSE history.{name} END"
        for name in ("last_failed_at", "last_failed_job", "last_failure")
    },
    "last_runs": f"CASE WHEN jsonb_array_length(history.last_runs) < {LAST_RUNS_MAX}"
    f" THEN {_APPENDED} ELSE ({_APPENDED}) - 0 END",
}
# A run of a deleted schedule leaves no history.
ADD_ENDED_RUN = f"""
INSERT INTO run_history AS history (schedule_id, name, {", ".join(_FIRST)})
SELECT id, name, {", ".join(_FIRST.values())} FROM schedule WHERE id = $1
ON CONFLICT (schedule_id) DO UPDATE
SET {", ".join(f"{name} = {value}" for name, value in _LATER.items())}""".replace("$2", "$2::text")

# Runs have ended, so older ones may be released to the general retention (see pruning.py). due_at:
# when the first of them ended since pruning has looked, and last_at: the last one.
_MARK_RUNS = """
INSERT INTO run_release (schedule_id, due_at, last_at, shard)
SELECT ended.schedule_id, ended.at, ended.at, coalesce(
    (SELECT shard FROM schedule WHERE schedule.id = ended.schedule_id),
    (SELECT shard FROM job WHERE schedule_id IS NOT NULL AND job.schedule_id = ended.schedule_id
        ORDER BY id + 0 LIMIT 1),
    0
) FROM unnest($1::bigint[], $2::bigint[]) AS ended (schedule_id, at)
ON CONFLICT (schedule_id) DO UPDATE SET last_at = excluded.last_at"""


def mark_runs(changes: Changes) -> Iterator[Statement]:
    """Return the statement that marks the schedules of ended runs; deleted ones are due at once."""
    ended = {run.schedule_id: run.ended_at for run in changes.ended_runs}
    ended |= dict.fromkeys(changes.schedules_deleted, 0)
    if ended:
        yield Statement(_MARK_RUNS, ([*ended], [*ended.values()]))
