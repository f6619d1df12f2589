"""The statements that write the decisions about the instants of schedules."""

from __future__ import annotations

from collections.abc import Iterable

from schedo.core import limits
from schedo.core.model import DecisionRecord
from schedo.store.rows import DECISION
from schedo.store.sqlite.bulk import COUNTS, Shape


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


# The number of the second decision, if it is old. Each commit with a decision deletes two old ones
# at most, so that it stays cheap, and the old ones become fewer.
_OLD = """
SELECT CASE WHEN decided_at < decided.column2 THEN number END FROM decision
WHERE schedule_id = decided.column1 ORDER BY number LIMIT 1 OFFSET 1"""
_LAST = "SELECT max(number) FROM decision WHERE schedule_id = decided.column1"


def _trim_decisions(count: int) -> str:
    """Return the statement that deletes decisions of `count` schedules.

    A row: the schedule, and the instant before which decisions are old.
    """
    return f"""
DELETE FROM decision WHERE (schedule_id, number) IN (
    SELECT old.schedule_id, old.number
    FROM (VALUES {", ".join(["(?, ?)"] * count)}) AS decided
    CROSS JOIN decision AS old ON old.schedule_id = decided.column1 AND old.number <= max(
        ({_LAST}) - {limits.DECISIONS_KEPT},
        min(({_LAST}) - {limits.DECISIONS_KEPT_MIN}, coalesce(({_OLD}), 0))
    )
)"""


def trimmed(decisions: Iterable[DecisionRecord]) -> list[tuple[int, int]]:
    """Return the rows of TRIM_DECISION after these decisions."""
    decided = {each.schedule_id: each.decided_at for each in decisions}
    return [(ident, at - limits.DECISIONS_KEPT_US) for ident, at in decided.items()]


INSERT_DECISION, TRIM_DECISION = _insert_decisions(1), _trim_decisions(1)
INSERT_DECISIONS = Shape({count: _insert_decisions(count) for count in COUNTS})
TRIM_DECISIONS = Shape({count: _trim_decisions(count) for count in COUNTS})
