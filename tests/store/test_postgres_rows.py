"""A commit sends PostgreSQL half of the columns of a job whose other values are the usual ones."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.core.keep import NOT_KEPT
from schedo.core.model import Job, Trigger
from schedo.core.states import State
from schedo.store.postgres import tables
from schedo.store.postgres.job_rows import JobRows, encode_jobs
from tests.factories import make_job

SHARD = 7


def encode(*jobs: Job) -> JobRows:
    return encode_jobs(jobs, 0, lambda _: SHARD)


def test_a_job_with_the_usual_values_is_sent_without_them() -> None:
    new = make_job(id=1)
    ended = make_job(id=2, is_new=False, state=State.COMPLETED, attempt=1, result=b"1")

    found = encode(new, ended)

    assert [(row[0], row[-1]) for row in found.new.usual] == [(1, SHARD)]
    assert [row[0] for row in found.known.usual] == [2]
    assert len(found.new.usual[0]) < len(tables.JOB.names) / 2
    assert not found.new.whole
    assert not found.known.whole


@pytest.mark.parametrize(
    "unusual",
    [
        {"state": State.SCHEDULED},
        {"trigger": Trigger.MANUAL},
        {"schedule_id": 5},
        {"unique_key": "key"},
        {"expires_at": 9},
        {"kept_until": 9},
        {"due_elapsed": True},
    ],
)
def test_a_new_job_with_another_value_is_sent_whole(unusual: dict[str, Any]) -> None:
    found = encode(make_job(id=1, **unusual))

    (row,) = found.new.whole
    sent = dict(zip(tables.JOB.names, row, strict=True))
    assert sent | unusual == sent
    assert (sent["id"], sent["shard"]) == (1, SHARD)
    assert not found.new.usual


@pytest.mark.parametrize(
    "unusual", [{"failures": 1}, {"losses": 2}, {"unique_key": "key"}, {"cancel_requested_at": 3}]
)
def test_a_known_job_with_another_value_is_sent_whole(unusual: dict[str, Any]) -> None:
    found = encode(make_job(id=1, is_new=False, **unusual))

    (row,) = found.known.whole
    sent = dict(zip(tables.CHANGED_JOB, row, strict=True))
    assert sent | unusual == sent
    assert sent["id"] == 1
    assert not found.known.usual


def test_a_job_that_is_not_kept_is_deleted_instead() -> None:
    found = encode(make_job(id=1, is_new=False, kept_until=NOT_KEPT), make_job(id=2))

    assert found.unkept == [1]
    assert len(found.known) == 0
    assert len(found.new) == 1


def test_updates_that_release_keys_come_before_those_that_take_them() -> None:
    releases = make_job(id=1, is_new=False, failures=1)
    takes = make_job(id=2, is_new=False, unique_key="key")
    usual = make_job(id=3, is_new=False)

    first, second = encode(takes, releases, usual, make_job(id=4)).statements()

    counts = [statement.parameters[0] for statement in (first, second)]
    assert counts == [2, 1]
    assert second.parameters[2]  # the new job
