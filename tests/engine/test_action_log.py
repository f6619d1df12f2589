"""The log of changes: the entry is in the commit of the change, and only of an author."""

from __future__ import annotations

from pathlib import Path

from schedo.core.action_log import LogFilter
from schedo.engine.action_log import Author, acting
from tests.engine.world import running

ADA = Author("ada", "cli", "::1", "pause_queue", "queues/mail")


async def test_only_the_changes_of_an_author_are_in_the_log(path: Path) -> None:
    async with running(path) as world:
        await world.engine.pause_queue("other")
        with acting(ADA):
            await world.engine.pause_queue("mail")
        await world.engine.resume_queue("mail")

        found = await world.store.list_log(LogFilter(), None, 9)

    assert [(each.entry.who, each.entry.target) for each in found] == [("ada", "queues/mail")]
