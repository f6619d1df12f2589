"""The jobs of a lost remote worker: only one that can alone be the cause counts a loss."""

from __future__ import annotations

from schedo.core.commands import PollBroken
from schedo.core.leases import Lease
from schedo.core.states import State
from schedo.core.worker_session import RESTART_TIMEOUT_US
from tests.core.builders import T0, make_spec
from tests.core.remote_site import Site, done, keys

SLOTS = 3


class Fleet(Site):
    """A site with one remote worker, which the test kills and starts again."""

    def __init__(self, *tasks: str) -> None:
        super().__init__()
        self.lives = 0
        self.start_anew()
        self.ids_of = [self.submit(make_spec(task), T0).id for task in tasks]

    def start_anew(self) -> None:
        """Let a new process take the worker's name over, without the attempts of the old one."""
        self.lives += 1
        self.report_in(session=f"s{self.lives}", slots=SLOTS, running=frozenset())

    def run_next(self) -> list[Lease]:
        """Let the worker take all the jobs that it can get."""
        return list(self.poll_at_once(session=f"s{self.lives}", slots=SLOTS).leases)

    def losses(self) -> list[int]:
        return [self.job(job_id).losses for job_id in self.ids_of]

    def states(self) -> list[State]:
        return [self.state(job_id) for job_id in self.ids_of]


def test_a_job_that_ran_alone_counts_a_loss_and_the_third_one_fails_it() -> None:
    fleet = Fleet("work")

    counted = []
    for _ in range(3):
        fleet.run_next()
        fleet.start_anew()
        counted += fleet.losses()

    assert (counted, fleet.states()) == ([1, 2, 3], [State.FAILED])


def test_jobs_that_ran_together_count_no_loss_and_run_together_again() -> None:
    fleet = Fleet("work", "work", "work")
    fleet.run_next()

    fleet.start_anew()

    assert fleet.losses() == [0, 0, 0]
    assert [lease.is_suspect for lease in fleet.run_next()] == [False] * 3


def test_jobs_that_are_lost_together_again_run_one_at_a_time() -> None:
    fleet = Fleet("work", "work", "work")
    for _ in range(2):
        fleet.run_next()
        fleet.start_anew()

    assert [lease.is_suspect for lease in fleet.run_next()] == [True]
    assert fleet.losses() == [0, 0, 0]


def test_a_poison_suspect_that_is_lost_beside_other_jobs_counts_the_loss() -> None:
    fleet = Fleet("work", "work")
    for _ in range(2):
        fleet.run_next()
        fleet.start_anew()
    fleet.ids_of.append(fleet.submit(make_spec(), T0).id)
    suspect, other = fleet.run_next()
    assert (suspect.is_suspect, other.is_suspect) == (True, False)

    fleet.start_anew()

    assert fleet.losses() == [1, 0, 0]


def test_a_job_that_kills_its_workers_fails_and_the_jobs_beside_it_complete() -> None:
    fleet = Fleet("work", "work", "work")
    killer = fleet.ids_of[1]

    while State.QUEUED in fleet.states() and fleet.lives < 20:
        leases = fleet.run_next()
        if killer in {lease.key.job_id for lease in leases}:
            fleet.start_anew()
        else:
            fleet.report_in(
                session=f"s{fleet.lives}", slots=SLOTS, reports=[done(x) for x in leases]
            )

    assert fleet.states() == [State.COMPLETED, State.FAILED, State.COMPLETED]
    assert fleet.losses() == [0, 3, 0]
    assert fleet.lives == 1 + 5


def test_jobs_that_a_silent_worker_ran_together_count_no_loss() -> None:
    fleet = Fleet("work", "work")
    fleet.run_next()

    fleet.run_until(T0 + 3_600_000_000)

    assert (fleet.states(), fleet.losses()) == ([State.QUEUED] * 2, [0, 0])


def test_a_worker_whose_connection_broke_with_a_server_has_the_time_of_an_expected_one() -> None:
    site = Site()
    lease = site.leased()
    poll = site.poll(running=keys(lease))
    site.apply(PollBroken(poll, "a"), T0)
    site.turn()

    site.recover(T0, expected=[lease])  # the shard of its job comes to this server
    site.run_until(T0 + RESTART_TIMEOUT_US - 1)
    assert site.state(lease.key.job_id) is State.RUNNING

    site.run_until(T0 + 2 * RESTART_TIMEOUT_US)
    assert site.state(lease.key.job_id) is State.QUEUED
