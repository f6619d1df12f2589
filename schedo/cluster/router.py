"""Answers the requests to one server of a cluster: here, by the owner of a shard, or by all.

The table of homes.py says which. A request goes from one server to another one at most once; there
it is carried out or refused (see hops.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.types import Scope

from schedo.client.messages import HttpResponse
from schedo.cluster.app_calls import AppCalls
from schedo.cluster.batches import respond_to_batch
from schedo.cluster.broadcasting import broadcast, describe_remote_workers, list_remote_workers
from schedo.cluster.bulk import BulkChanges, change_own_jobs
from schedo.cluster.client_request import CLIENT_HOST, NOT_OWNER, ClientRequest, refuse
from schedo.cluster.confirming import confirm
from schedo.cluster.declaring import declare_elsewhere, declare_in_parts
from schedo.cluster.description import describe
from schedo.cluster.dry_runs import is_dry_run
from schedo.cluster.finding import find
from schedo.cluster.gateway import Gateway
from schedo.cluster.gathering import gather, see_worker
from schedo.cluster.homes import HOMES, NAMELESS_SHARD, Home, explain_owner, find_maker
from schedo.cluster.hops import Hop, OwnRequest, Purpose, RemoteClient, Signer
from schedo.cluster.member_log import MemberLog
from schedo.cluster.peers import ChangeLost, Peers, ReadLost
from schedo.cluster.reachability import Reachability
from schedo.cluster.streams import merge_streams
from schedo.cluster.texts import is_broadcast, names_link, shard_of_request
from schedo.cluster.unheard_workers import UnheardWorkers
from schedo.cluster.unserved import UnservedJobs
from schedo.cluster.worker_reasons import explain_workers
from schedo.core.commands import DeclareSchedules
from schedo.core.ids import parse_id
from schedo.core.shards import shard_of
from schedo.errors import NotFound, PeerUnreachable, SchedoError, Unauthorized, Unavailable
from schedo.protocol.operation import Operation
from schedo.protocol.work import is_own_worker
from schedo.store.cluster import Cluster, Member
from schedo.web.context import AppContext, Handler
from schedo.web.http import Request, Response

if TYPE_CHECKING:
    from schedo.protocol.cluster import ClusterResponse

# How long a request waits while its shard moves, or its owner is believed to be a server that is
# not the owner any more, or that has just died. A move and a take-over take some 20 ms.
MOVING_S = 1.0
_PAUSE_S = 0.02
Act = Callable[[ClientRequest], Awaitable[Response]]


class Router:
    """The Elsewhere of one server, and its connections to the others."""

    def __init__(self, context: AppContext, cluster: Cluster, key: bytes) -> None:
        """key: the random key that all servers of the cluster read in the database."""
        self._context = context
        self.cluster = cluster
        self._signer = Signer(key)
        self._peers = Peers(self._signer, cluster)
        self._reachability = Reachability(cluster, self._peers, context.engine.clock)
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._member_log = MemberLog(cluster)
        cluster.on_change.append(self._note_change)
        self.background: set[asyncio.Task[None]] = set()
        self._gateway = Gateway(self, context.engine.sessions)
        self._turn = asyncio.Lock()  # of the changes that all servers confirm
        self.list_remote_workers = partial(list_remote_workers, self)
        self.explain_workers = partial(explain_workers, self)
        self._unserved = UnservedJobs(self, context.engine.sessions)
        self._unheard = UnheardWorkers(self, context.engine.sessions)

    def start(self) -> None:
        """Begin to look after the other servers."""
        self._reachability.start(self.look)
        self._context.engine.bulk.others = BulkChanges(self)
        self._context.engine.others = AppCalls(self)
        self._context.engine.declarations.declare_elsewhere = partial(declare_elsewhere, self)

    async def stop(self) -> None:
        """Close the connections to the other servers."""
        self.cluster.on_change.remove(self._note_change)
        ending = [*self.background]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self._reachability.stop()
        await self._peers.close()

    async def look(self) -> None:
        """Ask the other servers what they are asked once a second."""
        await asyncio.gather(self._reachability.look(), self._unserved.look(), self._unheard.look())

    # What the application needs.

    def identify(self, headers: Mapping[bytes, bytes], scope: Scope) -> None:
        hop = self._signer.check(headers, scope, self._context.engine.clock.now())
        scope["schedo.hop"] = hop
        if CLIENT_HOST in headers:
            scope["schedo.headers"] = {**headers, b"host": headers[CLIENT_HOST]}
        scope["schedo.confirms"] = hop.purpose == "confirm"
        scope["schedo.is_part"] = hop.purpose == "work"
        scope["schedo.client_id"], scope["schedo.permission"] = hop.client_id, hop.permission
        scope["schedo.request_id"] = hop.request_id
        scope["schedo.transport"] = RemoteClient(hop.address)

    async def respond(
        self, scope: Scope, operation: Operation, handle: Handler, request: Request
    ) -> Response:
        asked = ClientRequest(self._context, self._peers, scope, operation, handle, request)
        return await _ACTS[HOMES[operation.name]](self, asked)

    def notes(self) -> Sequence[str]:
        return self._reachability.notes()

    def describe(self) -> ClusterResponse:
        return describe(self.cluster, self._reachability, self._context.engine.clock)

    # What a request does, by its home.

    async def here(self, asked: ClientRequest) -> Response:
        """Carry the request out in this server."""
        return await asked.here()

    async def at_job(self, asked: ClientRequest) -> Response:
        """Carry the request out at the owner of its job, or where it has just ended and is gone."""
        try:
            job_id = parse_id(asked.request.params["id"])
        except NotFound:
            return await asked.here()  # its handler says so
        try:
            async with asyncio.timeout(MOVING_S):
                shard = await self.cluster.shard_of_job(job_id)
        except TimeoutError:
            raise Unavailable("the database does not say which server owns the job") from None
        return await (self.find(asked) if shard is None else self.at_owner(asked, shard, self.here))

    async def at_text(self, asked: ClientRequest) -> Response:
        """Carry the request out at the owner of its key or its name."""
        if asked.is_confirmation:
            return await asked.here()  # a part of a broadcast
        shard = shard_of_request(asked.request, self.has_limit)
        if is_broadcast(asked.request):
            return await self.at_owner(asked, shard, partial(broadcast, self))
        if shard is None and asked.operation.name == "short_schedule":
            return await self.at_owner(asked, None, self.find)  # it may be an invocation
        return await self.at_owner(asked, shard, self.here)

    async def at_work(self, asked: ClientRequest) -> Response:
        """Carry the request of a worker out here, and what concerns others at them."""
        return await self._gateway.respond(asked)

    async def at_everyone(self, asked: ClientRequest) -> Response:
        """Carry the request out in all servers, in the order of one of them."""
        if asked.is_confirmation:
            return await asked.here()
        name = asked.request.params.get("name")
        shard = NAMELESS_SHARD if name is None else shard_of(name)
        return await self.at_owner(asked, shard, self._lead)

    async def _lead(self, asked: ClientRequest) -> Response:
        """Carry the request out here, then in all other servers; return when they have done it."""
        async with self._turn:
            response = await asked.here()
            if response.status < 400:
                await confirm(self, asked, "the change is durable")
            return response

    async def at_step(self, asked: ClientRequest) -> Response:
        """Begin an operation here, or carry out a part of one that another server has begun."""
        return await (change_own_jobs(asked) if asked.is_confirmation else asked.here())

    async def at_link(self, asked: ClientRequest) -> Response:
        """Begin a session; the server that made its link knows the link."""
        try:
            return await asked.here()
        except Unauthorized:
            if asked.hop is not None or not names_link(asked.request.body):
                raise
            for member in self._reachability.others():
                with suppress(PeerUnreachable):
                    response = await asked.forward(member)
                    if response.status < 400:
                        return response
            raise

    async def at_stream(self, asked: ClientRequest) -> Response:
        """Return a stream of what happens in all servers."""
        return await (asked.here() if asked.hop else merge_streams(self, asked))

    async def find(self, asked: ClientRequest) -> Response:
        """Carry the request out here, or else at the first of the others that can."""
        return await find(asked, () if asked.hop else self._reachability.others())

    async def at_worker(self, asked: ClientRequest) -> Response:
        """Carry a change of a worker out at each server that knows it: it may poll any of them.

        A name that servers use themselves means a worker of the first one that has it.
        """
        response = await self.find(asked)
        is_known = response.status < 400 and asked.hop is None
        if is_known and not is_own_worker(asked.request.params["name"]):
            await confirm(self, asked, "one server has done it", (NotFound.status,))
        return response

    async def see_worker(self, asked: ClientRequest) -> Response:
        """Return a worker with what it runs for all servers that know it."""
        if asked.hop is not None or is_own_worker(asked.request.params["name"]):
            return await self.find(asked)
        return await see_worker(asked, self.cluster.me.name, self._reachability.others())

    async def invoke(self, asked: ClientRequest) -> Response:
        """Carry an invocation out here, or else at the first of the others that has room.

        It makes a job, so a server that owns no shard asks another one at once; a dry run does not.
        """
        if is_dry_run(asked.request):
            return await self.gather(asked)
        return await self.at_owner(asked, None, self.find)

    async def gather(self, asked: ClientRequest) -> Response:
        """Return what all servers respond, as one response."""
        if asked.is_confirmation:
            return describe_remote_workers(self._context)
        others = () if asked.hop else self._reachability.others()
        return await gather(asked, self.cluster.me.name, others)

    async def send(
        self, member: Member, purpose: Purpose, own: OwnRequest, held_s: float = 0.0
    ) -> HttpResponse:
        """Send a request of this server itself; raise PeerUnreachable or ChangeLost.

        held_s: how long the other server may hold it.
        """
        now = self._context.engine.clock.now()
        hop = Hop(purpose, now, own.method, own.target, "cluster", own.id, "", own.permission)
        headers = {"content-type": "application/json"} if own.body else {}
        return await self._peers.send(member, hop, own.body, headers, held_s)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that no request waits for."""
        task = asyncio.create_task(work, name="schedo cluster work")
        self.background.add(task)
        task.add_done_callback(self.background.discard)

    async def declare(self, command: DeclareSchedules) -> None:
        """Put schedules that this server owns."""
        await self._context.engine.declarations.put(command)

    # Owners.

    def owns(self, name: str) -> bool:
        """Whether this server owns the shard of the name."""
        return self.cluster.is_mine(shard_of(name))

    def others(self) -> list[Member]:
        """Return the other servers that can be asked."""
        return self._reachability.others()

    async def wait_for_change(self, timeout_s: float) -> None:
        """Wait until a shard has another owner, for this long at most."""
        await asyncio.wait((self._changed,), timeout=timeout_s)

    def has_limit(self, queue: str) -> bool:
        """Whether the queue of this name lets only some of its jobs run at once."""
        return self._context.engine.get_queue(queue).concurrency is not None

    async def at_owner(
        self,
        asked: ClientRequest,
        shard: int | None,
        act: Act,
        may_wait: Callable[[], bool] = lambda: True,
    ) -> Response:
        """Return the response of the owner of the shard; None: that of the one that makes jobs.

        may_wait: whether to wait longer while the shard moves; else the error is raised at once.
        """
        if shard is None:
            return await self._at_maker(asked, act)
        loop = asyncio.get_running_loop()
        until = loop.time() + MOVING_S
        lost: SchedoError | None = None  # what the first owner did not respond to
        while True:
            is_last = loop.time() > until  # known before, because one try may take all of the time
            found = await self._ask_owner(asked, shard, act)
            if isinstance(found, Response):
                return found
            if lost is None and isinstance(found, (ChangeLost, ReadLost)):
                lost, until, is_last = found, loop.time() + MOVING_S, False  # it was perhaps held
            if is_last or not may_wait():
                raise lost or found
            await self.wait_for_change(_PAUSE_S)

    async def _at_maker(self, asked: ClientRequest, act: Act) -> Response:
        shard = None if asked.hop else find_maker(self.cluster)
        if shard is None:
            try:
                return await act(asked)
            except Unavailable:  # perhaps it has given its last shard away meanwhile
                shard = find_maker(self.cluster)
                if shard is None:
                    raise
            if asked.hop:
                return refuse(asked.request)
        return await self.at_owner(asked, shard, act)

    async def _ask_owner(
        self, asked: ClientRequest, shard: int, act: Act
    ) -> Response | SchedoError:
        """Return the response of the owner, or why there is none yet."""
        if self.cluster.is_mine(shard):
            try:
                return await act(asked.with_home_shards((shard,)))
            except (NotFound, Unavailable):
                if self.cluster.is_mine(shard):
                    raise  # else the shard has moved meanwhile, and its jobs are not known here
        if asked.hop is not None:
            return refuse(asked.request)
        owner = self.cluster.owner(shard)
        if owner is not None and owner.url and owner.no != self.cluster.me.no:
            return await self._ask_other(asked, shard, owner)
        return explain_owner(self.cluster, shard)

    async def _ask_other(
        self, asked: ClientRequest, shard: int, owner: Member
    ) -> Response | SchedoError:
        """Return the response of another server, or why there is none yet."""
        try:
            response = await asked.forward(owner, shard)
        except PeerUnreachable as error:
            return error
        except ChangeLost as error:
            if asked.is_repeatable and self.cluster.has_lost(owner):
                return error
            raise
        is_owner = (NOT_OWNER, b"1") not in response.headers
        return response if is_owner else explain_owner(self.cluster, shard)

    def _note_change(self) -> None:
        """Wake the requests that wait for the owner of a shard, or for its response; log it."""
        self._peers.end_waits()
        changed, self._changed = self._changed, asyncio.get_running_loop().create_future()
        changed.set_result(None)
        self._gateway.note_change()
        self._member_log.note_change()


_ACTS: Mapping[Home, Callable[[Router, ClientRequest], Awaitable[Response]]] = {
    Home.WORK: Router.at_work,
    Home.HERE: Router.here,
    Home.ANY: Router.here,
    Home.JOB: Router.at_job,
    Home.TEXT: Router.at_text,
    Home.SPLIT: respond_to_batch,
    Home.FIND: Router.find,
    Home.WORKER: Router.at_worker,
    Home.SEEN: Router.see_worker,
    Home.INVOKE: Router.invoke,
    Home.GATHER: Router.gather,
    Home.STREAM: Router.at_stream,
    Home.STEP: Router.at_step,
    Home.LINK: Router.at_link,
    Home.PARTS: declare_in_parts,
    Home.EVERYONE: Router.at_everyone,
}
