"""Surplus: jobs that are ready at one server, where no worker has room, while another one has some.

A server whose workers wait asks each other server for its surplus. The other one holds the request
until it has some, so a job waits for no interval. Then the other one is polled in the names of
workers with room (see relayed_polls.py). It alone decides which of its jobs goes to whom, so no job
is offered twice. Such a poll stays open there for a while and takes the next jobs. What no such
poll takes is the surplus.

A server sends its next request for the surplus as soon as it has the response to the last one. So
the owner leaves the ready keys of its last response out of the next ones until a worker of another
server has asked it for jobs, or for NAMED_S at most.

Jobs that no worker here runs would fill each response and hide the others. So a request names the
ready keys that are known and that no waiting worker serves, and the response leaves them out.

A request also names the tasks that workers have begun to offer to the asking server. So the other
one accepts a job for them without the warning that no worker has its task.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence, Set
from itertools import islice

import msgspec

from schedo.cluster.client_request import ClientRequest
from schedo.cluster.hops import OWN_PERMISSION, OwnRequest
from schedo.cluster.polling_workers import PollingWorkers
from schedo.cluster.servers import Servers
from schedo.core.model import ReadyKey
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.workers import Workers
from schedo.errors import SchedoError
from schedo.store.cluster import Member
from schedo.web.http import Response

KEYS_MAX = 16  # ready keys in one response
SKIPPED_MAX = 1_024  # ready keys in one request
LOOK_S = 1e-5  # a look for each of these keys takes a tenth of that; so long is no other one
TASKS_MAX = 1_024  # in one request; the next one names more
TASKS_KEPT = 20_000  # beyond that, the workers here count as offering every task
WORKERS_KEPT = 4_096  # for which the servers with jobs are known without a look
QUESTION_HELD_S = 10.0  # how long a request for the surplus is held
NOT_HELD_S = 1.0  # an empty response that comes sooner than this was not held
NAMED_S = 0.02  # after which a response names a ready key again, if no worker has asked for jobs
TAKING_S = 0.002  # the first pause after requests for jobs that have brought none; it doubles
PAUSE_S_MAX = 1.0
GIVES_S = 10.0  # for which a server that has given a job is polled again when it has none


class Question(msgspec.Struct, omit_defaults=True):
    """A request for the surplus.

    skip: the ready keys that are known and that no worker takes. tasks: those that workers offer
    and that no earlier request has named. offers_all: a worker offers every task.
    """

    skip: list[ReadyKey] = []
    tasks: list[str] = []
    offers_all: bool = False


class Found(msgspec.Struct):
    """The surplus of a server: ready keys, and how many of their jobs could start at least."""

    ready: list[tuple[ReadyKey, int]] = []
    # Whether the server names a ready key once until a worker asks it for jobs. A server of the
    # version before names it in each response, so the one that asks makes a pause in between.
    names_once: bool = False


class OwnSurplus:
    """What the workers of this server have no room for, told to the servers that ask."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._questions: dict[asyncio.Future[Found], frozenset[ReadyKey]] = {}
        self._rest: asyncio.TimerHandle | None = None  # after a long look that has found nothing
        # Ready keys that a response has named: workers of other servers are about to ask for them.
        self._named: set[ReadyKey] = set()
        self._forgetting: asyncio.TimerHandle | None = None
        workers.watch_surplus(self._look)

    async def respond(self, asked: ClientRequest) -> Response:
        """Return the surplus as soon as there is some, or nothing after QUESTION_HELD_S.

        While this server drains, the response comes at once, even if it is empty: the shutdown
        waits for open requests, and must not wait for this one.
        """
        context = asked.context
        question = msgspec.json.decode(asked.request.body, type=Question)
        skip = frozenset(question.skip)
        if question.tasks or question.offers_all:
            context.engine.tasks.note(None if question.offers_all else question.tasks)
        asking: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._questions[asking] = skip
        self._look()
        try:
            if not (asking.done() or context.draining.is_set()):
                holding = asyncio.wait((asking,), timeout=QUESTION_HELD_S)
                await context.run_until_disconnect(holding, asked.request.gone)
            return Response(200, msgspec.json.encode(asking.result() if asking.done() else Found()))
        finally:
            self._questions.pop(asking, None)

    def note_asked(self) -> None:
        """Note that a worker of another server has asked for jobs and has got its response."""
        if self._forgetting is not None:
            self._forgetting.cancel()
            self._forget_named()

    def _forget_named(self) -> None:
        self._forgetting = None
        self._named.clear()
        self._look()

    def _look(self) -> None:
        if self._rest is not None:
            return
        named: set[ReadyKey] = set()
        for asking, skip in [*self._questions.items()]:
            found = self._workers.find_surplus(
                KEYS_MAX, skip | self._named if self._named else skip
            )
            if found:
                asking.set_result(Found([*found.items()], names_once=True))
                del self._questions[asking]
                named |= found.keys()
        if named:
            self._named |= named
            if self._forgetting is None:
                loop = asyncio.get_running_loop()
                self._forgetting = loop.call_later(NAMED_S, self._forget_named)
        skipped = sum(map(len, self._questions.values()))
        if skipped >= KEYS_MAX:
            loop = asyncio.get_running_loop()
            self._rest = loop.call_later(skipped * LOOK_S, self._look_again)

    def _look_again(self) -> None:
        self._rest = None
        self._look()


