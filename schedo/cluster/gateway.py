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
from collections.abc import Collection, Container, Set
from http import HTTPStatus
from typing import Any

import msgspec

from schedo.cluster.client_request import ClientRequest
from schedo.cluster.homes import owns_all
from schedo.cluster.lease_owners import LeaseOwners
from schedo.cluster.owner_requests import LATE_S, OwnerRequests
from schedo.cluster.part_sender import MOVING_TEXT, PartSender
from schedo.cluster.parts_of_gateways import PartsOfGateways
from schedo.cluster.polling_worker import Place
from schedo.cluster.polling_workers import PollingWorkers
from schedo.cluster.questions import QUESTIONS, Questions
from schedo.cluster.relayed_polls import RelayedPolls
from schedo.cluster.servers import Servers
from schedo.cluster.surplus import Found, OwnSurplus, SurplusOfOthers, use_up
from schedo.cluster.work_parts import (
    PartResponse,
    WorkerRequest,
    denies_nothing,
    is_long,
    merge_responses,
    read_poll,
    read_response,
)
from schedo.cluster.worker_call import Refusal, WorkerCall
from schedo.core.model import ReadyKey
from schedo.engine.workers import Workers
from schedo.errors import Unavailable
from schedo.protocol.decode import UNDECODABLE
from schedo.web.auth import ClientGone
from schedo.web.http import Response
from schedo.web.worker_names import check_name

PROMISED_S = 1.0  # between two looks whether this server has still promised a worker's slots
ENDED_EARLY_S = 0.05  # before its end, a wait has been ended by something


