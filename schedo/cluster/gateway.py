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
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec

from schedo.cluster.asking import ask_each
from schedo.cluster.client_request import ClientRequest
from schedo.cluster.homes import owns_all
from schedo.cluster.lease_owners import LeaseOwners
from schedo.cluster.owner_requests import LATE_S, OwnerRequests
from schedo.cluster.part_sender import MOVING_TEXT, PartSender
from schedo.cluster.parts_of_gateways import respond_to_gateway
from schedo.cluster.polling_workers import PollingWorkers
from schedo.cluster.questions import QUESTIONS, Questions
from schedo.cluster.servers import Servers
from schedo.cluster.surplus import Found, SurplusOfOthers, use_up
from schedo.cluster.work_parts import (
    PartResponse,
    WorkerRequest,
    denies_nothing,
    merge_responses,
    read_poll,
    read_response,
)
from schedo.cluster.worker_call import Place, PollingWorker, Refusal, WorkerCall
from schedo.core.model import ReadyKey
from schedo.engine.workers import Workers
from schedo.errors import Unavailable
from schedo.store.cluster import Member
from schedo.web.http import Response

HELD_BACK_S = 1.0  # between two looks whether this server has still promised a worker's slots
EARLY_S = 0.05  # before its end, a wait has been ended by something


