"""The calls that place jobs on workers at once: invocations and reservations."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Sequence

from schedo.core.commands import (
    Command,
    CommitReservation,
    Invoke,
    ReleaseReservation,
    Reserve,
)
from schedo.core.dry_runs import DryRun
from schedo.core.limits import SECOND
from schedo.core.model import Job, JobSpec, ReadyKey
from schedo.core.requirements import Requirements
from schedo.core.worker_messages import Reservation
from schedo.engine.loop import EngineLoop
from schedo.engine.waiters import after_job_is_made
from schedo.errors import IllegalTransition, NoCapacity, SchedoError


def _ignore() -> None:
    """Do nothing when the jobs have started."""


class Invocations:
    """Invokes jobs and waits for them."""

    def __init__(
        self,
        loop: EngineLoop,
        wait: Callable[[int, float, asyncio.Future[Job]], Awaitable[Job]],
        cancel: Callable[[int], Awaitable[Job]],
    ) -> None:
        """wait, cancel: those of the engine."""
        self._loop = loop
        self._wait = wait
        self._cancel = cancel

    async def invoke(
        self, spec: JobSpec, count: int, wait_s: float, on_started: Callable[[], None] = _ignore
    ) -> list[Job]:
        """Start `count` jobs now, all or none; return them after at most `wait_s` seconds.

        `on_started` is called when they are durable and the wait begins. Raise NoCapacity or
        Unsatisfiable; a failed job is returned like a completed one.
        """
        id_ = secrets.token_hex(8)
        running = self._run(id_, Invoke(id_, spec, count), wait_s, on_started)
        del spec  # nothing large is kept during the wait
        return await running

    def dry_run(self, spec: JobSpec, count: int) -> DryRun:
        """Return whether `count` jobs would start now, and what each worker says."""
        ready_key = ReadyKey(spec.queue, spec.task, requirements=spec.options.requirements)
        if self._loop.failure is not None:
            raise self._loop.failure
        return self._loop.scheduler.dry_run(ready_key, count, self._loop.clock.now())

    async def reserve(
        self,
        task: str | None,
        queue: str,
        requirements: Requirements | None,
        count: int,
        ttl_s: float,
    ) -> Reservation:
        """Hold `count` slots until they are used or released, or until `ttl_s` has passed."""
        id_, nonce = secrets.token_hex(8), secrets.token_urlsafe(18)
        ready_key = ReadyKey(queue, task or "", requirements=requirements)
        command = Reserve(id_, nonce, ready_key, count, round(ttl_s * SECOND))
        reply: asyncio.Future[Reservation] = self._loop.try_enqueue(command)
        try:
            return await reply
        except asyncio.CancelledError:
            if reply.done() and not reply.cancelled() and reply.exception() is None:
                with contextlib.suppress(SchedoError):  # its time will be up
                    self._loop.try_enqueue(ReleaseReservation(id_, nonce))
            raise
        finally:
            del reply  # an error in it refers to this frame by its traceback

    async def commit(
        self,
        id_: str,
        nonce: str,
        spec: JobSpec,
        wait_s: float,
        on_started: Callable[[], None] = _ignore,
    ) -> list[Job]:
        """Run a job in each slot of the reservation; raise NoReservation if it is not open.

        Raise Unsatisfiable if its workers do not run such jobs; the reservation then stays open.
        `on_started` is as in invoke.
        """
        running = self._run(id_, CommitReservation(id_, nonce, spec), wait_s, on_started)
        del spec
        return await running

    async def release(self, id_: str, nonce: str) -> None:
        """Free the reserved slots; raise NoReservation if the reservation is not open."""
        await self._loop.try_enqueue(ReleaseReservation(id_, nonce))

    async def _run(
        self, id_: str, command: Command[list[Job]], wait_s: float, on_started: Callable[[], None]
    ) -> list[Job]:
        """Start the jobs, and wait for their ends; without a wait, until they are accepted."""
        waiters: dict[int, asyncio.Future[Job]] = {}

        def expect_ends(jobs: Sequence[Job]) -> None:
            for job in jobs:
                waiters[job.id] = ends.enter_context(self._loop.waiters.expect(job.id))

        with self._loop.notes.decisions.expect(id_) as decided, contextlib.ExitStack() as ends:
            starting = self._loop.try_enqueue(command, expect_ends)
            del command
            try:
                await starting
            finally:
                del starting  # an error in it refers to this frame by its traceback
            on_started()
            if not wait_s:
                await decided
            waits = (self._wait(job_id, wait_s, waiter) for job_id, waiter in waiters.items())
            with after_job_is_made():
                ended = await asyncio.gather(*waits)
            unstarted = decided.result().unstarted if decided.done() else frozenset[int]()
            refused = [job for job in ended if job.failure and job.id in unstarted]
            if not refused:
                return list(ended)
            for job in ended:
                if not job.is_final:
                    with contextlib.suppress(IllegalTransition):  # it has ended meanwhile
                        await self._cancel(job.id)
            rejections = decided.result().rejections
        failure = refused[0].failure
        message = failure.message if failure is not None else "no worker accepted it"
        raise NoCapacity(message, rejections, {"rejected": rejections})
