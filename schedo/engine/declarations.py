"""The calls that put the schedules which code or a file declares."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

from schedo.core.commands import Declared, DeclareSchedules, PutEffect, ResetSchedule
from schedo.core.declarations import check_declaration, plan_declaration
from schedo.core.model import Schedule
from schedo.engine.action_log import change
from schedo.engine.loop import EngineLoop
from schedo.errors import Unavailable
from schedo.store.base import Store

TRIES, PAUSE_S = 40, 0.05  # while shards move

DeclareElsewhere = Callable[[DeclareSchedules], Awaitable[DeclareSchedules]]


class Declarations:
    """Puts schedules by owner; a change returns only after it is durable."""

    def __init__(self, loop: EngineLoop, store: Store) -> None:
        self._loop = loop
        self._store = store
        # Lets other servers put those that are theirs, and returns the rest. None: there is none.
        self.declare_elsewhere: DeclareElsewhere | None = None

    async def put(
        self, command: DeclareSchedules, keep_own: DeclareElsewhere | None = None
    ) -> list[Declared]:
        """Carry out the command; return what it did to each schedule, the removed ones last.

        keep_own: returns what this server puts itself, if something else asks the others.
        """
        keep_own = keep_own or self.declare_elsewhere
        if keep_own is None:
            return await self.put_here(command)
        for _ in range(TRIES):
            own = await keep_own(command)
            try:
                return await self.put_here(own)
            except Unavailable:  # a shard has moved since
                await asyncio.sleep(PAUSE_S)
        return await self.put_here(await keep_own(command))

    async def put_here(self, command: DeclareSchedules) -> list[Declared]:
        """Carry out the command in this server; raise Unavailable if it does not own a name."""
        return await change(
            self._loop,
            command,
            lambda reply: [each._replace(schedule=each.schedule.copy()) for each in reply],
        )

    async def preview(
        self, command: DeclareSchedules, known: Mapping[str, Schedule | None]
    ) -> list[Declared]:
        """Return what the command would do, given the current records; change nothing.

        Raise Forbidden as `put` would.
        """
        found = [await self.find(name) for name in command.removed]
        removed = [each for each in found if each is not None and each.owner == command.owner]
        check_declaration(command, known.values(), removed)
        now = self._loop.clock.now()
        done = []
        for spec in command.specs:
            before = known[spec.name]
            effect = plan_declaration(before, spec, command)
            done.append(Declared(effect, before or Schedule(0, spec, now, now, now, None), before))
        return done + [Declared(PutEffect.REMOVED, schedule, schedule) for schedule in removed]

    async def find(self, name: str) -> Schedule | None:
        """Return the current record of the schedule, or None."""
        schedule = await self._store.get_schedule(name)
        if schedule is None:
            return None
        known = self._loop.scheduler.find_schedule(schedule.id)
        return known.copy() if known is not None else schedule

    async def reset(self, name: str) -> tuple[Schedule, PutEffect]:
        """Undo the changes by hand to a schedule; raise NotFound."""
        return await change(
            self._loop, ResetSchedule(name), lambda reply: (reply[0].copy(), reply[1])
        )

    async def find_undeclared(self, owner: str, declared: Collection[str]) -> list[str]:
        """Return the names of the owner's schedules besides the declared ones, in their order."""
        return [name for name in await self._store.list_owned(owner) if name not in declared]