class Gateway:
    """The workers that poll this server, and their attempts of jobs that others own."""

    def __init__(self, servers: Servers, sessions: Workers) -> None:
        self._servers = servers
        self._owners = LeaseOwners(servers.cluster, sessions)
        self._sender = PartSender(servers, self._owners)
        self._requests = OwnerRequests(servers, self._owners, self._sender)
        self._workers = PollingWorkers(asyncio.get_running_loop().time)
        self._questions = Questions(sessions, self._workers)
        self._surplus_of_others = SurplusOfOthers(servers, self._workers, self._wake)
        sessions.watch_offers(self._surplus_of_others.note_offer)
        self._sessions = sessions
        self._was_alone = False  # polls may wait that came while there was no other server

    def note_change(self) -> None:
        """Ask servers that have just joined for jobs, for the workers whose polls wait here."""
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
        try:
            request = WorkerRequest(asked.request.body)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return await asked.here()  # the handler says what is wrong
        if asked.hop is not None:
            try:
                return await respond_to_gateway(asked, request, self._owners)
            finally:
                if request.is_poll:
                    self._questions.note_asked()
        name = request.fields.worker
        worker = self._workers.note_request(name)
        try:
            return await self._divide(asked, request, worker)
        except Refusal as refusal:
            return refusal.response
        finally:
            self._workers.forget_if_done(name, worker)

    async def _divide(
        self, asked: ClientRequest, request: WorkerRequest, worker: PollingWorker
    ) -> Response:
        """Carry out each part of the request at the owner of its jobs, and wait here for more."""
        call = WorkerCall(asked, request, worker)
        if request.is_poll:
            self._surplus_of_others.want()
            worker.poll = call  # before any wait, so that the newest poll is the one that came last
            call.revoked_before, worker.revoked = worker.revoked, frozenset()
            call.answers, worker.late = worker.late, {}
        try:
            if worker.elsewhere or worker.unanswered or not self._owners.are_new(request.leases):
                call.wait_s = (await read_poll(asked.request)).wait_s  # a wrong one changes nothing
                await self._owners.place(call, {*request.leases, *worker.elsewhere})
                self._sender.list_again(call)
            response = None
            while response is None:
                response = await self._take_turn(call)
            if response.status == HTTPStatus.OK and request.ended:
                self._offer_freed(call, request.ended)
            if call.has_ended and response.status == HTTPStatus.OK:
                self._servers.begin(self._sender.end_elsewhere(call))
            return response
        finally:
            call.finish()

    async def _take_turn(self, call: WorkerCall) -> Response | None:
        """Ask all servers that may have something for the worker; None: nothing is there yet."""
        call.begin_turn()
        await self._ask_owners(call)
        call.drop_old_list()
        # The first request of a worker says what it serves, and others may have that already.
        is_new = call.spec is None and self._surplus_of_others.is_any
        self._note_targets(call)
        wait_s = 0.0 if is_new or call.targets or call.must_hear(call.said) else None
        owned_before = self._owners.list_own()
        response, is_over = await self._ask_here(call, wait_s)
        if response.status != HTTPStatus.OK:
            return response
        asks_others = call.answers or call.targets or call.foreign or is_new or call.is_held_back
        if is_over and not asks_others and denies_nothing(response.body):
            return response  # as nearly always: only this server had something to say
        own = read_response(response.body)
        if own.denied:
            own = await self._believe(call, own, owned_before)
        found: list[PartResponse] = []
        if not own.leases and not call.must_hear(call.said):
            call.request = call.request.make_next(call.ended)
            found = await self._ask_for_jobs(call)
        merged = call.add_revoked(merge_responses(own, (*call.said, *found)))
        if is_over or call.must_hear([merged]) or not call.may_ask:
            call.note_sent(merged)
            return response._replace(body=msgspec.json.encode(merged))
        return None

    def _note_targets(self, call: WorkerCall) -> None:
        """Note which servers may have jobs for the worker, if it has room for any."""
        spec = call.spec
        if spec is None or not call.may_ask:
            return
        serving = self._surplus_of_others.serving(spec)
        # Results that come with the request free slots: before they are known here, it has room.
        has_room = not serving or not call.has_waited or self._find_room(call) > 0
        call.is_held_back = not has_room and call.count_wanted() > 0
        if serving and has_room:
            call.targets.update({each.no for each in self._servers.others()}.intersection(serving))

    async def _ask_here(self, call: WorkerCall, wait_s: float | None) -> tuple[Response, bool]:
        """Carry out here what is about jobs of this server; return whether the wait is over.

        wait_s: how long it may wait for a lease; None: as the worker wants.
        """
        if wait_s is None and call.wait_s is None and not call.has_waited:
            call.has_waited = True  # it has just arrived, and is about jobs of this server only
            response = await call.carry_out_here(call.asked.here())
            return response, not (call.targets or call.is_held_back or call.is_woken)
        if call.wait_s is None:
            call.wait_s = (await read_poll(call.asked.request)).wait_s
        loop = asyncio.get_running_loop()
        left_s = max(call.began + call.wait_s - loop.time(), 0.0)
        if wait_s is None:
            wait_s = min(left_s, HELD_BACK_S) if call.is_held_back else left_s
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
        was_ended = not call.is_woken and loop.time() < until - EARLY_S
        goes_on = call.targets or call.is_woken
        return response, was_ended or call.is_doubted or (left_s <= wait_s and not goes_on)

    async def _ask_for_jobs(self, call: WorkerCall) -> list[PartResponse]:
        """Ask the servers with a surplus for leases, as many as the worker has room for."""
        targets, call.targets = call.targets, set()
        members = [member for member in self._servers.others() if member.no in targets]
        # One that has just been silent comes last, because it may keep its share for seconds.
        members.sort(key=lambda member: member.no in call.worker.unanswered)
        ask = partial(self._ask_one, call)
        return await ask_each(members, lambda: self._find_room(call) if call.may_ask else 0, ask)

    async def _ask_one(self, call: WorkerCall, member: Member, room: int) -> PartResponse | None:
        """Ask one server for leases, and note those that it gives."""
        groups = self._owners.group(call, call.worker.elsewhere)
        leases = next((leases for each, leases in groups if each.no == member.no), [])
        response = await self._sender.ask(call, member, leases, room)
        if call.spec is not None:
            is_any = response is not None and bool(response.leases)
            self._surplus_of_others.note_outcome(member.no, call.spec, is_any=is_any)
        if response is not None:
            given = Place(giver=member.epoch)
            call.worker.elsewhere.update(dict.fromkeys(response.new_leases, given))
            call.foreign.update(response.new_leases)
        return response

    def _find_room(self, call: WorkerCall) -> int:
        """Return how many more leases the worker can have.

        This server may have promised slots of which the worker does not know.
        """
        wanted = call.count_wanted()
        if wanted <= 0:
            return wanted
        taken = call.asked.context.engine.sessions.count_taken(call.name)
        return 0 if taken is None else min(wanted, call.slots - taken - len(call.worker.elsewhere))

    def _wake(self, no: int, found: Found) -> Set[ReadyKey]:
        """Let workers that wait ask a server for jobs; return the ready keys that they serve."""
        left = dict(found.ready)
        taken: set[ReadyKey] = set()
        for call in self._workers.list_polls():
            spec = call.spec if call.may_ask else None
            served = [] if spec is None else [key for key in left if spec.serves(key)]
            if not served:
                continue
            room = self._find_room(call)
            if room <= 0:
                self._hold_back(call)
                continue
            taken.update(served)
            # Also if it is known: the engine may not have had the poll yet when that was found.
            call.wake()
            call.targets.add(no)
            use_up(left, served, room)
            if not left:
                break
        return taken

    def _offer_freed(self, call: WorkerCall, ended: Set[str]) -> None:
        """Let the poll of a worker ask for jobs for the slots that a request beside it has freed.

        ended: leases that the poll may list.
        """
        poll = call.worker.poll
        if poll is None or poll is call:
            return
        poll.ended |= ended
        spec = poll.spec if poll.may_ask else None
        serving = self._surplus_of_others.serving(spec) if spec is not None else ()
        if serving and self._find_room(poll) > 0:
            poll.targets.update(serving)
            poll.wake()
        elif serving:
            self._hold_back(poll)

    def _hold_back(self, call: WorkerCall) -> None:
        """Let a worker take a turn now and then that has room but for what is promised here."""
        if not call.is_held_back and call.count_wanted() > 0:
            call.is_held_back = True
            call.wake()

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
        lost = [each for each in answer.denied if each in call.request.changed - owned]
        if lost:
            call.worker.elsewhere.update(dict.fromkeys(lost, Place()))
            await self._requests.ask(call)
            if not call.delivered.issuperset(lost):
                raise Unavailable(MOVING_TEXT)
        return answer.without_denials(owned)
