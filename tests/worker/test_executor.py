"""The executor of all workers, with a connection that only remembers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from schedo import report_progress
from schedo.core.leases import AttemptResult, Completed, Lease, Stopped, StopReason
from schedo.core.model import LeaseKey, Options
from schedo.core.progress import ProgressUpdate
from schedo.tasks import python as python_tasks
from schedo.tasks.arguments import Arguments
from schedo.tasks.current_job import enter
from schedo.tasks.python import TaskRunner
from schedo.tasks.registry import TaskSpec
from schedo.tasks.runner import AttemptContext, Runner
from schedo.tasks.threads import HandlerThreads
from schedo.worker import executor as executor_module
from schedo.worker.executor import Executor
from schedo.worker.handler_tasks import BEGINS_MAX, PASS_NS
from tests.worker.calls import failure_of, make_context

LONG_S = 20.0


class Notes:
    """A connection to a server that accepts everything."""

    def __init__(self) -> None:
        self.results: list[AttemptResult] = []  # without how long they ran
        self.ran_us: list[int | None] = []
        self.updates: list[tuple[LeaseKey, ProgressUpdate]] = []
        self.has_result = asyncio.Event()

    def send_result(self, result: AttemptResult) -> None:
        self.ran_us.append(result.ran_us)
        self.results.append(msgspec.structs.replace(result, ran_us=None))
        self.has_result.set()

    def send_progress(self, key: LeaseKey, update: ProgressUpdate) -> None:
        self.updates.append((key, update))


class Work:
    """A runner and a handler whose attempts wait; `ends` lets them end."""

    def __init__(self) -> None:
        self.contexts: list[AttemptContext] = []
        self.is_called = asyncio.Event()
        self.ends = asyncio.Event()
        self.was_cancelled = asyncio.Event()
        self.calls = 0
        self.on_call: Callable[[], None] | None = None

    async def run(self, context: AttemptContext) -> AttemptResult:
        self.contexts.append(context)
        enter(context)
        await self.handle()
        return AttemptResult(context.lease.key, Completed())

    async def handle(self) -> None:
        self.is_called.set()
        self.calls += 1
        if self.on_call is not None:
            self.on_call()
        report_progress(50.0)
        try:
            await self.ends.wait()
        except asyncio.CancelledError:
            self.was_cancelled.set()
            raise


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
async def executor(notes: Notes, work: Work) -> AsyncIterator[Executor]:
    """Slots for `run`, a coroutine, and `handle` and `compute`, handlers of an application."""
    spec = TaskSpec("handle", work.handle, Arguments("handle", work.handle))
    plain = TaskSpec("compute", int, Arguments("compute", lambda: 0))
    with HandlerThreads(1) as threads:
        runners: dict[str, Runner | TaskRunner] = {
            "run": work.run,
            "handle": TaskRunner(spec, threads),
            "compute": TaskRunner(plain, threads),
        }
        executor = Executor(runners, notes, watches_timeouts=True)
        yield executor
        await executor.close()


def lease(task: str, number: int = 1, options: Options | None = None) -> Lease:
    made = make_context(None, task, options or Options()).lease
    return msgspec.structs.replace(made, key=LeaseKey(number, 1, 1))


both = pytest.mark.parametrize("task", ["run", "handle"])


@both
async def test_an_attempt_runs_and_its_result_is_sent_once(
    executor: Executor, notes: Notes, work: Work, task: str
) -> None:
    work.ends.set()

    assert executor.start(lease(task))
    await asyncio.wait_for(executor.wait_idle(), LONG_S)
    await executor.close()

    assert notes.results == [AttemptResult(LeaseKey(1, 1, 1), Completed())]


@pytest.mark.parametrize("task", ["run", "handle", "compute"])
async def test_a_result_says_how_long_the_worker_ran_the_attempt(
    executor: Executor,
    notes: Notes,
    work: Work,
    task: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began_ns = iter([5_000_000, 6_000_000] if task == "compute" else [6_000_000])
    for module in (executor_module, python_tasks):
        monkeypatch.setattr(module, "perf_counter_ns", lambda: next(began_ns, 256_000_000))
    work.ends.set()

    executor.start(lease(task))
    await asyncio.wait_for(executor.wait_idle(), LONG_S)

    assert notes.ran_us == [250_000]


async def test_an_attempt_that_was_refused_did_not_run(executor: Executor, notes: Notes) -> None:
    executor.start(lease("unknown"))
    await asyncio.wait_for(executor.wait_idle(), LONG_S)

    assert notes.ran_us == [None]


@both
async def test_a_lease_that_is_sent_twice_runs_once(
    executor: Executor, work: Work, task: str
) -> None:
    assert executor.start(lease(task))

    assert not executor.start(lease(task))
    assert (len(executor), executor.running) == (1, [LeaseKey(1, 1, 1)])


@pytest.fixture
def pass_ns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long all passes of the event loop seem to take."""
    passes, pass_ns = itertools.count(), [0]

    def read_clock() -> int:
        return next(passes) * pass_ns[0]

    monkeypatch.setattr("schedo.worker.handler_tasks.perf_counter_ns", read_clock)
    return pass_ns