class Gateway:
    """The workers that poll this server, and their attempts of jobs that others own."""

    def __init__(self, servers: Servers, sessions: Workers) -> None:
        self._servers = servers
        self._owners = LeaseOwners(servers.cluster, sessions)
        self._sender = PartSender(servers, self._owners)
        self._requests = OwnerRequests(servers, self._owners, self._sender)
        self._workers = PollingWorkers(asyncio.get_running_loop().time)
        own_surplus = OwnSurplus(sessions)
        self._parts = PartsOfGateways(self._owners, own_surplus)
        self._questions = Questions(own_surplus, self._parts, self._workers)
        self._surplus_of_others = SurplusOfOthers(servers, self._workers, self._wake)
        self._relayed_polls = RelayedPolls(servers, self._workers, self._surplus_of_others)
        sessions.watch_offers(self._surplus_of_others.note_offer)
        self._sessions = sessions
        self._was_alone = False  # polls may wait that came while there was no other server

    def note_change(self) -> None:
        """Tell the next owners of attempts that they run, and ask servers that have just joined."""
        self._workers.note_change()
        if self._was_alone and self._servers.others():
            self._was_alone = False
            self._sessions.end_poll(None)  # nothing else here knows of them
        elif self._workers.list_polls():
            self._surplus_of_others.want()

    async def respond(self, asked: ClientRequest) -> Response:
        """Return the response to a worker, or to its gateway."""
        if asked.hop is None and not self._servers.others() and owns_all(self._servers.cluster):
            self._was_alone = True
            return await asked.here()
        if asked.hop is not None and asked.hop.purpose in QUESTIONS:
            return await self._questions.respond(asked)
        came_at = asyncio.get_running_loop().time()
        wait_s = None
        if asked.hop is None and is_long(asked.request):
            # It is read in steps before anything decodes it in one; its parts need that no more.
            wait_s = (await read_poll(asked.request)).wait_s
        try:
            request = WorkerRequest(asked.request.body)
        except UNDECODABLE:
            return await asked.here()  # the handler says what is wrong
        if asked.hop is not None:
            return await self._parts.respond(asked, request)
        name = request.fields.worker
        worker = self._workers.note_request(name)
        worker.open_requests += 1
        call = WorkerCall(asked, request, worker, came_at, wait_s)
        try:
            return await self._divide(call)
        except Refusal as refusal:
            return refusal.response
        finally:
            worker.open_requests -= 1
            self._workers.forget_if_done(worker)

    async def _divide(self, call: WorkerCall) -> Response:
        """Carry out each part of the request at the owner of its jobs, and wait here for more."""
        request, worker = call.request, call.worker
        if call.is_poll:
            await self._begin_poll(call)
        try:
            if worker.elsewhere or worker.unanswered or not self._owners.are_new(request.leases):
                await self._read_wait(call)  # a wrong one changes nothing
                call.drop_arrived()
                leases = {*request.leases, *worker.elsewhere}
                await self._owners.place(call, leases - call.delivered)
                worker.paces.note_request(call.list_news())
                self._sender.list_again(call)
            response = None
            while response is None:
                response = await self._take_turn(call)
            if response.status == HTTPStatus.OK and request.ended:
                self._offer_freed(call, request.ended)
            if call.has_ended and response.status == HTTPStatus.OK:
                self._servers.begin(self._sender.end_elsewhere(call))
            call.is_answered = True
            return response
        except ClientGone:
            if worker.poll is call:
                self._servers.begin(self._sender.tell_left(call))
            raise
        finally:
            call.finish()
            self._relayed_polls.note_response(call)

    async def _begin_poll(self, call: WorkerCall) -> None:
        """Let the poll replace the one before, unless it is refused: then it changes nothing."""
        worker = call.worker
        if worker.is_polled:
            await self._read_wait(call)
            check_name(call.asked.context, call.asked.request, call.name)
        self._surplus_of_others.want()
        if worker.begin_poll(call):
            self._relayed_polls.note_poll(call)

    async def _take_turn(self, call: WorkerCall) -> Response | None:
        """Ask all servers that may have something for the worker; None: nothing is there yet."""
        call.begin_turn()
        await self._ask_owners(call)
        call.drop_old_list()
        is_first = await self._prepare(call)
        must_hear = is_first or call.worker.given or call.must_hear(call.said)
        owned_before = self._owners.list_own()
        wait_s = 0.0 if must_hear else None
        response, ends_now = await self._ask_here(call, wait_s, goes_on=is_first)
        if response.status != HTTPStatus.OK:
            return response
        own = None
        if ends_now and not call.is_doubted and self._relayed_polls.list_serving(call):
            own = read_response(response.body)
            if not own.leases:
                await self._relayed_polls.poll_now(call)
        asks_others = call.answers or call.worker.given or call.foreign or is_first
        if ends_now and not asks_others and denies_nothing(response.body):
            return response  # as nearly always: only this server had something to say
        own = own or read_response(response.body)
        if own.denied:
            own = await self._believe(call, own, owned_before)
        # From here on nothing can fail, so the leases that are taken reach the response.
        given = self._relayed_polls.take(call, own_count=len(own.leases))
        merged = call.add_revoked(merge_responses(own, (*call.said, *given)))
        if ends_now or call.must_hear([merged]) or not call.may_ask:
            call.note_sent(merged)
            return response._replace(body=msgspec.json.encode(merged))
        call.request = call.request.make_next(call.ended)
        return None

    async def _prepare(self, call: WorkerCall) -> bool:
        """Poll others while the worker waits here; return whether this server is asked alone first.

        The first request of a worker says what it serves, and others may have that already. And
        when results have become durable, this server may have a job for the slots that they free.
        """
        if not self._relayed_polls.list_serving(call):
            call.waits_for_promised = call.asks_here_first = False
            return call.spec is None and self._surplus_of_others.is_any
        call.asks_here_first = True
        await self._read_wait(call)
        if call.has_results_here:
            return True
        self._relayed_polls.poll_others_soon(call)
        return False

    async def _read_wait(self, call: WorkerCall) -> None:
        if call.wait_s is None:
            call.wait_s = call.read_wait_s
        if call.wait_s is None:
            call.wait_s = (await read_poll(call.asked.request)).wait_s

    async def _ask_here(
        self, call: WorkerCall, wait_s: float | None, *, goes_on: bool
    ) -> tuple[Response, bool]:
        """Carry out here what is about jobs of this server; return whether the wait is over.

        wait_s: how long it may wait for a lease; None: as the worker wants. goes_on: there is a
        further turn, also if the worker does not wait.
        """
        if wait_s is None and call.wait_s is None and not call.has_waited:
            call.has_waited = True  # it has just arrived, and is about jobs of this server only
            response = await call.carry_out_here(call.asked.here())
            return response, not (call.waits_for_promised or call.is_woken)
        await self._read_wait(call)
        loop = asyncio.get_running_loop()
        left_s = call.left_s
        if wait_s is None:
            wait_s = min(left_s, PROMISED_S) if call.waits_for_promised else left_s
            if call.is_woken or call.is_doubted:
                wait_s = 0.0
            if wait_s > 0:
                self._requests.follow(call)
        fields: dict[str, Any] = {"elsewhere": [*call.worker.elsewhere], "wait": wait_s}
        fields["age_us"] = call.age_us
        if call.request.fields.max_leases is not None:
            fields["max_leases"] = call.request.fields.max_leases
        part = call.request.make_part(call.list_left(), **fields)
        until = loop.time() + wait_s
        call.has_waited = True
        request = call.asked.request._replace(body=part, is_part=True)
        response = await call.carry_out_here(call.asked.handle(call.asked.context, request))
        # One that came early without a reason ends the poll: a newer one has replaced it.
        was_ended = not call.is_woken and loop.time() < until - ENDED_EARLY_S
        is_late = left_s <= wait_s and not (call.is_woken or goes_on)
        return response, was_ended or call.is_doubted or is_late

    def _wake(self, no: int, found: Found) -> Set[ReadyKey]:
        """Poll a server for workers that wait; return the ready keys that they serve."""
        left = dict(found.ready)
        taken: set[ReadyKey] = set()
        is_begun = False
        for call in self._workers.list_polls():
            spec = call.spec if call.may_ask else None
            served = [] if spec is None else [key for key in left if spec.serves(key)]
            if not served:
                continue
            room = max(call.find_room(), 0)
            # One that has just come asks this server first, and then the other one.
            is_early = call.asks_here_first or not call.is_here
            if is_early or self._relayed_polls.poll_others(call, surplus_at=no):
                use_up(left, served, room)
                is_begun = True
            if room > 0:  # else the other server would tell of these jobs again and again
                taken.update(served)
            if not left:
                break
        if taken and not is_begun:
            self._surplus_of_others.note_left(no)
        return taken

    def _offer_freed(self, call: WorkerCall, ended: Set[str]) -> None:
        """Let the poll of a worker have jobs for the slots that a request beside it has freed.

        ended: leases that the poll may list.
        """
        poll = call.worker.poll
        if poll is None or poll is call:
            return
        poll.ended |= ended
        self._relayed_polls.poll_others(poll)

    async def _ask_owners(self, call: WorkerCall) -> None:
        """Ask the owners; those that take results late do not keep others from this server."""
        own = call.request.changed - call.worker.elsewhere.keys()
        if call.has_waited or not (own and call.undelivered):
            await self._requests.ask(call)
            return
        asking = asyncio.ensure_future(self._requests.ask(call))
        # If the report below fails, nothing awaits this, and asyncio would log its error.
        asking.add_done_callback(lambda _: asking.cancelled() or asking.exception())
        try:
            await asyncio.wait((asking,), timeout=LATE_S)
            if not asking.done():
                await self._report_here(call, own)
            await asking
        finally:
            asking.cancel()

    async def _report_here(self, call: WorkerCall, leases: Collection[str]) -> None:
        """Carry out results and decisions about these leases of this server.

        They come once more with what else is for this server; its response then is the one that the
        worker gets.
        """
        elsewhere = [*call.worker.elsewhere]
        fields: dict[str, Any] = {"elsewhere": elsewhere, "wait": 0, "max_leases": 0}
        part = call.request.make_report().make_part(leases, age_us=call.age_us, **fields)
        request = call.asked.request._replace(body=part, is_part=True)
        await call.asked.handle(call.asked.context, request)

    async def _believe(
        self,
        call: WorkerCall,
        answer: PartResponse,
        owned_before: Container[int],
    ) -> PartResponse:
        """Return a response of this server without what it says of jobs that it did not own.

        Their results and decisions have had no effect here, so they go to the owners. Raise
        Unavailable if these do not take them in time, or if they have come here meanwhile.
        owned_before: the shards of this server when it was asked.
        """
        owned = await self._owners.find_owned(answer.denied, owned_before)
        unowned = call.request.changed - owned
        lost = [each for each in answer.denied if each in unowned]
        if lost:
            call.worker.elsewhere.update(dict.fromkeys(lost, Place()))
            await self._requests.ask(call)
            if not call.delivered.issuperset(lost):
                raise Unavailable(MOVING_TEXT)
        return answer.without_denials(owned)