class _Known:
    """What one server has said of its surplus, and the request that it holds."""

    def __init__(self) -> None:
        # Its ready keys; whether a worker that waited here has taken their jobs. The others are
        # skipped by the next requests: they would hide the rest.
        self.is_taken: dict[ReadyKey, bool] = {}
        self.pause_s = 0.0
        self.given_at = -math.inf  # when it has last given a worker a job
        self.asking: asyncio.Task[Found] | None = None
        self.told = 0  # how many of the tasks that workers here offer

    @property
    def skipped(self) -> list[ReadyKey]:
        return [key for key, is_taken in self.is_taken.items() if not is_taken]

    def add(self, found: Found) -> bool:
        """Add what the server has said; return whether any of it is new."""
        new = [key for key, _ in found.ready if key not in self.is_taken]
        self.is_taken |= dict.fromkeys(new, False)
        return bool(new)

    def note(self, found: Found, taken: Set[ReadyKey], *, is_new: bool) -> None:
        """Note whose jobs workers here take, of those that the server has just told of."""
        self.is_taken |= {key: key in taken for key, _ in found.ready}
        excess = self.skipped[:-SKIPPED_MAX]
        for key in excess:
            del self.is_taken[key]
        if excess or not (taken or is_new):  # the server says the same again and again
            self.wait_longer()

    def wait_longer(self) -> None:
        self.pause_s = min(max(2 * self.pause_s, TAKING_S), PAUSE_S_MAX)

    def forget(self, spec: WorkerSpec, *, was_held: bool) -> None:
        """Forget what such a worker serves: the server has given it nothing."""
        gone = {key: is_taken for key, is_taken in self.is_taken.items() if spec.serves(key)}
        for key in gone:
            del self.is_taken[key]
        if not was_held:
            self.wait_longer()
        if self.asking is not None and not all(gone.values()):
            self.asking.cancel()  # it skips some of them


