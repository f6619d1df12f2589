"""Lists of several servers as one list."""

from __future__ import annotations

from typing import Any

from schedo.cluster.merging import MERGERS
from schedo.core.failure_groups import GROUPS_MAX


def failure(number: int) -> dict[str, Any]:
    counts = {"count": 1, "beyond": 0, "failed_jobs": 1, "recent": [1]}
    at = f"2026-01-02T03:04:05.{number:06}Z"
    kind = {"task": "demo", "type": f"type {number}", "exit_code": None, "message": ""}
    return {**kind, **counts, "first_at": at, "last_at": at}


def test_the_list_of_failures_has_the_latest_groups_of_all_servers_and_no_more() -> None:
    since = "2026-01-02T00:00:00Z"
    parts = {
        server: {"since": since, "items": [failure(2 * n + odd) for n in range(GROUPS_MAX)]}
        for odd, server in enumerate(("one", "two"))
    }

    items = MERGERS["list_failures"](parts, ())["items"]

    latest = [f"type {number}" for number in range(2 * GROUPS_MAX - 1, GROUPS_MAX - 1, -1)]
    assert [each["type"] for each in items] == latest


def test_an_operation_whose_shard_moves_is_listed_once_as_its_new_owner_knows_it() -> None:
    before = {"id": "01K", "state": "running", "done": 3, "skipped": 1, "failed": 0}
    after = {**before, "done": 5}
    earlier = {**before, "id": "01A", "state": "ended"}

    found = MERGERS["list_operations"](
        {"one": {"items": [after]}, "two": {"items": [before, earlier]}}, ()
    )

    assert found["items"] == [after, earlier]
