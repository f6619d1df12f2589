"""Polls in the names of the workers that wait here, open at the servers that have jobs for them.

A server that has told of jobs for which it has no worker (see surplus.py) holds such a poll until
it has a job for the worker; the workers that poll it themselves come first. The worker's own poll
waits here meanwhile, so one slot may get two jobs. That is settled here, because each lease passes
this server: the worker gets as many as it has room for. The others go back to their servers at
once, and start again there.

Two servers with jobs rarely race for a slot: while a poll is new, its room is left out of the polls
at other servers. One that is still open after SETTLED_S is at a server that has no job now.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import msgspec

from schedo.cluster.client_request import ClientRequest, to_response
from schedo.cluster.parts_of_gateways import Recall
from schedo.cluster.polling_worker import GivenLeases, PollingWorker, RelayedPoll
from schedo.cluster.polling_workers import PollingWorkers
from schedo.cluster.servers import Servers
from schedo.cluster.surplus import SurplusOfOthers
from schedo.cluster.work_parts import PartResponse, read_response
from schedo.cluster.worker_call import Refusal, WorkerCall
from schedo.core.limits import SECOND
from schedo.errors import SchedoError, WorkerReplaced
from schedo.store.cluster import Member
from schedo.web.elsewhere import SENT_AT
from schedo.web.http import Response

HELD_S = 2.0  # how long another server may hold a poll
STARTED_S = 2.0  # how long it may take then until the start of a job is durable
SENT_S = 1.0  # how long the response may be on its way
SETTLED_S = 0.02  # after which a poll that is still open is at a server that has no job now
SHORT_S = 0.05  # a worker that waits for no longer gets what there is at once: no poll is held
UNCLAIMED_S = 0.1  # for which leases wait for the worker's next poll
# A worker that comes gets the jobs of this server first: the engine has decided after this number
# of passes of the event loop. If the worker still waits then, the others are polled.
OWN_FIRST_PASSES = 5
# How many polls are kept open at one server although it has not just told of jobs.
STANDING_MAX = 16
# Leases that come later than this go back. Their server takes them for lost when a list that is 2 s
# younger does not have them (ADR 70), and they still have to get to the worker.
LATE_US = SECOND
RECALL_S = 1.0  # for which a server may be silent that is to end a poll


class RelayedPolls:
    """Polls other servers in the names of the workers that poll this one."""

    def __init__(
        self, servers: Servers, workers: PollingWorkers, surplus_of_others: SurplusOfOthers
    ) -> None:
        self._servers, self._workers = servers, workers
        self._surplus_of_others = surplus_of_others
        self._counts = Counter[int]()  # of open polls, by the number of the server
        # No other server makes the same ones: an owner knows a poll by the worker and the number.
        self._numbers = itertools.count(servers.cluster.me.epoch << 32)

    def poll_others_soon(self, call: WorkerCall) -> None:
        """Poll the servers that have had jobs for the worker, if this one has none."""
        if self.list_serving(call) and call.left_s > SHORT_S:
            self._poll_others_after(OWN_FIRST_PASSES, call)
        else:
            call.asks_here_first = False

    def _poll_others_after(self, passes: int, call: WorkerCall) -> None:
        if passes:
            asyncio.get_running_loop().call_soon(self._poll_others_after, passes - 1, call)
        else:
            call.asks_here_first = False
            if call.is_here:
                self.poll_others(call)

    def poll_others(self, call: WorkerCall, surplus_at: int | None = None) -> bool:
        """Poll the servers that have had jobs for the worker, as far as it has room.

        surplus_at: a server that has just told of jobs. Returns whether it is polled anew. A worker
        that has room but for what is promised here takes a turn now and then.
        """
        spec, serving = call.spec, self.list_serving(call)
        room = call.find_room() if serving else 0
        was_waiting = call.waits_for_promised
        call.waits_for_promised = bool(serving) and room <= 0 < call.count_wanted()
        if call.waits_for_promised and call.is_here and not was_waiting:
            call.wake()
        if spec is None or room <= 0:
            return False
        loop = asyncio.get_running_loop()
        now = loop.time()
        is_held = call.wait_s is None or call.left_s > SHORT_S  # one that is still here waits
        room -= call.worker.count_expected(now - SETTLED_S)
        members = self._choose(call, serving, surplus_at)
        for at, member in enumerate(members):
            if room <= 0:
                loop.call_later(SETTLED_S, self.poll_others, call, surplus_at)
                return any(each.no == surplus_at for each in members[:at])
            share = -(-room // (len(members) - at))
            room -= share
            number = next(self._numbers)
            self._start(call, member, RelayedPoll(number, spec, share, is_held=is_held))
        return any(each.no == surplus_at for each in members)

    def list_serving(self, call: WorkerCall) -> Sequence[int]:
        """Return the servers that have had jobs for the worker."""
        spec = call.spec
        return self._surplus_of_others.serving(spec) if spec is not None and call.may_ask else ()

    def _choose(
        self, call: WorkerCall, serving: Sequence[int], surplus_at: int | None
    ) -> list[Member]:
        """Return the servers that are to be polled anew."""
        worker = call.worker
        members = [
            each
            for each in self._servers.others()
            if each.no in serving
            and each.no not in worker.relayed
            and (each.no == surplus_at or self._counts[each.no] < STANDING_MAX)
        ]
        # One that has just been silent comes last, because it may keep its share for seconds. Of
        # the others, the one that has jobs: a single slot is not offered to the next for SETTLED_S.
        given_at = self._surplus_of_others.given_at
        members.sort(
            key=lambda it: (it.no in worker.unanswered, it.no != surplus_at, -given_at(it.no))
        )
        return members

    def _start(self, call: WorkerCall, member: Member, poll: RelayedPoll) -> None:
        worker = call.worker
        fields: dict[str, Any] = {"relayed": True, "max_leases": poll.room}
        # It may be answered late, so it does not list what the worker runs: only what takes slots.
        fields |= {"running": None, "elsewhere": [*call.list_running()]}
        fields |= {"hold": HELD_S * poll.is_held, "wait": HELD_S + STARTED_S, "number": poll.number}
        part = call.request.make_part((), **fields)
        request = call.asked.request._replace(body=part, is_part=True)
        worker.relayed[member.no] = poll
        worker.described = call.request.hash_description()
        self._counts[member.no] += 1
        # The call is not kept: it has the body of the worker's request, which may be large.
        sending = self._carry_out(replace(call.asked, request=request), worker, member, poll)
        poll.task = self._begin_for(worker, sending)

    def _begin_for(
        self, worker: PollingWorker, work: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:
        """Begin something for a worker, and keep what is known of the worker until it ends.

        If it fails, a lease may not have reached the worker. This server notes that, and tells the
        owner with the worker's next poll what the worker runs, so that the job starts again.
        """
        worker.open_requests += 1
        task = self._servers.begin(work)
        task.add_done_callback(lambda _: self._note_end(worker))
        return task

    def _note_end(self, worker: PollingWorker) -> None:
        worker.open_requests -= 1
        self._workers.forget_if_done(worker)

    async def _carry_out(
        self, asked: ClientRequest, worker: PollingWorker, member: Member, poll: RelayedPoll
    ) -> None:
        response = await self._send(asked, worker, member, poll)
        if response is None or response.status != HTTPStatus.OK:
            is_replaced = response is not None and response.status == WorkerReplaced.status
            if response is not None and is_replaced and worker.poll and not poll.is_unwanted:
                worker.poll.refuse(Refusal(response))
            self._note_empty(worker, member, poll)
            return
        answer = read_response(response.body)
        if answer.leases:
            self._keep(worker, poll, GivenLeases(member, answer, _read_sent_at(response)))
            self._note_given(member.no)
            return
        if answer.says_anything:
            worker.note_answer(member.no, answer)
        self._note_empty(worker, member, poll)

    async def _send(
        self, asked: ClientRequest, worker: PollingWorker, member: Member, poll: RelayedPoll
    ) -> Response | None:
        """Return the response to a poll; None: there is none in time."""
        response: Response | None = None
        try:
            async with asyncio.timeout(HELD_S * poll.is_held + STARTED_S + SENT_S):
                response = to_response(await asked.send(member, "work"))
        except (SchedoError, TimeoutError):
            pass
        finally:
            self._counts[member.no] -= 1
            if worker.relayed.get(member.no) is poll:
                del worker.relayed[member.no]
            if response is None:
                worker.note_unanswered(member.no)
        return response

    def _note_given(self, no: int) -> None:
        """Note that a server has given a job; if it begins to, poll it for the others that wait."""
        is_first = not self._surplus_of_others.has_given(no)
        self._surplus_of_others.note_given(no)
        for call in self._workers.list_polls() if is_first else ():
            if self._counts[no] >= STANDING_MAX:
                break
            if call.is_here and not (call.asks_here_first or call.worker.given):
                self.poll_others(call)

    def _note_empty(self, worker: PollingWorker, member: Member, poll: RelayedPoll) -> None:
        """Poll the server again if it had jobs lately; else wait until it tells of some."""
        if poll.is_unwanted:
            return
        was_held = poll.is_held and poll.age_s > HELD_S / 2
        if not (was_held and self._surplus_of_others.has_given(member.no)):
            self._surplus_of_others.note_empty(member.no, poll.spec, was_held=was_held)
        elif worker.poll is not None:
            self.poll_others(worker.poll)

    # The leases that come.

    def _keep(self, worker: PollingWorker, poll: RelayedPoll, given: GivenLeases) -> None:
        """Keep leases for the worker's response."""
        if poll.is_unwanted:
            self._return(worker, given)
            return
        worker.given.append(given)
        if worker.poll is not None:
            worker.poll.wake()
        else:
            self._return_later(worker)

    async def poll_now(self, call: WorkerCall) -> None:
        """Let the worker have what other servers have now, because its poll ends."""
        self.poll_others(call)
        while call.may_ask and not call.worker.given:
            short = [p.task for p in call.worker.relayed.values() if p.task and not p.is_held]
            if not short:
                break
            await asyncio.wait(short, return_when=asyncio.FIRST_COMPLETED)

    def take(self, call: WorkerCall, *, own_count: int) -> list[PartResponse]:
        """Return what the worker gets of the leases that have come; the others go back.

        own_count: how many leases of this server are in the same response.
        """
        worker = call.worker
        if not worker.given or call.is_replaced or not call.is_poll:
            return []
        given, worker.given = worker.given, []
        room, most = call.find_room() if call.may_ask else 0, call.request.fields.max_leases
        if most is not None:
            room = min(room, most - own_count)
        now = call.asked.context.engine.clock.now()
        taken = []
        for each in given:
            fits, rest = each.divide(0 if _is_late(each, now) else max(room, 0))
            room -= len(fits.leases)
            if rest.leases:
                self._return(worker, GivenLeases(each.member, rest))
            names = fits.new_leases
            if names:
                worker.note_passed_on(each.member, names)
            call.foreign.update(names)
            taken.append(fits)
        return taken

    def note_poll(self, call: WorkerCall) -> None:
        """Note that a poll has come: what is for an earlier process of the worker goes back.

        That process may have had other tasks, and the owners refuse its polls as soon as they hear
        of the next one.
        """
        worker = call.worker
        is_any = worker.given or worker.relayed
        if is_any and worker.described != call.request.hash_description():
            self._end_all(worker, is_lost=False)

    def note_response(self, call: WorkerCall) -> None:
        """Note that the worker's poll has ended: with a response, or because it has gone."""
        worker, is_draining = call.worker, bool(call.request.fields.draining)
        if worker.poll is not None or not (worker.given or worker.relayed):
            return
        if not (call.is_poll or is_draining):
            return  # it came between two polls
        if worker.given:
            self._return_later(worker)
        is_leaving = not call.is_answered or is_draining or call.asked.context.draining.is_set()
        if is_leaving or call.find_room() <= 0:
            # The servers hear what a worker runs that has given its poll up when it is back.
            self._end_all(worker, is_lost=not call.is_answered)

    def _end_all(self, worker: PollingWorker, *, is_lost: bool) -> None:
        """Return all leases that the worker has not got, and end its polls at other servers.

        is_lost: the worker may have missed leases of these servers.
        """
        self._return_all(worker)
        for no, poll in [*worker.relayed.items()]:
            del worker.relayed[no]
            poll.is_unwanted = True
            if is_lost:
                worker.note_unanswered(no)
            self._begin_for(worker, self._end(worker, no, poll))

    def _return_later(self, worker: PollingWorker) -> None:
        asyncio.get_running_loop().call_later(UNCLAIMED_S, self._return_unclaimed, worker)

    def _return_unclaimed(self, worker: PollingWorker) -> None:
        if worker.poll is None:
            self._return_all(worker)

    def _return_all(self, worker: PollingWorker) -> None:
        given, worker.given = worker.given, []
        for each in given:
            self._return(worker, each)

    def _return(self, worker: PollingWorker, given: GivenLeases) -> None:
        self._begin_for(worker, self._release(worker, given))

    # What other servers hear.

    async def _release(self, worker: PollingWorker, given: GivenLeases) -> None:
        """Let a server release leases that the worker has not got."""
        recall = Recall(worker.name, unsent=[*given.answer.new_leases])
        if not await self._recall(given.member.no, recall):
            worker.note_unanswered(given.member.no)

    async def _end(self, worker: PollingWorker, no: int, poll: RelayedPoll) -> None:
        """End a poll at a server, and wait no more for a response that does not come."""
        await self._recall(no, Recall(worker.name, poll.number))
        assert poll.task is not None, "it has begun"
        await asyncio.wait((poll.task,), timeout=RECALL_S)
        poll.task.cancel()

    async def _recall(self, no: int, recall: Recall) -> bool:
        """Return whether the server has heard that a worker wants no more jobs."""
        member = next((each for each in self._servers.others() if each.no == no), None)
        if member is None:
            return False
        body = msgspec.json.encode(recall)
        return await self._servers.ask(member, "recall", body, dict, RECALL_S) is not None


def _is_late(given: GivenLeases, now: int) -> bool:
    """Whether the server may take the leases for lost before the worker lists them."""
    return given.sent_at is not None and now - given.sent_at > LATE_US


def _read_sent_at(response: Response) -> int | None:
    """Return when the leases of a response were sent; None: an earlier version does not say it."""
    return next((int(value) for name, value in response.headers if name == SENT_AT), None)
