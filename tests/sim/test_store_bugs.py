"""Bugs planted in the code of the SQLite store; the simulation finds each within a few seeds."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from schedo.store.columns import Row
from schedo.store.sqlite import buffer_entries, write_buffer, writes
from schedo.store.sqlite.connection import transaction, unsynced
from schedo.store.sqlite.write_buffer import WriteBuffer
from schedo.store.sqlite.writes import Commit, Statement
from tests.sim.checkers import check
from tests.sim.disk import Faults
from tests.sim.plan import STARTS, Plan
from tests.sim.simulator import run
from tests.sim.trace import digest

SEEDS = 12
PLAN = Plan(
    has_operations=False,  # they are tried again and again in a broken store
    start=STARTS[0],
    minutes=3,
    window=4,
    faults=Faults(commit_fails=0.1, dies=0.03, power_fails=0.02, delay_s=0.01),
    crash_every_s=60.0,
    action_every_s=1.0,
    store="sqlite",
)
# Writes to the tables fail often; there are no other faults.
FOLDS_FAIL = dataclasses.replace(
    PLAN, minutes=6, faults=Faults(commit_fails=0.3, delay_s=0.3), crash_every_s=0.0
)
Plant = Callable[[pytest.MonkeyPatch], None]


def forget_an_update(patch: pytest.MonkeyPatch) -> None:
    """A flush omits the last of several known jobs."""

    def update_most(known: list[Row]) -> Statement:
        return writes.update_jobs(known[:-1] if len(known) > 1 else known)

    class Writes:
        update_jobs = staticmethod(update_most)
        insert_jobs = staticmethod(writes.insert_jobs)
        run = staticmethod(writes.run)

    patch.setattr(write_buffer, "writes", Writes)


def replay_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """A start reads the write buffer from the newest entry to the oldest."""
    patch.setattr(buffer_entries, "_ENTRIES", "SELECT id, body FROM {} ORDER BY id DESC")


def delete_entries_before_they_are_flushed(patch: pytest.MonkeyPatch) -> None:
    """A flush deletes its entries in a transaction before the one that writes their jobs."""

    def fold(self: WriteBuffer, connection: sqlite3.Connection, count: int) -> None:
        if count:
            with unsynced(connection), transaction(connection):
                connection.execute(
                    "DELETE FROM write_buffer WHERE id <= ?", (self._entries[count - 1].id,)
                )
        honest(self, connection, count)

    honest = WriteBuffer._flush
    patch.setattr(WriteBuffer, "_flush", fold)


def believe_memory_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    """After a failed transaction, the store keeps using its memory."""

    @contextmanager
    def guarded(self: WriteBuffer, connection: sqlite3.Connection) -> Iterator[None]:
        with honest(self, connection):
            try:
                yield
            except sqlite3.Error as error:
                failed = error
            else:
                return
        raise failed

    honest = WriteBuffer._guarded
    patch.setattr(WriteBuffer, "_guarded", guarded)


def acknowledge_what_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A commit does not wait for the disk."""

    def commit(self: WriteBuffer, connection: sqlite3.Connection, changes: Commit) -> None:
        with unsynced(connection):
            honest(self, connection, changes)

    honest = WriteBuffer.commit
    patch.setattr(WriteBuffer, "commit", commit)


# Each with the seed that is tried first: one that finds it, as the code is. Others follow.
BUGS = {
    forget_an_update: 0,
    replay_out_of_order: 0,
    delete_entries_before_they_are_flushed: 11,
    believe_memory_after_a_failure: 0,
    acknowledge_what_is_not_synced: 2,
}


@pytest.mark.parametrize(("plant", "first"), BUGS.items())
def test_a_planted_bug_of_the_store_is_found(
    plant: Plant, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    plan = FOLDS_FAIL if plant is believe_memory_after_a_failure else PLAN
    assert any(check(run(seed, plan)) for seed in (first, *range(SEEDS)))


@pytest.mark.parametrize("seed", range(3))
def test_without_a_planted_bug_no_violation_is_found(seed: int) -> None:
    assert check(run(seed, PLAN)) == []


def test_the_same_seed_gives_the_same_history_with_a_store_on_disk() -> None:
    assert digest(run(6, PLAN)) == digest(run(6, PLAN))
