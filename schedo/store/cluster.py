"""What the servers of a cluster know of each other; docs/cluster.md explains it.

Every job and schedule belongs to a shard, and each shard to one server, its owner. Only the owner
changes what belongs to its shards. A store in a file has one server, and so no cluster.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from schedo.core.expectations import Expectation
from schedo.core.limit_shares import LimitUse
from schedo.errors import StoreError
from schedo.store.base import Store


class MemberState(StrEnum):
    """What a server of the cluster does."""

    OPEN = "open"  # it has shards, or gets some
    LEAVING = "leaving"  # it gives its shards away
    CLOSED = "closed"  # it has ended in order, and its number is free


class Member(NamedTuple):
    """A server of the cluster, as the last heartbeat of this server has seen it."""

    no: int  # from 1 on, and the slot of the ids that it makes; another server may get it later
    name: str  # of its host and its process
    url: str  # by which the other servers reach it; empty until it listens
    epoch: int  # with which it has opened the store: it grows from each server to the next
    version: str
    state: MemberState
    silent_us: int | None = None  # how long ago its last heartbeat was; None: its session is gone


class Cluster(Protocol):
    """The servers that share a store, and the shards that they own."""

    # Called without arguments, in the event loop, when a member or the owner of a shard has
    # changed. The methods return the new state then.
    on_change: list[Callable[[], None]]

    @property
    def me(self) -> Member:
        """This server."""

    def members(self) -> tuple[Member, ...]:
        """Return the servers that have not ended, this one included, by number."""

    def unseen_us(self) -> int:
        """Return how long ago the members were as `members` says, by their heartbeats."""

    def owner(self, shard: int) -> Member | None:
        """Return the server that owns the shard; None while it moves, or after its death."""

    def is_mine(self, shard: int) -> bool:
        """Return whether this server owns the shard, and its engine has what is in it."""

    def has_lost(self, member: Member) -> bool:
        """Return whether the server is gone, and others have its shards.

        That server can commit no more changes to the shards that it had. So a request that was
        forwarded to it has been carried out by now, or never will be.
        """

    async def shard_of_job(self, job_id: int) -> int | None:
        """Return the shard of a job that is in the store, or None. Raise StoreError."""

    async def shards_of_jobs(self, job_ids: Sequence[int]) -> Mapping[int, int]:
        """Return the shards of the jobs that are in the store, by id. Raise StoreError."""

    async def shard_of_operation(self, number: int) -> int | None:
        """Return the shard of an operation that is in the store, or None. Raise StoreError."""

    async def announce(self, url: str) -> None:
        """Let the other servers know by which URL they reach this one. Raise StoreError.

        A server that joins gets its shards from now on.
        """


class Claim(NamedTuple):
    """What a server needs of the limit of a queue that another server divides."""

    wanted: int
    running: int
    share: int  # of which its scheduler makes use until the call returns


# Lets this server use at most these shares of its queues; returns how far it uses them then.
Lower = Callable[[Mapping[str, int]], Mapping[str, LimitUse]]


class QueueLimits(Protocol):
    """The limits of queues, which the servers of a cluster share; see core/limit_shares.py."""

    async def claim(self, claims: Mapping[str, Claim]) -> Mapping[str, int]:
        """Say what this server needs, by queue; return the shares that it may use now.

        These are queues of which it is not the home. Raise StoreError.
        """

    async def divide(
        self, uses: Mapping[str, LimitUse], turn: int, lower: Lower
    ) -> Mapping[str, int]:
        """Divide the limits of queues of which this server is the home; return its own shares.

        turn: as in limit_shares.divide. lower: called before other servers get more. A share is 0
        while some server may not know the limit. Raise StoreError.
        """


class ShardOwner(Cluster, Protocol):
    """A cluster as the engine of one of its servers uses it."""

    limits: QueueLimits
    keeps_all: bool  # whether it gives no shard away: it accepts no requests of other servers

    # Called with each reading of the clock of the database: how far it is ahead of the time since
    # the boot of this machine, and how long the reading was on its way, in microseconds.
    on_reading: Callable[[int, int], None]

    # Why the last heartbeat of this server failed; None if it did not.
    beat_error: StoreError | None

    # Called when is_change_due, or when is_sure again.
    on_due: Callable[[], None]

    def join(self) -> None:
        """Get no shard of the other servers before `announce`, because nothing can run here yet.

        It is called before the store is opened. Shards without an owner come at once.
        """

    # Makes some of the minutes (see Store.save_minute) that servers which are gone have left those
    # of this server; returns them as they are now, by instant, and none if there are none. Raises
    # StoreError.
    adopt_minutes: Callable[[], Awaitable[list[tuple[int, str]]]]

    def is_sure(self) -> bool:
        """Return whether no other server can have this one's shards now."""

    def is_silent(self) -> bool:
        """Return whether the database has not responded for a second."""

    def is_change_due(self) -> bool:
        """Return whether the engine must go on with other shards, or other settings of queues."""

    def take_inherited(self) -> bool:
        """Return whether shards of a server that has died have come since the last call."""

    async def change_shards(self) -> None:
        """Give away the shards that others should have. Raise StoreError.

        No turn runs, and no commit is under way. The next snapshot of the store is of the shards
        that this server has then.
        """

    async def find_ended(self, job_ids: Sequence[int]) -> Sequence[int]:
        """Return those of the jobs that have ended or are not in the store. Raise StoreError."""

    async def leave(self) -> None:
        """Let this server give its shards away but one, and take no more. Raise StoreError."""

    def leave_last(self) -> None:
        """Let it give the last one away, too: nothing runs in this process any more."""

    @property
    def has_given(self) -> bool:
        """Whether it has nothing left to give away."""


class ClusterStore(Store, Protocol):
    """A store that several servers share."""

    cluster: ShardOwner

    async def list_overdue(self) -> list[int]:
        """Return the schedules of all servers whose expectation is missed, by id."""

    async def list_expectations(self, schedule_ids: Sequence[int]) -> list[Expectation]:
        """Return the expectations of those of the schedules that have one."""
