"""Reservations: slots that are held for the owner of a nonce, in plain calls."""

from __future__ import annotations

import pytest

from schedo.core.commands import (
    CommitReservation,
    ConfigureQueue,
    DetachWorker,
    ReleaseReservation,
    Reserve,
)
from schedo.core.model import JobSpec, Options, ReadyKey
from schedo.core.requirements import Condition, Requirements
from schedo.core.states import State
from schedo.core.worker_messages import Decided
from schedo.errors import NoCapacity, NoReservation, Unsatisfiable
from tests.core.builders import HOUR, SECOND, T0, make_spec, worker_spec
from tests.core.remote_site import Site

EU = Requirements(labels=(Condition("region", "=", ("eu",)),))


def reserve(site: Site, count: int = 1, *, ttl_us: int = 10 * SECOND) -> list[str]:
    """Reserve slots under the id r; return the workers."""
    key = ReadyKey("default", "work", requirements=EU)
    return site.apply(Reserve("r", "nonce", key, count, ttl_us), T0).workers


def commit(site: Site, spec: JobSpec | None = None, *, nonce: str = "nonce") -> None:
    site.apply(CommitReservation("r", nonce, spec or make_spec()), T0)
    site.turn()


def test_a_reserved_slot_is_used_once_by_the_owner_of_the_nonce() -> None:
    site = Site()
    poll = site.poll()
    assert reserve(site) == ["a"]
    with pytest.raises(NoCapacity):
        site.invoke()
    with pytest.raises(NoReservation, match="nonce"):
        commit(site, nonce="guess")

    commit(site)

    [lease] = site.response(poll).leases
    assert lease.options.requirements == EU
    site.report_in(accept=[lease.key])
    assert site.decided == [Decided("r", 0)]
    with pytest.raises(NoReservation, match="there is no reservation 'r'"):
        commit(site)


def test_a_job_on_a_reservation_keeps_its_own_requirements() -> None:
    site = Site()
    poll = site.poll()
    reserve(site)
    own = Requirements(labels=(Condition("region", "!=", ("us",)),))

    commit(site, JobSpec("work", options=Options(requirements=own)))

    [lease] = site.response(poll).leases
    assert lease.options.requirements == own


def test_a_slot_of_a_released_reservation_can_be_used_again() -> None:
    site = Site()
    site.poll()
    reserve(site)

    site.apply(ReleaseReservation("r", "nonce"), T0)

    assert reserve(site) == ["a"]


def test_a_reservation_ends_when_its_time_is_up() -> None:
    site = Site()
    site.poll()
    reserve(site)

    site.run_until(10 * SECOND - 1)
    with pytest.raises(NoCapacity):
        site.invoke(now=10 * SECOND - 1)
    site.run_until(10 * SECOND)

    assert [job.worker for job in site.invoke(now=10 * SECOND)] == ["a"]


def test_a_clock_set_back_does_not_prolong_a_reservation() -> None:
    site = Site()
    site.poll(wait_s=60.0)
    reserve(site)
    site.settle(T0)

    site.follow_clock(-HOUR)
    site.run_until(10 * SECOND - HOUR - 1)
    with pytest.raises(NoCapacity):
        site.invoke(now=10 * SECOND - HOUR - 1)
    site.run_until(10 * SECOND - HOUR)

    site.invoke(now=10 * SECOND - HOUR)


def test_a_reservation_ends_with_its_worker() -> None:
    site = Site()
    site.poll()
    reserve(site)
    site.apply(DetachWorker("a", "it left"), T0)

    with pytest.raises(NoReservation, match="is gone"):
        commit(site)
    with pytest.raises(NoReservation, match="there is no reservation"):
        commit(site)


def test_slots_on_a_queue_that_no_worker_serves_are_refused() -> None:
    site = Site()
    site.attach(worker_spec("other", queues=frozenset({"mail"})))

    with pytest.raises(Unsatisfiable, match="no worker offers queue default"):
        site.apply(Reserve("r", "nonce", ReadyKey("default", ""), 1, SECOND), T0)


def test_a_commit_that_no_worker_can_run_leaves_the_reservation_open() -> None:
    site = Site()
    site.poll()
    reserve(site)

    with pytest.raises(Unsatisfiable):
        commit(site, JobSpec("other"))

    commit(site)


@pytest.mark.parametrize("fields", [{"concurrency": 1}, {"paused": True}], ids=str)
def test_a_commit_to_a_full_or_paused_queue_leaves_the_reservation_open(
    fields: dict[str, int | bool],
) -> None:
    site = Site(local_slots=3)
    key = ReadyKey("default", "work")
    site.apply(Reserve("r", "nonce", key, 1, 10 * SECOND), T0)
    site.invoke()
    site.apply(ConfigureQueue("default", fields), T0)

    with pytest.raises(NoCapacity, match="queue default is"):
        commit(site)

    site.apply(ConfigureQueue("default", {"concurrency": 2, "paused": False}), T0)
    commit(site)


def test_a_recovery_drops_reservations() -> None:
    site = Site()
    site.poll()
    reserve(site)

    site.recover(T0)

    with pytest.raises(NoReservation):
        site.apply(ReleaseReservation("r", "nonce"), T0)


def test_a_released_reservation_gives_no_job_to_a_worker_that_does_not_poll() -> None:
    site = Site()
    site.poll(wait_s=1.0)
    reserve(site)
    site.run_until(2 * SECOND)  # the poll has its response, and the worker sends no other

    site.apply(ReleaseReservation("r", "nonce"), 2 * SECOND)
    job = site.submit(make_spec(), 2 * SECOND)
    site.turn(2 * SECOND)

    assert site.state(job.id) is State.QUEUED


def test_a_released_reservation_does_not_exceed_the_leases_that_a_poll_requests() -> None:
    site = Site()
    site.poll(slots=10, max_leases=1)
    reserve(site)
    poll = site.poll(slots=10, max_leases=1)

    site.apply(ReleaseReservation("r", "nonce"), T0)
    site.submit_all([make_spec(), make_spec()])
    site.turn()

    assert len(site.response(poll).leases) == 1
