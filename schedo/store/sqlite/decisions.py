"""The statements that write the decisions about the instants of schedules."""

from __future__ import annotations

from schedo.core import limits
from schedo.store.sqlite.bulk import COUNTS, Shape
from schedo.store.sqlite.rows import DECISION


def _insert_decisions(count: int) -> str:
    """Return the statement that inserts `count` rows of decision_row."""
    # The numbers of a schedule's decisions continue, in the order of the rows.
    names = DECISION.names
    row = ", ".join("?" * len(names))
    values = ", ".join(f"({row}, {number})" for number in range(count))
    return f"""
INSERT INTO decision (number, {", ".join(names)})
SELECT (SELECT coalesce(max(number), 0) FROM decision WHERE schedule_id = column1)
        + row_number() OVER (PARTITION BY column1 ORDER BY column{len(names) + 1}),
    {", ".join(f"column{at}" for at in range(1, len(names) + 1))}
FROM (VALUES {values})"""


def _trim_decisions(count: int) -> str:
    """Return the statement that deletes the old decisions of `count` schedules."""
    return f"""
DELETE FROM decision WHERE (schedule_id, number) IN (
    SELECT old.schedule_id, old.number
    FROM (VALUES {", ".join(["(?)"] * count)}) AS decided
    CROSS JOIN decision AS old ON old.schedule_id = decided.column1 AND old.number <= (
        SELECT max(number) FROM decision WHERE schedule_id = decided.column1
    ) - {limits.DECISIONS_KEPT}
)"""


INSERT_DECISION, TRIM_DECISION = _insert_decisions(1), _trim_decisions(1)
INSERT_DECISIONS = Shape({count: _insert_decisions(count) for count in COUNTS})
TRIM_DECISIONS = Shape({count: _trim_decisions(count) for count in COUNTS})
