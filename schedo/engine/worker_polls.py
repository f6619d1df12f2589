"""The open polls of remote workers: one future for each, which the scheduler's reply completes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from schedo.core.commands import Command, HoldLease, HoldStop, Poll, PollBroken
from schedo.core.leases import Lease, StopRequest
from schedo.core.model import LeaseKey
from schedo.core.worker_messages import PollRequest, PollResponse
from schedo.core.worker_sessions import PollReply
from schedo.errors import SchedoError

Send = Callable[[Command[Any]], None]


class _OpenPoll(NamedTuple):
    reply: asyncio.Future[PollResponse]
    is_idle: bool


class WorkerPolls:
    """The polls without a response, by id."""

    def __init__(self, try_send: Send, send: Send) -> None:
        """try_send: sends a command to the scheduler, or raises an error; send: never raises."""
        self._try_send = try_send
        self._send = send
        self._polls: dict[int, _OpenPoll] = {}
        self._ids = itertools.count(1)

    async def work(self, request: PollRequest) -> PollResponse:
        """Handle one request of a worker; the caller cancels this when the worker disconnects."""
        id_, worker, is_idle = next(self._ids), request.worker, _is_idle(request)
        self._try_send(Poll(id_, request))
        del request  # nothing large is kept during the wait
        reply: asyncio.Future[PollResponse] = asyncio.get_running_loop().create_future()
        self._polls[id_] = _OpenPoll(reply, is_idle)
        try:
            return await reply
        except asyncio.CancelledError:
            self._send(PollBroken(id_, worker, _unsent(reply)))
            raise
        finally:
            self._polls.pop(id_, None)

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

    def fail(self, error: SchedoError) -> None:
        """End all polls, because the scheduler is dropped. An idle worker polls again at once."""
        for poll in self._polls.values():
            if not poll.reply.done():
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
