"""Job memory: what is held where, what is recycled when, and that pages lose nothing."""

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


def holding(*jobs: Job, capacity: int = 2) -> JobTable:
    """Return the memory of a store that has exactly these jobs."""
    memory = JobTable(capacity, empty=True)
    for job in jobs:
        memory.index(memory.track(job))
    return memory


def held(memory: JobTable, ident: int) -> Job:
    """Return the record, which must be in memory."""
    job = memory.find(ident)
    assert job is not None
    return job


def commit(memory: JobTable) -> list[int]:
    """Commit, and return the ids of the jobs that were written."""
    written = list(memory.take_changes().jobs)
    memory.committed()
    return written


def test_a_record_is_placed_where_its_state_says() -> None:
    memory = holding(waiting(1), queued(2), make_job(3, state=State.RETRYING))

    assert [held(memory, i).location for i in (1, 2, 3)] == [
        Location.TIMERS,
        Location.LANE,
        Location.TIMERS,
    ]


@pytest.mark.parametrize("state", [State.BLOCKED, State.COMPLETED])
def test_a_record_that_waits_for_no_time_and_no_worker_has_no_place(state: State) -> None:
    memory = holding(make_job(1, state=state))

    assert held(memory, 1).location is Location.NOWHERE


def test_the_record_in_memory_wins_over_one_that_is_loaded() -> None:
    memory = holding(waiting(1, 10))

    assert memory.track(waiting(1, 99)).due_at == 10


def test_a_move_that_the_table_forbids_changes_nothing() -> None:
    memory = holding(waiting(1))

    with pytest.raises(IllegalTransition):
        memory.move(held(memory, 1), State.RUNNING)

    assert held(memory, 1).state is State.SCHEDULED
    assert held(memory, 1).location is Location.TIMERS
    assert not memory.changes


def test_waiting_again_in_the_same_state_is_a_move() -> None:
    memory = holding(waiting(1))

    memory.move(held(memory, 1), State.SCHEDULED)

    assert held(memory, 1).location is Location.NOWHERE
    assert commit(memory) == [1]


def test_a_job_is_written_once_however_often_it_changed() -> None:
    memory = holding(waiting(1), waiting(2))

    memory.mark_dirty(held(memory, 2))
    memory.mark_dirty(held(memory, 1))
    memory.mark_dirty(held(memory, 2))

    assert commit(memory) == [2, 1]
    assert commit(memory) == []


def test_an_ended_job_is_forgotten_once_it_is_durable() -> None:
    memory = holding(queued(1))
    memory.move(held(memory, 1), State.CANCELLED)

    memory.take_changes()
    assert memory.find(1) is not None
    memory.committed()
    assert memory.find(1) is None
    assert len(memory) == 0


def test_a_job_that_changed_again_while_it_was_committed_stays() -> None:
    memory = holding(queued(1))
    memory.move(held(memory, 1), State.CANCELLED)
    memory.take_changes()
    memory.mark_dirty(held(memory, 1))

    memory.committed()
    assert memory.find(1) is not None

    assert commit(memory) == [1]
    assert memory.find(1) is None


def test_a_large_payload_leaves_memory_once_it_is_durable() -> None:
    memory = holding(
        queued(1, is_new=True, payload=b"x" * 4_097), queued(2, is_new=True, payload=b"x" * 4_096)
    )
    memory.mark_dirty(held(memory, 1))
    memory.mark_dirty(held(memory, 2))

    commit(memory)

    assert held(memory, 1).payload is None
    assert held(memory, 2).payload == b"x" * 4_096
    assert not held(memory, 1).is_new


# Unique keys.


def test_a_key_is_found_by_the_record_that_holds_it_until_it_is_released() -> None:
    memory = holding(waiting(1, unique_key="k"))

    assert memory.find_key("k") is held(memory, 1)
    memory.release_key(held(memory, 1))
    memory.release_key(held(memory, 1))

    assert memory.find_key("k") is None
    assert commit(memory) == [1]


