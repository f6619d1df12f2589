"""Speaks the worker protocol: one open poll, and at most one report in flight with it.

The poll lists the running attempts and brings leases and stops. Results that arrive while it is
open are sent at once in a separate report; messages that arrive while a report is in flight are
batched into the next. Without a working poll they stay in the outbox until the next poll.

The server takes `running` as the truth. So the worker sends it only in a poll, when no other
request can bring leases, and lists every attempt that the server may have outstanding, also one
that has ended but whose result is not confirmed. After a lost connection a poll comes before any
report, because the server may have been restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from schedo.client.async_transport import AsyncTransport
from schedo.client.errors import parse_problem
from schedo.client.messages import HttpResponse, Operation
from schedo.core.leases import AttemptResult, Lease, Released, StopReason
from schedo.core.model import LeaseKey
from schedo.core.progress import ProgressUpdate
from schedo.core.value_limits import fit_report
from schedo.errors import Conflict, SchedoError, Unavailable
from schedo.protocol.leases import LeaseResponse, StopResponse, parse_lease, render_lease
from schedo.protocol.results import ResultRequest
from schedo.protocol.work import (
    RejectRequest,
    WorkRequest,
    WorkResponse,
    parse_response,
)
from schedo.worker.executor import Connection
from schedo.worker.remote.outbox import Message, Outbox
from schedo.worker.remote.retry_delay import RetryDelay

RESPONSE_S = 10.0  # the longest time to a response, beyond the `wait` of the request
HEARTBEAT_S = 10.0
HEARTBEAT_S_MIN, HEARTBEAT_S_MAX = 0.1, 60.0
# With all slots busy a poll can bring only stops, so it may wait this long for results to carry.
LINGER_S = 0.02
LINGER_TURNS = 6  # of the event loop; a handler without I/O has ended by then

_MAX_LEASES = 1_000
_UNACCEPTABLE = frozenset({400, 413, 422})  # the server can never accept this request
_BUSY = frozenset({429, 503})
_HEADERS = {"Content-Type": "application/json"}

log = logging.getLogger("schedo.worker")


class Busy(Unavailable):
    """The server is overloaded or shuts down; retry later."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Attempts(Protocol):
    """The attempts that run: the methods of an Executor that a poller uses."""

    def __len__(self) -> int: ...

    @property
    def running(self) -> list[LeaseKey]:
        """The attempts that run."""

    def start(self, lease: Lease) -> bool:
        """Start the attempt; return False if it runs already."""

    def stop(self, key: LeaseKey, reason: StopReason) -> bool:
        """Request the attempt to stop; return False if it does not run or is already stopping."""

    def abandon(self, key: LeaseKey) -> bool:
        """Stop the attempt without a report of its result; return whether it ran."""


A = TypeVar("A", bound=Attempts)


