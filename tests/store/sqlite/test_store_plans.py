"""SQLite's plan of each query: through its index, without sorting, at the cost of one page."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

import pytest

from schedo.core.job_filter import JobFilter, Order
from schedo.core.schedule_filter import ANY_SCHEDULE, Health, ScheduleFilter
from schedo.core.states import State
from schedo.store.sqlite import (
    bulk_steps,
    decisions,
    due_search,
    evidence,
    queries,
    schedule_search,
    write_buffer,
    writes,
)
from schedo.store.sqlite.job_search import indexes_of, search_query
from schedo.store.sqlite.schema import migrate

KEY = "USING INTEGER PRIMARY KEY"
PLANS = {
    "LoadTimers, same": (
        queries.TIMERS.same,
        "INDEX job_timers (due_elapsed=? AND due_at=? AND id>?)",
    ),
    "LoadTimers, later": (queries.TIMERS.later, "INDEX job_timers (due_elapsed=? AND due_at>?)"),
    "PromoteDue, same": (
        queries.DUE.same,
        "INDEX job_timers (due_elapsed=? AND due_at=? AND id>?)",
    ),
    "PromoteDue, later": (
        queries.DUE.later,
        "INDEX job_timers (due_elapsed=? AND due_at>? AND due_at<?)",
    ),
    "PromoteDue": (queries.QUEUE_JOBS, f"SEARCH job {KEY} (rowid=?)"),
    "LoadReady, same": (
        queries.READY.same,
        "job_ready (queue=? AND task=? AND requirements=? AND rank=?",
    ),
    "LoadReady, later": (queries.READY.later, "(queue=? AND task=? AND requirements=? AND rank>?)"),
    "load_running": (queries.RUNNING, "INDEX job_state (state=? AND id>?)"),
    "LoadExpired": (queries.EXPIRED, "INDEX job_expires (expires_elapsed=? AND expires_at"),
    "LoadJob": (queries.JOB, KEY),
    "LoadJobs": (queries.JOBS, f"SEARCH job {KEY} (rowid=?)"),
    "LoadUniqueHolders, ids": (queries.UNIQUE_IDS, "COVERING INDEX job_unique (unique_key=?)"),
    "LoadUniqueHolders": (queries.UNIQUE, "INDEX job_unique (unique_key=?)"),
    "LoadSchedules, same": (
        queries.SCHEDULES.same,
        "schedule_next (elapsed=? AND next_fire_at=? AND id>?)",
    ),
    "LoadSchedules, later": (
        queries.SCHEDULES.later,
        "INDEX schedule_next (elapsed=? AND next_fire_at>?)",
    ),
    "LoadSchedule by name": (
        queries.SCHEDULE_BY_NAME,
        "INDEX sqlite_autoindex_schedule_1 (name=?)",
    ),
    "list_names, schedules": (
        queries.SCHEDULE_NAMES,
        "COVERING INDEX sqlite_autoindex_schedule_1",
    ),
    "list_names, tags": (queries.TAGS, "PRIMARY KEY (tag>?)"),
    "list_schedules": (
        schedule_search.search_query(ANY_SCHEDULE),
        "INDEX sqlite_autoindex_schedule_1 (name>? AND name<?)",
    ),
    "list_schedules, failing": (
        schedule_search.search_query(ScheduleFilter(health=Health.FAILING)),
        "INDEX run_history_failing (name>? AND name<?)",
    ),
    "list_schedules, paused": (
        schedule_search.search_query(ScheduleFilter(paused=True)),
        "INDEX schedule_paused (name>? AND name<?)",
    ),
    "list_schedules, ended": (
        schedule_search.search_query(ScheduleFilter(health=Health.ENDED)),
        "INDEX schedule_ended (name>? AND name<?)",
    ),
    "list_schedules, end of a part": (
        schedule_search.index_of(ANY_SCHEDULE).probe,
        "COVERING INDEX sqlite_autoindex_schedule_1 (name>?)",
    ),
    "list_schedules, end of a part of the failing": (
        schedule_search.index_of(ScheduleFilter(failing=True)).probe,
        "INDEX run_history_failing (name>?)",
    ),
    "count_schedules, paused": (
        schedule_search.count_query(Health.PAUSED),
        "INDEX schedule_paused",
    ),
    "get_histories": (queries.HISTORIES, "SEARCH history USING INTEGER PRIMARY KEY (rowid=?)"),
    "list_schedule_statuses": (
        queries.SCHEDULE_STATUSES,
        "SEARCH schedule USING INTEGER PRIMARY KEY (rowid>?)",
    ),
    "list_rules": (queries.RULES, "SEARCH schedule USING INTEGER PRIMARY KEY (rowid>?)"),
    "LoadBlocked": (queries.BLOCKED, "INDEX job_state (state=? AND id>?)"),
    "get_job": (queries.WHOLE_JOB, KEY),
    "load_payload": (queries.PAYLOAD, KEY),
    "load_payload, large": (queries.LARGE_PAYLOAD, KEY),
    "list_decisions": (queries.DECISIONS, "PRIMARY KEY (schedule_id=? AND number<?)"),
    "list_bulk_changes": (bulk_steps.STEPS_OF_JOB, "PRIMARY KEY (operation=? AND number=?)"),
    "list_attempts": (queries.ATTEMPTS, "PRIMARY KEY (job_id=?)"),
    "list_output_sizes": (queries.OUTPUT_SIZES, "INDEX sqlite_autoindex_output_1 (job_id=?)"),
    "read_output": (queries.OUTPUT_PARTS["head"], "INDEX sqlite_autoindex_output_1 (job_id=?"),
    "find_idempotency_record": (
        queries.IDEMPOTENCY_RECORD,
        "INDEX sqlite_autoindex_idempotency_record_1 (scope=?)",
    ),
    "prune ended jobs": (queries.ENDED, "INDEX job_ended (state=? AND ended_at"),
    "prune jobs that are kept no longer": (
        queries.KEPT_ENOUGH,
        "INDEX job_kept (kept_until>? AND kept_until<?)",
    ),
    "release runs, schedules": (queries.RUNS_TO_RELEASE, "INDEX run_release_due (due_at<?)"),
    "release runs, held ones": (queries.HELD_RUNS, "INDEX job_held (schedule_id=?)"),
    "release runs": (queries.RELEASE_RUNS, KEY),
    "prune idempotency records": (
        queries.DELETE_IDEMPOTENCY_RECORDS,
        "COVERING INDEX idempotency_record_created (created_at<?)",
    ),
    "prune jobs": (queries.DELETE_JOBS[0], KEY),
    "prune payloads": (queries.DELETE_JOBS[1], KEY),
    "prune tags": (queries.DELETE_JOBS[2], "COVERING INDEX job_tag_job (job_id=?)"),
    "prune attempts": (queries.DELETE_JOBS[3], "PRIMARY KEY (job_id=?)"),
    "prune outputs": (queries.DELETE_JOBS[4], "INDEX sqlite_autoindex_output_1 (job_id=?)"),
    "update a job": (writes.UPDATE_JOB, KEY),
    "update many jobs": (writes.UPDATE_JOBS[0].statements[10], f"SEARCH job {KEY} (rowid=?)"),
    "append an entry, new jobs": (write_buffer.APPEND, f"SEARCH job {KEY} (rowid>? AND rowid<?)"),
    "append an entry, known jobs": (write_buffer.APPEND, f"SEARCH job {KEY} (rowid=?)"),
    "trim attempts": (evidence.TRIM_ATTEMPTS, "PRIMARY KEY (job_id=? AND number<?)"),
    "trim decisions": (
        decisions.TRIM_DECISIONS.statements[10],
        "old USING PRIMARY KEY (schedule_id=? AND number<?)",
    ),
}
# For each filter: the indexes that a part of its search may use, and how SQLite uses each.
LISTS = {
    "all": (JobFilter(), [f"SEARCH job {KEY} (rowid>? AND rowid<?)"]),
    "state": (
        JobFilter(state="failed"),
        ["INDEX job_state (state=? AND id>? AND id<?)", KEY],
    ),
    "task": (JobFilter(task="a"), ["INDEX job_task (task=? AND id>? AND id<?)", KEY]),
    "queue": (JobFilter(queue="a"), ["INDEX job_queue (queue=? AND id>? AND id<?)", KEY]),
    "the default queue": (JobFilter(queue="default"), [KEY]),
    "schedule": (
        JobFilter(schedule_id=1),
        ["INDEX job_schedule (schedule_id=? AND id>? AND id<?)", KEY],
    ),
    "unique key": (JobFilter(unique_key="k"), ["INDEX job_unique (unique_key=?", KEY]),
    "tag": (JobFilter(tag="a"), ["PRIMARY KEY (tag=? AND job_id>? AND job_id<?)", KEY]),
    "tag and state": (
        JobFilter(tag="a", state="failed"),
        [
            "PRIMARY KEY (tag=? AND job_id>? AND job_id<?)",
            "INDEX job_state (state=? AND id>? AND id<?)",
            KEY,
        ],
    ),
    "queue, state and task": (
        JobFilter(queue="a", state="failed", task="b"),
        [
            "INDEX job_queue (queue=? AND id>? AND id<?)",
            "INDEX job_state (state=? AND id>? AND id<?)",
            "INDEX job_task (task=? AND id>? AND id<?)",
            KEY,
        ],
    ),
    "states of which some are in no index": (
        JobFilter(states=(State.FAILED, State.QUEUED), task="a"),
        ["INDEX job_task (task=? AND id>? AND id<?)", KEY],
    ),
    "created": (JobFilter(created_after=5), [f"SEARCH job {KEY} (rowid>? AND rowid<?)"]),
}
# These indexes are in another order than the list. They are used if they have few entries.
UNSORTED = {
    "scheduled": (JobFilter(state="scheduled"), "INDEX job_timers"),
    "queued": (JobFilter(state="queued"), "INDEX job_ready"),
    "queued, of a queue": (JobFilter(state="queued", queue="a"), "INDEX job_ready (queue=?)"),
    "queued, of a queue and a task": (
        JobFilter(state="queued", queue="a", task="b"),
        "INDEX job_ready (queue=? AND task=?)",
    ),
}


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection)
    yield connection
    connection.close()


def plan(connection: sqlite3.Connection, query: str) -> str:
    names = {*re.findall(r":([a-z_]+)", query)}
    values = dict.fromkeys(names, 1) if names else [1] * query.count("?")
    return "\n".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", values))


@pytest.mark.parametrize(("query", "index"), PLANS.values(), ids=PLANS)
def test_a_query_uses_its_index_and_does_not_sort(
    connection: sqlite3.Connection, query: str, index: str
) -> None:
    found = plan(connection, query)

    assert index in found
    assert "SCAN job" not in found
    assert "TEMP B-TREE" not in found


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize(("which", "expected"), LISTS.values(), ids=LISTS)
def test_a_list_searches_a_range_of_an_index_and_does_not_sort(
    connection: sqlite3.Connection, which: JobFilter, expected: list[str], order: Order
) -> None:
    for index, use in zip(indexes_of(which), expected, strict=True):
        for query in (index.probe(order), search_query(which, index, order)):
            found = plan(connection, query)
            assert use in found
            assert "SCAN" not in found
            assert "TEMP B-TREE" not in found


def test_what_comes_next_is_read_from_the_index_of_timers_alone(
    connection: sqlite3.Connection,
) -> None:
    entries = plan(connection, due_search.ENTRIES)
    jobs = plan(connection, due_search.ids_query(JobFilter(state="scheduled", task="a")))

    steps = [line for line in entries.splitlines() if " job " in line]
    index = "SEARCH job USING COVERING INDEX job_timers"
    assert steps == 2 * [
        f"{index} (due_elapsed=? AND due_at=? AND id>?)",
        f"{index} (due_elapsed=? AND due_at>?)",
    ]
    assert f"SEARCH job {KEY} (rowid=?)" in jobs


@pytest.mark.parametrize(("which", "use"), UNSORTED.values(), ids=UNSORTED)
def test_waiting_jobs_are_listed_from_the_index_of_waiting_jobs(
    connection: sqlite3.Connection, which: JobFilter, use: str
) -> None:
    [index] = [each for each in indexes_of(which) if not each.is_sorted]

    assert use in plan(connection, index.probe())
    assert use in plan(connection, search_query(which, index))


@pytest.mark.parametrize("order", Order)
def test_jobs_in_one_of_several_states_are_listed_from_a_range_of_each(
    connection: sqlite3.Connection, order: Order
) -> None:
    which = JobFilter(states=(State.FAILED, State.CANCELLED))
    index, _ = indexes_of(which)

    for query in (index.probe(order), search_query(which, index, order)):
        found = plan(connection, query)
        assert "INDEX job_state (state=? AND id>? AND id<?)" in found
        assert "SCAN job" not in found


def test_the_active_jobs_of_a_page_of_schedules_are_found_through_their_index(
    connection: sqlite3.Connection,
) -> None:
    found = plan(connection, queries.ACTIVE)

    assert "SEARCH job USING COVERING INDEX job_active (schedule_id=?)" in found
    assert "SEARCH run USING INTEGER PRIMARY KEY" in found
    assert "SCAN run" not in found


def test_ready_keys_are_found_by_skipping_through_the_index(connection: sqlite3.Connection) -> None:
    found = plan(connection, queries.READY_KEYS)

    assert "SEARCH job USING COVERING INDEX job_ready (queue=? AND task>?)" in found
    assert "SEARCH job USING COVERING INDEX job_ready (queue>?)" in found
    assert "TEMP B-TREE" not in found


def test_a_count_of_jobs_reads_only_indexes(connection: sqlite3.Connection) -> None:
    found = plan(connection, queries.COUNTS)

    assert "SCAN job USING COVERING INDEX job_ready" in found
    assert "SEARCH job USING INDEX job_state (state=?)" in found
    assert "SCAN job\n" not in found


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (
            queries.COUNT_SAME,
            "SEARCH job USING COVERING INDEX job_timers (due_elapsed=? AND due_at=? AND id>?)",
        ),
        (
            queries.COUNT_BOUND,
            "SEARCH job USING COVERING INDEX job_timers (due_elapsed=? AND due_at>?)",
        ),
        (queries.COUNT_BELOW, "INDEX job_timers (due_elapsed=? AND due_at>? AND due_at<?)"),
    ],
    ids=["same", "bound", "below"],
)
def test_a_partial_count_of_jobs_reads_only_a_part_of_an_index(
    connection: sqlite3.Connection, query: str, index: str
) -> None:
    assert index in plan(connection, query)
