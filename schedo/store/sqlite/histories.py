"""The statements for ended runs: they change the histories of their schedules."""

from __future__ import annotations

from schedo.core.changes import Changes
from schedo.core.limits import LAST_RUNS_MAX
from schedo.store.sqlite.bulk import COUNTS, Shape

_VALUES = 6  # of rows.ended_run_row
# What the first run of a history writes: the columns, and their values of the run's row.
_FIRST = {
    "completed": "run.state = 'completed'",
    "failed": "run.state = 'failed'",
    "cancelled": "run.state = 'cancelled'",
    "expired": "run.state = 'expired'",
    "failed_in_row": "run.state = 'failed'",
    "last_completed_at": "CASE run.state WHEN 'completed' THEN run.ended_at END",
    "last_failed_at": "CASE run.state WHEN 'failed' THEN run.ended_at END",
    "last_failed_job": "CASE run.state WHEN 'failed' THEN run.job_id END",
    "last_failure": "run.failure",
    "last_runs": "json_array(json(run.body))",
}
_APPENDED = "json_insert(last_runs, '$[#]', json_extract(excluded.last_runs, '$[0]'))"
# What a later run changes in it; `excluded` has the values above.
_LATER = {
    **{
        name: f"{name} + excluded.{name}"
        for name in ("completed", "failed", "cancelled", "expired")
    },
    "failed_in_row": "CASE WHEN excluded.completed THEN 0 ELSE failed_in_row + excluded.failed END",
    "last_completed_at": "coalesce(excluded.last_completed_at, last_completed_at)",
    **{
        name: f"CASE WHEN excluded.failed THEN excluded.{name} ELSE {name} END"
        for name in ("last_failed_at", "last_failed_job", "last_failure")
    },
    "last_runs": f"CASE WHEN json_array_length(last_runs) < {LAST_RUNS_MAX} THEN {_APPENDED}"
    f" ELSE json_remove({_APPENDED}, '$[0]') END",
}


def _add_ended_runs(count: int) -> str:
    """Return the statement that adds `count` rows of rows.ended_run_row, in their order."""
    row = f"({', '.join('?' * _VALUES)})"
    return f"""
WITH run (schedule_id, state, ended_at, job_id, failure, body) AS (
    VALUES {", ".join([row] * count)}
)
INSERT INTO run_history (schedule_id, name, {", ".join(_FIRST)})
SELECT schedule.id, schedule.name, {", ".join(_FIRST.values())}
FROM run CROSS JOIN schedule ON schedule.id = run.schedule_id WHERE true
ON CONFLICT (schedule_id) DO UPDATE
SET {", ".join(f"{name} = {value}" for name, value in _LATER.items())}"""


# A run of a deleted schedule leaves no history.
ADD_ENDED_RUN = _add_ended_runs(1)
ADD_ENDED_RUNS = Shape({count: _add_ended_runs(count) for count in COUNTS})
DELETE_HISTORY = "DELETE FROM run_history WHERE schedule_id = ?"

# Runs have ended, so older ones may be released to the general retention (see pruning.py). due_at:
# when the first of them ended since pruning has looked, and last_at: the last one.
MARK_RUNS = """
INSERT INTO run_release (schedule_id, due_at, last_at) VALUES (?, ?, ?)
ON CONFLICT (schedule_id) DO UPDATE SET last_at = excluded.last_at"""


def runs_to_release(changes: Changes) -> list[tuple[int, int, int]]:
    """Return the schedules with ended runs, and when they ended; deleted ones are due at once."""
    ended = {run.schedule_id: run.ended_at for run in changes.ended_runs}
    ended |= dict.fromkeys(changes.schedules_deleted, 0)
    return [(schedule_id, at, at) for schedule_id, at in ended.items()]
