"""What a gateway knows of one worker that polls it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from schedo.cluster.owner_pace import Paces
from schedo.cluster.work_parts import PartResponse
from schedo.core.worker_pool import WorkerSpec
from schedo.store.cluster import Member

if TYPE_CHECKING:
    from schedo.cluster.worker_call import WorkerCall


# For which a poll may still list an attempt whose result has arrived in another request.
ARRIVED_S = 5.0


class Place(NamedTuple):
    """Where the job of a lease of another server is, as far as its gateway knows."""

    shard: int | None = None  # None: it has not been read
    # The epoch of the server that has given the lease. It is believed to own the job while it
    # lives and neither denies that nor fails to take a result, so a job that ends soon needs no
    # read.
    giver: int | None = None


class Unanswered:
    """A server that may have given leases which the worker has not got.

    It has not responded to a request for leases, or the worker does not list one that it has given.
    """

    def __init__(self, no: int, lost_at: float) -> None:
        self.no, self.lost_at = no, lost_at
        self.is_told_now = False  # what the worker runs


class OwnerRequest:
    """A part of a request that is on its way to the owner of these leases."""

    def __init__(
        self, call: WorkerCall, no: int, leases: Collection[str], task: asyncio.Task[None]
    ) -> None:
        self.call, self.no, self.leases, self.task = call, no, leases, task


class RelayedPoll:
    """A poll in the name of a worker that is open at another server."""

    def __init__(self, number: int, spec: WorkerSpec, room: int, *, is_held: bool) -> None:
        """room: how many leases it may bring; is_held: the server may wait until it has a job."""
        self.number, self.spec, self.room, self.is_held = number, spec, room, is_held
        self.began = asyncio.get_running_loop().time()
        # The worker has no more room, or is another process: what the poll brings goes back.
        self.is_unwanted = False
        self.task: asyncio.Task[None] | None = None

    @property
    def age_s(self) -> float:
        """For how long it has been open."""
        return asyncio.get_running_loop().time() - self.began


class GivenLeases(NamedTuple):
    """A response with leases that the worker has not got yet."""

    member: Member  # that has given them
    answer: PartResponse
    sent_at: int | None = None  # None: a server of the version before does not say that

    def divide(self, room: int) -> tuple[PartResponse, PartResponse]:
        """Return the response with the first leases, and what is left of it."""
        leases = self.answer.leases
        return self._with(leases[:room]), self._with(leases[room:])

    def _with(self, leases: list[msgspec.Raw]) -> PartResponse:
        return msgspec.structs.replace(self.answer, leases=leases)


class PollingWorker:
    """What the gateway knows of one worker."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.elsewhere: dict[str, Place] = {}  # leases of other servers
        self.stopped: set[str] = set()  # leases of all servers whose stop request it has got
        self.revoked: frozenset[str] = frozenset()  # by the last response to a poll
        self.is_drained = False  # the last one said that an operator wants it to leave
        self.poll: WorkerCall | None = None  # the one that waits
        self.polled_at = 0.0  # when the newest poll came that is no wrong one
        self.asked_at = 0.0  # when its last request came
        self.unanswered: dict[int, Unanswered] = {}  # by the number of the server
        self.arrived: dict[str, float] = {}  # leases of completed jobs, and when others knew that
        self.paces = Paces()
        self.asking: list[OwnerRequest] = []  # requests to owners that are on their way
        self.late: dict[int, PartResponse] = {}  # answers that its next poll brings
        self.relayed: dict[int, RelayedPoll] = {}  # the newest open one, by the number of a server
        self.given: list[GivenLeases] = []  # for its next response
        self.described = 0  # the hash of how the worker describes itself, for which these are
        self.open_requests = 0  # of the worker, and about its polls at other servers

    @property
    def is_done(self) -> bool:
        """Whether its gateway need not know it any more."""
        known = (self.elsewhere, self.revoked, self.unanswered, self.poll, self.given)
        return not (self.open_requests or any(known))

    def count_expected(self, since: float) -> int:
        """Return how many leases have come or may come of polls that are open since then."""
        new = sum(poll.room for poll in self.relayed.values() if poll.began > since)
        return new + sum(len(each.answer.leases) for each in self.given)

    @property
    def is_polled(self) -> bool:
        """Whether another poll would end or change something."""
        return bool(self.poll or self.relayed or self.given)

    def begin_poll(self, call: WorkerCall) -> bool:
        """Let a poll be the present one; return False if a newer one has come meanwhile."""
        if call.began < self.polled_at:
            return False
        self.polled_at, self.poll = call.began, call
        call.revoked_before, self.revoked = self.revoked, frozenset()
        call.answers, self.late = self.late, {}
        return True

    def note_passed_on(self, giver: Member, leases: Collection[str]) -> None:
        """Note that the worker gets these leases of another server."""
        self.elsewhere.update(dict.fromkeys(leases, Place(giver=giver.epoch)))
        self.paces.note_given(giver.epoch, leases)

    def note_arrived(self, leases: Collection[str]) -> None:
        """Note leases whose jobs have completed: the owners have the results."""
        now_s = asyncio.get_running_loop().time()
        while self.arrived and now_s - next(iter(self.arrived.values())) > ARRIVED_S:
            del self.arrived[next(iter(self.arrived))]
        self.arrived |= dict.fromkeys(leases, now_s)

    def note_answer(self, no: int, answer: PartResponse) -> None:
        """Keep what an owner says for the response to the present poll, or to the next one."""
        if self.poll is None:
            self.late[no] = answer
        else:
            self.poll.note_answer(no, answer)

    def note_asking(self, request: OwnerRequest) -> None:
        """Note a request to an owner until it has ended."""
        self.asking.append(request)
        request.task.add_done_callback(lambda _: self.asking.remove(request))

    def note_unanswered(self, no: int) -> None:
        """Note that leases of this server may have been lost on their way."""
        self.unanswered[no] = Unanswered(no, asyncio.get_running_loop().time())

    def find_untold(self, living: Collection[int], told: Collection[int]) -> list[Unanswered]:
        """Return those that are to be told what the worker runs, and forget dead servers.

        told: servers that hear of it anyway.
        """
        for no in self.unanswered.keys() - living:
            del self.unanswered[no]  # the next owners of its jobs do not wait for this worker
        found = self.unanswered.values()
        return [each for each in found if not (each.is_told_now or each.no in told)]