class Poller(Generic[A]):
    """One session of a worker: polls, reports and the attempts that run."""

    def __init__(
        self,
        transport: AsyncTransport,
        registration: WorkRequest,
        make_executor: Callable[[Connection], A],
        random: Callable[[], float],
    ) -> None:
        self._transport = transport
        self._registration = registration
        self._slots = registration.slots or 1
        self.outbox = Outbox()
        self.executor = make_executor(self)
        self.drain_requested = asyncio.Event()
        self.connected = asyncio.Event()  # the server has accepted the registration
        self._offers: dict[str, Lease] = {}  # accepted, not yet confirmed
        self._heartbeat_s = HEARTBEAT_S
        self._is_draining = False
        self._is_leaving = False
        self._has_spoken = False
        self._is_in_contact = False  # the last poll got a response
        self._waking = asyncio.Event()
        self._polling: asyncio.Task[WorkResponse] | None = None
        self._is_polling = asyncio.Event()
        self._report_lock = asyncio.Lock()
        self._poll_delay = RetryDelay(random, self._waking)
        self._report_delay = RetryDelay(random, self._waking)

    async def run(self) -> None:
        """Poll and report until leave(), and until the outbox is empty then.

        Raises SchedoError if retrying cannot help: another process has the name, or the server
        refused the first request.
        """
        reporting = asyncio.create_task(self._report_loop())
        try:
            while not self._is_leaving:
                await self._batch_results()
                await self._poll()
            async with self._report_lock:  # no report is in flight any more
                while not await self._poll() or len(self.outbox):
                    pass
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)

    @property
    def _free_slots(self) -> int:
        return max(0, self._slots - len(self.executor))

    def drain(self) -> None:
        """Take no new work from now on."""
        self._is_draining = True
        self._interrupt()

    def leave(self) -> None:
        """Let run() return once the outbox is empty; no attempt runs any more."""
        self._is_draining = self._is_leaving = True
        self._interrupt()

    def _interrupt(self) -> None:
        self._waking.set()
        if self._polling is not None:
            self._polling.cancel()

    def _resync(self) -> None:
        """Send a poll with `running` before any other request: the server may be a new one."""
        self._is_in_contact = False
        self._is_polling.clear()
        if self._polling is not None:
            self._polling.cancel()

    # The executor's side.

    def send_result(self, result: AttemptResult) -> None:
        """Put the result into the outbox, which keeps it until the server has confirmed it."""
        lease = render_lease(result.key)
        self.outbox.add(Message.of(ResultRequest.of(lease, fit_report(result))))

    def send_progress(self, key: LeaseKey, update: ProgressUpdate) -> None:
        """Put the progress of a running attempt into the outbox."""
        self.outbox.add_progress(key, update)

    # Polls.

    async def _batch_results(self) -> None:
        """Give attempts that end at once the time to add their results to the next poll."""
        for _ in range(LINGER_TURNS):
            if self.outbox.has_messages or not len(self.executor):
                return
            await _yield_once()
        if self._free_slots == 0:
            await self._await_message(LINGER_S)

    async def _await_message(self, most_s: float) -> None:
        """Wait until the outbox has a message, or until the time is up."""
        if most_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(most_s):
                    await self.outbox.wait()

    async def _poll(self) -> bool:
        """Send a poll with the messages of the outbox; return whether it got a response."""
        loop = asyncio.get_running_loop()
        self._waking.clear()  # this poll is what it asked for; a pause after it is another one
        messages = self.outbox.take()
        # The attempt of an accepted offer starts with the response, so the server must not wait.
        is_urgent = self._is_leaving or any(message.field == "accept" for message in messages)
        wait_s = self._heartbeat_s if self._is_in_contact and not is_urgent else 0.0
        began = loop.time()
        polling = self._polling = loop.create_task(
            self._exchange(self._make_poll(messages, wait_s), wait_s)
        )
        if self._is_in_contact:
            self._is_polling.set()
        try:
            await asyncio.wait((polling,))
        finally:
            self._is_polling.clear()
            polling.cancel()
        if polling.cancelled():
            self.outbox.put_back(messages)
            return False
        error = polling.exception()
        if isinstance(error, SchedoError):
            await self._handle_error(messages, error)
            return False
        response = polling.result()
        self._note_contact()
        is_news = self._apply_response(messages, response)
        is_early = loop.time() - began < wait_s / 2
        await self._await_message(self._poll_delay.idle_s(is_idle=is_early and not is_news))
        return True

    async def _handle_error(self, messages: list[Message], error: SchedoError) -> None:
        """Wait before the next poll; raise the error if retrying cannot help."""
        self._take_back(messages, error)
        if error.status in _UNACCEPTABLE and messages:
            return
        self._is_in_contact = False
        if self._is_fatal(error):
            raise error
        await self._poll_delay.wait_after(error)

    def _make_poll(self, messages: list[Message], wait_s: float) -> WorkRequest:
        ended = {message.lease for message in messages if message.field in ("results", "reject")}
        leases = map(render_lease, self.executor.running)
        running = [*leases, *self._offers, *self.outbox.leases]
        # All slots: some may become free while the poll is open. The server never gives more leases
        # than are free.
        return self._make_request(
            messages,
            running=[lease for lease in dict.fromkeys(running) if lease not in ended],
            wait=wait_s,
            max_leases=0 if self._is_draining else min(self._slots, _MAX_LEASES),
            offers=True,
        )

    def _make_request(self, messages: list[Message], **fields: Any) -> WorkRequest:
        """Return the request with these fields and the entries of the messages."""
        lists: dict[str, list[msgspec.Raw]] = {}
        for message in messages:
            lists.setdefault(message.field, []).append(msgspec.Raw(message.body))
        return msgspec.structs.replace(
            self._registration, draining=self._is_draining or None, **fields, **lists
        )

    def _is_fatal(self, error: SchedoError) -> bool:
        """Whether retrying cannot help: another process has the name, or no request succeeded."""
        if isinstance(error, Conflict):
            return True
        return not self._has_spoken and 400 <= error.status < 500 and not isinstance(error, Busy)

    def _note_contact(self) -> None:
        if not self._has_spoken:
            log.info("connected to %s", self._transport.address.url)
        self._has_spoken = self._is_in_contact = True
        self.connected.set()
        self._poll_delay.note_success()

    # Reports.

    async def _report_loop(self) -> None:
        while True:
            await self.outbox.wait()
            await self._is_polling.wait()
            async with self._report_lock:
                messages = self.outbox.take() if self._is_polling.is_set() else []
                if messages:
                    await self._report(messages)

    async def _report(self, messages: list[Message]) -> None:
        request = self._make_request(messages, max_leases=0, wait=0)
        try:
            response = await self._exchange(request, 0.0)
        except SchedoError as error:
            self._take_back(messages, error)
            if isinstance(error, Busy):
                await self._report_delay.wait_after(error, is_quiet=True)
            elif error.status not in _UNACCEPTABLE:
                self._resync()
            return
        except asyncio.CancelledError:
            self.outbox.put_back(messages)
            raise
        self._report_delay.note_success()
        self._apply_response(messages, response)

    def _take_back(self, messages: list[Message], error: SchedoError) -> None:
        if error.status in _UNACCEPTABLE and messages:
            self.outbox.refuse(messages, error)
        else:
            self.outbox.put_back(messages)

    # Requests and responses.

    async def _exchange(self, request: WorkRequest, wait_s: float) -> WorkResponse:
        operation = Operation(
            "POST",
            "/v1/work",
            _read_response,
            msgspec.json.encode(request),
            _HEADERS,
            held_s=wait_s,
            handled_statuses=_BUSY,
        )
        return await self._transport.send(operation)

    def _apply_response(self, messages: list[Message], response: WorkResponse) -> bool:
        """Apply the response; return whether it or its request had any news."""
        self.outbox.confirm(messages)
        self._heartbeat_s = min(max(response.heartbeat, HEARTBEAT_S_MIN), HEARTBEAT_S_MAX)
        for refused in response.refused:
            log.warning("lease %s: %s", refused.lease, refused.detail or "its result is refused")
        gone = {*response.revoked, *(refused.lease for refused in response.refused)}
        news = [
            self._begin(message.lease, gone) for message in messages if message.field == "accept"
        ]
        news += [self._receive(each) for each in response.leases]
        news += [self._stop(stop) for stop in response.stop]
        news += [self._abandon(lease) for lease in response.revoked]
        if response.drain:
            self.drain_requested.set()
        return bool(messages) or any(news)

    def _receive(self, given: LeaseResponse) -> bool:
        try:
            lease = given.read(self._registration.worker, time.time_ns() // 1_000)
        except (SchedoError, ValueError) as error:
            log.error("ignored a lease that cannot be read: %s", error)
            return False
        text = given.lease
        if not given.offer:
            return self._start(lease)
        if text in self._offers:
            return False
        if self._is_draining or self._free_slots <= len(self._offers):
            reason = "draining" if self._is_draining else "no free slot"
            self.outbox.add(Message.of(RejectRequest(text, reason)))
        else:
            self._offers[text] = lease
            self.outbox.add(Message.accept(text))
        return True

    def _begin(self, text: str, gone: set[str]) -> bool:
        """Start an accepted offer unless the server has revoked it in the meantime."""
        lease = self._offers.pop(text, None)
        return lease is not None and text not in gone and self._start(lease)

    def _start(self, lease: Lease) -> bool:
        """Run the attempt, or give it back if the worker drains by now."""
        if not self._is_draining:
            return self.executor.start(lease)
        self.send_result(AttemptResult(lease.key, Released()))
        return True

    def _stop(self, stop: StopResponse) -> bool:
        key = _read_key(stop.lease)
        return key is not None and self.executor.stop(key, stop.read_reason())

    def _abandon(self, text: str) -> bool:
        key = _read_key(text)
        if key is None or not self.executor.abandon(key):
            return False
        log.warning("the server has revoked lease %s; its attempt is stopped", text)
        return True


def _read_key(text: str) -> LeaseKey | None:
    """Return the key of the lease with this name; None if this worker cannot have such a lease."""
    try:
        return parse_lease(text)
    except SchedoError:
        return None


async def _yield_once() -> None:
    """Let the event loop run its ready callbacks once."""
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned


def _read_response(response: HttpResponse) -> WorkResponse:
    if response.status in _BUSY:
        seconds = response.headers.get("retry-after", "")
        error = parse_problem(response.status, response.headers, response.body)
        raise Busy(str(error), float(seconds[:6]) if seconds.isdecimal() else 1.0)
    return parse_response(response.body)
