"""Answers the requests to one server of a cluster: here, by the owner of a shard, or by all.

The table of homes.py says which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from starlette.types import Scope

from schedo.cluster.app_calls import AppCalls
from schedo.cluster.batches import respond_to_batch
from schedo.cluster.broadcasting import broadcast, describe_remote_workers, list_remote_workers
from schedo.cluster.bulk import BulkChanges, change_own_jobs
from schedo.cluster.client_request import CLIENT_HOST, ClientRequest
from schedo.cluster.confirming import confirm
from schedo.cluster.declaring import declare_elsewhere, declare_in_parts
from schedo.cluster.description import describe
from schedo.cluster.dry_runs import is_dry_run
from schedo.cluster.finding import find, find_server
from schedo.cluster.gateway import Gateway
from schedo.cluster.gathering import combine, gather, see_worker
from schedo.cluster.homes import HOMES, NAMELESS_SHARD, Home
from schedo.cluster.hops import RemoteClient
from schedo.cluster.member_log import MemberLog
from schedo.cluster.merging import MERGERS
from schedo.cluster.own_url import OwnUrl
from schedo.cluster.request_shards import is_broadcast, names_link, shard_of_request
from schedo.cluster.servers import MOVING_S, Servers
from schedo.cluster.streams import merge_streams
from schedo.cluster.unheard_workers import UnheardWorkers
from schedo.cluster.unserved import UnservedJobs
from schedo.cluster.worker_reasons import explain_workers
from schedo.core.ids import parse_id
from schedo.core.shards import shard_of
from schedo.errors import NotFound, PeerUnreachable, Unauthorized, Unavailable
from schedo.protocol.operation import Operation
from schedo.protocol.work import is_own_worker
from schedo.store.cluster import Cluster
from schedo.web.context import AppContext, Handler
from schedo.web.http import Request, Response

if TYPE_CHECKING:
    from schedo.protocol.cluster import ClusterResponse


class Router:
    """The other servers, as the application of one server needs them: its Elsewhere."""

    def __init__(self, context: AppContext, cluster: Cluster, key: bytes) -> None:
        """key: the random key that all servers of the cluster read in the database."""
        engine = context.engine
        self._context = context
        self.servers = servers = Servers(engine, cluster, key)
        self._own_url = OwnUrl(cluster, servers.peers, engine.clock)
        self._member_log = MemberLog(cluster)
        cluster.on_change.append(self._note_change)
        self._gateway = Gateway(servers, engine.sessions)
        self._turn = asyncio.Lock()  # of the changes that all servers confirm
        self.list_remote_workers = partial(list_remote_workers, servers)
        self.explain_workers = partial(explain_workers, servers)
        self._unserved = UnservedJobs(servers, engine.sessions)
        self._unheard = UnheardWorkers(servers, engine.sessions)

    def start(self) -> None:
        """Begin to look after the other servers."""
        engine, servers = self._context.engine, self.servers
        servers.reachability.start(self.look)
        engine.bulk.others = BulkChanges(servers, engine.bulk.parts)
        engine.others = AppCalls(servers)
        declarations = engine.declarations
        declarations.declare_elsewhere = partial(declare_elsewhere, servers, declarations.put)

    async def stop(self) -> None:
        """Close the connections to the other servers."""
        self.servers.cluster.on_change.remove(self._note_change)
        self._member_log.stop()
        await self.servers.stop()

    async def look(self) -> None:
        """Ask the other servers what they are asked once a second."""
        parts = (self.servers.reachability, self._own_url, self._unserved, self._unheard)
        await asyncio.gather(*(part.look() for part in parts))

    def _note_change(self) -> None:
        """Tell all parts that a shard has another owner, or that a server has come or gone."""
        self.servers.note_change()
        self._gateway.note_change()
        self._member_log.note_change()

    # What the application needs.

    def identify(self, headers: Mapping[bytes, bytes], scope: Scope) -> None:
        hop = self.servers.signer.check(headers, scope, self._context.engine.clock.now())
        scope["schedo.hop"] = hop
        if CLIENT_HOST in headers:
            scope["schedo.headers"] = {**headers, b"host": headers[CLIENT_HOST]}
        scope["schedo.confirms"] = hop.purpose == "confirm"
        scope["schedo.is_part"] = hop.purpose == "work"
        scope["schedo.sent_at"] = hop.at
        scope["schedo.client_id"], scope["schedo.permission"] = hop.client_id, hop.permission
        scope["schedo.request_id"] = hop.request_id
        scope["schedo.transport"] = RemoteClient(hop.address)

    async def respond(
        self, scope: Scope, operation: Operation, handle: Handler, request: Request
    ) -> Response:
        asked = ClientRequest(self._context, self.servers.peers, scope, operation, handle, request)
        return await _ACTS[HOMES[operation.name]](self, asked)

    def owns(self, name: str) -> bool:
        return self.servers.owns(name)

    def notes(self) -> Sequence[str]:
        own = self._own_url.problem
        return [
            *([f"the other servers do not reach this one: {own}"] if own else ()),
            *self.servers.reachability.notes(),
        ]

    def describe(self) -> ClusterResponse:
        servers, clock = self.servers, self._context.engine.clock
        return describe(servers.cluster, servers.reachability, self._own_url.problem, clock)

    # What a request does, by its home.

    async def here(self, asked: ClientRequest) -> Response:
        """Carry the request out in this server."""
        return await asked.here()

    async def at_job(self, asked: ClientRequest) -> Response:
        """Carry the request out at the owner of its job, or where it has just ended and is gone."""
        return await self._at_id(asked, self.servers.cluster.shard_of_job)

    async def at_operation(self, asked: ClientRequest) -> Response:
        """Carry the request out at the owner of its operation."""
        if asked.hop is not None and asked.hop.home_shard is None:
            return await asked.here()  # a server of the version before asks all others in turn
        return await self._at_id(asked, self.servers.cluster.shard_of_operation)

    async def _at_id(
        self, asked: ClientRequest, find_shard: Callable[[int], Awaitable[int | None]]
    ) -> Response:
        try:
            ident = parse_id(asked.request.params["id"])
        except NotFound:
            return await asked.here()  # its handler says so
        try:
            async with asyncio.timeout(MOVING_S):
                shard = await find_shard(ident)
        except TimeoutError:
            raise Unavailable(
                "the database does not say which server owns the job or the operation"
            ) from None
        if shard is None:
            return await self.find(asked)
        return await self.servers.at_owner(asked, shard, self.here)

    async def at_text(self, asked: ClientRequest) -> Response:
        """Carry the request out at the owner of its key or its name."""
        if asked.is_confirmation:
            return await asked.here()  # the part of a broadcast for the workers of this server
        shard = shard_of_request(asked.request, self.servers.has_limit)
        if is_broadcast(asked.request):
            return await self.servers.at_owner(asked, shard, partial(broadcast, self.servers))
        if shard is None and asked.operation.name == "short_schedule":
            return await self.servers.at_owner(asked, None, self.find)  # it may be an invocation
        return await self.servers.at_owner(asked, shard, self.here)

    async def at_work(self, asked: ClientRequest) -> Response:
        """Carry the request of a worker out here, and what concerns others at them."""
        return await self._gateway.respond(asked)

    async def at_everyone(self, asked: ClientRequest) -> Response:
        """Carry the request out in all servers, in the order of one of them."""
        if asked.is_confirmation:
            return await asked.here()
        name = asked.request.params.get("name")
        shard = NAMELESS_SHARD if name is None else shard_of(name)
        return await self.servers.at_owner(asked, shard, self._lead)

    async def _lead(self, asked: ClientRequest) -> Response:
        """Carry the request out here, then in all other servers; return when they have done it.

        A response that counts jobs or attempts counts those of all servers.
        """
        async with self._turn:
            response = await asked.here()
            if response.status >= 400:
                return response
            confirmed = await confirm(self.servers, asked, "the change is durable")
        if not confirmed or asked.operation.name not in MERGERS:
            return response
        return combine(asked, {self.servers.cluster.me.name: response, **confirmed})

    async def at_owners(self, asked: ClientRequest) -> Response:
        """Carry each part of a batch out at the owner of its jobs."""
        return await respond_to_batch(self.servers, asked)

    async def in_parts(self, asked: ClientRequest) -> Response:
        """Carry a declaration out in all servers, each for the names that it owns."""
        return await declare_in_parts(self.servers, asked)

    async def at_step(self, asked: ClientRequest) -> Response:
        """Begin an operation, or carry out a part of one that another server has begun.

        The record of an operation is in a shard, so it begins where a new job would be made.
        """
        if asked.is_confirmation:
            return await change_own_jobs(asked)
        return await self.servers.at_owner(asked, None, self.here)

    async def at_link(self, asked: ClientRequest) -> Response:
        """Begin a session; the server that made its link knows the link."""
        try:
            return await asked.here()
        except Unauthorized:
            if asked.hop is not None or not names_link(asked.request.body):
                raise
            for member in self.servers.others():
                with suppress(PeerUnreachable):
                    response = await asked.forward(member)
                    if response.status < 400:
                        return response
            raise

    async def at_stream(self, asked: ClientRequest) -> Response:
        """Return a stream of what happens in all servers."""
        return await (asked.here() if asked.hop else merge_streams(self.servers, asked))

    async def find(self, asked: ClientRequest) -> Response:
        """Carry the request out here, or else at the first of the others that can."""
        return await find(asked, () if asked.hop else self.servers.others())

    async def at_worker(self, asked: ClientRequest) -> Response:
        """Carry a change of a worker out at each server that knows it: it may poll any of them.

        The response has what the worker runs for all of them. A name that servers use themselves
        means a worker of the first one that has it.
        """
        if asked.hop is not None or is_own_worker(asked.request.params["name"]):
            return await self.find(asked)
        servers = self.servers
        response, member = await find_server(asked, servers.others())
        if response.status >= 400:
            return response
        confirmed = await confirm(servers, asked, "one server has done it", (NotFound.status,))
        sender = servers.cluster.me if member is None else member
        return combine(asked, {sender.name: response, **confirmed})

    async def see_worker(self, asked: ClientRequest) -> Response:
        """Return a worker with what it runs for all servers that know it."""
        if asked.hop is not None or is_own_worker(asked.request.params["name"]):
            return await self.find(asked)
        return await see_worker(asked, self.servers.cluster.me.name, self.servers.others())

    async def invoke(self, asked: ClientRequest) -> Response:
        """Carry an invocation out here, or else at the first of the others that has room.

        It makes a job, so a server that owns no shard asks another one at once; a dry run does not.
        """
        if is_dry_run(asked.request):
            return await self.gather(asked)
        return await self.servers.at_owner(asked, None, self.find)

    async def gather(self, asked: ClientRequest) -> Response:
        """Return what all servers respond, as one response."""
        if asked.is_confirmation:
            return describe_remote_workers(self._context)
        others = () if asked.hop else self.servers.others()
        return await gather(asked, self.servers.cluster.me.name, others)


_ACTS: Mapping[Home, Callable[[Router, ClientRequest], Awaitable[Response]]] = {
    Home.WORK: Router.at_work,
    Home.HERE: Router.here,
    Home.ANY: Router.here,
    Home.JOB: Router.at_job,
    Home.OPERATION: Router.at_operation,
    Home.TEXT: Router.at_text,
    Home.SPLIT: Router.at_owners,
    Home.FIND: Router.find,
    Home.WORKER: Router.at_worker,
    Home.SEEN: Router.see_worker,
    Home.INVOKE: Router.invoke,
    Home.GATHER: Router.gather,
    Home.STREAM: Router.at_stream,
    Home.STEP: Router.at_step,
    Home.LINK: Router.at_link,
    Home.PARTS: Router.in_parts,
    Home.EVERYONE: Router.at_everyone,
}
