"""The job table: where records are held, when they are recycled, and that pages lose none."""

from __future__ import annotations

import pytest

from schedo.core.job_table import JobTable
from schedo.core.loads import LoadReady, LoadTimers
from schedo.core.model import Job, Location, ReadyKey
from schedo.core.states import State
from schedo.errors import IllegalTransition
from tests.core.builders import make_job

WORK = ReadyKey("default", "work")


def waiting(ident: int, due_at: int = 0, **fields: object) -> Job:
    return make_job(ident, state=State.SCHEDULED, due_at=due_at, rank=due_at, **fields)


def queued(ident: int, rank: int = 0, **fields: object) -> Job:
    return make_job(ident, state=State.QUEUED, rank=rank, due_at=rank, **fields)


def holding(*records: Job, capacity: int = 2) -> JobTable:
    """Return the job table for a store that has exactly these records."""
    jobs = JobTable(capacity, empty=True)
    for record in records:
        jobs.index(jobs.track(record))
    return jobs


def held(jobs: JobTable, ident: int) -> Job:
    """Return the record, which must be in memory."""
    job = jobs.find(ident)
    assert job is not None
    return job


def commit(jobs: JobTable) -> list[int]:
    """Commit, and return the ids of the jobs that were written."""
    written = list(jobs.take_changes().jobs)
    jobs.committed()
    return written


def test_a_waiting_record_is_indexed_by_its_state() -> None:
    jobs = holding(waiting(1), queued(2), make_job(3, state=State.RETRYING))

    assert [held(jobs, i).location for i in (1, 2, 3)] == [
        Location.TIMERS,
        Location.READY,
        Location.TIMERS,
    ]


@pytest.mark.parametrize("state", [State.BLOCKED, State.COMPLETED])
def test_records_in_other_states_are_not_indexed(state: State) -> None:
    jobs = holding(make_job(1, state=state))

    assert held(jobs, 1).location is Location.NOWHERE


def test_the_record_in_memory_wins_over_one_that_is_loaded() -> None:
    jobs = holding(waiting(1, 10))

    assert jobs.track(waiting(1, 99)).due_at == 10


def test_a_forbidden_transition_changes_nothing() -> None:
    jobs = holding(waiting(1))

    with pytest.raises(IllegalTransition):
        jobs.move(held(jobs, 1), State.RUNNING)

    assert held(jobs, 1).state is State.SCHEDULED
    assert held(jobs, 1).location is Location.TIMERS
    assert not jobs.changes


def test_a_new_instant_in_the_same_state_is_a_transition() -> None:
    jobs = holding(waiting(1))

    jobs.move(held(jobs, 1), State.SCHEDULED)

    assert held(jobs, 1).location is Location.NOWHERE
    assert commit(jobs) == [1]


def test_a_job_is_written_once_however_often_it_changed() -> None:
    jobs = holding(waiting(1), waiting(2))

    jobs.mark_dirty(held(jobs, 2))
    jobs.mark_dirty(held(jobs, 1))
    jobs.mark_dirty(held(jobs, 2))

    assert commit(jobs) == [2, 1]
    assert commit(jobs) == []


def test_an_ended_job_is_evicted_once_it_is_durable() -> None:
    jobs = holding(queued(1))
    jobs.move(held(jobs, 1), State.CANCELLED)

    jobs.take_changes()
    assert jobs.find(1) is not None
    jobs.committed()
    assert jobs.find(1) is None
    assert len(jobs) == 0


def test_a_job_that_changed_again_while_it_was_committed_stays() -> None:
    jobs = holding(queued(1))
    jobs.move(held(jobs, 1), State.CANCELLED)
    jobs.take_changes()
    jobs.mark_dirty(held(jobs, 1))

    jobs.committed()
    assert jobs.find(1) is not None

    assert commit(jobs) == [1]
    assert jobs.find(1) is None


def test_a_large_payload_leaves_memory_once_it_is_durable() -> None:
    jobs = holding(
        queued(1, is_new=True, payload=b"x" * 4_097), queued(2, is_new=True, payload=b"x" * 4_096)
    )
    jobs.mark_dirty(held(jobs, 1))
    jobs.mark_dirty(held(jobs, 2))

    commit(jobs)

    assert held(jobs, 1).payload is None
    assert held(jobs, 2).payload == b"x" * 4_096
    assert not held(jobs, 1).is_new


# Unique keys.


def test_the_holder_of_a_unique_key_is_found_until_the_key_is_released() -> None:
    jobs = holding(waiting(1, unique_key="k"))

    assert jobs.find_key("k") is held(jobs, 1)
    jobs.release_key(held(jobs, 1))
    jobs.release_key(held(jobs, 1))

    assert jobs.find_key("k") is None
    assert commit(jobs) == [1]


