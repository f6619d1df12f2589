"""Claims about listing and counting jobs, what is kept about their attempts, and pruning."""

from __future__ import annotations

import pytest

from schedo.core.changes import AttemptRecord, Changes, Output
from schedo.core.leases import CapturedOutput
from schedo.core.model import Failure, Options
from schedo.core.states import FINAL, State
from schedo.errors import StoreError
from schedo.store.base import OutputPiece, Retention, Store
from tests.factories import make_job
from tests.store.steps import LARGE, MINUTE, all_jobs, counted, listed, of_jobs, put

RETENTION = Retention(completed_us=10, cancelled_us=20, failed_us=30, idempotency_us=40)
MEBIBYTE = 1_048_576


def make_attempt(job_id: int, attempt: int) -> AttemptRecord:
    failure = Failure("exit-code", "it said no", exit_code=attempt)
    return AttemptRecord(job_id, attempt, 1, "local", attempt, attempt + 1, "failed", failure, 9, 7)


def make_output(job_id: int, attempt: int, head: bytes = b"", stream: str = "stdout") -> Output:
    return Output(job_id, attempt, CapturedOutput(stream, head, b"", len(head)))  # type: ignore[arg-type]


class ListClaims:
    async def test_jobs_are_listed_newest_first_page_by_page(self, store: Store) -> None:
        await put(store, *(make_job(id=n) for n in (1, 2, 3, 4, 5)))

        assert await listed(store, limit=2) == [5, 4]
        assert await listed(store, before=4, limit=2) == [3, 2]
        assert await listed(store, before=2, limit=2) == [1]
        assert await listed(store, before=1) == []

    @pytest.mark.parametrize("state", [state.value for state in State])
    async def test_jobs_of_each_state_are_listed(self, store: Store, state: str) -> None:
        await put(store, *(make_job(id=n, state=each) for n, each in enumerate(State, start=1)))
        await put(store, *(make_job(id=n + 20, state=each) for n, each in enumerate(State, 1)))
        position = list(State).index(State(state)) + 1

        assert await listed(store, state=state) == [position + 20, position]
        assert await listed(store, state=state, limit=1) == [position + 20]
        assert await listed(store, state=state, before=position + 20) == [position]
        assert await listed(store, state=state, task="email.send", before=9) == (
            [position] if position < 9 else []
        )
        assert await listed(store, state=state, queue="empty") == []

    @pytest.mark.parametrize(
        ("which", "expected"),
        [
            ({}, [1536, 1280, 1024, 768, 512, 256]),
            ({"queue": "default"}, [1536, 1280, 1024, 512]),
            ({"queue": "mail"}, [768, 256]),
            ({"task": "b"}, [1024, 512]),
            ({"queue": "default", "task": "b"}, [1024, 512]),
            ({"queue": "mail", "task": "b"}, []),
            ({"schedule_id": 7}, [1280, 1024]),
            ({"schedule_id": 7, "task": "b"}, [1024]),
            ({"unique_key": "k"}, [1536]),
            ({"tag": "red"}, [1536, 1280]),
            ({"tag": "blue"}, [1536]),
            ({"tag": "red", "schedule_id": 7}, [1280]),
            ({"tag": "red", "state": "queued"}, [1536, 1280]),
            ({"tag": "red", "state": "running"}, []),
            ({"tag": "red", "created_before": 6}, [1280]),
            ({"created_after": 3}, [1536, 1280, 1024, 768]),
            ({"created_before": 3}, [512, 256]),
            ({"created_after": 2, "created_before": 4}, [768, 512]),
            ({"created_after": 253_402_300_799_000_000}, []),
            ({"created_before": 0}, []),
            ({"state": "no such state"}, []),
        ],
        ids=str,
    )
    async def test_a_list_of_jobs_has_only_the_jobs_that_match_its_filter(
        self, store: Store, which: dict[str, object], expected: list[int]
    ) -> None:
        await put(
            store,
            make_job(id=256, queue="mail", task="a"),
            make_job(id=512, task="b"),
            make_job(id=768, queue="mail", task="a"),
            make_job(id=1024, task="b", schedule_id=7),
            make_job(id=1280, task="a", schedule_id=7, options=Options(tags=("red",))),
            make_job(id=1536, task="a", unique_key="k", options=Options(tags=("red", "blue"))),
        )

        assert await listed(store, **which) == expected  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("which", "expected"),
        [
            ({"ended_after": 20}, [768, 512]),
            ({"ended_before": 30}, [512, 256]),
            ({"ended_after": 20, "ended_before": 30}, [512]),
            ({"error": "Timeout"}, [512]),
            ({"error": 'no "route"'}, [768]),
            ({"error": "exit-code"}, [768]),
            ({"error": "timeout"}, []),
            ({"error": "%"}, []),
            ({"states": (State.QUEUED, State.FAILED)}, [1024, 768, 512]),
            ({"states": (State.CANCELLED,), "state": "failed"}, []),
        ],
        ids=str,
    )
    async def test_a_list_of_jobs_filters_by_how_they_ended(
        self, store: Store, which: dict[str, object], expected: list[int]
    ) -> None:
        slow, lost = Failure("Timeout", "5 s"), Failure("exit-code", 'no "route"', traceback="%")
        await put(
            store,
            make_job(id=256, state=State.COMPLETED, ended_at=10),
            make_job(id=512, state=State.FAILED, ended_at=20, failure=slow),
            make_job(id=768, state=State.FAILED, ended_at=30, failure=lost),
            make_job(id=1024, state=State.QUEUED),
        )

        assert await listed(store, **which) == expected  # type: ignore[arg-type]

    async def test_a_list_of_jobs_omits_large_payloads_and_results(self, store: Store) -> None:
        await put(store, make_job(id=1, payload=LARGE, result=LARGE, state=State.COMPLETED))

        [job] = await all_jobs(store)
        whole = await store.get_job(1)

        assert (job.payload, job.result) == (None, None)
        assert whole is not None
        assert (whole.payload, whole.result) == (LARGE, LARGE)

    async def test_waiting_jobs_are_counted_by_queue_and_state(self, store: Store) -> None:
        states = (*State, State.QUEUED)
        await put(store, *(make_job(id=n, state=state) for n, state in enumerate(states, 1)))
        await put(store, make_job(id=50, queue="mail", state=State.RETRYING))

        assert await counted(store) == {
            "default": {"scheduled": 1, "blocked": 1, "queued": 2, "retrying": 1},
            "mail": {"retrying": 1},
        }

    async def test_attempts_are_listed_oldest_first(self, store: Store) -> None:
        plain = AttemptRecord(1, 1, 2, None, None, 9, "stale", None)
        await put(store, make_job(id=1), make_job(id=2))
        await store.commit(Changes(attempts=[make_attempt(1, 2), make_attempt(2, 1)]))
        await store.commit(Changes(attempts=[plain]))

        assert await store.list_attempts(1) == [make_attempt(1, 2), plain]
        assert await store.list_attempts(2) == [make_attempt(2, 1)]
        assert await store.list_attempts(3) == []

    async def test_a_job_keeps_its_last_hundred_attempts(self, store: Store) -> None:
        await put(store, make_job(id=1))
        for first in (1, 61):
            attempts = [make_attempt(1, number) for number in range(first, first + 60)]
            await store.commit(Changes(attempts=attempts))

        kept = await store.list_attempts(1)
        assert [attempt.attempt for attempt in kept] == list(range(21, 121))

    async def test_outputs_are_listed_by_attempt_and_stream(self, store: Store) -> None:
        await put(store, make_job(id=1))
        capture = CapturedOutput("stdout", b"\x00\xff", b"tail", 100)
        await store.commit(
            Changes(
                outputs=[
                    make_output(1, 2),
                    make_output(1, 1, b"e", "stderr"),
                    Output(1, 1, capture),
                ]
            )
        )

        found = await store.list_output_sizes(1)
        assert [(each.attempt, each.stream) for each in found] == [
            (1, "stderr"),
            (1, "stdout"),
            (2, "stdout"),
        ]
        assert found[1].total == capture.total_bytes
        head = await store.read_output(1, OutputPiece(1, "stdout", "head", 0, 99))
        tail = await store.read_output(1, OutputPiece(1, "stdout", "tail", 0, 99))
        second = await store.read_output(1, OutputPiece(1, "stdout", "head", 1, 1))
        assert (head, tail, second) == (capture.head, capture.tail, capture.head[1:2])
        assert await store.read_output(1, OutputPiece(9, "stdout", "head", 0, 99)) == b""
        assert await store.list_output_sizes(2) == []

    async def test_the_oldest_outputs_are_deleted_first(self, store: Store) -> None:
        await put(store, make_job(id=1))
        for attempt in range(1, 7):
            streams = ("stdout", "stderr")
            outputs = [make_output(1, attempt, b"x" * MEBIBYTE, stream) for stream in streams]
            await store.commit(Changes(outputs=outputs))

        found = await store.list_output_sizes(1)
        assert [each.attempt for each in found] == [3, 3, 4, 4, 5, 5, 6, 6]

    async def test_attempts_of_a_deleted_job_are_not_stored(self, store: Store) -> None:
        await store.commit(Changes(attempts=[make_attempt(1, 1)], outputs=[make_output(1, 1)]))

        assert await store.list_attempts(1) == []
        assert await store.list_output_sizes(1) == []

    @pytest.mark.parametrize(
        ("state", "kept"),
        [("completed", 10), ("cancelled", 20), ("expired", 20), ("failed", 30)],
    )
    async def test_each_final_state_has_its_retention(
        self, store: Store, state: str, kept: int
    ) -> None:
        await put(store, make_job(id=1, state=State(state), ended_at=100))
        assert await listed(store) == [1]

        assert await store.prune(100 + kept - 1, RETENTION, 9) == 0
        assert await store.prune(100 + kept, RETENTION, 9) == 1
        assert await store.get_job(1) is None

    async def test_unfinished_jobs_are_never_pruned(self, store: Store) -> None:
        waiting = [state for state in State if state not in FINAL]
        await put(
            store, *(make_job(id=n, state=state, ended_at=1) for n, state in enumerate(waiting, 1))
        )

        assert await store.prune(MINUTE, RETENTION, 99) == 0
        assert len(waiting) == 5

    async def test_pruning_is_bounded_by_its_limit(self, store: Store) -> None:
        done = [make_job(id=n, state=State.COMPLETED, ended_at=n) for n in (1, 2, 3)]
        failed = [make_job(id=n, state=State.FAILED, ended_at=n) for n in (4, 5)]
        await put(store, *done, *failed)
        assert len(await listed(store)) == 5

        counts = [await store.prune(MINUTE, RETENTION, 2) for _ in range(4)]

        assert counts == [2, 2, 1, 0]

    async def test_pruning_deletes_all_records_of_a_job(self, store: Store) -> None:
        options = Options(tags=("red",))
        job = make_job(id=1, payload=LARGE, options=options, state=State.FAILED, ended_at=1)
        await put(store, job, make_job(id=2, options=options))
        attempts = [make_attempt(1, 1), make_attempt(2, 1)]
        await store.commit(
            Changes(attempts=attempts, outputs=[make_output(1, 1), make_output(2, 1)])
        )
        await store.prune(MINUTE, RETENTION, 9)

        # A job with the same id again would show what was left of the first.
        await put(store, make_job(id=1))

        assert await store.list_attempts(1) == []
        assert await store.list_output_sizes(1) == []
        assert await listed(store, tag="red") == [2]
        assert len(await store.list_attempts(2)) == len(await store.list_output_sizes(2)) == 1

    async def test_the_id_of_a_pruned_job_is_not_used_again(self, store: Store) -> None:
        await put(store, make_job(id=7_000, state=State.COMPLETED, ended_at=1))
        await put(store, make_job(id=6_000))
        assert await listed(store) == [7_000, 6_000]
        assert await store.prune(MINUTE, RETENTION, 9) == 1

        assert (await store.snapshot()).last_id >= 7_000

    async def test_a_job_that_was_pruned_cannot_be_updated(self, store: Store) -> None:
        job = make_job(id=1, state=State.FAILED, ended_at=1)
        await put(store, job)
        assert await listed(store) == [1]
        await store.prune(MINUTE, RETENTION, 9)
        job.state = State.QUEUED

        with pytest.raises(StoreError, match="not in the store"):
            await store.commit(of_jobs(job))
