"""Which server a lease belongs to: the one that owns the shard of its job.

A lease that this server has given since its last recovery is its own, and so is one that its engine
holds. Any other one is believed to be of the server that has given it. Its shard is read in the
database once, while the worker waits, and remembered while the worker lists the lease: so the next
owner is known as soon as the shard moves.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence

from schedo.cluster.polling_worker import Place
from schedo.cluster.worker_call import WorkerCall
from schedo.core.shards import SHARDS
from schedo.engine.sharing import SharedCall
from schedo.engine.workers import Workers
from schedo.protocol.leases import parse_lease, render_lease
from schedo.store.cluster import Cluster, Member

ALL_SHARDS = range(SHARDS)


class LeaseOwners:
    """Finds the servers that the leases of workers belong to."""

    def __init__(self, cluster: Cluster, sessions: Workers) -> None:
        self._cluster, self._sessions = cluster, sessions
        # At a change of owners, all workers of the gateway look in the same moment.
        self._reads = SharedCall(self._read_shards)
        self._job_ids: set[int] = set()  # whose shards the next read finds

    def are_new(self, leases: Collection[str]) -> bool:
        """Whether all leases were given by this server since its last recovery."""
        if not leases:
            return True
        ending = f".{self._sessions.epoch}"
        return all(lease.endswith(ending) for lease in leases)

    async def place(
        self, call: WorkerCall, leases: Collection[str], *, believes_givers: bool = True
    ) -> None:
        """Note which of the leases are of other servers, and the shards of their jobs.

        believes_givers: reads nothing about leases whose givers live.
        """
        elsewhere = call.worker.elsewhere
        given = {lease for lease in leases if believes_givers and self._is_given(call, lease)}
        call.foreign |= given
        leases = [lease for lease in leases if lease not in given]
        unknown = {
            lease: parse_lease(lease).job_id
            for lease in leases
            if elsewhere.get(lease, Place()).shard is None and not self.are_new((lease,))
        }
        known = elsewhere.keys() & leases
        held = self._sessions.held_by(call.name) if unknown else ()
        here = {render_lease(lease.key) for lease in held}
        shards = await self._find_shards([unknown[each] for each in unknown if each not in here])
        ended = known - elsewhere.keys()  # their results have arrived during the read
        for lease in leases:
            if lease in ended:
                continue
            shard = elsewhere.get(lease, Place()).shard
            if lease in unknown and lease not in here:
                shard = shards.get(unknown[lease])
            if shard is None or lease in here or self._cluster.is_mine(shard):
                elsewhere.pop(lease, None)  # of this server, or of a job that is deleted
                call.foreign.discard(lease)
            else:
                elsewhere[lease] = Place(shard)
                call.foreign.add(lease)

    def group(self, call: WorkerCall, leases: Collection[str]) -> list[tuple[Member, list[str]]]:
        """Return the owners of the jobs of the leases, each with the leases of its jobs."""
        groups: dict[int, tuple[Member, list[str]]] = {}
        owners: dict[Place, Member | None] = {}  # most leases of a worker are at the same place
        for lease in leases:
            place = call.worker.elsewhere[lease]
            if place not in owners:
                owners[place] = self._find_owner(place)
            owner = owners[place]
            if owner is not None and owner.url and owner.no != self._cluster.me.no:
                groups.setdefault(owner.no, (owner, []))[1].append(lease)
        return [*groups.values()]

    def _find_owner(self, place: Place) -> Member | None:
        if place.shard is not None:
            return self._cluster.owner(place.shard)
        members = self._cluster.members() if place.giver is not None else ()
        giver = next((each for each in members if each.epoch == place.giver), None)
        if giver is None or giver.silent_us is None or self._cluster.has_lost(giver):
            return None
        return giver

    def _is_given(self, call: WorkerCall, lease: str) -> bool:
        """Whether the lease is of a server that lives, as far as is known without a read."""
        place = call.worker.elsewhere.get(lease)
        return place is not None and place.shard is None and self._find_owner(place) is not None

    def find_unsure(self, call: WorkerCall) -> set[str]:
        """Return the leases that the worker runs elsewhere without a known shard or owner."""
        elsewhere = call.worker.elsewhere
        placed = {lease for _, leases in self.group(call, elsewhere) for lease in leases}
        return {
            lease
            for lease, place in elsewhere.items()
            if place.shard is None or lease not in placed
        }

    def forget(self, call: WorkerCall, member: Member, leases: Collection[str]) -> None:
        """Look again where the jobs are that a server does not own although it should.

        Another request may have found meanwhile that some of them are here, or at a third server.
        """
        for each, believed in self.group(call, call.worker.elsewhere.keys() & leases):
            if each.no == member.no:
                call.worker.elsewhere.update(dict.fromkeys(believed, Place()))

    def list_own(self) -> frozenset[int]:
        """Return the shards that this server owns."""
        return frozenset(filter(self._cluster.is_mine, ALL_SHARDS))

    async def find_owned(
        self, leases: Sequence[str], among: Container[int] = ALL_SHARDS
    ) -> set[str]:
        """Return the leases whose jobs this server owns, in these shards, or that are deleted."""
        jobs = {lease: parse_lease(lease).job_id for lease in leases}
        shards = await self._find_shards([*jobs.values()])

        def is_own(shard: int) -> bool:
            return shard in among and self._cluster.is_mine(shard)

        return {
            lease
            for lease, job_id in jobs.items()
            if job_id not in shards or is_own(shards[job_id])
        }

    async def _find_shards(self, job_ids: Collection[int]) -> Mapping[int, int]:
        """Return the shards of these jobs, and perhaps of others; without those that are deleted.

        Questions that come while a read runs share the next one.
        """
        if not job_ids:
            return {}
        self._job_ids.update(job_ids)
        return await self._reads.result()

    async def _read_shards(self) -> Mapping[int, int]:
        job_ids, self._job_ids = self._job_ids, set()
        return await self._cluster.shards_of_jobs([*job_ids])
