"""The servers that share a store in PostgreSQL, as the heartbeats of one of them show them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from schedo.core.shards import SHARDS, assign
from schedo.errors import StoreError
from schedo.store.cluster import Member, MemberState, QueueLimits
from schedo.store.postgres.owned import Owned
from schedo.store.postgres.session import SILENCE_S, Readers
from schedo.store.postgres.view import View
from schedo.version import __version__

BEAT_S = 0.1  # between two heartbeats
# How long the lateness of an own heartbeat counts. Servers of one machine are late together.
LATE_FOR_S = 1.0
# A server stops to start jobs so long before others may take its shards.
MARGIN_US = 100_000
MOVE_PAUSE_S = 1.0  # between two moves of shards to a server that has too few
STUCK_PAUSE_S = 10.0  # before a shard is tried again that could not move
NO_EPOCH = 0  # of a server that has not signed
# When the server that should take a shard of a dead one does not, any other one takes it.
OTHERS_AFTER_S = 0.1

_SHARD_OF_JOB = """
SELECT shard FROM job WHERE id = $1 UNION ALL SELECT shard FROM inbox WHERE id = $1 LIMIT 1"""

_SHARDS_OF_JOBS = "SELECT id, shard FROM job WHERE id = ANY($1::bigint[])"

_SHARD_OF_OPERATION = "SELECT shard FROM bulk_operation WHERE id = $1"

_ENDED = """
SELECT wanted.id FROM unnest($1::bigint[]) AS wanted (id) LEFT JOIN job ON job.id = wanted.id
WHERE job.id IS NULL OR job.ended_at IS NOT NULL"""


def since_boot_s() -> float:
    """Return the time since the start of the machine, which goes on while it sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def since_boot_us() -> int:
    """Return the same in microseconds."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class _Listed(NamedTuple):
    """The members, as a view shows them; asked for with each request of a worker."""

    view: View
    me: Member
    members: tuple[Member, ...]


class Membership:
    """A Cluster. The control session feeds it, and the store tells it what the engine has."""

    def __init__(self, name: str, timeout_us: int, readers: Callable[[], Readers]) -> None:
        """timeout_us: of this server's heartbeats. readers: returns the sessions that read."""
        self.on_change: list[Callable[[], None]] = []
        self.on_reading: Callable[[int, int], None] = _ignore_reading
        self.on_due: Callable[[], None] = _nothing  # called when change_shards has something to do
        self.timeout_us = timeout_us
        self._readers = readers
        self._me = Member(0, name, "", 0, __version__, MemberState.OPEN, 0)
        self._view = View(0.0, {}, {}, {}, 0)
        self._listed = _Listed(self._view, self._me, (self._me,))
        self._owned = Owned(0)
        self._adopted_s = 0.0
        self._late: deque[tuple[float, int]] = deque()  # when an own heartbeat came, and how late
        self.is_joining = False  # the other servers do not know this one yet
        self.first_epoch = NO_EPOCH  # with which it has opened the store first
        self.signed_epoch: int | None = None  # of the row that this server has written
        self.has_inherited = False  # shards of a server that has died
        self.keeps_all = False  # no shard is given away: the others could not reach this server
        self.keeps_runs = True  # a shard with running jobs stays here, and one even if it leaves
        self._settings = 0  # the version of the queues, pauses and cordons that the engine has
        self._sure_until_s = 0.0
        self.beat_error: StoreError | None = None
        self._moved_s = 0.0
        self._stuck_until_s: dict[int, float] = {}  # shards whose running jobs cannot move
        self._seen = asyncio.Event()  # set by each heartbeat: tests wait for the next one
        self.is_writing: Callable[[], bool] = lambda: False  # whether the session that writes lives
        self.limits: QueueLimits  # set by the store, which has the session
        self.give: Callable[[dict[int, int]], Awaitable[set[int]]] = _give_no_shard
        self.sign: Callable[[], Awaitable[None]]  # set by the store, too
        self.adopt_minutes: Callable[[], Awaitable[list[tuple[int, str]]]]  # and this
        self.tell: Callable[[str], Awaitable[None]] = _notify_no_server

    # For the web side: see Cluster.

    @property
    def me(self) -> Member:
        return self._me

    def members(self) -> tuple[Member, ...]:
        view, me = self._view, self._me
        if self._listed.view is not view or self._listed.me is not me:
            every = sorted({**view.members, me.no: me}.items())
            self._listed = _Listed(view, me, tuple(each for _, each in every))
        return self._listed.members

    def owner(self, shard: int) -> Member | None:
        no = self._view.owners.get(shard)
        if no == self._me.no or self.is_mine(shard):
            return self._me if self.is_mine(shard) else None
        return None if no is None or self._view.is_gone(no) else self._view.members[no]

    def is_mine(self, shard: int) -> bool:
        return shard in self._owned.shard_set

    def has_lost(self, member: Member) -> bool:
        found = self._view.members.get(member.no)
        if found is None or found.name != member.name:  # another server has its number
            return True
        return self._view.is_gone(member.no) and member.no not in self._view.owners.values()

    async def shard_of_job(self, job_id: int) -> int | None:
        async with self._readers().session() as session:
            shard: int | None = await session.fetchval(_SHARD_OF_JOB, job_id)
            return shard

    async def shards_of_jobs(self, job_ids: Sequence[int]) -> Mapping[int, int]:
        async with self._readers().session() as session:
            return dict(await session.fetch(_SHARDS_OF_JOBS, list(job_ids)))

    async def shard_of_operation(self, number: int) -> int | None:
        async with self._readers().session() as session:
            shard: int | None = await session.fetchval(_SHARD_OF_OPERATION, number)
            return shard

    async def find_ended(self, job_ids: Sequence[int]) -> Sequence[int]:
        async with self._readers().session() as session:
            return [job_id for (job_id,) in await session.fetch(_ENDED, list(job_ids))]

    async def announce(self, url: str) -> None:
        self._me = self._me._replace(url=url)
        if self.is_joining:
            await self.sign()
        await self.tell("url")

    # For the engine.

    def join(self) -> None:
        self.is_joining = True

    def is_sure(self) -> bool:
        """Return whether no other server can have this one's shards now.

        The others do not wait for a silent server when a queue changes. So it starts nothing after
        its return before it has the change.
        """
        is_heard = since_boot_s() < self._sure_until_s and self.is_writing()
        is_owner = self._has_number() and not self._has_lost_shards()
        return is_heard and is_owner and self._view.settings <= self._settings

    def unseen_us(self) -> int:
        sent_s = self._view.sent_s
        return round((since_boot_s() - sent_s) * 1e6) if sent_s > 0 else 0

    def is_silent(self) -> bool:
        """Return whether no heartbeat has had a response of the database for SILENCE_S."""
        return self.unseen_us() > SILENCE_S * 1e6

    def is_change_due(self) -> bool:
        """Return whether the engine must continue with other shards or settings."""
        return (
            not self.is_writing()
            or self._seen_as_mine() != self._owned.shard_set
            or self._view.settings > self._settings
            or bool(self._moves())
        )

    def take_inherited(self) -> bool:
        has_inherited, self.has_inherited = self.has_inherited, False
        return has_inherited

    async def change_shards(self) -> None:
        """Give away the shards that others should have; the engine takes no turn meanwhile."""
        moves = self._moves()
        if moves:
            now = self._moved_s = since_boot_s()
            given = await self.give(moves)
            again_s = now + (MOVE_PAUSE_S if self.is_leaving else STUCK_PAUSE_S)
            self._stuck_until_s |= dict.fromkeys(moves.keys() - given, again_s)

    async def leave(self) -> None:
        """Give the shards away from now on, apart from one for what still runs here."""
        self._me = self._me._replace(state=MemberState.LEAVING)
        await self.tell("state")
        if self.is_change_due():
            self.on_due()

    def leave_last(self) -> None:
        self.keeps_runs = False
        self._stuck_until_s.clear()

    @property
    def has_given(self) -> bool:
        """Whether nothing is left to give away."""
        return not self._moves()

    # For the store.

    def begin(self, no: int, epoch: int) -> None:
        """Note the number and the epoch of this server."""
        self._me = self._me._replace(no=no, epoch=epoch)
        self.first_epoch = self.first_epoch or epoch

    def newest_epoch(self) -> int:
        """Return the newest epoch that this server has seen, of itself or of another one."""
        return max(self._me.epoch, *(each.epoch for each in self._view.members.values()), 0)

    def note_signing(self) -> Member:
        """Return as whom this server signs; the row that it writes has this epoch."""
        self.signed_epoch = self._me.epoch
        return self._me

    def signed(self) -> tuple[int, int | None]:
        """Return the number of this server, and the epoch of the row that it has written."""
        return self._me.no, self.signed_epoch

    def own(self, owned: Owned, settings: int) -> None:
        """Note what the engine has from now on, which is what the store has at this moment."""
        self._owned, self._settings = owned, settings
        self._adopted_s = since_boot_s()
        others = {shard: no for shard, no in self._view.owners.items() if no != owned.no}
        owners = others | dict.fromkeys(owned.shards, owned.no)
        self._view = replace(self._view, owners=owners, settings=settings)
        self._changed()

    def note_settings(self, version: int) -> bool:
        """Note the version after a change of this server's own; return whether that is all."""
        is_own = version == self._settings + 1  # else another server has changed something, too
        if is_own:
            self._settings = version
            self.on_due()  # a heartbeat may have shown the version before this call
        return is_own

    def note(self, view: View) -> None:
        """Note what a heartbeat has found."""
        before, view = self._view, replace(view, late_us=self._note_own(since_boot_s()))
        if view.sent_s < self._adopted_s:
            view = replace(view, owners=before.owners, settings=before.settings)
        was_sure = self.is_sure()
        self._view = view
        self._sure_until_s = view.sent_s + (self.timeout_us - MARGIN_US) / 1e6
        self.beat_error = None
        self._seen.set()
        if _shown(before) != _shown(view):
            self._changed()
        if not was_sure or self.is_change_due():
            self.on_due()

    def doubt(self) -> None:
        """Be sure of nothing until the next heartbeat."""
        self._sure_until_s = 0.0

    def _note_own(self, now: float) -> int:
        """Note that a heartbeat of this server has come; return how late its last ones were."""
        since_s = now - self._late[-1][0] if self._late else 0.0
        self._late.append((now, max(0, int((since_s - BEAT_S) * 1e6))))
        while self._late[0][0] < now - LATE_FOR_S:
            self._late.popleft()
        return max(late_us for _, late_us in self._late)

    def note_gained(self, shards: Iterable[int]) -> None:
        """Note shards that this server has just got."""
        owners = self._view.owners | dict.fromkeys(shards, self._me.no)
        self._view = replace(self._view, owners=owners)
        self._changed()
        if self.is_change_due():
            self.on_due()

    def find_gone(self) -> list[Member]:
        """Return the servers that are gone or silent, and still have shards.

        One that has never signed is among them: its start goes on, or has failed.
        """
        view = self._view
        owners = {*view.owners.values()} - {self._me.no}
        return [view.members.get(no) or _unsigned(no) for no in owners if view.is_gone(no)]

    def find_next(self) -> int | None:
        """Return the living server with the next number, after the largest the smallest; or None.

        None: there is no other one.
        """
        view = self._view
        others = sorted(no for no in view.members if no != self._me.no and not view.is_gone(no))
        return next((no for no in others if no > self._me.no), others[0] if others else None)

    def wanted_of(self, gone: int, since_s: float) -> list[int]:
        """Return the shards of a server that is gone that this one should take.

        since_s: for how long it has been gone.
        """
        view = self._view
        lost = [shard for shard, owner in view.owners.items() if owner == gone]
        return lost if since_s > OTHERS_AFTER_S else self._share_of(lost)

    def wanted_of_free(self) -> list[int]:
        """Return the shards without an owner that this server should take."""
        return self._share_of([s for s in range(SHARDS) if s not in self._view.owners])

    @property
    def settings(self) -> int:
        """The version of the queues, pauses and cordons that the engine has."""
        return self._settings

    @property
    def is_leaving(self) -> bool:
        return self._me.state is not MemberState.OPEN

    def _share_of(self, shards: list[int]) -> list[int]:
        if self.is_leaving or not shards:
            return []
        targets = assign(self._view.staying(), self._view.owners)
        return [shard for shard in shards if targets.get(shard) == self._me.no]

    def _seen_as_mine(self) -> Set[int]:
        """Return the shards of this server in the database, as its last heartbeat has seen them."""
        return self._view.shards_of(self._me.no)

    def _has_number(self) -> bool:
        """Return whether no later server has signed with the number of this one.

        That one has the lock, so the session that writes here is lost, and this is not known yet.
        """
        found = self._view.members.get(self._me.no)
        return found is None or self.signed_epoch is None or found.epoch <= self.signed_epoch

    def _has_lost_shards(self) -> bool:
        """Return whether others have taken shards that the engine still has."""
        return not self._owned.shard_set <= self._seen_as_mine()

    def _moves(self) -> dict[int, int]:
        """Return the shards that this server should give away now, each with its new owner."""
        view, mine = self._view, self._owned.shards
        has_dead = any(view.is_gone(no) for no in {*view.owners.values()})
        if has_dead or self.keeps_all or not self.is_sure():
            return {}  # first the shards of the dead
        now = since_boot_s()
        if not self.is_leaving and now < self._moved_s + MOVE_PAUSE_S:
            return {}
        staying = [no for no in view.staying() if no != self._me.no or not self.is_leaving]
        targets = assign(staying, view.owners)
        given = {s: targets[s] for s in mine if s in targets and targets[s] != self._me.no}
        if self.is_leaving and self.keeps_runs and given and len(given) == len(mine):
            del given[mine[0]]
        return {s: no for s, no in given.items() if self._stuck_until_s.get(s, 0.0) < now}

    def _changed(self) -> None:
        for call in self.on_change:
            call()


def _unsigned(no: int) -> Member:
    """Return a server that has a number and shards, and has written nothing about itself."""
    return Member(no, "never signed", "", NO_EPOCH, "", MemberState.CLOSED)


def _shown(view: View) -> object:
    """Return what on_change is about: not the instants of the heartbeats."""
    members = [each._replace(silent_us=None) for each in view.members.values()]
    return members, view.owners, [no for no in view.members if view.is_gone(no)]


def _nothing() -> None:
    """Do nothing: no engine uses the store yet."""


def _ignore_reading(base_us: int, delay_us: int) -> None:
    """Take no reading of the clock: no server uses it yet."""


async def _give_no_shard(moves: dict[int, int]) -> set[int]:
    """Give no shard away: while the store is not open, this server owns none."""
    return set()


async def _notify_no_server(what: str) -> None:
    """Send no notification: while the store is not open, no other server follows it."""