def test_a_key_is_forgotten_with_its_record() -> None:
    memory = holding(waiting(1, unique_key="k"))
    memory.move(held(memory, 1), State.CANCELLED)

    commit(memory)

    assert memory.find_key("k") is None


def test_a_new_holder_keeps_the_key_when_the_old_one_is_forgotten() -> None:
    memory = holding(waiting(1, unique_key="k"))
    memory.release_key(held(memory, 1))
    memory.move(held(memory, 1), State.CANCELLED)
    memory.index(memory.track(waiting(2, unique_key="k")))

    commit(memory)

    assert memory.find_key("k") is held(memory, 2)


def test_memory_knows_better_than_the_store_who_holds_a_key() -> None:
    memory = holding(waiting(1, unique_key="k"), waiting(2, unique_key="released"))
    memory.release_key(held(memory, 2))
    elsewhere = waiting(3, unique_key="other")

    assert memory.find_unique_holder("k", None) is held(memory, 1)
    assert memory.find_unique_holder("released", waiting(2, unique_key="released")) is None
    assert memory.find_unique_holder("other", elsewhere) is elsewhere
    assert memory.find_unique_holder("nobody's", None) is None


# Windows and pages.


def test_a_trimmed_record_is_recycled_only_at_the_next_commit() -> None:
    memory = holding(*(waiting(n, n) for n in range(1, 5)))
    assert memory.timers.horizon == (2, 2)
    trimmed = held(memory, 4)
    assert trimmed.due_at == 4

    commit(memory)

    assert len(memory) == 2
    assert memory.find(4) is None
    assert trimmed == Job()


def test_a_trimmed_record_that_is_not_durable_stays_until_it_is() -> None:
    memory = holding(waiting(1, 10), waiting(2, 20), waiting(3, 30), waiting(4, 40))
    memory.mark_dirty(held(memory, 4))
    memory.take_changes()
    memory.index(memory.track(waiting(5, 15)))
    memory.mark_dirty(held(memory, 3))
    assert held(memory, 4).location is Location.NOWHERE
    assert held(memory, 3).location is Location.NOWHERE

    memory.committed()
    assert memory.find(4) is None
    assert memory.find(3) is not None

    commit(memory)
    assert memory.find(3) is None


def test_a_record_that_was_trimmed_and_placed_again_is_kept() -> None:
    memory = holding(*(waiting(n, n * 10) for n in range(1, 6)))
    memory.unindex(held(memory, 3))
    held(memory, 3).due_at = 5
    memory.index(held(memory, 3))

    commit(memory)

    assert held(memory, 3).location is Location.TIMERS


def test_pages_are_wanted_once_for_each_window_that_runs_low() -> None:
    memory = JobTable(4)
    memory.ready_queues.announce(WORK)
    start = (-(1 << 62), 0)
    assert memory.needs_loads()

    assert memory.loads() == [LoadTimers(start, 4), LoadReady(WORK, start, 4)]

    assert not memory.needs_loads()
    assert memory.loads() == []


def timers_wanted(memory: JobTable) -> LoadTimers:
    [want] = memory.loads()
    assert isinstance(want, LoadTimers)
    return want


def test_a_full_page_is_taken_in_up_to_its_last_job() -> None:
    memory = JobTable(2)

    memory.extend_timers(timers_wanted(memory), [waiting(1, 10), waiting(2, 20)])

    assert memory.timers.horizon == (20, 2)
    assert held(memory, 2).location is Location.TIMERS


def test_a_short_page_was_the_last() -> None:
    memory = JobTable(2)

    memory.extend_timers(timers_wanted(memory), [waiting(1, 10)])

    assert memory.timers.horizon is None
    assert not memory.needs_loads()


