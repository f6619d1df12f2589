"""The open polls of remote workers: one future for each, which the scheduler's reply completes."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from schedo.core.commands import Command, HoldLease, HoldStop, Poll, PollBroken
from schedo.core.leases import Lease, Snoozed, StopRequest, measure_lease
from schedo.core.limits import PAYLOAD_PAUSE_US
from schedo.core.model import LeaseKey
from schedo.core.worker_messages import PollRequest, PollResponse
from schedo.core.worker_sessions import PollReply
from schedo.errors import Overloaded, SchedoError

log = logging.getLogger("schedo.engine")

Send = Callable[[Command[Any]], None]
Claim = Callable[[int], Awaitable[None]]
Load = Callable[[int], Awaitable[bytes]]
KeepsPoll = Callable[[int], bool]  # whether a poll waits for the next scheduler, by its id
SMALL_RESPONSE_BYTES = 65_536  # leases of this size are sent without a claim


def keep_none(poll_id: int) -> bool:
    """Let no poll wait for the next scheduler."""
    return False


class _OpenPoll(NamedTuple):
    reply: asyncio.Future[PollResponse]
    is_idle: bool


class WorkerPolls:
    """The polls without a response, by id."""

    def __init__(self, try_send: Send, send: Send, load_payload: Load) -> None:
        """try_send: sends a command to the scheduler, or raises an error; send: never raises."""
        self._try_send = try_send
        self._send = send
        self._load_payload = load_payload
        self._polls: dict[int, _OpenPoll] = {}
        self.last_id = 0

    async def work(self, request: PollRequest, claim: Claim | None) -> PollResponse:
        """Handle one request of a worker; the caller cancels this when the worker disconnects.

        claim: see Workers.work.
        """
        id_ = self.last_id = self.last_id + 1
        worker, is_idle = request.worker, _is_idle(request)
        self._try_send(Poll(id_, request))
        del request  # nothing large is kept during the wait
        reply: asyncio.Future[PollResponse] = asyncio.get_running_loop().create_future()
        self._polls[id_] = _OpenPoll(reply, is_idle)
        try:
            response = await reply
            size = sum(map(measure_lease, response.leases))
            if size > SMALL_RESPONSE_BYTES:
                return await self._complete_leases(id_, worker, response, claim, size)
            return response
        except asyncio.CancelledError:
            self._send(PollBroken(id_, worker, _unsent(reply)))
            raise
        finally:
            self._polls.pop(id_, None)
            del reply  # an error in it refers to this frame by its traceback

    async def _complete_leases(
        self, id_: int, worker: str, response: PollResponse, claim: Claim | None, size: int
    ) -> PollResponse:
        """Claim the leases' bytes, and load the payloads that are only in the store."""
        leases = response.leases
        try:
            if claim is not None:
                await claim(size)
        except Overloaded:
            leases, later = _split(leases)
            self._send(PollBroken(id_, worker, [lease.key for lease in later]))
        return response._replace(leases=await self._load_payloads(id_, worker, leases))

    async def _load_payloads(
        self, id_: int, worker: str, leases: Sequence[Lease]
    ) -> Sequence[Lease]:
        """Return the leases with their payloads, without those whose payload cannot be read."""
        complete = []
        for lease in leases:
            if lease.payload is None:
                try:
                    payload = await self._load_payload(lease.key.job_id)
                except SchedoError as error:
                    log.error("the payload of a job could not be read: %s", error)
                    later = Snoozed(PAYLOAD_PAUSE_US)
                    self._send(PollBroken(id_, worker, [lease.key], later))
                    continue
                lease = replace(lease, payload=payload)
            complete.append(lease)
        return complete

    def complete(self, replies: Iterable[PollReply]) -> None:
        """Complete polls with the scheduler's replies."""
        for id_, worker, value in replies:
            poll = self._polls.get(id_)
            if poll is None or poll.reply.done():  # the worker has just disconnected
                if isinstance(value, PollResponse):
                    self._send(PollBroken(id_, worker, [lease.key for lease in value.leases]))
            elif isinstance(value, PollResponse):
                poll.reply.set_result(value)
            else:
                poll.reply.set_exception(value)

    def has_caller(self, command: object) -> bool:
        """Return False for a poll that has ended; any other command has nothing to do with this."""
        if not isinstance(command, Poll):
            return True
        poll = self._polls.get(command.id)
        return poll is not None and not poll.reply.done()

    def list_open(self) -> set[int]:
        """Return the polls whose workers still wait."""
        return {id_ for id_, poll in self._polls.items() if not poll.reply.done()}

    def fail(self, error: SchedoError, keeps: KeepsPoll) -> None:
        """End the polls, because the scheduler is dropped. An idle worker polls again at once.

        keeps: whether a poll waits for the next scheduler, by its id.
        """
        for id_, poll in self._polls.items():
            if not (poll.reply.done() or keeps(id_)):
                if poll.is_idle:
                    poll.reply.set_result(PollResponse())
                else:
                    poll.reply.set_exception(error)


class RemoteTransport:
    """Sends leases and stop requests to remote workers, with their next responses."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def start(self, lease: Lease) -> None:
        """Put the lease into the next response."""
        self._send(HoldLease(lease))

    def stop(self, stop: StopRequest) -> None:
        """Put the stop request into every response until the attempt ends."""
        self._send(HoldStop(stop))


def _is_idle(request: PollRequest) -> bool:
    """Whether the request brings nothing whose effect its worker must know."""
    return not (request.reports or request.accept)


def _unsent(reply: asyncio.Future[PollResponse]) -> list[LeaseKey]:
    """Return the leases of a response that its caller does not get any more."""
    if not reply.done() or reply.cancelled() or reply.exception() is not None:
        return []
    return [lease.key for lease in reply.result().leases]


def _split(leases: Sequence[Lease]) -> tuple[list[Lease], list[Lease]]:
    """Return the first leases of a small response, and the others."""
    sizes = itertools.accumulate(map(measure_lease, leases))
    count = sum(size <= SMALL_RESPONSE_BYTES for size in sizes)
    return list(leases[:count]), list(leases[count:])
