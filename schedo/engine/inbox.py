"""Moves the rows of the store's inbox into the jobs: what SQL clients submit (docs/sql.md).

A reader polls the inbox beside the turns. It gives the rows to the scheduler as a command, and the
commit that has their jobs deletes the rows. One batch is under way at a time, and after a failure
the reader begins at the first row again. A server that doubts whether it owns its shards fails the
reply, and may still commit the batch: the reader waits for that. So no row is taken twice.

Between the commit of a client and that, the API does not know the job. So a request for an id of
the inbox takes its row first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from typing import Any, TypeVar

from schedo.clock import elapsed_us
from schedo.core.bulk_commands import DeleteJob
from schedo.core.commands import Command, JobCommand
from schedo.core.ids import is_from_sql, may_be_from_sql, render_id
from schedo.core.inbox import Enqueued, TakeIn
from schedo.engine.action_log import change
from schedo.engine.loop import EngineLoop
from schedo.engine.sharing import jobs_in_steps
from schedo.errors import SchedoError, Unavailable
from schedo.store.inbox import InboxRow, SqlInbox

log = logging.getLogger("schedo.engine")
T = TypeVar("T")
ReadRows = Callable[[Sequence[InboxRow]], Generator[None, None, list[Enqueued]]]

BUSY_S = 0.02  # between two polls when rows came within BUSY_FOR_S
IDLE_S = 0.1
BUSY_FOR_S = 1.0
_FAILED_S = 1.0  # after a failure
_OTHER_S = 1.0  # for so long a request waits until another server has taken a row


class Inbox:
    """The reader of one engine; most stores have no inbox, and then it does nothing."""

    def __init__(self, loop: EngineLoop) -> None:
        self._loop = loop
        self._source: SqlInbox | None = None
        self._read_rows: ReadRows | None = None
        self._turn = asyncio.Lock()  # one batch is under way at a time
        self._wake = asyncio.Event()
        self._batch: set[int] = set()  # the rows of which it is unknown whether they were taken
        self._refused: dict[int, str] = {}  # why rows, by id, have failed their batch
        self._set_aside: set[int] = set()  # rows that have failed it again, also as refused ones
        self._task: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[Any]] = set()  # of requests for ids of the inbox
        loop.bugs.refuse.append(self._blame)

    def use(self, source: SqlInbox, read_rows: ReadRows) -> None:
        """Read this inbox after the start; read_rows: checks the rows and makes specs of them."""
        self._source, self._read_rows = source, read_rows

    def start(self) -> None:
        """Begin to read, if there is an inbox."""
        if self._source is not None:
            self._source.notify = self._wake.set
            self._task = asyncio.create_task(self._run(), name="schedo inbox")

    async def stop(self) -> None:
        """Read no more; what is left waits for the next server."""
        task, self._task = self._task, None
        if task is not None:
            ending = [task, *self._calls]
            for each in ending:
                each.cancel()
            await asyncio.wait(ending)

    # Calls for ids of the inbox.

    async def bring(self, job_id: int) -> None:
        """Take the row with this id, if there is one; raise SchedoError if it cannot be taken.

        The next rows go first, as far as one batch, so that they mostly become jobs in their order.
        """
        if self._task is None or not is_from_sql(job_id):
            return
        source = self._source
        assert source is not None, "the task reads it"
        row = await self._to_its_end(self._bring(source, job_id))
        if row is not None:
            await self._wait_for_other(source, job_id)

    async def _bring(self, source: SqlInbox, job_id: int) -> InboxRow | None:
        """Take the row with this id; return it if another server takes it."""
        async with self._turn:
            await self._loop.end_doubt()
            row = await source.find(job_id)
            if row is not None and row.is_own:
                await self._take_next(source)
                scheduler = self._loop.scheduler
                row = await source.find(job_id)
                if row is not None and row.is_own:
                    await self._take([row], scheduler)
                    return None
            return row

    async def _to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work, which goes on when its caller leaves.

        A batch whose commit is under way must keep its turn: before the commit is visible, the next
        read would find the same rows.
        """
        call = asyncio.create_task(work, name="schedo inbox call")
        self._calls.add(call)
        call.add_done_callback(self._forget)
        await asyncio.wait([call])
        if call.cancelled():
            raise Unavailable("the server has stopped")
        return call.result()

    def _forget(self, call: asyncio.Task[Any]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # its caller may be gone

    async def _wait_for_other(self, source: SqlInbox, job_id: int) -> None:
        """Return when the server that owns the shard has taken the row; raise Unavailable."""
        until = self._loop.loop.time() + _OTHER_S
        while await source.find(job_id) is not None:
            if self._loop.loop.time() > until:
                raise Unavailable("the server that takes this job of the inbox has not done it yet")
            await asyncio.sleep(BUSY_S)

    async def change(self, command: JobCommand | DeleteJob, finish: Callable[[Any], T]) -> T:
        """Change a job as action_log.change does, also one whose row is in the inbox."""
        await self.bring(command.job_id)
        given: Command[Any] = command
        return await change(self._loop, given, finish)

    # The reader.

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        busy_until, pause_s, is_failing = 0.0, IDLE_S, False
        while True:
            try:
                if self._loop.failure is None:
                    if await self._poll():
                        busy_until = loop.time() + BUSY_FOR_S
                    if is_failing:
                        log.info("the inbox is read again")
                    is_failing = False
                pause_s = BUSY_S if loop.time() < busy_until else IDLE_S
            except Unavailable:  # the engine recovers, or its shards change
                pause_s = BUSY_S
            except Exception as error:
                is_expected = isinstance(error, SchedoError)
                if not is_failing or not is_expected:
                    log.warning("the inbox waits: %s", error, exc_info=not is_expected)
                pause_s, is_failing = _FAILED_S, True
            # Not by wait_for, which in Python 3.11 may ignore a cancellation.
            timer = loop.call_later(pause_s, self._wake.set)
            await self._wake.wait()
            timer.cancel()
            self._wake.clear()

    async def _poll(self) -> int:
        """Take all rows that are there; return how many."""
        assert self._source is not None, "there is something to poll"
        taken = 0
        while True:
            async with self._turn:
                count = await self._take_next(self._source)
            taken += count
            if not count:
                return taken

    async def _take_next(self, source: SqlInbox) -> int:
        """Take the next rows; return how many."""
        await self._loop.end_doubt()
        scheduler = self._loop.scheduler
        return await self._take(await source.read(), scheduler)

    async def _take(self, rows: Sequence[InboxRow], scheduler: object) -> int:
        """Make the jobs of the rows durable, and return how many were not set aside.

        scheduler: that of before the rows were read.
        """
        assert self._source is not None, "it has the rows"
        assert self._read_rows is not None, "they are read by it"
        rows = [row for row in rows if row.id not in self._set_aside and self._has_fit_id(row)]
        self._batch = {row.id for row in rows}
        if not rows:
            return 0
        began_at = elapsed_us(self._loop.clock)
        try:
            found = [self._refuse(row) for row in await jobs_in_steps(self._read_rows(rows))]
            # After a recovery the rows may be taken already, or belong to another server.
            is_current = lambda: self._loop.scheduler is scheduler  # noqa: E731
            command: Command[None] = TakeIn(found, is_current)
            await self._loop.try_enqueue(command)
        except BaseException:
            self._source.restart()
            raise
        self._batch.clear()
        for row in rows:
            self._refused.pop(row.id, None)
        waited_us = elapsed_us(self._loop.clock) - began_at
        self._loop.monitor.metrics.note_submit([each.spec for each in found], waited_us)
        return len(found)

    def _blame(self, faults: Mapping[int, str]) -> bool:
        """Refuse these rows in the next batch; those refused in this one are set aside.

        Return False if none of them is in the batch whose commit has failed.
        """
        found = self._batch & faults.keys()
        for job_id in found:
            reason = f"the job cannot be taken: {faults[job_id]}"
            if job_id in self._refused:
                self._set_aside.add(job_id)
                log.error(
                    "job %s, which SQL has submitted, stays in the inbox until the next start: %s",
                    render_id(job_id),
                    reason,
                )
            self._refused[job_id] = reason
        return bool(found)

    def _has_fit_id(self, row: InboxRow) -> bool:
        """Return whether the row can be a job; set it aside if someone has made up its id.

        After an id at the end of the range no server could make any; the API cannot name a negative
        one; and any other may be given to another job.
        """
        is_fit = may_be_from_sql(row.id)
        if not is_fit:
            self._set_aside.add(row.id)
            log.error("enqueue gives no such id as %d: this row of the inbox stays there", row.id)
        return is_fit

    def _refuse(self, row: Enqueued) -> Enqueued:
        """Return the row, or a refused one with nothing on which its batch may fail again."""
        reason = self._refused.get(row.id)
        if reason is None:
            return row
        return Enqueued(row.id, type(row.spec)(task=row.spec.task, queue=row.spec.queue), reason)
