"""The log of changes: the entry is in the commit of the change, and only of an author."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from schedo.core.action_log import LogFilter
from schedo.core.limits import HOUR, MILLISECOND
from schedo.engine.action_log import Author, acting
from tests.engine.world import T0, running

ADA = Author("ada", "cli", "::1", "pause_queue", "queues/mail")


async def test_only_the_changes_of_an_author_are_in_the_log(path: Path) -> None:
    async with running(path) as world:
        await world.engine.pause_queue("other")
        with acting(ADA):
            await world.engine.pause_queue("mail")
        await world.engine.resume_queue("mail")

        found = await world.store.list_log(LogFilter(), None, 9)

    assert [(each.entry.who, each.entry.target) for each in found] == [("ada", "queues/mail")]


async def test_an_entry_has_the_instant_of_its_change(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(path) as world:
        job = await world.submit(delay_us=HOUR)
        instants = itertools.count(T0, MILLISECOND)  # other processes have the processor meanwhile
        monkeypatch.setattr(world.clock, "now", lambda: next(instants))
        with acting(ADA._replace(action="cancel_job", target="jobs/1")):
            cancelled = await world.engine.cancel(job.id)

        ((_, entry),) = await world.store.list_log(LogFilter(), None, 9)

    assert entry.at == cancelled.ended_at
