"""Worker sessions: who has a name, what operators change, and what a recovery keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schedo.core.commands import (
    Cordon,
    DetachWorker,
    Drain,
    Poll,
)
from schedo.core.limits import PAYLOAD_INLINE_BYTES_MAX
from schedo.core.spec_parts import SPECS_BYTES_MAX, TEXT_BYTES
from schedo.core.states import State
from schedo.core.worker_pool import WorkerSpec
from schedo.core.worker_session import EVICTED_AT_ONCE, SESSIONS_MAX
from schedo.errors import NotFound, Overloaded, WorkerReplaced
from tests.core.builders import SECOND, T0, make_spec
from tests.core.remote_site import Site, done, keys, make_poll

# Names.


def test_a_new_process_takes_the_name_over_and_the_old_one_gets_an_error() -> None:
    site = Site()
    lease = site.leased()
    poll = site.poll(running=keys(lease))

    site.report_in(session="s2")

    assert isinstance(site.replies[poll], WorkerReplaced)
    assert isinstance(site.replies[site.poll(session="s1")], WorkerReplaced)
    assert site.job(lease.key.job_id).losses == 1


def test_a_new_process_may_go_on_with_attempts_of_the_old_one() -> None:
    site = Site()
    lease = site.leased()

    site.report_in(session="s2", running=keys(lease))

    assert site.job(lease.key.job_id).state is State.RUNNING


def test_a_new_process_gets_no_lease_that_waited_for_a_poll_of_the_old_one() -> None:
    site = Site()
    site.report_in(slots=9)
    stored = b'"' + b"x" * PAYLOAD_INLINE_BYTES_MAX + b'"'  # a response has room for few of these
    jobs = [site.submit(make_spec(payload=stored)) for _ in range(9)]
    site.poll_at_once(slots=9)
    changed = WorkerSpec("a", 9, frozenset({"other"}))

    response = site.poll_at_once(session="s2", spec=changed, running=frozenset())

    assert response.leases == []
    assert {site.state(job.id) for job in jobs} == {State.QUEUED}


def test_a_new_process_gets_no_lease_that_waited_for_its_commit_when_it_came() -> None:
    site = Site()
    site.poll()
    job = site.submit(make_spec(at_most_once=True))
    site.tick(T0)
    changed = WorkerSpec("a", 1, frozenset({"other"}))

    poll = site.poll(session="s2", spec=changed)
    site.turn()

    assert poll not in site.replies
    assert (site.job(job.id).state, site.job(job.id).losses) == (State.QUEUED, 0)


@pytest.mark.parametrize("slots", [1, 2])
def test_a_new_process_gets_no_lease_that_waited_for_its_gang_when_it_came(slots: int) -> None:
    site = Site()
    site.poll(slots=slots, supports_offers=False)
    offer_poll = site.poll("b")
    jobs = site.invoke(slots + 1)
    [offer] = site.response(offer_poll).leases
    changed = WorkerSpec("a", slots, frozenset({"other"}))

    poll = site.poll(session="s2", spec=changed, supports_offers=False)
    site.report_in("b", accept=[offer.key])

    assert poll not in site.replies
    assert {site.state(job.id) for job in jobs} == {State.FAILED}


def test_the_oldest_disconnected_workers_are_evicted_when_there_are_too_many() -> None:
    site = Site()
    for number in range(SESSIONS_MAX):
        session = make_poll(f"w{number}", is_draining=number < SESSIONS_MAX - 1)
        site.apply(Poll(-number, session), T0)
    site.turn()

    site.report_in("new")

    with pytest.raises(NotFound):
        site.status("w0")
    assert site.status(f"w{SESSIONS_MAX - 2}") == "disconnected"
    assert len(site.scheduler._session_table.by_name) <= SESSIONS_MAX - EVICTED_AT_ONCE + 1


def test_a_worker_beyond_the_limit_of_sessions_is_refused() -> None:
    site = Site()
    for number in range(SESSIONS_MAX):
        site.apply(Poll(-number, make_poll(f"w{number}")), T0)

    assert isinstance(site.replies[site.poll("new")], Overloaded)


NAME_CHARACTERS = 128
NAMES_MAX = SPECS_BYTES_MAX // (NAME_CHARACTERS + TEXT_BYTES)


def spec_with_tasks(name: str, count: int = NAMES_MAX // 2) -> WorkerSpec:
    """Return the spec of a worker with `count` tasks that no other worker has."""
    names = (f"{name}-{number}".ljust(NAME_CHARACTERS, "x") for number in range(count))
    return WorkerSpec(name, 1, frozenset(names))


def test_long_values_of_labels_count_too() -> None:
    site = Site()
    labels = {f"label-{number}": "v" * 250 for number in range(60)}

    for number in range(SPECS_BYTES_MAX // (60 * 250)):
        name = f"w{number}"
        last = site.poll(name, spec=WorkerSpec(name, 1, labels=dict(labels)))

    assert isinstance(site.replies[last], Overloaded)


def test_the_names_of_all_workers_together_are_limited_and_a_retry_is_refused_too() -> None:
    site = Site()
    for name in ("a", "b"):
        site.report_in(name, spec=spec_with_tasks(name))
    spec = spec_with_tasks("c", 1)

    for _ in range(3):
        assert isinstance(site.replies[site.poll("c", spec=spec)], Overloaded)
    with pytest.raises(NotFound):
        site.status("c")


def test_a_worker_may_replace_its_names_at_the_limit_but_not_add_to_them() -> None:
    site = Site()
    for name in ("a", "b"):
        site.report_in(name, spec=spec_with_tasks(name))

    site.report_in("a", spec=replace(spec_with_tasks("c"), id="a"))
    more = spec_with_tasks("a", NAMES_MAX // 2 + 1)

    assert isinstance(site.replies[site.poll("a", spec=more)], Overloaded)
    assert site.status("a") == "active"


def test_names_that_several_workers_register_count_once() -> None:
    site = Site()
    first = spec_with_tasks("a", NAMES_MAX)

    for name in "abc":
        site.report_in(name, spec=replace(first, id=name))
        site.report_in(name, spec=replace(first, id=name, slots=2))

    assert [site.status(name) for name in "abc"] == ["active"] * 3


def test_a_disconnected_worker_makes_room_for_the_names_of_another() -> None:
    site = Site()
    for name in ("a", "b"):
        site.report_in(name, spec=spec_with_tasks(name))
    site.report_in("a", spec=spec_with_tasks("a"), is_draining=True)

    site.report_in("c", spec=spec_with_tasks("c"))
    site.report_in("b", spec=spec_with_tasks("b"), is_draining=True)
    site.report_in("d", spec=spec_with_tasks("d"))

    assert [site.status(name) for name in "cd"] == ["active"] * 2


def test_the_names_are_still_counted_after_a_recovery() -> None:
    site = Site()
    site.report_in(spec=spec_with_tasks("a", NAMES_MAX))

    site.recover(T0)

    assert isinstance(site.replies[site.poll("b", spec=spec_with_tasks("b", 1))], Overloaded)


# Operators.


def test_a_cordon_outlives_the_session_and_a_recovery() -> None:
    site = Site()
    site.report_in()
    site.apply(Cordon("a", True), T0)
    site.report_in(is_draining=True)
    site.report_in()
    assert site.status() == "cordoned"

    site.recover(T0)
    assert site.status() == "cordoned"

    assert site.apply(Cordon("a", False), T0).state == "active"


def test_a_cordon_outlives_the_server() -> None:
    site = Site()
    site.report_in()
    site.apply(Cordon("a", True), T0)
    site.turn()

    site.restart(T0)
    [absent] = site.scheduler.worker_statuses(T0)
    site.submit(make_spec())
    leases = site.poll_at_once().leases

    assert (absent.name, absent.kind, absent.state) == ("a", "remote", "cordoned")
    assert absent.connected_at is None
    assert (leases, site.status()) == ([], "cordoned")
    assert [each.connected_at for each in site.scheduler.worker_statuses(T0)] == [T0]


def test_a_worker_that_is_away_can_be_uncordoned_after_a_restart() -> None:
    site = Site()
    site.report_in()
    site.apply(Cordon("a", True), T0)
    site.turn()
    site.restart(T0)

    assert site.apply(Cordon("a", False), T0).state == "disconnected"
    site.turn()

    with pytest.raises(NotFound):
        site.status()
    site.report_in()
    assert site.status() == "active"
    site.restart(T0)
    assert site.scheduler.worker_statuses(T0) == []


def test_a_cordon_whose_commit_has_failed_is_none() -> None:
    site = Site()
    site.report_in()
    site.scheduler.apply(Cordon("a", True), T0)

    site.recover(T0)

    assert site.status() == "active"


def test_the_cordon_of_a_drain_outlives_a_recovery_and_no_restart() -> None:
    site = Site()
    site.report_in()
    site.apply(Drain("a"), T0)

    site.recover(T0)
    assert not site.poll_at_once().leases
    assert site.status() == "draining"
    site.restart(T0)
    site.report_in()

    assert site.status() == "active"


def test_the_next_process_of_a_drained_worker_has_no_cordon_of_before() -> None:
    site = Site()
    site.report_in()
    site.apply(Cordon("a", True), T0)
    site.apply(Drain("a"), T0)
    site.report_in(session="s2")

    site.turn()
    site.restart(T0)
    site.report_in(session="s2")

    assert site.status() == "active"


def test_a_drain_completes_the_open_poll_and_ends_with_the_process() -> None:
    site = Site()
    poll = site.poll()

    assert site.apply(Drain("a"), T0).state == "draining"
    site.turn()
    assert site.response(poll).drain

    site.report_in(is_draining=True, running=frozenset())
    assert site.status() == "disconnected"
    site.report_in(session="s2")
    assert site.status() == "active"


def test_a_drain_of_a_worker_without_a_poll_is_in_its_next_response() -> None:
    site = Site()
    site.report_in()
    site.apply(Drain("a"), T0)

    assert site.report_in().drain


def test_a_local_worker_that_is_drained_is_cordoned() -> None:
    site = Site(local_slots=1)

    assert site.apply(Drain("local"), T0).state == "cordoned"


@pytest.mark.parametrize("command", [Cordon("nobody", True), Drain("nobody")])
def test_an_unknown_worker_is_not_found(command: Cordon | Drain) -> None:
    with pytest.raises(NotFound):
        Site().apply(command, T0)


def test_a_draining_worker_gets_no_lease_through_its_open_poll() -> None:
    site = Site()
    lease = site.leased(slots=2)
    poll = site.poll(slots=2, running=keys(lease))

    site.report_in(slots=2, is_draining=True, running=keys(lease))
    job = site.submit(make_spec())
    site.turn()

    assert site.response(poll).leases == []
    assert (site.status(), site.state(job.id)) == ("draining", State.QUEUED)


def test_a_worker_that_is_detached_loses_its_attempts() -> None:
    site = Site()
    lease = site.leased()

    site.apply(DetachWorker("a", "it must go"), T0)
    site.turn()

    assert (site.status(), site.job(lease.key.job_id).losses) == ("disconnected", 1)
    assert [worker.name for worker in site.scheduler.worker_statuses(T0)] == ["a"]


# Recovery.


def test_a_recovery_keeps_sessions_and_attempts_and_ends_open_polls() -> None:
    site = Site()
    lease = site.leased(slots=2)
    site.poll(slots=2, running=keys(lease))

    site.recover(SECOND, lease)

    assert site.status() == "active"
    assert [each.key for each in site.scheduler.held_by("a")] == [lease.key]
    job = site.submit(make_spec(), SECOND)
    site.turn(SECOND)
    assert site.state(job.id) is State.QUEUED, "no poll is open"
    response = site.report_in(slots=2, reports=[done(lease)])
    assert response.refused == []
    assert site.state(lease.key.job_id) is State.COMPLETED


def test_a_lease_that_a_recovery_did_not_keep_is_revoked() -> None:
    site = Site()
    lease = site.leased()

    site.recover(SECOND)

    assert site.scheduler.held_by("a") == []
    assert site.report_in(running=keys(lease)).revoked == [lease.key]


def test_a_disconnected_worker_stays_detached_over_a_recovery() -> None:
    site = Site()
    site.report_in(is_draining=True)

    site.recover(SECOND)

    assert (site.status(), "a" in site.scheduler._workers) == ("disconnected", False)
    assert site.scheduler.next_wake_at() is None