def test_a_unique_key_is_evicted_with_its_record() -> None:
    jobs = holding(waiting(1, unique_key="k"))
    jobs.move(held(jobs, 1), State.CANCELLED)

    commit(jobs)

    assert jobs.find_key("k") is None


def test_a_new_holder_keeps_its_unique_key_when_the_old_holder_is_evicted() -> None:
    jobs = holding(waiting(1, unique_key="k"))
    jobs.release_key(held(jobs, 1))
    jobs.move(held(jobs, 1), State.CANCELLED)
    jobs.index(jobs.track(waiting(2, unique_key="k")))

    commit(jobs)

    assert jobs.find_key("k") is held(jobs, 2)


def test_memory_wins_over_the_store_about_the_holder_of_a_unique_key() -> None:
    jobs = holding(waiting(1, unique_key="k"), waiting(2, unique_key="released"))
    jobs.release_key(held(jobs, 2))
    elsewhere = waiting(3, unique_key="other")

    assert jobs.find_unique_holder("k", None) is held(jobs, 1)
    assert jobs.find_unique_holder("released", waiting(2, unique_key="released")) is None
    assert jobs.find_unique_holder("other", elsewhere) is elsewhere
    assert jobs.find_unique_holder("nobody's", None) is None


# Pages.


def test_a_trimmed_record_is_recycled_only_at_the_next_commit() -> None:
    jobs = holding(*(waiting(n, n) for n in range(1, 5)))
    assert jobs.timers.horizon == (2, 2)
    trimmed = held(jobs, 4)
    assert trimmed.due_at == 4

    commit(jobs)

    assert len(jobs) == 2
    assert jobs.find(4) is None
    assert any(jobs.make() is trimmed for _ in range(2))


def test_a_trimmed_record_stays_in_memory_until_it_is_durable() -> None:
    jobs = holding(waiting(1, 10), waiting(2, 20), waiting(3, 30), waiting(4, 40))
    jobs.mark_dirty(held(jobs, 4))
    jobs.take_changes()
    jobs.index(jobs.track(waiting(5, 15)))
    jobs.mark_dirty(held(jobs, 3))
    assert held(jobs, 4).location is Location.NOWHERE
    assert held(jobs, 3).location is Location.NOWHERE

    jobs.committed()
    assert jobs.find(4) is None
    assert jobs.find(3) is not None

    commit(jobs)
    assert jobs.find(3) is None


def test_a_record_that_was_trimmed_and_indexed_again_is_kept() -> None:
    jobs = holding(*(waiting(n, n * 10) for n in range(1, 6)))
    jobs.unindex(held(jobs, 3))
    held(jobs, 3).due_at = 5
    jobs.index(held(jobs, 3))

    commit(jobs)

    assert held(jobs, 3).location is Location.TIMERS


def test_each_index_that_runs_low_requests_one_page() -> None:
    jobs = JobTable(4)
    jobs.ready_queues.announce(WORK)
    start = (-(1 << 62), 0)
    assert jobs.needs_loads()

    assert jobs.loads() == [LoadTimers(start, 4), LoadReady(WORK, start, 4)]

    assert not jobs.needs_loads()
    assert jobs.loads() == []


def timers_load(jobs: JobTable) -> LoadTimers:
    [load] = jobs.loads()
    assert isinstance(load, LoadTimers)
    return load


def test_a_full_page_is_indexed_up_to_its_last_job() -> None:
    jobs = JobTable(2)

    jobs.extend_timers(timers_load(jobs), [waiting(1, 10), waiting(2, 20)])

    assert jobs.timers.horizon == (20, 2)
    assert held(jobs, 2).location is Location.TIMERS


def test_a_short_page_is_the_last_one() -> None:
    jobs = JobTable(2)

    jobs.extend_timers(timers_load(jobs), [waiting(1, 10)])

    assert jobs.timers.horizon is None
    assert not jobs.needs_loads()


def test_changes_during_the_load_win_over_the_page() -> None:
    jobs = JobTable(4)
    load = timers_load(jobs)
    jobs.track(waiting(1, 10))
    jobs.move(held(jobs, 1), State.CANCELLED)
    jobs.index(jobs.track(waiting(3, 5)))
    jobs.mark_dirty(held(jobs, 3))
    jobs.track(make_job(4, state=State.RUNNING, location=Location.RUNNING))

    jobs.extend_timers(load, [waiting(4, 8), waiting(1, 10), waiting(2, 20)])
    jobs.place_changed()

    assert held(jobs, 1).state is State.CANCELLED
    assert held(jobs, 1).location is Location.NOWHERE
    assert held(jobs, 3).location is Location.TIMERS  # the page could not show it
    assert held(jobs, 4).location is Location.RUNNING
    assert jobs.timers.pop_first(9) == [(5, 3), (20, 2)]


