"""What a gateway knows of a request of a worker that it carries out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Sequence, Set

import msgspec

from schedo.cluster.client_request import ClientRequest
from schedo.cluster.polling_worker import OwnerRequest, PollingWorker
from schedo.cluster.work_parts import PartResponse, WorkerRequest
from schedo.core.limits import SECOND
from schedo.core.worker_pool import WorkerSpec
from schedo.protocol.leases import render_lease
from schedo.web.http import Response

# An owner may hold a poll for 2 s, and a start may take 2 s to be durable. It believes a list only
# about leases that left it 2 s before (ADR 70). So after the sum of these, it has released those
# that a list does not have.
DOUBTED_S = 2.0 + 2.0 + 2.0
AGAIN_S = 0.02  # after which a wait is ended once more that had not begun at first


class Refusal(Exception):
    """The owner of some jobs refuses a part of a request, and with it the whole."""

    def __init__(self, response: Response) -> None:
        self.response = response


class WorkerCall:
    """One request of a worker, and what is left of it."""

    def __init__(
        self,
        asked: ClientRequest,
        request: WorkerRequest,
        worker: PollingWorker,
        came_at: float,
        read_wait_s: float | None,
    ) -> None:
        """read_wait_s: how long the worker lets it wait, if the whole request has been read."""
        self.asked, self.request, self.worker = asked, request, worker
        self.began, self.read_wait_s = came_at, read_wait_s
        self.name, self.is_poll = request.fields.worker, request.is_poll
        self.foreign: set[str] = set()  # leases that are not of this server
        # Leases of other servers that have ended there, or whose results or decisions have arrived.
        self.delivered: set[str] = set()
        self.ended: set[str] = set()  # leases whose results later requests of the worker brought
        self.revoked: dict[str, None] = {}  # in any turn so far
        self.revoked_before: frozenset[str] = frozenset()  # by the response to the poll before
        self.wait_s: float | None = None  # as read_wait_s; None: it has not been needed yet
        self.asks_here_first = False  # this server may have a job for it: no other one is polled
        self.waits_for_promised = False  # it has room, but for what this server has promised
        self.has_waited = False  # this server has the results that came with the request
        self.is_here = False  # this server carries a part of it out
        self.is_woken = False  # there is something to ask other servers
        self.is_doubted = False  # a server asks for a newer list of what the worker runs
        self.is_over = False  # it is answered, or given up
        self.is_answered = False  # it has ended with a response, and not because the worker left
        self.refusal: Refusal | None = None  # by an owner
        self.answers: dict[int, PartResponse] = {}  # of owners, by the number of the server
        self.following: asyncio.Task[None] | None = None  # asks the owners again

    @property
    def age_us(self) -> int:
        """How long ago the worker's list of what it runs has arrived."""
        return round((asyncio.get_running_loop().time() - self.began) * SECOND)

    @property
    def spec(self) -> WorkerSpec | None:
        """The worker as its token allows it; None: the engine does not know it yet."""
        known = self.asked.context.workers.get(self.name)
        return None if known is None else known.spec

    @property
    def is_replaced(self) -> bool:
        """Whether the worker has sent a newer poll."""
        return self.is_poll and self.worker.poll is not self

    @property
    def has_ended(self) -> bool:
        """Whether the worker ends, and neither runs anything nor keeps a result."""
        return self.request.has_ended and not self.worker.elsewhere

    @property
    def may_ask(self) -> bool:
        """Whether the worker waits for leases, and with no newer request."""
        return self.worker.poll is self and not self.asked.context.draining.is_set()

    @property
    def left_s(self) -> float:
        """For how long the worker still waits; 0 if that is not known yet."""
        until = self.began + (self.wait_s or 0.0)
        return max(until - asyncio.get_running_loop().time(), 0.0)

    @property
    def slots(self) -> int:
        """How many attempts the worker can run."""
        return 1 if self.request.fields.slots is None else self.request.fields.slots

    def wake(self) -> None:
        """End its wait for something in this server, so that it asks others at once."""
        self.is_woken = True
        self._end_wait()

    def end(self) -> None:
        """Answer it soon, so that the worker polls again with a list of what it runs then."""
        self.is_doubted = True
        self._end_wait()

    def _end_wait(self) -> None:
        """End its wait in this server, also one that begins later: a long poll is read in steps."""
        if self.is_here and (self.is_woken or self.is_doubted):
            self.asked.context.engine.sessions.end_poll_at_once(self.name)
            asyncio.get_running_loop().call_later(AGAIN_S, self._end_wait)

    async def carry_out_here(self, part: Awaitable[Response]) -> Response:
        """Return the response of this server to a part, whose wait can be ended."""
        self.is_here = True
        try:
            return await part
        finally:
            self.is_here = False

    def drop_arrived(self) -> None:
        """Do not take attempts for running whose results have just come beside this request."""
        listed = {*(self.request.fields.running or ())} - self.request.changed
        arrived = listed & self.worker.arrived.keys()
        self.ended |= arrived
        self.delivered |= arrived

    def begin_turn(self) -> None:
        """Begin to ask all servers that may have something for the worker."""
        self.is_woken = False
        self.drop_old_list()

    def drop_old_list(self) -> None:
        """Say nothing of what the worker runs if it has said that in a newer poll."""
        if self.is_replaced:
            self.request = self.request.make_report()

    # What the owners of its other attempts say.

    @property
    def undelivered(self) -> Set[str]:
        """The leases of other servers whose results or decisions have not arrived there."""
        return (self.request.changed & self.worker.elsewhere.keys()) - self.delivered

    @property
    def has_results_here(self) -> bool:
        """Whether this server is still to carry out results or decisions of the request."""
        others = self.worker.elsewhere.keys() | self.delivered
        return not (self.has_waited or self.request.changed <= others)

    def list_asking(self) -> list[OwnerRequest]:
        """Return the requests to owners that this one has begun."""
        return [each for each in self.worker.asking if each.call is self]

    def note_answer(self, no: int, answer: PartResponse) -> None:
        """Keep what an owner says for the response; late, for that of the worker's present poll."""
        if self.is_over:
            self.worker.note_answer(no, answer)
            return
        before = self.answers.get(no)
        self.answers[no] = answer if before is None else before.followed_by(answer)
        if self.is_poll and self.must_hear([answer]):
            self.wake()

    def refuse(self, refusal: Refusal) -> None:
        """Refuse the request because an owner does; its next turn does so."""
        self.refusal = refusal
        self.wake()

    def finish(self) -> None:
        """Ask no more owners: the request is answered, or the worker has given it up."""
        self.is_over = True
        if self.following is not None:
            self.following.cancel()
        if self.worker.poll is self:
            self.worker.poll = None

    def count_wanted(self) -> int:
        """Return how many more leases the worker can have, as far as it knows itself."""
        fields = self.request.fields
        running = {*(fields.running or ()), *self.worker.elsewhere}
        if fields.running is None:
            held = self.asked.context.engine.sessions.held_by(self.name)
            running.update(render_lease(lease.key) for lease in held)
        room = self.slots - len(running - self.ended)
        return room if fields.max_leases is None else min(room, fields.max_leases)

    def list_news(self) -> set[str]:
        """Return the leases that make this request urgent: their owners get their part at once.

        These are the leases of other servers that the request does not list, although the worker
        was given them. If the worker leaves, these are all leases that it has of other servers.
        """
        running, elsewhere = self.request.fields.running, self.worker.elsewhere
        if self.request.fields.draining:
            return {*elsewhere}
        return set() if running is None else elsewhere.keys() - {*running}

    def list_running(self) -> set[str]:
        """Return the leases that take slots of the worker, as far as it knows itself."""
        fields = self.request.fields
        named = {*(fields.running or ()), *(fields.accept or ()), *self.worker.elsewhere}
        return named - self.ended - self.request.ended

    def find_room(self) -> int:
        """Return how many more leases the worker can have.

        This server may have promised slots of which the worker does not know.
        """
        wanted = self.count_wanted()
        if wanted <= 0:
            return wanted
        taken = self.asked.context.engine.sessions.count_taken(self.name)
        return 0 if taken is None else min(wanted, self.slots - taken - len(self.worker.elsewhere))

    def list_left(self) -> list[str]:
        """Return the leases of the request that the server itself is asked about.

        Another request of the worker may have found meanwhile that a job has come here, or has
        gone. What has not arrived there comes here, and is denied if the job has gone.
        """
        others = (self.worker.elsewhere.keys() - self.request.changed) | self.delivered
        return [lease for lease in self.request.leases if lease not in others]

    def note_response(self, no: int, leases: Collection[str], answer: PartResponse) -> None:
        """Note what a server has said that owns these leases: those with results have ended.

        One that the worker does not list may have been lost on its way to the worker. The owner
        believes that only 2 s after it has given the lease, so it hears of it again later.
        """
        arrived = self.request.changed & {*leases}
        running = {*(self.request.fields.running or ()), *(self.request.fields.accept or ())}
        gone = (arrived - running) | {*answer.denied}
        if self.request.fields.running is not None:
            missing = {lease for lease in leases if lease not in running} - gone
            gone |= missing
            if missing:
                self.worker.note_unanswered(no)
        for lease in gone:
            self.worker.elsewhere.pop(lease, None)
        self.worker.note_arrived((arrived & self.request.completed) - {*answer.denied})
        self.delivered |= gone | arrived
        self.worker.stopped -= gone

    def note_heard(self, no: int) -> None:
        """Note that a server knows what the worker runs, as the request says it."""
        asked = self.worker.unanswered.get(no)
        if asked is None or self.request.fields.running is None:
            return
        if self.began - asked.lost_at > DOUBTED_S:
            del self.worker.unanswered[no]

    def must_hear(self, responses: Sequence[PartResponse]) -> bool:
        """Return whether the poll must be answered now, with a lease, denial, stop or drain.

        A worker that is slow to stop attempts lists them again, and one may go on although it
        should leave: its polls must not go round without a wait.
        """
        return any(
            each.leases
            or each.refused
            or (each.drain and not self.worker.is_drained)
            or not self.revoked_before.issuperset(each.revoked)
            or any(stop.lease not in self.worker.stopped for stop in each.stop)
            for each in responses
        )

    def add_revoked(self, answer: PartResponse) -> PartResponse:
        """Return the response with what earlier turns have revoked, which ask no owner again."""
        self.revoked |= dict.fromkeys(answer.revoked)
        return msgspec.structs.replace(answer, revoked=[*self.revoked])

    @property
    def said(self) -> Sequence[PartResponse]:
        """What the owners have said since the last response."""
        return [*self.answers.values()]

    def note_sent(self, answer: PartResponse) -> None:
        """Note what the worker hears: stop requests, what was revoked, and that it should leave."""
        # A response has those of this server, but perhaps not those of all others.
        self.worker.stopped &= self.worker.elsewhere.keys()
        self.worker.stopped |= {each.lease for each in answer.stop}
        if self.is_poll:
            self.worker.revoked, self.worker.is_drained = frozenset(answer.revoked), answer.drain
