"""The old process of an upgrade, as a remote worker of the new server.

The new server expects the attempts that the old process still runs from a worker of this name. Here
the old process becomes that worker: it lists the attempts, sends their progress and results, stops
those that the server stops, takes no new ones, and ends with the last. It speaks the worker
protocol with the poller of every remote worker (worker/remote/poller.py). What differs is where
the attempts run: in the workers that a frozen engine has left (engine/freezing.py).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterable

from schedo.client.async_transport import AsyncTransport, Connect
from schedo.client.messages import parse_address
from schedo.core.commands import DetachWorker
from schedo.core.leases import AttemptResult, Lease, Lost, Released, StopReason, StopRequest
from schedo.core.model import LeaseKey
from schedo.core.worker_messages import Progress
from schedo.engine.command_queue import QueuedCommand, refuse
from schedo.engine.dispatch import Transport
from schedo.engine.freezing import Freezing
from schedo.errors import SchedoError, Unavailable
from schedo.protocol.work import PROTOCOL, WorkRequest
from schedo.version import __version__
from schedo.worker.executor import Connection
from schedo.worker.remote.poller import RESPONSE_S, Poller

# For the last results to get through, if the new server has died in the meantime.
LEAVE_S = 30.0
_ADDRESS = parse_address("http://localhost", None)  # of the requests; `connect` opens the way

log = logging.getLogger("schedo.worker")

HeldHere = Iterable[tuple[Lease, Transport]]


class HeldAttempts:
    """The attempts that workers of this process run for the new server."""

    def __init__(self, held: HeldHere) -> None:
        self._held = {lease.key: (lease, transport) for lease, transport in held}
        self._stopping: set[LeaseKey] = set()
        self._is_idle = asyncio.Event()
        self._note_end()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def running(self) -> list[LeaseKey]:
        """The attempts that run."""
        return list(self._held)

    def start(self, lease: Lease) -> bool:
        """Start nothing: this worker has no free slots, and drains."""
        log.error("the server sent a lease of task %s to a process that drains", lease.task)
        return False

    def stop(self, key: LeaseKey, reason: StopReason) -> bool:
        """Request the attempt to stop; return False if it does not run or is already stopping."""
        if key not in self._held or key in self._stopping:
            return False
        self._stopping.add(key)
        lease, transport = self._held[key]
        transport.stop(StopRequest(key, lease.worker, reason))
        return True

    def abandon(self, key: LeaseKey) -> bool:
        """Stop the attempt without a report of its result; return whether it ran."""
        self.stop(key, StopReason.CANCEL)
        return self.end(key)

    def end(self, key: LeaseKey) -> bool:
        """Forget the attempt; return whether it ran."""
        has_run = self._held.pop(key, None) is not None
        self._note_end()
        return has_run

    def held_by(self, worker: str) -> list[LeaseKey]:
        """Return the attempts of one worker of this process."""
        return [key for key, (lease, _) in self._held.items() if lease.worker == worker]

    def _note_end(self) -> None:
        if not self._held:
            self._is_idle.set()

    async def wait_idle(self) -> None:
        """Return when no attempt runs."""
        await self._is_idle.wait()


class Drainer:
    """Sends what the attempts of a frozen engine report to the server that has its store now."""

    def __init__(self, name: str, freezing: Freezing, held: HeldHere, connect: Connect) -> None:
        """connect: opens a connection to the new server, which trusts it."""
        self.attempts = HeldAttempts(held)
        self._has_held = len(self.attempts) > 0  # attempts, which may have ended since
        self._freezing = freezing
        self._transport = AsyncTransport(_ADDRESS, RESPONSE_S, connect)
        request = WorkRequest(
            protocol=PROTOCOL,
            worker=name,
            session=secrets.token_hex(8),
            version=__version__,
            tasks=[],
            slots=max(1, len(self.attempts)),
        )
        self._poller = Poller(
            self._transport, request, self._connect_attempts, secrets.SystemRandom().random
        )

    def _connect_attempts(self, connection: Connection) -> HeldAttempts:
        return self.attempts

    async def run(self) -> None:
        """Return when every attempt has ended and the server has all results; see `pass_on`.

        Raise SchedoError if the results cannot be reported.
        """
        if not self._has_held:
            return
        self._poller.drain()
        polling = asyncio.create_task(self._poller.run())
        idle = asyncio.create_task(self.attempts.wait_idle())
        try:
            await asyncio.wait((polling, idle), return_when=asyncio.FIRST_COMPLETED)
            if polling.done():
                polling.result()
            self._poller.leave()
            await asyncio.wait((polling,), timeout=LEAVE_S)
            if not polling.done():
                count = len(self._poller.outbox)
                raise Unavailable(f"{count} results could not be reported to the new server")
            polling.result()
        finally:
            for task in (polling, idle):
                task.cancel()
            await asyncio.gather(polling, idle, return_exceptions=True)
            await self._transport.close()

    async def pass_on(self) -> None:
        """Send on what the attempts report, until the task is cancelled; refuse other commands."""
        while True:
            for item in await self._freezing.take_late():
                if isinstance(item, Progress):
                    self._send_progress(item)
                elif isinstance(item, AttemptResult):
                    self._send_result(item)
                else:
                    self._carry_out(item)

    def _send_progress(self, progress: Progress) -> None:
        if progress.key in self.attempts.running:
            self._poller.send_progress(progress.key, progress.update)

    def _send_result(self, result: AttemptResult) -> None:
        if self.attempts.end(result.key):
            self._poller.send_result(result)

    def _carry_out(self, queued: QueuedCommand) -> None:
        """End the attempts of a worker that is gone; refuse what only an engine can do."""
        command = queued.command
        if isinstance(command, DetachWorker):
            for key in self.attempts.held_by(command.worker):
                is_unsent = key in command.unsent
                outcome = Released() if is_unsent else Lost(command.message)
                self._send_result(AttemptResult(key, outcome))
        refuse(queued.reply, superseded())


def superseded() -> SchedoError:
    """Return the error for a request that reaches a process whose server was replaced."""
    return Unavailable("another process serves here now; repeat the request")
