"""The call Work: a worker on a stream, in the terms of the worker protocol.

Here the server itself does for the worker what every worker must do that speaks HTTP: it keeps one
poll open, says in it what the worker runs, and sends each message of the worker as a report beside
it. So the core, the engine and docs/protocol.md are the same for both, and a lease reaches the
worker as soon as the poll has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterable
from typing import Any

from schedo.engine.sharing import jobs_in_steps
from schedo.errors import BadJson
from schedo.grpc import schedo_pb2 as pb
from schedo.grpc.calls import parse, read_answer
from schedo.grpc.messages import Fields, render, to_fields_in_steps
from schedo.grpc.requests import Answer, Caller
from schedo.grpc.status import OK, CallFailed, Code, ProblemFields, Status, fail, status_of
from schedo.grpc.stream import Stream
from schedo.protocol.problems import render_problem
from schedo.protocol.work import ENTRIES_MAX
from schedo.web.bytes_in_flight import Claim
from schedo.web.light_event import LightEvent
from schedo.worker.remote.retry_delay import RetryDelay

REPORTS_MAX = 32  # of one stream at a time; the next message waits in the client
DRAIN_POLL_S = 1.0  # between the requests of a worker that drains, as docs/protocol.md says
_ROUTE = "POST /v1/work"
# The fields of one message; the others describe the worker until the next description.
_OF_A_MESSAGE = ("seq", "running", "results", "progress", "accept", "reject", "draining")
_SENT_ON = ("results", "progress", "accept", "reject")
_REOPENED = Status(Code.ABORTED, "the worker has opened another stream")
# What ends the whole stream, not only a message: the token is wrong, or the name is another's.
_FATAL = frozenset({401, 403, 409})


class WorkStream:
    """One worker, from its first message to the end of its stream."""

    def __init__(self, stream: Stream, caller: Caller, open_streams: set[WorkStream]) -> None:
        """open_streams: those of all workers of this server, among which this one is."""
        self._stream = stream
        self._caller = caller
        self._open_streams = open_streams
        self._description: Fields = {}
        self._held: dict[str, None] = {}  # leases that the worker has, in their order
        self._reporting: dict[str, None] = {}  # those whose result is on its way to the engine
        self._stopping: set[str] = set()  # leases whose stop the worker knows
        self._is_draining = False
        self._knows_of_drain = False
        self._heartbeat_s = 10.0
        self._reporting_tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(REPORTS_MAX)
        self._leaving = LightEvent()  # ends the open poll
        self._changed = asyncio.Event()  # a report has ended, or the worker drains
        self._stopped = LightEvent()
        self._ended = LightEvent()
        self._delay = RetryDelay(secrets.SystemRandom().random, asyncio.Event())
        self._status: Status | None = None  # which ends the stream

    async def run(self) -> Status:
        """Serve the worker; return the status that ends its stream."""
        self._open_streams.add(self)
        try:
            await self._register()
            return await self._serve()
        except CallFailed as failed:
            return failed.status
        finally:
            self._leaving.set()
            for task in self._reporting_tasks:
                task.cancel()
            self._open_streams.discard(self)
            self._ended.set()

    def stop(self, status: Status) -> None:
        """End the stream with this status; the worker connects again, perhaps to another server."""
        if self._status is None:
            self._status = status
        self._stopped.set()

    async def _serve(self) -> Status:
        tasks = [
            asyncio.ensure_future(each)
            for each in (self._read_on(), self._poll_on(), self._stopped.wait())
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            return self._status or OK
        finally:
            self._leaving.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # Messages of the worker.

    async def _receive(self) -> tuple[pb.WorkRequest, Claim] | None:
        claim = Claim(self._stream.connection.in_flight)
        try:
            data = await self._stream.receive(claim, self._caller.check)
            if data is None:
                claim.release()
                return None
            return parse(pb.WorkRequest, data), claim
        except BaseException:
            claim.release()
            raise

    async def _register(self) -> None:
        """Take the first message, which describes the worker and says what it runs."""
        received = await self._receive()
        if received is None:
            raise fail(Code.INVALID_ARGUMENT, "the stream ended before its first message")
        message, claim = received
        if not message.worker:
            raise fail(Code.INVALID_ARGUMENT, "/worker: the first message needs this field")
        await self._describe(message)
        await self._end_earlier()
        self._is_draining = message.draining
        running = list(message.running)
        request = await self._make_request(message, running=running)
        answer = await self._ask(request | {"wait": 0}, claim)
        failure = answer.failure
        if failure is not None:
            raise CallFailed(failure)
        ended = {each.lease for each in message.results}
        self._held = {lease: None for lease in running if lease not in ended}
        response = await read_answer(pb.WorkResponse, answer)
        self._heartbeat_s = response.heartbeat
        # The connection ends, and with it the poll, when the worker is silent for its session.
        self._stream.connection.expect_life(response.session_timeout / 3)
        await self._respond(message.seq, response)

    async def _end_earlier(self) -> None:
        """End an earlier stream of the same process, which may not know yet that it is broken.

        Its polls would say what the worker ran then. One of another client is left: the server
        decides about the name, as over HTTP.
        """
        for other in list(self._open_streams):
            if other is not self and other._identity == self._identity:
                other.stop(_REOPENED)
                await other._ended.wait()

    @property
    def _identity(self) -> tuple[object, ...]:
        names = [self._description.get(name) for name in ("worker", "session")]
        return *names, self._stream.headers.get(b"authorization")

    async def _describe(self, message: pb.WorkRequest) -> None:
        description = await jobs_in_steps(to_fields_in_steps(message))
        for name in _OF_A_MESSAGE:
            description.pop(name, None)
        for name in ("worker", "session"):
            if self._description and description.get(name) != self._description.get(name):
                raise fail(Code.INVALID_ARGUMENT, f"/{name}: it stays the same in a stream")
        self._description = description

    async def _make_request(self, message: pb.WorkRequest, **others: Any) -> Fields:
        fields = await jobs_in_steps(to_fields_in_steps(message))
        sent = {name: fields[name] for name in _SENT_ON if name in fields}
        if self._is_draining:
            sent["draining"] = True
        return self._description | sent | others

    async def _read_on(self) -> None:
        """Send each further message as a report, several at a time; return at the end of all."""
        while True:
            await self._room.acquire()
            received = await self._receive()
            if received is None:
                if self._is_draining:  # it has said all, and may wait for the end
                    await self._stream.gone.wait()
                return
            message, claim = received
            if message.worker:
                await self._describe(message)
            if message.draining and not self._is_draining:
                self._is_draining = True
                self._changed.set()
            task = asyncio.create_task(self._report(message, claim))
            self._reporting_tasks.add(task)
            task.add_done_callback(self._note_reported)

    def _note_reported(self, task: asyncio.Task[None]) -> None:
        self._reporting_tasks.discard(task)
        self._room.release()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, CallFailed):
            self.stop(error.status)
        elif error is not None:
            self.stop(Status(Code.INTERNAL, "a bug in schedo; its log has more"))
            raise error
        self._changed.set()

    async def _report(self, message: pb.WorkRequest, claim: Claim) -> None:
        """Send a message as a report, and its response to the worker."""
        ended = [each.lease for each in message.results]
        for lease in [each.lease for each in message.reject]:
            self._held.pop(lease, None)
        self._reporting |= dict.fromkeys(ended)
        try:
            request = await self._make_request(message)
            answer = await self._ask(request | {"max_leases": 0, "wait": 0}, claim)
        except BadJson as error:
            answer = Answer(error.status, {}, render_problem(error))
        for lease in ended:
            self._reporting.pop(lease, None)
        problem = answer.problem
        if problem is None:
            for lease in ended:
                self._held.pop(lease, None)
            response = await read_answer(pb.WorkResponse, answer)
            await self._respond(message.seq, response, accepted=message.accept)
        elif problem.status in _FATAL:
            raise CallFailed(status_of(problem))
        else:
            refused = pb.WorkResponse(seq=message.seq)
            refused.problem.MergeFrom(_show(problem))
            await self._stream.send(refused.SerializeToString())

    # Polls.

    async def _poll_on(self) -> None:
        """Keep a poll open, and send the worker its news."""
        while not self._is_draining:
            slots = self._description.get("slots", 1)
            await self._poll(wait=self._heartbeat_s, max_leases=min(slots, ENTRIES_MAX))
        while self._held or self._reporting_tasks:
            await self._poll(draining=True)
            await self._wait_for_change(DRAIN_POLL_S)
        await self._poll(draining=True)

    async def _poll(self, **fields: Any) -> None:
        """Send one poll; raise CallFailed if the server refuses it."""
        request = self._description | {"running": list(self._held)} | fields
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await self._ask(request, None)
        failure = answer.failure
        if failure is not None:
            raise CallFailed(failure)
        was_news = await self._respond(0, await read_answer(pb.WorkResponse, answer))
        is_early = loop.time() - began < fields.get("wait", 0.0) / 2
        pause_s = self._delay.idle_s(is_idle=is_early and not was_news)
        if pause_s:
            await self._wait_for_change(pause_s)

    async def _respond(
        self, seq: int, response: pb.WorkResponse, accepted: Iterable[str] = ()
    ) -> bool:
        """Send a response without what the worker knows, or a push if there is news at all.

        Return whether there is. A poll can list an attempt whose result arrives beside it: that it
        is revoked is no news, because the response to the report decides.
        """
        known = (self._held.keys() | set(accepted)) - self._reporting.keys()
        revoked = [lease for lease in response.revoked if lease in known]
        stops = [each for each in response.stop if each.lease not in self._stopping]
        is_news = bool(response.leases or stops or revoked)
        is_news |= response.drain and not self._knows_of_drain
        self._knows_of_drain = response.drain
        self._held = {lease: None for lease in self._held if lease not in revoked}
        self._held |= {each.lease: None for each in response.leases}
        self._stopping = (self._stopping | {each.lease for each in stops}) & self._held.keys()
        response.seq = seq
        _replace(response.revoked, revoked)
        _replace(response.stop, stops)
        if seq or is_news:
            await self._stream.send(response.SerializeToString())
        return is_news

    async def _wait_for_change(self, most_s: float) -> None:
        """Return when a report has ended or the worker drains, or when the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._changed.wait()
        self._changed.clear()

    async def _ask(self, request: Fields, claim: Claim | None) -> Answer:
        try:
            return await self._caller.ask(_ROUTE, render(request), claim=claim, gone=self._leaving)
        finally:
            if claim is not None:
                claim.release()


def _replace(field: Any, values: list[Any]) -> None:
    """Set a repeated field to some of its own values."""
    if len(field) != len(values):
        del field[:]
        field.extend(values)


def _show(problem: ProblemFields) -> pb.Problem:
    errors = [pb.FieldProblem(pointer=each.pointer, detail=each.detail) for each in problem.errors]
    return pb.Problem(
        status=problem.status, code=problem.code, detail=problem.detail, errors=errors
    )
