"""The conversation of a worker with its server: one request that waits, and one that tells.

The waiting request says what runs and brings leases and stops. What has to be told while it waits
goes out at once in a request of its own, and what comes up while that is on its way goes into the
next. While no request waits, or none gets through, words wait for the next that does.

Rule: `running` is the truth to the server, so it is sent only when no other request can bring
leases, and it lists whatever the server may still believe to run here: also attempts that have
ended but whose result has not been confirmed. The first request that gets through after a break
says it before anything else is said, for the server may have been started anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

from schedo.client.async_transport import AsyncTransport
from schedo.client.errors import parse_problem
from schedo.client.messages import Answer, Operation
from schedo.core.leases import AttemptResult, Lease, Released
from schedo.core.model import LeaseKey
from schedo.errors import Conflict, SchedoError, Unavailable
from schedo.protocol.lease_keys import render_lease
from schedo.tasks.progress import Progress, Said
from schedo.tasks.runner import Runner
from schedo.worker.executor import Executor
from schedo.worker.remote.messages import (
    GivenLease,
    Message,
    Record,
    WorkAnswer,
    parse_answer,
    render_accept,
    render_progress,
    render_reject,
    render_request,
    render_result,
    render_words,
)
from schedo.worker.remote.outbox import Outbox
from schedo.worker.remote.retry_delay import RetryDelay

ANSWER_S = 10.0  # within which every answer comes, beside what it was asked to wait
HEARTBEAT_S = 10.0
HEARTBEAT_S_MIN, HEARTBEAT_S_MAX = 0.1, 60.0
# With all slots busy only stops can come: so long, results may be awaited to be taken along.
LINGER_S = 0.02
LINGER_TURNS = 6  # of the loop; a handler that waits for nothing has ended by then

_MAX_LEASES = 1_000

_UNTAKEN = frozenset({400, 413, 422})  # the server can do nothing with what the request holds
_BUSY = frozenset({429, 503})
_HEADERS = {"Content-Type": "application/json"}

log = logging.getLogger("schedo.worker")


class Busy(Unavailable):
    """The server has too much to do, or is about to stop; ask again later."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Poller:
    """One process life of a worker, as the server knows it."""

    def __init__(
        self,
        transport: AsyncTransport,
        registration: Record,
        runners: Mapping[str, Runner],
        random: Callable[[], float],
    ) -> None:
        self._transport = transport
        self._registration = registration
        self.outbox = Outbox()
        self._progress = Progress(self._pass_on)
        self.attempts = Executor(runners, registration["slots"], self._on_end, self._progress.tell)
        self.drain_requested = asyncio.Event()
        self._offers: dict[str, Lease] = {}  # accepted, and not yet confirmed
        self._heartbeat_s = HEARTBEAT_S
        self._is_draining = False
        self._is_leaving = False
        self._has_spoken = False
        self._is_in_contact = False
        self._waking = asyncio.Event()
        self._polling: asyncio.Task[WorkAnswer] | None = None
        self._is_polling = asyncio.Event()
        self._reporting = asyncio.Lock()
        self._patience = RetryDelay(random, self._waking)
        self._telling_patience = RetryDelay(random, self._waking)

    async def run(self) -> None:
        """Take and report work until all is told after leave(); raise what makes that senseless."""
        telling = asyncio.create_task(self._report_loop())
        try:
            while not self._is_leaving:
                await self._batch_results()
                await self._poll()
            async with self._reporting:  # what was on its way has arrived, or is back
                while not await self._poll() or len(self.outbox):
                    pass
        finally:
            self._progress.close()
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    def drain(self) -> None:
        """Take no more."""
        self._is_draining = True
        self._interrupt()

    def leave(self) -> None:
        """End once everything is told; nothing runs any more."""
        self._is_draining = self._is_leaving = True
        self._interrupt()

    def _interrupt(self) -> None:
        self._waking.set()
        if self._polling is not None:
            self._polling.cancel()

    def _resync(self) -> None:
        """Say what runs before anything else: the server may not be the one it was."""
        self._is_in_contact = False
        self._is_polling.clear()
        if self._polling is not None:
            self._polling.cancel()

    def _on_end(self, lease: str, report: AttemptResult) -> None:
        self._progress.forget(report.key)
        self.outbox.add(render_result(lease, report))

    def _pass_on(self, key: LeaseKey, said: Said) -> None:
        self.outbox.add(render_progress(render_lease(key), said))

    # Asking.

    async def _batch_results(self) -> None:
        """Let results that come at once be taken along."""
        for _ in range(LINGER_TURNS):
            if self.outbox.has_messages or not len(self.attempts):
                return
            await _turn()
        if self.attempts.free == 0:
            await self._await_word(LINGER_S)

    async def _await_word(self, most_s: float) -> None:
        """Wait until there is something to tell, but no longer."""
        if most_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(most_s):
                    await self.outbox.wait()

    async def _poll(self) -> bool:
        """Send the request that waits, with all there is to tell; return whether it got through."""
        loop = asyncio.get_running_loop()
        words = self.outbox.take()
        # An accepted offer may start when the answer comes, so that must not wait.
        is_urgent = self._is_leaving or any(word.field == "accept" for word in words)
        wait_s = self._heartbeat_s if self._is_in_contact and not is_urgent else 0.0
        began = loop.time()
        asking = self._polling = loop.create_task(
            self._exchange(self._render_poll(words, wait_s), wait_s)
        )
        if self._is_in_contact:
            self._is_polling.set()
        try:
            await asyncio.wait((asking,))
        finally:
            self._is_polling.clear()
            asking.cancel()
        if asking.cancelled():
            self.outbox.put_back(words)
            return False
        error = asking.exception()
        if isinstance(error, SchedoError):
            await self._handle_error(words, error)
            return False
        answer = asking.result()
        self._note_contact()
        is_news = self._apply_response(words, answer)
        is_early = loop.time() - began < wait_s / 2
        await self._await_word(self._patience.idle_s(is_idle=is_early and not is_news))
        return True

    async def _handle_error(self, words: list[Message], error: SchedoError) -> None:
        """Make the best of a request that failed; raise the error if there is no hope."""
        self._take_back(words, error)
        if error.status in _UNTAKEN and words:
            return
        self._is_in_contact = False
        if self._is_fatal(error):
            raise error
        await self._patience.wait_after(error)

    def _render_poll(self, words: list[Message], wait_s: float) -> Record:
        told = {word.lease for word in words if word.field in ("results", "reject")}
        running = [*self.attempts.leases, *self._offers, *self.outbox.leases]
        request = {
            **self._registration,
            **render_words(words),
            "running": [lease for lease in dict.fromkeys(running) if lease not in told],
            "wait": wait_s,
            # All slots, for some may get free while this waits; never are more given than are free.
            "max_leases": min(self._registration["slots"], _MAX_LEASES),
            "offers": True,
        }
        if self._is_draining:
            request |= {"draining": True, "max_leases": 0}
        return request

    def _is_fatal(self, error: SchedoError) -> bool:
        """Whether asking again cannot help: another process has the name, or it never worked."""
        if isinstance(error, Conflict):
            return True
        return not self._has_spoken and 400 <= error.status < 500 and not isinstance(error, Busy)

    def _note_contact(self) -> None:
        if not self._has_spoken:
            log.info("connected to %s", self._transport.address.url)
        self._has_spoken = self._is_in_contact = True
        self._patience.note_success()

    # Telling.

    async def _report_loop(self) -> None:
        while True:
            await self.outbox.wait()
            await self._is_polling.wait()
            async with self._reporting:
                words = self.outbox.take() if self._is_polling.is_set() else []
                if words:
                    await self._report(words)

    async def _report(self, words: list[Message]) -> None:
        request = {**self._registration, **render_words(words), "max_leases": 0, "wait": 0}
        if self._is_draining:
            request["draining"] = True
        try:
            answer = await self._exchange(request, 0.0)
        except SchedoError as error:
            self._take_back(words, error)
            if isinstance(error, Busy):
                await self._telling_patience.wait_after(error, is_quiet=True)
            elif error.status not in _UNTAKEN:
                self._resync()
            return
        except asyncio.CancelledError:
            self.outbox.put_back(words)
            raise
        self._telling_patience.note_success()
        self._apply_response(words, answer)

    def _take_back(self, words: list[Message], error: SchedoError) -> None:
        if error.status in _UNTAKEN and words:
            self.outbox.refuse(words, error)
        else:
            self.outbox.put_back(words)

    # Both.

    async def _exchange(self, request: Record, wait_s: float) -> WorkAnswer:
        operation = Operation(
            "POST",
            "/v1/work",
            _read_answer,
            render_request(request),
            _HEADERS,
            held_s=wait_s,
            answers=_BUSY,
        )
        return await self._transport.send(operation)

    def _apply_response(self, words: list[Message], answer: WorkAnswer) -> bool:
        """Do what the answer says; return whether it says anything new."""
        self.outbox.confirm(words)
        self._heartbeat_s = min(max(answer.heartbeat, HEARTBEAT_S_MIN), HEARTBEAT_S_MAX)
        for refused in answer.refused:
            log.warning("lease %s: %s", refused.lease, refused.detail or "its result is refused")
        gone = {*answer.revoked, *(refused.lease for refused in answer.refused)}
        news = [self._begin(word.lease, gone) for word in words if word.field == "accept"]
        news += [self._receive(given) for given in answer.leases]
        news += [self.attempts.stop(stop.lease, stop.why) for stop in answer.stop]
        news += [self.attempts.abandon(lease) for lease in answer.revoked]
        if answer.drain:
            self.drain_requested.set()
        return bool(words) or any(news)

    def _receive(self, given: GivenLease) -> bool:
        try:
            lease = given.read(self._registration["worker"])
        except (SchedoError, ValueError) as error:
            log.error("a lease that cannot be read: %s", error)
            return False
        text = given.lease
        if not given.offer:
            if not self._is_draining:
                return self.attempts.start(text, lease)
            self.outbox.add(render_result(text, AttemptResult(lease.key, Released())))
        elif text in self._offers:
            return False
        elif self._is_draining or self.attempts.free <= len(self._offers):
            reason = "draining" if self._is_draining else "no free slot"
            self.outbox.add(render_reject(text, reason))
        else:
            self._offers[text] = lease
            self.outbox.add(render_accept(text))
        return True

    def _begin(self, text: str, gone: set[str]) -> bool:
        """Run what was accepted, unless the server has given it to another meanwhile."""
        lease = self._offers.pop(text, None)
        return lease is not None and text not in gone and self.attempts.start(text, lease)


async def _turn() -> None:
    """Let the loop do once what there is to do."""
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned


def _read_answer(answer: Answer) -> WorkAnswer:
    if answer.status in _BUSY:
        seconds = answer.headers.get("retry-after", "")
        error = parse_problem(answer.status, answer.headers, answer.body)
        raise Busy(str(error), float(seconds[:6]) if seconds.isdecimal() else 1.0)
    return parse_answer(answer.body)