class SurplusOfOthers:
    """What the other servers have no room for, as far as they have said it."""

    def __init__(
        self,
        servers: Servers,
        workers: PollingWorkers,
        wake: Callable[[int, Found], Set[ReadyKey]],
    ) -> None:
        """wake: lets workers that wait ask a server; returns the ready keys that they serve."""
        self._servers, self._workers, self._wake = servers, workers, wake
        self._known: dict[int, _Known] = {}  # by the number of the server
        # What `serving` has found.
        self._serving: dict[str, tuple[WorkerSpec, Sequence[int]]] = {}
        self._questions: set[int] = set()  # the epochs of the servers that are asked
        self._offered: dict[str, None] = {}  # the tasks of workers that have polled here
        self._offers_all = False  # one of them has offered every task
        self._wanted_s = 0.0

    def want(self) -> None:
        """Ask all other servers while workers wait."""
        self._wanted_s = asyncio.get_running_loop().time()
        for member in self._servers.others():
            if member.epoch not in self._questions:
                self._questions.add(member.epoch)
                self._servers.begin(self._ask_on(member))

    @property
    def is_any(self) -> bool:
        """Whether another server has said that it has jobs for which it has no worker."""
        return any(each.is_taken for each in self._known.values())

    def serving(self, spec: WorkerSpec) -> Sequence[int]:
        """Return the servers that have had jobs for such a worker."""
        known = self._serving.get(spec.id)
        if known is None or known[0] is not spec:
            if len(self._serving) >= WORKERS_KEPT:
                self._serving.clear()
            numbers = [
                no for no, each in self._known.items() if any(map(spec.serves, each.is_taken))
            ]
            known = self._serving[spec.id] = spec, numbers
        return known[1]

    def note_offer(self, spec: WorkerSpec) -> None:
        """Tell the other servers soon which tasks a worker offers that polls this one."""
        if self._offers_all or not spec.polls or spec.is_relayed:
            return
        if spec.tasks is not None and spec.tasks <= self._offered.keys():
            return
        self._offered.update(dict.fromkeys(spec.tasks or ()))
        self._offers_all = spec.tasks is None or len(self._offered) > TASKS_KEPT
        if self._offers_all:
            self._offered.clear()
        for known in self._known.values():
            if known.asking is not None:
                known.asking.cancel()  # the next request names them

    def note_given(self, no: int) -> None:
        """Note that a server has given a worker a job."""
        known = self._known.get(no)
        if known is not None:
            known.pause_s, known.given_at = 0.0, asyncio.get_running_loop().time()

    def given_at(self, no: int) -> float:
        """Return when the server has last given a worker a job, by the clock of the event loop."""
        known = self._known.get(no)
        return -math.inf if known is None else known.given_at

    def has_given(self, no: int) -> bool:
        """Whether the server has given any worker a job in the last GIVES_S."""
        return asyncio.get_running_loop().time() - self.given_at(no) < GIVES_S

    def note_empty(self, no: int, spec: WorkerSpec, *, was_held: bool) -> None:
        """Note that a server has given a worker nothing.

        was_held: it had nothing for a while. Else it may tell of the same jobs at once again.
        """
        known = self._known.get(no)
        if known is not None:
            known.forget(spec, was_held=was_held)
            self._serving.clear()

    def note_left(self, no: int) -> None:
        """Note that a server tells of jobs that the polls which are open there do not bring.

        Perhaps their workers lack a resource, and the server tells of the same jobs at once again.
        """
        known = self._known.get(no)
        if known is not None:
            known.wait_longer()

    async def _ask_on(self, member: Member) -> None:
        known = self._known[member.no] = _Known()
        try:
            while self._is_wanted() and self._lives(member):
                known.asking = asyncio.create_task(self._ask(member, known))
                await asyncio.wait((known.asking,))
                if known.asking.cancelled():
                    continue
                found = known.asking.result()
                known.asking = None
                if found.ready:
                    is_new = known.add(found)
                    self._serving.clear()  # so that the workers which it wakes know of these
                    known.note(found, self._wake(member.no, found), is_new=is_new)
                    pause_s = known.pause_s if found.names_once else max(known.pause_s, TAKING_S)
                    if pause_s:
                        await self._servers.wait_for_change(pause_s)
                else:
                    known.pause_s = 0.0
        finally:
            if known.asking is not None:
                known.asking.cancel()
            if self._known.get(member.no) is known:
                del self._known[member.no]
            self._serving.clear()
            self._questions.discard(member.epoch)

    async def _ask(self, member: Member, known: _Known) -> Found:
        tasks = [*islice(self._offered, known.told, known.told + TASKS_MAX)]
        question = Question(known.skipped, tasks, self._offers_all)
        body = msgspec.json.encode(question)
        own = OwnRequest("POST", "/v1/work", "surplus", OWN_PERMISSION, body)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            response = await self._servers.send(member, "surplus", own, QUESTION_HELD_S)
            if response.status == 200:
                known.told += len(tasks)
                found = msgspec.json.decode(response.body, type=Found)
                if found.ready or loop.time() - began > NOT_HELD_S:
                    return found
        except (SchedoError, msgspec.MsgspecError):
            pass
        # It is gone, too old to know of this, or drains: then it holds no request.
        await self._servers.wait_for_change(PAUSE_S_MAX)
        return Found()

    def _is_wanted(self) -> bool:
        """Whether a worker waits, perhaps for longer than a request is held, or will wait soon."""
        since_s = asyncio.get_running_loop().time() - self._wanted_s
        return since_s < QUESTION_HELD_S or bool(self._workers.list_polls())

    def _lives(self, member: Member) -> bool:
        return any(each.epoch == member.epoch for each in self._servers.others())


def use_up(left: dict[ReadyKey, int], served: Iterable[ReadyKey], room: int) -> None:
    """Take as many jobs of these ready keys away as a worker has room for."""
    for key in served:
        used = min(left[key], room)
        room -= used
        left[key] -= used
        if not left[key]:
            del left[key]