async def test_the_event_loop_turns_between_the_starts_of_many_handlers(
    executor: Executor, work: Work, pass_ns: list[int]
) -> None:
    pass_ns[0] = PASS_NS
    calls: list[str] = []
    work.on_call = lambda: calls.append("handler")
    for number in range(BEGINS_MAX + 2):
        executor.start(lease("handle", number))
    asyncio.get_running_loop().call_soon(calls.append, "loop")
    work.ends.set()
    await asyncio.wait_for(executor.wait_idle(), LONG_S)

    assert calls == ["handler"] * BEGINS_MAX + ["loop"] + ["handler"] * 2


async def test_more_handlers_start_before_the_event_loop_turns_if_they_take_little_time(
    executor: Executor, work: Work, pass_ns: list[int]
) -> None:
    calls: list[str] = []
    work.on_call = lambda: calls.append("handler")
    for number in range(3 * BEGINS_MAX):
        executor.start(lease("handle", number))
    asyncio.get_running_loop().call_soon(calls.append, "loop")
    work.ends.set()
    await asyncio.wait_for(executor.wait_idle(), LONG_S)

    assert calls == ["handler"] * 3 * BEGINS_MAX + ["loop"]


async def test_a_handler_that_is_stopped_or_abandoned_in_time_does_not_start(
    executor: Executor, notes: Notes, work: Work, pass_ns: list[int]
) -> None:
    pass_ns[0] = PASS_NS
    for number in range(BEGINS_MAX + 2):
        executor.start(lease("handle", number))
    executor.stop(LeaseKey(BEGINS_MAX, 1, 1), StopReason.CANCEL)
    executor.abandon(LeaseKey(BEGINS_MAX + 1, 1, 1))
    work.ends.set()
    await asyncio.wait_for(executor.wait_idle(), LONG_S)

    assert work.calls == BEGINS_MAX
    assert notes.results[-1] == AttemptResult(LeaseKey(BEGINS_MAX, 1, 1), Stopped())
    assert len(notes.results) == BEGINS_MAX + 1


@both
async def test_only_the_first_stop_of_an_attempt_counts(
    executor: Executor, work: Work, task: str
) -> None:
    executor.start(lease(task))
    key = LeaseKey(1, 1, 1)

    assert executor.stop(key, StopReason.TIMEOUT)
    assert not executor.stop(key, StopReason.CANCEL)
    assert not executor.stop(LeaseKey(9, 1, 1), StopReason.CANCEL)


@both
async def test_an_attempt_that_is_abandoned_is_stopped_and_not_reported(
    executor: Executor, notes: Notes, work: Work, task: str
) -> None:
    executor.start(lease(task))
    await asyncio.wait_for(work.is_called.wait(), LONG_S)

    assert executor.abandon(LeaseKey(1, 1, 1))
    assert not executor.abandon(LeaseKey(1, 1, 1))
    work.ends.set()
    await executor.close()

    assert (len(executor), notes.results) == (0, [])


@both
async def test_a_drain_without_grace_stops_the_attempts(
    executor: Executor, notes: Notes, work: Work, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedo.worker.executor.STOP_GRACE_S", 0.01)
    executor.start(lease(task))
    await asyncio.wait_for(work.is_called.wait(), LONG_S)

    await asyncio.wait_for(executor.drain(0.0), LONG_S)
    await executor.close()
    await asyncio.wait_for(work.was_cancelled.wait(), LONG_S)

    assert notes.results == [AttemptResult(LeaseKey(1, 1, 1), Stopped())]


async def test_the_grace_time_of_a_drain_can_be_ended(executor: Executor, work: Work) -> None:
    executor.start(lease("handle"))
    await asyncio.wait_for(work.is_called.wait(), LONG_S)
    drain = asyncio.create_task(executor.drain(100 * LONG_S))

    executor.stop_now()

    await asyncio.wait_for(drain, LONG_S)
    assert work.was_cancelled.is_set()


@both
async def test_progress_of_an_ended_attempt_is_not_sent(
    executor: Executor, notes: Notes, work: Work, task: str
) -> None:
    work.ends.set()
    executor.start(lease(task))
    await asyncio.wait_for(executor.wait_idle(), LONG_S)

    assert notes.updates == []


async def test_an_attempt_of_an_unknown_task_fails_without_a_retry(
    executor: Executor, notes: Notes
) -> None:
    executor.start(lease("nothing"))
    await asyncio.wait_for(executor.wait_idle(), LONG_S)

    (result,) = notes.results
    assert failure_of(result).type == "unknown-task"


@both
async def test_an_attempt_is_stopped_when_the_stop_of_its_timeout_does_not_come(
    executor: Executor, work: Work, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedo.worker.executor.LATE_S", 0.0)

    executor.start(lease(task, options=Options(timeout_us=1_000)))
    await asyncio.wait_for(work.is_called.wait(), LONG_S)

    if task == "run":
        async with asyncio.timeout(LONG_S):
            assert await work.contexts[0].stop.wait() is StopReason.TIMEOUT
    else:
        await asyncio.wait_for(work.was_cancelled.wait(), LONG_S)
