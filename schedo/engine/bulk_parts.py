"""The jobs that a server changes for an operation on many jobs that another server carries out.

The commit of the change also has a record of it: a step of the operation with a number below zero.
The operation's own step takes over what the record has, and deletes it. So as long as it is there,
the operation does not know that these jobs are changed: a response was lost, or comes yet. No
server changes them again for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

from msgspec.structs import replace

from schedo.core.bulk_commands import Changed, ChangeForOther, PutBackForOther
from schedo.core.bulk_undo import BulkStep
from schedo.core.commands import Command
from schedo.engine.loop import EngineLoop
from schedo.store.base import Store


class BulkParts:
    """The parts of the operations of other servers, and what such parts have left in the store."""

    def __init__(self, loop: EngineLoop, store: Store) -> None:
        self._loop, self._store = loop, store
        self._turn = asyncio.Lock()  # of the parts: the records of the one before are durable

    async def carry_out(self, command: ChangeForOther | PutBackForOther) -> Changed:
        """Change the own jobs of an operation of another server, durably.

        Those that another part has changed are missing from the result, as if they were not here.
        """
        async with self._turn:
            if isinstance(command, ChangeForOther):
                return await self._change(command)
            given: Command[Changed] = command
            changed: Changed = await self._loop.try_enqueue(given)
            return changed

    async def _change(self, command: ChangeForOther) -> Changed:
        find = partial(self.load_kept, command.operation.id)
        changed = jobs_of(await self._loop.look_up(find))
        scheduler = self._loop.scheduler
        rest = replace(
            command,
            job_ids=tuple(each for each in command.job_ids if each not in changed),
            is_current=lambda: self._loop.scheduler is scheduler,
        )
        given: Command[Changed] = rest
        found: Changed = await self._loop.try_enqueue(given)
        left_out = changed.intersection(command.job_ids)
        return found._replace(missing=(*found.missing, *left_out))

    async def load_kept(self, operation: int) -> list[BulkStep]:
        """Return the records that parts of the operation have left; usually there are none."""
        found: list[BulkStep] = []
        before = 0
        while step := await self._store.load_bulk_step(operation, before):
            found.append(step)
            before = step.number
        return found


def jobs_of(steps: Collection[BulkStep]) -> set[int]:
    """Return the ids of the jobs of the steps."""
    return {job.id for step in steps for job in step.jobs}