def test_no_record_is_lost_when_an_index_is_trimmed_during_a_load() -> None:
    jobs = holding(*(waiting(n, n * 10) for n in range(1, 6)))
    jobs.timers.pop_first(1)
    jobs.unindex(held(jobs, 1))
    load = timers_load(jobs)
    for ident in (6, 7, 8, 9):
        jobs.index(jobs.track(waiting(ident, 15)))

    jobs.extend_timers(load, [waiting(3, 30), waiting(4, 40)])

    assert jobs.timers.horizon == (15, 7)
    assert held(jobs, 2).location is Location.NOWHERE
    assert jobs.find(4) is None or held(jobs, 4).location is Location.NOWHERE


def test_no_record_is_lost_when_a_page_overfills_the_index() -> None:
    stored = [waiting(n, n * 10) for n in range(1, 12)]
    jobs = holding(*(job.copy() for job in stored[:4]))
    jobs.unindex(held(jobs, 1))
    commit(jobs)
    load = timers_load(jobs)
    for ident in (20, 21):  # together with the page more than the index holds
        jobs.index(jobs.track(waiting(ident, 15)))

    jobs.extend_timers(load, [job.copy() for job in stored[2:4]])
    commit(jobs)

    assert jobs.timers.horizon is not None
    known = [job.id for job in stored[1:] if jobs.find(job.id) is not None]
    assert known == [job.id for job in stored[1:] if (job.due_at, job.id) <= jobs.timers.horizon]
    assert all(held(jobs, ident).location is Location.TIMERS for ident in known)


def test_a_record_that_no_index_holds_is_indexed_by_its_page() -> None:
    jobs = holding(*(waiting(n, n * 10) for n in range(1, 5)))
    jobs.unindex(held(jobs, 1))
    jobs.unindex(held(jobs, 2))  # the index is empty; 3 and 4 are trimmed, not yet recycled
    load = timers_load(jobs)

    jobs.extend_timers(load, [waiting(3, 30), waiting(4, 40)])
    commit(jobs)

    assert jobs.timers.horizon == (40, 4)
    assert [held(jobs, ident).location for ident in (3, 4)] == [Location.TIMERS, Location.TIMERS]


def test_a_page_fills_a_ready_index_and_an_empty_one_closes_it() -> None:
    jobs = JobTable(2, empty=True)
    jobs.ready_queues.announce(WORK)
    [load] = jobs.loads()
    assert isinstance(load, LoadReady)

    jobs.extend_ready(load, [queued(1, 10), queued(2, 20)])
    ready = jobs.ready_queues.ready_index(WORK)
    assert ready is not None
    assert ready.horizon == (20, 2)
    for ident in (1, 2):
        jobs.move(held(jobs, ident), State.CANCELLED)

    [load] = jobs.loads()
    assert isinstance(load, LoadReady)
    jobs.extend_ready(load, [])
    assert jobs.ready_queues.ready_index(WORK) is None


def test_a_page_of_a_trimmed_ready_index_is_dropped() -> None:
    jobs = holding(*(queued(n, n * 10) for n in range(1, 6)))
    jobs.unindex(held(jobs, 1))
    [load] = jobs.loads()
    assert isinstance(load, LoadReady)
    for ident in (6, 7, 8, 9):
        jobs.index(jobs.track(queued(ident, 15)))

    jobs.extend_ready(load, [queued(3, 30), queued(4, 40)])

    ready = jobs.ready_queues.ready_index(WORK)
    assert ready is not None
    assert ready.horizon == (15, 7)
    assert not ready.is_loading


def test_new_jobs_enter_their_index_together_as_far_as_it_reaches() -> None:
    jobs = holding(*(queued(i, rank=i) for i in range(1, 5)), capacity=2)  # it holds 1 and 2
    for i, rank in ((5, 0), (6, 9)):
        jobs.add(queued(i, rank=rank))

    assert commit(jobs) == [5, 6]

    assert held(jobs, 5).location is Location.READY
    assert jobs.find(6) is None
    assert jobs.ready == {5}


def test_a_new_job_that_changes_during_its_commit_is_kept_for_the_next_one() -> None:
    jobs = holding(*(queued(i, rank=i) for i in range(1, 5)), capacity=2)
    jobs.add(queued(6, rank=9))
    jobs.take_changes()
    jobs.mark_dirty(held(jobs, 6))

    jobs.committed()

    assert held(jobs, 6).location is Location.NOWHERE
    assert commit(jobs) == [6]
    assert jobs.find(6) is None
