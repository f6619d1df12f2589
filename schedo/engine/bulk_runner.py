"""Carries out operations on many jobs: it searches for the jobs, and changes them step by step.

The operations take turns. A search looks at some hundreds of jobs beside the commits, and each step
is a command that waits for its commit, so a busy store slows the operations down. A step is short,
because the commits of other work wait for it (BulkPace in pacing.py).

If a step fails as a whole, the other operations go on and this one waits longer each time; its
record counts the failures. The pauses are so long that an operation that meets a bug in each step
fails before the bugs end the server (BUGS_MAX in failures.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from schedo.core.bulk import BulkAction, BulkOperation, BulkState
from schedo.core.bulk_commands import (
    BeginBulk,
    BulkCommand,
    CancelBulk,
    Changed,
    CountedBulk,
    FailedBulk,
    StepBulk,
    StepUndo,
    UndoBulk,
)
from schedo.core.bulk_undo import JobBefore
from schedo.core.ids import newest_at, render_id
from schedo.core.job_filter import JobFilter
from schedo.engine.action_log import change
from schedo.engine.bulk_parts import BulkParts, jobs_of
from schedo.engine.loop import EngineLoop
from schedo.engine.pacing import BulkPace
from schedo.errors import NotFound, Overloaded, SchedoError, StoreFull, Unavailable
from schedo.store.base import Store

log = logging.getLogger("schedo.engine")

_FOUND_AT_ONCE = 500  # jobs of one search
_EMPTY_SEARCHES_MAX = 20  # without a job, until their progress is made durable
_RETRY_S = (1.0, 5.0, 15.0, 60.0)  # after each failure of a step
_CLOSED_S = 1.0  # while the engine takes no commands
_ERROR_CHARACTERS_MAX = 1_000
# The errors of a server that is busy, or whose disk is full: they pass.
_PASSING = (Overloaded, StoreFull, Unavailable)
_NAMES = ("queue", "task", "tag", "worker", "state")
_OTHERS = (
    *("unique_key", "created_after", "created_before", "ended_after", "ended_before"),
    *("error", "text", "late_over_us"),
)
OUTCOMES = ("done", "skipped", "failed")  # of the jobs of an operation


class OtherServers(Protocol):
    """Let each server change those jobs of an operation that are its own."""

    async def change(
        self, operation: BulkOperation, ids: tuple[int, ...]
    ) -> tuple[tuple[int, ...], Changed]:
        """Return the jobs that are this server's, and what became of the others.

        Raise Unavailable if a job has no owner, or its owner cannot be reached.
        """

    async def put_back(self, jobs: tuple[JobBefore, ...]) -> tuple[tuple[JobBefore, ...], Changed]:
        """Do the same for jobs that are put back."""


class _Alone:
    """All jobs are this server's."""

    async def change(
        self, operation: BulkOperation, ids: tuple[int, ...]
    ) -> tuple[tuple[int, ...], Changed]:
        return ids, Changed()

    async def put_back(self, jobs: tuple[JobBefore, ...]) -> tuple[tuple[JobBefore, ...], Changed]:
        return jobs, Changed()


class Counted(NamedTuple):
    """How many jobs match a filter; since: only those created then or later were counted."""

    jobs: int
    since: int | None


