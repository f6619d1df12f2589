"""Lets a worker poll any server of a cluster: that server is the worker's gateway.

The gateway divides each request of the worker by the owners of the jobs that it names. What is
about jobs of the gateway itself is carried out there, and each other owner gets a part in the
worker's name; their responses become one. So an attempt goes on although its job gets another
owner, or its worker another gateway.

A server believes another one about a lease only while that one owns the job: an owner that has just
changed refuses the part, and the gateway looks for the new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from schedo.cluster.client_request import NOT_OWNER, ClientRequest, refuse, to_response
from schedo.cluster.work_parts import (
    PartResponse,
    WorkerRequest,
    denies_nothing,
    merge_answers,
    read_answer,
)
from schedo.core.limits import SMALL_BODY_BYTES_MAX
from schedo.core.worker_messages import PollRequest
from schedo.engine.sharing import in_steps
from schedo.errors import SchedoError, Unavailable, WorkerReplaced
from schedo.protocol.leases import parse_lease, render_lease
from schedo.protocol.reading import at_once
from schedo.protocol.work import WorkRequest
from schedo.store.cluster import Member
from schedo.web.http import Request, Response

if TYPE_CHECKING:
    from schedo.cluster.router import Router

# How long results wait for an owner while their shard moves; and between two looks for it.
MOVING_S = 1.0
PAUSE_S = 0.02
LOOK_S = 1.0  # between two questions for stop requests at the owners of a worker's other attempts
WORKERS_MAX = 10_000
_MOVING = -1  # the place of a lease whose shard has no owner now


class _Worker:
    """What the gateway knows of one worker."""

    def __init__(self) -> None:
        self.elsewhere: dict[str, int | None] = {}  # leases of other servers, with their shards
        self.stopped: set[str] = set()  # those of them whose stop request it has got


class _Refusal(Exception):
    """The owner of some jobs refuses a part of a request, and with it the whole."""

    def __init__(self, response: Response) -> None:
        self.response = response


class Gateway:
    """The workers that poll this server, and their attempts of jobs that others own."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._workers: dict[str, _Worker] = {}  # those that run something for other servers

    async def respond(self, asked: ClientRequest) -> Response:
        """Return the response to a worker, or to its gateway."""
        if asked.hop is None and not self._router.others():
            return await asked.here()
        try:
            request = WorkerRequest(asked.request.body)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return await asked.here()  # the handler says what is wrong
        if asked.hop is not None:
            return await self._respond_to_gateway(asked, request)
        if request.fields.worker in self._workers or not self._are_new(asked, request.leases):
            return await self._divide(asked, request)
        response = await asked.here()
        if denies_nothing(response.body):
            return response
        answer = await self._believe(read_answer(response.body))
        return response._replace(body=msgspec.json.encode(answer))

    # For a worker.

    async def _divide(self, asked: ClientRequest, request: WorkerRequest) -> Response:
        """Carry out each part of the request at the owner of its jobs, and wait here for news."""
        try:
            poll = await _check(asked.request)
        except SchedoError:
            return await asked.here()  # its handler says what is wrong, and nothing has happened
        name = request.fields.worker
        worker = self._workers.setdefault(name, _Worker())
        call = _Call(asked, request, worker)
        loop = asyncio.get_running_loop()
        until = loop.time() + poll.wait_s
        try:
            await self._place(call, {*request.leases, *worker.elsewhere})
            while True:
                answers = await self._ask_others(call)
                left_s = 0.0 if call.must_hear(answers) else min(until - loop.time(), LOOK_S)
                own = await self._ask_here(call, max(left_s, 0.0))
                answer = merge_answers(await self._believe(read_answer(own.body)), answers)
                if call.must_hear([answer]) or loop.time() >= until or not request.is_poll:
                    call.note_sent(answer)
                    return own._replace(body=msgspec.json.encode(answer))
                call.request = call.request.make_next()
        except _Refusal as refusal:
            return refusal.response
        finally:
            if not worker.elsewhere or len(self._workers) > WORKERS_MAX:
                self._workers.pop(name, None)

    async def _ask_here(self, call: _Call, wait_s: float) -> Response:
        """Carry out here what is about jobs of this server."""
        leases = [lease for lease in call.request.leases if lease not in call.foreign]
        fields: dict[str, Any] = {"elsewhere": [*call.worker.elsewhere], "wait": wait_s}
        if call.request.fields.max_leases is not None:
            fields["max_leases"] = call.request.fields.max_leases
        request = call.asked.request
        part = call.request.make_part(leases, **fields)
        return await call.asked.handle(
            call.asked.context, request._replace(body=part, is_part=True)
        )

    async def _ask_others(self, call: _Call) -> list[PartResponse]:
        """Let the other servers carry out what is about their jobs; return what they respond.

        Raise Unavailable if a result or a decision about an offer finds no owner in time.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + MOVING_S
        answers: list[PartResponse] = []
        left = {*call.worker.elsewhere}
        while left:
            places = self._group(call, left)
            found = await asyncio.gather(
                *(self._ask(call, member, leases) for member, leases in places)
            )
            for (_, leases), answer in zip(places, found, strict=True):
                if answer is not None:
                    answers.append(answer)
                    left.difference_update(leases)
                    call.note_answer(leases, answer)
            missing = left & call.request.changed
            if not missing:
                break
            if loop.time() > until:
                raise Unavailable(
                    "the jobs of some results move to another server; send the request again"
                )
            await self._router.wait_for_change(PAUSE_S)
            await self._place(call, left)
            left &= call.worker.elsewhere.keys()
        return answers

    async def _ask(
        self, call: _Call, member: Member, leases: Collection[str]
    ) -> PartResponse | None:
        """Return what a server says of its part; None: it does not own the jobs, or is silent."""
        running = {*(call.request.fields.running or ()), *call.worker.elsewhere}
        others = [*running.difference(leases)]
        part = call.request.make_part(leases, elsewhere=others, relayed=True, wait=0, max_leases=0)
        asked = replace(call.asked, request=call.asked.request._replace(body=part, is_part=True))
        try:
            response = to_response(await asked.send(member, "work"))
        except SchedoError:
            response = None
        if response is None or (NOT_OWNER, b"1") in response.headers:
            call.worker.elsewhere.update(dict.fromkeys(leases))  # their shards may be others now
            return None
        if response.status == 200:
            return read_answer(response.body)
        if response.status == WorkerReplaced.status or call.request.changed & {*leases}:
            raise _Refusal(response)
        return None

    # Where a lease belongs.

    def _are_new(self, asked: ClientRequest, leases: Collection[str]) -> bool:
        """Whether all leases were given by this server since its last recovery."""
        if not leases:
            return True
        ending = f".{asked.context.engine.health().epoch}"
        return all(lease.endswith(ending) for lease in leases)

    async def _place(self, call: _Call, leases: Collection[str]) -> None:
        """Note which of the leases are of other servers, and the shards of their jobs."""
        elsewhere = call.worker.elsewhere
        unknown = {
            lease: parse_lease(lease).job_id
            for lease in leases
            if elsewhere.get(lease) is None and not self._are_new(call.asked, (lease,))
        }
        sessions = call.asked.context.engine.sessions
        here = {render_lease(lease.key) for lease in sessions.held_by(call.name)} if unknown else ()
        shards = await self._find_shards([unknown[each] for each in unknown if each not in here])
        for lease in leases:
            shard = elsewhere.get(lease)
            if lease in unknown and lease not in here:
                shard = shards.get(unknown[lease])
            if shard is None or lease in here or self._router.cluster.is_mine(shard):
                elsewhere.pop(lease, None)  # of this server, or of a job that is deleted
                call.foreign.discard(lease)
            else:
                elsewhere[lease] = shard
                call.foreign.add(lease)

    async def _find_shards(self, job_ids: Sequence[int]) -> dict[int, int]:
        if not job_ids:
            return {}
        return dict(await self._router.cluster.shards_of_jobs(job_ids))

    def _group(self, call: _Call, leases: Collection[str]) -> list[tuple[Member, list[str]]]:
        """Return the owners of the jobs of the leases, each with the leases of its jobs."""
        groups: dict[int, tuple[Member, list[str]]] = {}
        for lease in leases:
            shard = call.worker.elsewhere[lease]
            owner = None if shard is None else self._router.cluster.owner(shard)
            if owner is not None and owner.url and owner.no != self._router.cluster.me.no:
                groups.setdefault(owner.no, (owner, []))[1].append(lease)
        return [*groups.values()]

    async def _believe(self, answer: PartResponse) -> PartResponse:
        """Return a response of this server without what it says of jobs that it does not own."""
        if not answer.denied:
            return answer
        owned = await self._find_owned(answer.denied)
        return msgspec.structs.replace(
            answer,
            revoked=[lease for lease in answer.revoked if lease in owned],
            refused=[each for each in answer.refused if each.lease in owned],
        )

    async def _find_owned(self, leases: Sequence[str]) -> set[str]:
        """Return the leases whose jobs this server owns, or that are deleted."""
        jobs = {lease: parse_lease(lease).job_id for lease in leases}
        shards = await self._find_shards([*jobs.values()])
        is_mine = self._router.cluster.is_mine
        return {
            lease
            for lease, job_id in jobs.items()
            if job_id not in shards or is_mine(shards[job_id])
        }

    # For another gateway.

    async def _respond_to_gateway(self, asked: ClientRequest, request: WorkerRequest) -> Response:
        """Carry out a part, unless it is about a job of another server."""
        held = {
            render_lease(lease.key)
            for lease in asked.context.engine.sessions.held_by(request.fields.worker)
        }
        unknown = [lease for lease in request.leases if lease not in held]
        if unknown and len(await self._find_owned(unknown)) < len(unknown):
            return refuse(asked.request)
        response = await asked.here()
        if response.status == 200 and not denies_nothing(response.body):
            denied = read_answer(response.body).denied
            if len(await self._find_owned(denied)) < len(denied):
                return refuse(asked.request)  # the shard has moved meanwhile
        return response


class _Call:
    """One request of a worker, and what is left of it."""

    def __init__(self, asked: ClientRequest, request: WorkerRequest, worker: _Worker) -> None:
        self.asked, self.request, self.worker = asked, request, worker
        self.name = request.fields.worker
        self.foreign: set[str] = set()  # leases that are not of this server

    def note_answer(self, leases: Collection[str], answer: PartResponse) -> None:
        """Note what the owner of these leases has said: those with results have ended."""
        ended = {lease for lease in leases if lease in self.request.changed}
        running = {*(self.request.fields.running or ()), *(self.request.fields.accept or ())}
        gone = (ended - running) | {*answer.denied}
        if self.request.fields.running is not None:
            gone |= {lease for lease in leases if lease not in running}
        for lease in gone:
            self.worker.elsewhere.pop(lease, None)
        self.worker.stopped &= self.worker.elsewhere.keys()

    def must_hear(self, answers: Sequence[PartResponse]) -> bool:
        """Whether the worker must hear of something now."""
        return any(
            each.leases
            or each.denied
            or each.drain
            or any(stop.lease not in self.worker.stopped for stop in each.stop)
            for each in answers
        )

    def note_sent(self, answer: PartResponse) -> None:
        """Note which stop requests the worker has got."""
        elsewhere = self.worker.elsewhere
        self.worker.stopped |= {each.lease for each in answer.stop if each.lease in elsewhere}


async def _check(request: Request) -> PollRequest:
    """Return the whole request, or raise what is wrong with it before a part has an effect."""
    fields = await request.read(WorkRequest)
    if len(request.body) <= SMALL_BODY_BYTES_MAX:
        return at_once(fields.to_poll())
    return await in_steps(fields.to_poll())
