"""Claims about operations on many jobs: their records, the search for their jobs, deletes."""

from __future__ import annotations

import msgspec

from schedo.core.bulk import BulkAction, BulkError, BulkOperation, BulkState
from schedo.core.bulk_undo import BulkStep, JobBefore
from schedo.core.changes import Changes
from schedo.core.job_filter import JobFilter
from schedo.core.loads import LoadJob, LoadJobs, LoadUniqueHolders
from schedo.core.model import Failure, Options
from schedo.core.states import State
from schedo.store.base import Store
from tests.factories import make_job
from tests.store.contract_lists import make_attempt, make_output
from tests.store.steps import LARGE, Claims, listed, of_jobs, put

FULL = BulkOperation(
    id=5_120,
    action=BulkAction.DELETE,
    which=JobFilter(
        state="failed",
        queue="mail",
        task="t",
        schedule_id=7,
        tag="red",
        unique_key="k",
        created_after=1,
        created_before=2,
        ended_after=3,
        ended_before=4,
        error='no "route" ü',
        states=(State.FAILED, State.COMPLETED),
    ),
    schedule="nightly",
    created_at=20,
    jobs_max=9,
    requested_by="ann",
    state=BulkState.CANCELLED,
    total=8,
    before=256,
    done=3,
    skipped=2,
    failed=1,
    errors=(BulkError(512, "it was invoked"),),
    ended_at=30,
)
PLAIN = BulkOperation(id=256, action=BulkAction.CANCEL, which=JobFilter(), created_at=1, before=256)


def of_operations(*operations: BulkOperation) -> Changes:
    return Changes(bulk_operations={each.id: each for each in operations})


