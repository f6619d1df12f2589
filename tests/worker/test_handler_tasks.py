"""The asyncio tasks in which handlers run: shared only by handlers that leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import msgspec
import pytest

from schedo import current_job
from schedo.core.leases import AttemptResult, Completed, Failed, Stopped, StopReason
from schedo.core.model import LeaseKey
from schedo.tasks.arguments import Arguments
from schedo.tasks.python import TaskRunner
from schedo.tasks.registry import TaskSpec
from schedo.tasks.runner import AttemptContext
from schedo.tasks.threads import HandlerThreads
from schedo.worker.handler_tasks import BEGINS_MAX, HandlerTasks
from tests.worker.calls import end_pass, make_context

LONG_S = 20.0
Handler = Callable[[], Awaitable[None]]
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


class Attempts:
    """Attempts of handlers, numbered from 1 in the order in which they begin."""

    def __init__(self) -> None:
        self.results: dict[int, AttemptResult] = {}
        self.ran_in: list[asyncio.Task[object] | None] = []  # the asyncio task of each handler
        self._is_over = asyncio.Event()
        self._tasks = HandlerTasks(self._note)
        self._threads = HandlerThreads(1)
        self._count = 0

    def begin(self, handler: Handler, name: str = "task") -> AttemptContext:
        async def noted() -> None:
            self.ran_in.append(asyncio.current_task())
            await handler()

        self._count += 1
        made = make_context(None, name)
        context = msgspec.structs.replace(
            made, lease=msgspec.structs.replace(made.lease, key=LeaseKey(self._count, 1, 1))
        )
        spec = TaskSpec(name, noted, Arguments(name, noted))
        self._tasks.begin(TaskRunner(spec, self._threads), context)
        return context

    def _note(self, context: AttemptContext, result: AttemptResult) -> None:
        self.results[result.key.job_id] = result
        if len(self.results) == self._count:
            self._is_over.set()

    async def end(self) -> None:
        """Wait for the end of all attempts that were begun."""
        await asyncio.wait_for(self._is_over.wait(), LONG_S)


@pytest.fixture
async def attempts() -> Attempts:
    return Attempts()


async def nothing() -> None:
    """Return at once."""


async def pause() -> None:
    """Wait for a pass of the loop."""
    await end_pass()


async def wait() -> None:
    """Wait for what never comes."""
    await asyncio.get_running_loop().create_future()


async def test_handlers_that_do_not_wait_run_in_one_asyncio_task_in_their_order(
    attempts: Attempts,
) -> None:
    ran: list[int] = []

    async def note(number: int) -> None:
        ran.append(number)

    for number in range(BEGINS_MAX):
        attempts.begin(lambda number=number: note(number))  # type: ignore[misc]
    await attempts.end()

    assert ran == list(range(BEGINS_MAX))
    assert len(set(attempts.ran_in)) == 1


async def test_each_handler_that_waits_has_an_asyncio_task_of_its_own(attempts: Attempts) -> None:
    for _ in range(2 * BEGINS_MAX):
        attempts.begin(pause)
    await attempts.end()

    assert len(set(attempts.ran_in)) == 2 * BEGINS_MAX


async def test_handlers_begin_while_others_wait(attempts: Attempts) -> None:
    gate = asyncio.Event()
    begun = 0

    async def open_with_the_last() -> None:
        nonlocal begun
        begun += 1
        if begun == 10 * BEGINS_MAX:
            gate.set()
        await gate.wait()

    for _ in range(10 * BEGINS_MAX):
        attempts.begin(open_with_the_last)
    await attempts.end()

    assert all(each.outcome == Completed() for each in attempts.results.values())


async def test_a_context_variable_of_one_handler_is_not_seen_by_the_next(
    attempts: Attempts,
) -> None:
    seen: list[str] = []

    async def enter_tenant() -> None:
        seen.append(tenant.get())
        tenant.set("acme")

    for _ in range(3):
        attempts.begin(enter_tenant)
    await attempts.end()

    assert seen == ["nobody"] * 3


async def test_a_variable_of_the_program_is_seen_by_all_and_changed_by_none(
    attempts: Attempts,
) -> None:
    seen: list[list[str]] = []

    async def grow() -> None:
        seen.append([*variable.get()])
        variable.set([*variable.get(), "more"])

    variable: ContextVar[list[str]] = ContextVar("variable")
    variable.set(["program"])
    for _ in range(3):
        attempts.begin(grow)
    await attempts.end()

    assert seen == [["program"]] * 3


async def test_the_current_job_is_that_of_the_handler(attempts: Attempts) -> None:
    jobs: list[str] = []

    async def note() -> None:
        jobs.append(current_job().task)

    for name in ("first", "second"):
        attempts.begin(note, name)
    await attempts.end()

    assert jobs == ["first", "second"]
    with pytest.raises(RuntimeError):
        current_job()


async def test_the_asyncio_task_has_the_name_of_the_schedo_task(attempts: Attempts) -> None:
    names: list[str] = []

    async def note() -> None:
        task = asyncio.current_task()
        assert task is not None
        names.append(task.get_name())

    for name in ("first", "second"):
        attempts.begin(note, name)
    await attempts.end()

    assert names == ["schedo first", "schedo second"]


async def test_a_handler_that_cancels_its_own_asyncio_task_does_not_cancel_the_next(
    attempts: Attempts,
) -> None:
    async def cancel_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    attempts.begin(cancel_itself)
    attempts.begin(pause)
    await attempts.end()

    assert [attempts.results[each].outcome for each in (1, 2)] == [Completed(), Completed()]


async def test_a_stop_cancels_only_its_attempt_even_if_the_handler_swallows_it(
    attempts: Attempts,
) -> None:
    is_waiting = asyncio.Event()

    async def resist() -> None:
        is_waiting.set()
        try:
            await wait()
        except asyncio.CancelledError:
            await end_pass()

    stopped = attempts.begin(resist)
    attempts.begin(pause)
    await asyncio.wait_for(is_waiting.wait(), LONG_S)
    stopped.stop.set(StopReason.CANCEL)
    attempts.begin(nothing)
    await attempts.end()

    assert [attempts.results[each].outcome for each in (1, 2, 3)] == [
        Stopped(),
        Completed(),
        Completed(),
    ]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError("no")])
async def test_an_exception_of_one_handler_does_not_end_the_others(
    attempts: Attempts, error: BaseException
) -> None:
    async def fail() -> None:
        raise error

    attempts.begin(fail)
    attempts.begin(nothing)
    await attempts.end()

    assert isinstance(attempts.results[1].outcome, Failed)
    assert attempts.results[2].outcome == Completed()


async def test_timeouts_and_task_groups_work_inside_a_handler(attempts: Attempts) -> None:
    ended: list[str] = []

    async def use_both() -> None:
        try:
            async with asyncio.timeout(0):
                await wait()
        except TimeoutError:
            ended.append("timeout")
        async with asyncio.TaskGroup() as group:
            group.create_task(pause())
        ended.append("group")

    for _ in range(2):
        attempts.begin(use_both)
    await attempts.end()

    assert sorted(ended) == ["group", "group", "timeout", "timeout"]
    assert all(each.outcome == Completed() for each in attempts.results.values())
