"""Conditions of SQL on jobs by their state; each database takes them.

The partial indexes repeat them literally, and a query uses such an index only if it has the same
condition (see the migrations of the stores).
"""

from __future__ import annotations

from collections.abc import Iterable

TIMED = "(state = 'scheduled' OR state = 'retrying')"
WAITING = "(state = 'scheduled' OR state = 'blocked' OR state = 'queued' OR state = 'retrying')"
UNFINISHED = (
    "(state = 'scheduled' OR state = 'blocked' OR state = 'queued'"
    " OR state = 'running' OR state = 'retrying')"
)
# Almost every job passes through the other two states, so the index of states is without them.
LISTED_STATE = "state <> 'queued' AND state <> 'scheduled'"


def is_one_of_tasks(tasks: Iterable[str]) -> str:
    """Return the condition on a job of one of these built-in tasks."""
    return "task IN (" + ", ".join(f"'{task}'" for task in tasks) + ")"
