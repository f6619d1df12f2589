"""The jobs of an operation that other servers of a cluster have changed."""

from __future__ import annotations

import pytest

from schedo.core.bulk import BulkAction, BulkError, BulkOperation
from schedo.core.bulk_commands import (
    BeginBulk,
    Changed,
    ChangeForOther,
    CountedBulk,
    PutBackForOther,
    StepBulk,
    StepUndo,
    UndoBulk,
)
from schedo.core.bulk_undo import BulkStep, JobBefore
from schedo.core.job_filter import JobFilter
from schedo.core.states import State
from schedo.errors import Unavailable
from tests.core.builders import SECOND, T0, make_spec
from tests.core.server import Server

T1 = T0 + SECOND


def test_a_step_counts_the_jobs_that_other_servers_have_changed() -> None:
    server = Server(slots=0)
    mine = server.submit(make_spec(queue="mail")).id
    operation = server.apply(BeginBulk(BulkAction.CANCEL, JobFilter(queue="mail")), T1)
    server.apply(CountedBulk(operation.id, 10), T1)

    errors = (BulkError(7, "no"), BulkError(8, "no"))
    elsewhere = Changed(done=4, skipped=3, errors=errors)
    ended = server.apply(StepBulk(operation.id, operation.before, (mine,), None, elsewhere), T1)

    assert (ended.done, ended.skipped, ended.failed, ended.errors) == (5, 3, 2, errors)
    assert server.state(mine) is State.CANCELLED


def test_what_other_servers_have_changed_is_undone_with_the_rest() -> None:
    server = Server(slots=0)
    mine = server.submit(make_spec(queue="mail")).id
    operation = server.apply(BeginBulk(BulkAction.CANCEL, JobFilter(queue="mail")), T1)
    server.apply(CountedBulk(operation.id, 2), T1)
    theirs = JobBefore(mine - 1, T1, State.QUEUED, 0, T0)

    elsewhere = Changed(done=1, before=(theirs,))
    server.apply(StepBulk(operation.id, operation.before, (mine,), None, elsewhere), T1)

    (step,) = server.scheduler._jobs.changes.steps
    assert [each.id for each in step.jobs] == [mine, theirs.id]


def test_what_became_of_the_jobs_of_all_parts_adds_up() -> None:
    errors = BulkError(7, "no"), BulkError(8, "no")
    before = JobBefore(1, T0, State.QUEUED, 0, T0), JobBefore(2, T0, State.QUEUED, 0, T0)

    found = Changed.total(
        [Changed(1, 2, errors[:1], before[:1], kept=(-7,)), Changed(3, 4, errors[1:], before[1:])]
    )

    assert found == Changed(4, 6, errors, before, kept=(-7,))


def test_a_part_whose_jobs_may_have_moved_changes_nothing() -> None:
    server = Server(slots=0)
    mine = server.submit(make_spec(queue="mail")).id
    operation = server.apply(BeginBulk(BulkAction.CANCEL, JobFilter(queue="mail")), T1)

    with pytest.raises(Unavailable, match="the shards have changed"):
        server.apply(ChangeForOther(operation, (mine,), is_current=lambda: False), T1)

    assert server.state(mine) is State.QUEUED


def test_a_server_keeps_what_an_undo_needs_until_the_step_of_the_operation_has_it() -> None:
    server = Server(slots=0)
    mine = server.submit(make_spec(queue="mail")).id
    operation = server.apply(BeginBulk(BulkAction.CANCEL, JobFilter(queue="mail")), T1)
    operation = server.apply(CountedBulk(operation.id, 1), T1)
    changes = server.scheduler._jobs.changes

    changed = server.apply(ChangeForOther(operation, (mine,), number=-7), T1)
    server.apply(ChangeForOther(operation, (mine,), number=-8), T1)  # it changes nothing
    assert changes.steps == [BulkStep(operation.id, -7, changed.before)]
    elsewhere = Changed.of_record(changes.steps[0])
    assert elsewhere == changed._replace(kept=(-7,))
    server.apply(StepBulk(operation.id, operation.before, (), None, elsewhere), T1)

    assert changes.steps[1:] == [BulkStep(operation.id, operation.before, changed.before)]
    assert changes.steps_deleted == [(operation.id, -7)]


def test_a_step_whose_jobs_may_have_moved_changes_nothing() -> None:
    server = Server(slots=0)
    mine = server.submit(make_spec(queue="mail")).id
    begun = server.apply(BeginBulk(BulkAction.CANCEL, JobFilter(queue="mail")), T1)
    operation = server.apply(CountedBulk(begun.id, 1), T1)
    step = StepBulk(operation.id, operation.before, (mine,), None, is_current=lambda: False)

    with pytest.raises(Unavailable, match="shards have changed"):
        server.apply(step, T1)
    assert server.state(mine) is State.QUEUED

    server.apply(StepBulk(operation.id, operation.before, (mine,), None), T1)
    undo = server.apply(UndoBulk(operation.id), T1)
    with pytest.raises(Unavailable, match="shards have changed"):
        server.apply(StepUndo(undo.id, undo.before, (), None, is_current=lambda: False), T1)
    assert server.state(mine) is State.CANCELLED


def test_a_server_changes_its_own_jobs_for_an_operation_of_another_one() -> None:
    server = Server(slots=0)
    mine = server.submit(make_spec(queue="mail")).id
    other = server.submit(make_spec(queue="print")).id
    operation = BulkOperation(
        id=other + 512,
        action=BulkAction.CANCEL,
        which=JobFilter(queue="mail"),
        created_at=T1,
        before=1,
    )

    changed = server.apply(ChangeForOther(operation, (mine, other, 7)), T1)
    put_back = server.apply(PutBackForOther(changed.before), T1 + SECOND)
    again = server.apply(PutBackForOther(changed.before), T1 + SECOND)

    assert (changed.done, changed.skipped, changed.missing) == (1, 1, (7,))
    assert [each.id for each in changed.before] == [mine]
    assert put_back == Changed(done=1)
    assert again == Changed(skipped=1)
    assert server.state(mine) is State.QUEUED
    assert not server.scheduler._jobs.changes.steps
    assert not server.scheduler._jobs.changes.bulk_operations
