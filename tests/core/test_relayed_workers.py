"""Workers that poll another server of a cluster, as the owner of their jobs sees them."""

from __future__ import annotations

from dataclasses import replace

from schedo.core.commands import CompletePolls, HoldLease, PollBroken
from schedo.core.model import LeaseKey, ReadyKey
from schedo.core.states import State
from schedo.core.worker_pool import WorkerPool
from tests.core.builders import SECOND, T0, make_spec, worker_spec
from tests.core.remote_site import Site, make_poll

READY_KEY = ReadyKey("default", "work")
RECONNECT_S = 5


def attached(*, near: int, far: int) -> WorkerPool:
    """Return a pool with open polls of a worker of this server and one of another server."""
    workers = WorkerPool()
    workers.attach(replace(worker_spec("far", far, polls=True), is_relayed=True))
    workers.attach(worker_spec("near", near, polls=True))
    for name, slots in (("near", near), ("far", far)):
        workers.poll(name, slots)
    workers.groups.note_freed()
    return workers


def test_a_worker_of_this_server_gets_the_next_job_also_if_one_of_another_has_more_room() -> None:
    workers = attached(near=1, far=9)
    group = workers.groups.find(READY_KEY)

    first = group.first()
    assert first is not None
    assert first.spec.id == "near"
    workers.hold("near", LeaseKey(1, 1, 1))

    second = group.first()
    assert second is not None
    assert second.spec.id == "far"


def test_many_jobs_fill_the_workers_of_this_server_first() -> None:
    group = attached(near=2, far=9).groups.find(READY_KEY)

    assert [each.spec.id for each in group.share(4)] == ["near", "near", "far", "far"]


def test_invocations_are_placed_on_the_workers_of_this_server_first() -> None:
    workers = attached(near=1, far=9)

    assert [each.spec.id for each in workers.place(READY_KEY, 2)] == ["near", "far"]


def test_a_worker_that_has_not_got_a_lease_from_its_server_keeps_its_other_attempts() -> None:
    site = Site()
    spec = replace(make_poll(slots=2).spec, is_relayed=True)
    kept = site.leased(slots=2, spec=spec)
    unsent = site.leased(slots=2, spec=spec)

    site.apply(PollBroken(0, "a", [unsent.key]), T0)
    site.run_until((RECONNECT_S + 1) * SECOND)

    assert site.state(unsent.key.job_id) is State.QUEUED
    assert site.state(kept.key.job_id) is State.RUNNING
    assert site.warnings == []


def test_a_worker_whose_server_dies_keeps_its_attempts_while_it_finds_another_one() -> None:
    site = Site()
    spec = replace(make_poll(slots=2).spec, is_relayed=True)
    kept = site.leased(slots=2, spec=spec, session_timeout_s=30.0)
    poll = site.poll(slots=2, spec=spec, session_timeout_s=30.0)

    site.apply(PollBroken(poll, "a"), T0)
    site.run_until((RECONNECT_S + 1) * SECOND)

    assert site.state(kept.key.job_id) is State.RUNNING
    assert site.status() == "active"


def test_a_lease_whose_relayed_poll_has_ended_before_its_start_was_durable_goes_back() -> None:
    site = Site()
    site.poll(spec=replace(make_poll().spec, is_relayed=True))
    job_id = site.submit(make_spec()).id
    site.scheduler.tick(T0)
    [lease] = site.scheduler.take_leases()
    site.apply(CompletePolls("a"), T0)
    site.scheduler.take_replies(T0)

    site.apply(HoldLease(lease), T0)
    site.turn(T0)

    assert site.state(job_id) is State.QUEUED
    assert site.scheduler.held_by("a") == []