class BulkRunner:
    """The operations on many jobs of one engine."""

    def __init__(self, loop: EngineLoop, store: Store) -> None:
        self._loop = loop
        self._store = store
        self.parts = BulkParts(loop, store)
        self._wake = asyncio.Event()
        loop.on_recovered.append(self._wake.set)  # the store may have others than this runner knows
        self._last = 0  # the operation that had the last turn
        self._failed: dict[int, str] = {}  # the errors that its records do not have yet, by id
        self._retry_at: dict[int, float] = {}  # of operations whose last step failed
        self._pace = BulkPace()
        self._task: asyncio.Task[None] | None = None
        self.others: OtherServers = _Alone()
        # The jobs of all operations since the start, by action and what became of them.
        self.jobs: Counter[tuple[BulkAction, str]] = Counter()

    def start(self) -> None:
        """Continue with the operations that the store has."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="schedo operations")

    async def stop(self) -> None:
        """Stop; the operations continue with the next server."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # Requests.

    async def begin(self, command: BeginBulk) -> BulkOperation:
        """Begin an operation; raise Overloaded if too many run."""
        operation: BulkOperation = await change(self._loop, command)
        requested_by = f", requested by {operation.requested_by}" if operation.requested_by else ""
        log.info("operation %s begins: %s%s", *_describe(operation), requested_by)
        self._wake.set()
        return operation

    async def cancel(self, number: int) -> BulkOperation:
        """Stop an operation; the jobs that it has changed stay changed. Raise NotFound."""
        was_active = any(each.id == number for each in self._active())
        operation: BulkOperation = await change(self._loop, CancelBulk(number))
        self._retry_at.pop(number, None)
        if was_active:
            _log_end(operation)
        return operation

    async def undo(self, number: int, requested_by: str | None = None) -> BulkOperation:
        """Begin to put back what an operation has changed; raise NotFound or Conflict."""
        operation: BulkOperation = await change(self._loop, UndoBulk(number, requested_by))
        log.info(
            "operation %s begins: it undoes operation %s", *map(render_id, (operation.id, number))
        )
        self._wake.set()
        return operation

    async def all(self) -> list[BulkOperation]:
        """Return the operations that run and the latest ones that have ended, newest first."""
        if self._loop.failure is not None:
            raise self._loop.failure
        operations = self._loop.scheduler.bulk_operations()
        await self._loop.flush()  # what a caller has seen must be durable
        return operations[::-1]

    def count_active(self) -> int:
        """Return how many operations run."""
        return len(self._active()) if self._loop.failure is None else 0

    async def count(
        self, which: JobFilter, before: int | None = None, most_s: float = math.inf
    ) -> Counted:
        """Count the jobs that match the filter now; before: only those with smaller ids.

        It takes half of the time at most, because its searches compete with other work for the
        processor. After most_s seconds it leaves out the older jobs.
        """
        loop = asyncio.get_running_loop()
        await self._store.settle()
        total, since, until_s = 0, None, loop.time() + most_s
        while True:
            began_s = loop.time()
            ids, before = await self._store.find_job_ids(which, before, _FOUND_AT_ONCE)
            total += len(ids)
            if before is None:
                return Counted(total, since)
            if since is None and loop.time() >= until_s:
                since = newest_at(before - 1)  # the rest of this microsecond still counts
                which = replace(which, created_after=since)
            await asyncio.sleep(loop.time() - began_s)

    # The work.

    def _active(self) -> list[BulkOperation]:
        return [each for each in self._loop.scheduler.bulk_operations() if each.is_active]

    async def _run(self) -> None:
        while True:
            try:
                if self._loop.failure is not None:
                    await asyncio.sleep(_CLOSED_S)
                    continue
                await self._note_failures()
                await self._take_turn()
            except Exception as error:
                is_expected = isinstance(error, SchedoError)
                log.warning("the operations are postponed: %s", error, exc_info=not is_expected)
                await asyncio.sleep(_CLOSED_S)

    async def _take_turn(self) -> None:
        """Let the next operation do some work; wait if there is none."""
        now = asyncio.get_running_loop().time()
        active = self._active()
        ready = [each for each in active if self._retry_at.get(each.id, now) <= now]
        if not ready:
            self._wake.clear()
            pause_s = min((self._retry_at[each.id] - now for each in active), default=None)
            # Not wait_for: in Python 3.11 it may swallow the cancellation of a stop.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            return
        operation = next((each for each in ready if each.id > self._last), ready[0])
        self._last = operation.id
        try:
            await self._continue(operation)
        except _PASSING:
            raise
        except Exception as error:
            is_here = any(each.id == operation.id for each in self._active())
            if is_here or not isinstance(error, NotFound):
                self._failed[operation.id] = _describe_error(operation, error)
            else:  # its shard has moved, and another server goes on with it
                log.debug("a step is left to another server: %s", error)

    async def _note_failures(self) -> None:
        """Make the failures durable; after too many in a row an operation ends."""
        now = asyncio.get_running_loop().time()
        while self._failed:
            number, text = next(iter(self._failed.items()))
            with contextlib.suppress(NotFound):  # it was cancelled, and is forgotten
                operation = await self._apply(FailedBulk(number, text))
                if operation.is_active:
                    self._retry_at[number] = now + _RETRY_S[operation.failures - 1]
                elif operation.state is BulkState.FAILED:
                    _log_end(operation)
            del self._failed[number]

    async def _continue(self, operation: BulkOperation) -> None:
        if operation.state is BulkState.COUNTING:
            await self._count(operation)
        elif operation.undoes is not None:
            await self._put_back_some(operation, operation.undoes)
        else:
            await self._change_some(operation)
        self._retry_at.pop(operation.id, None)

    async def _count(self, operation: BulkOperation) -> None:
        """Count its jobs. From now on each search finds the jobs that match before it began."""
        counted = await self.count(operation.which, operation.before)
        operation = await self._apply(CountedBulk(operation.id, counted.jobs))
        if not operation.is_active:
            _log_end(operation)

    async def _change_some(self, operation: BulkOperation) -> None:
        """Search once, and change the jobs that are found."""
        loop = asyncio.get_running_loop()
        ids, end = await self._search(operation)
        at = 0
        while at < max(1, len(ids)):
            began_s = loop.time()
            step = tuple(ids[at : at + self._pace.find_jobs(began_s)])
            at += max(1, len(step))
            before = step[-1] if at < len(ids) else end
            command = StepBulk(operation.id, operation.before, step, before)
            ask = partial(self._ask_others, operation, set())
            changed = await self._share(command, "job_ids", ask)
            for outcome in OUTCOMES:
                count = getattr(changed, outcome) - getattr(operation, outcome)
                self.jobs[operation.action, outcome] += count
            committed = self._loop.monitor.metrics.commit_jobs.total
            self._pace.stepped(began_s, changed.done - operation.done, committed)
            operation = changed
            if not operation.is_active:
                _log_end(operation)
                return
            if operation.before != before:  # it has gone on at another server: search again
                return
            await asyncio.sleep(self._pace.find_pause_s(loop.time()))

    async def _ask_others(
        self, operation: BulkOperation, known: set[int], ids: tuple[int, ...]
    ) -> tuple[tuple[int, ...], Changed]:
        """Let other servers change their jobs, and add what they have changed without a response.

        known: the numbers of records in the results of earlier calls for the same step.
        """
        kept = await self.parts.load_kept(operation.id)
        lost = [step for step in kept if step.number not in known]
        changed = jobs_of(lost)
        rest = tuple(each for each in ids if each not in changed)
        own, found = await self.others.change(operation, rest)
        # The history of a job looks for it only in the step that has searched for it, so one that
        # an earlier step has left out stays in its record.
        lost = [step for step in lost if max(jobs_of([step])) < operation.before]
        parts = Changed.total([found, *map(Changed.of_record, lost)])
        known.update(parts.kept)
        return own, parts

    async def _put_back_some(self, operation: BulkOperation, undone: int) -> None:
        """Put back the jobs of one step of the other operation."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        step = await self._store.load_bulk_step(undone, operation.before)
        jobs, before = ((), None) if step is None else (step.jobs, step.number)
        command = StepUndo(operation.id, operation.before, jobs, before)
        changed = await self._share(command, "jobs", self.others.put_back)
        committed = self._loop.monitor.metrics.commit_jobs.total
        self._pace.stepped(began_s, changed.done - operation.done, committed)
        if not changed.is_active:
            _log_end(changed)
            return
        await asyncio.sleep(self._pace.find_pause_s(loop.time()))

    async def _share(
        self, command: StepBulk | StepUndo, field: str, ask: Callable[..., Awaitable[Any]]
    ) -> BulkOperation:
        """Let other servers carry out their part of a step, and apply the rest here.

        field: the jobs of the command. If the shards change meanwhile, some of the rest may be of
        other servers, so all of it is asked about again.
        """
        items, parts = getattr(command, field), list[Changed]()
        while True:
            scheduler = self._loop.scheduler
            items, changed = await ask(items)
            parts.append(changed)
            is_current = partial(self._has, scheduler)
            rest = {field: items, "elsewhere": Changed.total(parts), "is_current": is_current}
            try:
                return await self._apply(replace(command, **rest))
            except Unavailable:  # nothing has happened
                if self._has(scheduler):
                    raise

    def _has(self, scheduler: object) -> bool:
        return self._loop.scheduler is scheduler

    async def _search(self, operation: BulkOperation) -> tuple[list[int], int | None]:
        ids: list[int] = []
        before: int | None = operation.before
        for _ in range(_EMPTY_SEARCHES_MAX):
            if ids or before is None:
                break
            ids, before = await self._store.find_job_ids(operation.which, before, _FOUND_AT_ONCE)
        return ids, before

    async def _apply(self, command: BulkCommand) -> BulkOperation:
        operation: BulkOperation = await self._loop.try_enqueue(command)
        return operation


def _describe(operation: BulkOperation) -> tuple[str, str]:
    """Return the id, and what the operation does to which jobs."""
    which = operation.which
    parts = [f"{name}={value}" for name in _NAMES if (value := getattr(which, name)) is not None]
    if operation.schedule is not None:
        parts.append(f"schedule={operation.schedule}")
    # The values of the others may be secrets, or they are long.
    parts += [name for name in _OTHERS if getattr(which, name) is not None]
    parts += ["payload"] if which.payload else []
    return render_id(operation.id), f"{operation.action} jobs with {' '.join(parts)}"


def _describe_error(operation: BulkOperation, error: Exception) -> str:
    """Log why a step failed, and return it as one sentence."""
    is_expected = isinstance(error, SchedoError)
    text = str(error) if is_expected else f"{type(error).__name__}: {error}"
    number = render_id(operation.id)
    log.warning("a step of operation %s failed: %s", number, text, exc_info=not is_expected)
    return text[:_ERROR_CHARACTERS_MAX]


def _log_end(operation: BulkOperation) -> None:
    """Log how the operation ended."""
    log.log(
        logging.ERROR if operation.state is BulkState.FAILED else logging.INFO,
        "operation %s is %s: %d jobs done, %d skipped, %d failed of %s%s",
        render_id(operation.id),
        operation.state,
        operation.done,
        operation.skipped,
        operation.failed,
        "an unknown number" if operation.total is None else operation.total,
        "" if operation.error is None else f"; {operation.error}",
    )