class BulkClaims(Claims):
    async def test_the_snapshot_has_all_operations(self, store: Store) -> None:
        await store.commit(of_operations(FULL, PLAIN))

        assert (await self.reopen(store)).bulk_operations == [PLAIN, FULL]
        assert (await store.snapshot()).last_id == FULL.id

    async def test_an_operation_is_replaced_and_deleted(self, store: Store) -> None:
        await store.commit(of_operations(FULL, PLAIN))
        changed = BulkOperation(
            id=256, action=BulkAction.CANCEL, which=JobFilter(), created_at=1, before=99, done=4
        )

        await store.commit(Changes(bulk_operations={256: changed, FULL.id: None}))

        assert (await store.snapshot()).bulk_operations == [changed]

    async def test_an_operation_and_its_jobs_are_in_one_commit(self, store: Store) -> None:
        job = make_job(id=128)
        await put(store, job)
        job.state, job.ended_at = State.CANCELLED, 9

        await store.commit(Changes(jobs={128: job}, bulk_operations={PLAIN.id: PLAIN}))

        assert (await self.reopen(store)).bulk_operations == [PLAIN]
        assert await listed(store, state="cancelled") == [128]

    async def test_the_jobs_of_an_operation_are_found_from_the_newest(self, store: Store) -> None:
        await put(store, *(make_job(id=n, queue="mail") for n in (1, 2, 3, 4)), make_job(id=5))
        await store.settle()
        which = JobFilter(queue="mail")

        assert (await store.find_job_ids(which, None, 9)).ids == [4, 3, 2, 1]
        assert await store.find_job_ids(which, None, 2) == ([4, 3], 3)
        assert (await store.find_job_ids(which, 3, 2)).ids == [2, 1]
        assert await store.find_job_ids(which, 1, 2) == ([], None)

    async def test_jobs_are_loaded_by_their_ids(self, store: Store) -> None:
        await put(store, make_job(id=1), make_job(id=2, payload=LARGE), make_job(id=3))

        found = await store.load(LoadJobs((3, 2, 9)))

        assert sorted(found) == [2, 3]
        assert found[2].payload is None

    async def test_a_deleted_job_is_gone_with_all_its_records(self, store: Store) -> None:
        options = Options(tags=("red",))
        failed = {"state": State.FAILED, "ended_at": 9}
        await put(store, make_job(id=1, payload=LARGE, options=options, **failed))
        await put(store, make_job(id=2, options=options, **failed))
        attempts, outputs = [make_attempt(1, 1)], [make_output(1, 1)]
        await store.commit(Changes(attempts=attempts, outputs=outputs))

        await store.commit(Changes(jobs_deleted=[1], attempts=attempts, outputs=outputs))

        assert await store.get_job(1) is None
        assert await store.load(LoadJob(1)) is None
        assert await listed(store, tag="red") == [2]
        assert await store.list_attempts(1) == []
        assert await store.list_output_sizes(1) == []

    async def test_a_deleted_job_releases_its_unique_key_in_the_commit(self, store: Store) -> None:
        await put(store, make_job(id=1, unique_key="k", state=State.FAILED, ended_at=9))
        new = make_job(id=2, unique_key="k")
        changes = of_jobs(new)
        changes.jobs_deleted.append(1)

        await store.commit(changes)

        held = await store.load(LoadUniqueHolders(("k",)))
        assert {key: job.id for key, job in held.items()} == {"k": 2}

    async def test_deleting_a_job_that_is_not_there_changes_nothing(self, store: Store) -> None:
        await put(store, make_job(id=1))

        await store.commit(Changes(jobs_deleted=[2]))

        assert await listed(store) == [1]

    async def test_the_steps_of_an_operation_are_read_back_and_deleted_with_it(
        self, store: Store
    ) -> None:
        failure = Failure("timeout", "it took too long")
        jobs = (
            JobBefore(1, 9, State.FAILED, 2, 5, True, 1, 1, 8, 99, failure),
            JobBefore(2, 9, State.QUEUED, 0, 5),
        )
        steps = [BulkStep(PLAIN.id, 256, jobs), BulkStep(PLAIN.id, 100, jobs[:1])]
        await store.commit(Changes(bulk_operations={PLAIN.id: PLAIN}, steps=steps))

        assert await store.load_bulk_step(PLAIN.id, 257) == steps[0]
        assert await store.load_bulk_step(PLAIN.id, 256) == steps[1]
        assert await store.load_bulk_step(PLAIN.id, 100) is None
        await store.commit(Changes(bulk_operations={PLAIN.id: None}))
        assert await store.load_bulk_step(PLAIN.id, 257) is None

    async def test_a_step_of_another_server_comes_last_and_is_deleted_alone(
        self, store: Store
    ) -> None:
        jobs = (JobBefore(1, 9, State.QUEUED, 0, 5),)
        steps = [BulkStep(PLAIN.id, number, jobs) for number in (256, -8, -9)]
        await store.commit(Changes(bulk_operations={PLAIN.id: PLAIN}, steps=steps))

        assert await store.load_bulk_step(PLAIN.id, 256) == steps[1]
        await store.commit(Changes(steps_deleted=[(PLAIN.id, -8), (PLAIN.id, -7)]))

        assert await store.load_bulk_step(PLAIN.id, 257) == steps[0]
        assert await store.load_bulk_step(PLAIN.id, 256) == steps[2]

    async def test_the_operations_that_changed_a_job_are_found(self, store: Store) -> None:
        def job(number: int, at: int) -> JobBefore:
            return JobBefore(number, at, State.QUEUED, 0, 5)

        other = msgspec.structs.replace(PLAIN, id=512)
        steps = [
            BulkStep(PLAIN.id, 256, (job(50, 7), job(5, 7), job(4, 7))),
            BulkStep(PLAIN.id, 4, (job(1, 8),)),
            BulkStep(other.id, 512, (job(5, 9), job(1, 9))),
        ]
        await store.commit(
            Changes(bulk_operations={each.id: each for each in (PLAIN, other)}, steps=steps)
        )

        assert await store.list_bulk_changes(50) == [(PLAIN, 7)]
        assert await store.list_bulk_changes(5) == [(PLAIN, 7), (other, 9)]
        assert await store.list_bulk_changes(1) == [(PLAIN, 8), (other, 9)]
        assert await store.list_bulk_changes(3) == []

    async def test_the_snapshot_has_the_undo_of_an_operation(self, store: Store) -> None:
        undo = msgspec.structs.replace(PLAIN, id=512, undoes=PLAIN.id)
        await store.commit(of_operations(undo, PLAIN))

        found = await store.snapshot()

        assert (found.bulk_operations, found.last_id) == ([PLAIN, undo], 512)
        await store.commit(Changes(bulk_operations={undo.id: None}))
        assert (await store.snapshot()).bulk_operations == [PLAIN]
