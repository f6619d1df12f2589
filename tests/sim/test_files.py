"""Which errors of a simulated SQLite store count as bugs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from schedo.errors import StoreError
from schedo.store.sqlite.waiting_count import WaitingCount
from schedo.testing.loop import VirtualLoop
from tests.sim.directories import Files
from tests.sim.disk import Disk
from tests.sim.files import FileStore
from tests.sim.trace import Broke, StoreFailed


class Setting:
    """A store without faults, and what it records."""

    def __init__(self, files: Files) -> None:
        self.loop = VirtualLoop()
        self.records: list[object] = []
        disk = Disk(self.loop, Random(1), lambda kind, *what: self.records.append(kind))
        self.store = FileStore(disk, files, lambda: None)

    async def refuse_count(self, *, recovers: bool) -> None:
        """Ask for the count of the first snapshot, which fails."""
        epoch = (await self.store.open()).epoch
        if recovers:
            await self.store.snapshot()
        with pytest.raises(StoreError):
            await self.store.count_waiting(epoch)
        await self.store.close()


@pytest.fixture
def setting() -> Iterator[Setting]:
    asyncio.set_event_loop(None)
    files = Files()
    setting = Setting(files)
    yield setting
    setting.loop.close()
    files.remove()


def test_the_count_of_a_snapshot_fails_after_a_newer_one(setting: Setting) -> None:
    setting.loop.run_until_complete(setting.refuse_count(recovers=True))

    assert setting.records == []


def test_a_failed_count_of_the_newest_snapshot_is_a_bug(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: WaitingCount, epoch: int) -> None:
        raise StoreError("it was not counted")

    monkeypatch.setattr(WaitingCount, "result", fail)
    setting.loop.run_until_complete(setting.refuse_count(recovers=False))

    assert setting.records == [StoreFailed, Broke]