def test_what_changed_during_the_load_wins_over_the_page() -> None:
    memory = JobTable(4)
    want = timers_wanted(memory)
    memory.track(waiting(1, 10))
    memory.move(held(memory, 1), State.CANCELLED)
    memory.index(memory.track(waiting(3, 5)))
    memory.mark_dirty(held(memory, 3))
    memory.track(make_job(4, state=State.RUNNING, location=Location.RUNNING))

    memory.extend_timers(want, [waiting(4, 8), waiting(1, 10), waiting(2, 20)])
    memory.place_changed()

    assert held(memory, 1).state is State.CANCELLED
    assert held(memory, 1).location is Location.NOWHERE
    assert held(memory, 3).location is Location.TIMERS  # the page could not show it
    assert held(memory, 4).location is Location.RUNNING
    assert memory.timers.pop_first(9) == [(5, 3), (20, 2)]


def test_nothing_is_lost_when_a_window_is_trimmed_during_the_load() -> None:
    memory = holding(*(waiting(n, n * 10) for n in range(1, 6)))
    memory.timers.pop_first(1)
    memory.unindex(held(memory, 1))
    want = timers_wanted(memory)
    for ident in (6, 7, 8, 9):
        memory.index(memory.track(waiting(ident, 15)))

    memory.extend_timers(want, [waiting(3, 30), waiting(4, 40)])

    assert memory.timers.horizon == (15, 7)
    assert held(memory, 2).location is Location.NOWHERE
    assert memory.find(4) is None or held(memory, 4).location is Location.NOWHERE


def test_nothing_is_lost_when_a_page_overfills_the_window() -> None:
    stored = [waiting(n, n * 10) for n in range(1, 12)]
    memory = holding(*(job.copy() for job in stored[:4]))
    memory.unindex(held(memory, 1))
    commit(memory)
    want = timers_wanted(memory)
    for ident in (20, 21):  # together with the page more than the window holds
        memory.index(memory.track(waiting(ident, 15)))

    memory.extend_timers(want, [job.copy() for job in stored[2:4]])
    commit(memory)

    assert memory.timers.horizon is not None
    known = [job.id for job in stored[1:] if memory.find(job.id) is not None]
    assert known == [job.id for job in stored[1:] if (job.due_at, job.id) <= memory.timers.horizon]
    assert all(held(memory, ident).location is Location.TIMERS for ident in known)


def test_a_record_without_a_place_is_placed_by_the_page_that_shows_it() -> None:
    memory = holding(*(waiting(n, n * 10) for n in range(1, 5)))
    memory.unindex(held(memory, 1))
    memory.unindex(held(memory, 2))  # the window is empty; 3 and 4 are trimmed, not yet recycled
    want = timers_wanted(memory)

    memory.extend_timers(want, [waiting(3, 30), waiting(4, 40)])
    commit(memory)

    assert memory.timers.horizon == (40, 4)
    assert [held(memory, ident).location for ident in (3, 4)] == [Location.TIMERS, Location.TIMERS]


def test_a_page_of_a_lane_is_taken_in_and_an_empty_one_closes_it() -> None:
    memory = JobTable(2, empty=True)
    memory.ready_queues.announce(WORK)
    [want] = memory.loads()
    assert isinstance(want, LoadReady)

    memory.extend_ready(want, [queued(1, 10), queued(2, 20)])
    window = memory.ready_queues.window(WORK)
    assert window is not None
    assert window.horizon == (20, 2)
    for ident in (1, 2):
        memory.move(held(memory, ident), State.CANCELLED)

    [want] = memory.loads()
    assert isinstance(want, LoadReady)
    memory.extend_ready(want, [])
    assert memory.ready_queues.window(WORK) is None


def test_a_page_of_a_lane_that_was_trimmed_meanwhile_is_dropped() -> None:
    memory = holding(*(queued(n, n * 10) for n in range(1, 6)))
    memory.unindex(held(memory, 1))
    [want] = memory.loads()
    assert isinstance(want, LoadReady)
    for ident in (6, 7, 8, 9):
        memory.index(memory.track(queued(ident, 15)))

    memory.extend_ready(want, [queued(3, 30), queued(4, 40)])

    window = memory.ready_queues.window(WORK)
    assert window is not None
    assert window.horizon == (15, 7)
    assert not window.is_loading
