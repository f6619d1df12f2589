"""A server's death is a loss only of the one job that may have caused it."""

import fcntl
from pathlib import Path

import pytest

from schedo.core.leases import Lease
from schedo.core.limits import LOSSES_MAX
from schedo.core.states import State
from schedo.core.worker_pool import WorkerSpec
from schedo.errors import StoreLocked
from schedo.store.sqlite.lock import BOOT_ID
from tests.engine.world import HandWorker, World, leased, running
from tests.stores import needs_sqlite


def note_kill(path: Path) -> None:
    """Make the files of a stopped server look like those of a killed one."""
    Path(f"{path}.lock").write_text(f"pid 1\nboot {BOOT_ID.read_text().strip()}\n")


async def kill_servers(path: Path, worker: str, count: int, times: int) -> list[int]:
    """Kill servers while the worker runs this number of jobs; return the jobs."""
    jobs: list[int] = []
    for _ in range(times):
        async with running(path, worker=worker) as world:
            while len(jobs) < count:
                jobs.append((await world.submit()).id)
            assert len(world.worker.leases) == count
        note_kill(path)
    return jobs


async def states_after_restart(path: Path, jobs: list[int]) -> list[tuple[State, int]]:
    """Return the states of the jobs in the next server, before its workers attach."""
    world = World(path)
    await world.engine.start()
    found = [await world.engine.get(job) for job in jobs]
    await world.engine.stop()
    return [(job.state, job.losses) for job in found]


@needs_sqlite
@pytest.mark.parametrize("worker", ["process-7", "local"])
@pytest.mark.parametrize("count", [1, 3])
async def test_a_job_in_a_child_process_counts_no_loss_when_the_server_is_killed(
    path: Path, worker: str, count: int
) -> None:
    jobs = await kill_servers(path, worker, count, 2 * LOSSES_MAX)

    assert await states_after_restart(path, jobs) == [(State.QUEUED, 0)] * count


@needs_sqlite
async def test_a_job_that_runs_alone_each_time_its_server_is_killed_fails(path: Path) -> None:
    jobs = await kill_servers(path, "embedded", 1, LOSSES_MAX)

    assert await states_after_restart(path, jobs) == [(State.FAILED, LOSSES_MAX)]


@needs_sqlite
async def test_a_refused_start_does_not_hide_that_the_previous_server_was_killed(
    path: Path,
) -> None:
    jobs: list[int] = []
    for _ in range(LOSSES_MAX):
        jobs = jobs or await kill_servers(path, "embedded", 1, 1)
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # as a server does that has the file by another name
            with pytest.raises(StoreLocked):
                await World(path).engine.start()
        async with running(path, worker="embedded"):
            pass
        note_kill(path)

    assert await states_after_restart(path, jobs) == [(State.FAILED, LOSSES_MAX)]


@needs_sqlite
async def test_no_loss_is_counted_if_several_jobs_ran_in_a_killed_server(path: Path) -> None:
    jobs = await kill_servers(path, "embedded", 3, 1)

    assert await states_after_restart(path, jobs) == [(State.QUEUED, 0)] * 3


async def test_an_orderly_shutdown_counts_no_loss(path: Path) -> None:
    async with running(path, worker="embedded") as world:
        job = await world.submit()

    assert await states_after_restart(path, [job.id]) == [(State.QUEUED, 0)]


@needs_sqlite
async def test_a_server_that_only_recovered_ends_in_order_all_the_same(path: Path) -> None:
    async with running(path):
        pass
    note_kill(path)
    for was_killed in (True, False):
        async with running(path) as world:
            assert world.engine.was_killed is was_killed


@needs_sqlite
async def test_poison_suspects_run_one_at_a_time_beside_other_jobs(path: Path) -> None:
    suspects = await kill_servers(path, "embedded", 2, 1)
    async with running(path, worker="embedded") as world:
        alone = HandWorker(world.engine, "embedded-alone")
        alone.spec = WorkerSpec("embedded-alone", 1, frozenset({"work"}), isolated=True)
        alone.attach()
        other = await world.submit()

        assert [lease.key.job_id for lease in world.worker.leases] == [other.id]
        assert [lease.key.job_id for lease in alone.leases] == suspects[:1]
    note_kill(path)

    assert await states_after_restart(path, [*suspects, other.id]) == [
        (State.QUEUED, 1),
        (State.QUEUED, 0),
        (State.QUEUED, 0),
    ]


@needs_sqlite
async def test_a_new_server_starts_jobs_before_it_logs_those_that_were_lost(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await kill_servers(path, "process-7", 1, 1)
    logged: list[int] = []
    world = World(path, worker="process-8")
    start = world.worker.start

    def note(lease: Lease) -> None:
        logged.append(caplog.text.count("was lost"))
        start(lease)

    world.worker.start = note  # type: ignore[method-assign]  # to see what is logged by then
    await world.engine.start()
    world.worker.attach()
    await leased(world)
    await world.engine.stop()

    assert logged == [0]
    assert caplog.text.count("was lost") == 1
