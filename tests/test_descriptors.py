"""Locks have the highest descriptors, and the table of a server has room for them at once."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedo.descriptors import duplicate_above
from schedo.store.sqlite.store import SqliteStore

TABLE_LENGTH = """
from pathlib import Path
from schedo.descriptors import grow_table
grow_table()
print(next(line for line in Path("/proc/self/status").read_text().splitlines() if "FDSize" in line))
"""


@pytest.fixture
def limit() -> Iterator[int]:
    """A limit of descriptors that is lower than the usual one."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_000, before[1]))
    yield 1_000
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_duplicate_is_of_the_same_file_and_above_most_others(tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb") as file:
        above = duplicate_above(file.fileno())
        try:
            assert above > 900
            assert os.path.sameopenfile(above, file.fileno())
            assert not os.get_inheritable(above)
        finally:
            os.close(above)


def test_a_low_limit_leaves_room_for_a_few_duplicates(limit: int) -> None:
    with open(os.devnull) as file:
        duplicates = [duplicate_above(file.fileno()) for _ in range(12)]
        for each in duplicates:
            os.close(each)

    assert duplicates[:10] == [*range(limit - 10, limit)]
    assert max(duplicates[10:]) < limit - 10


def test_the_table_has_its_length_before_it_is_needed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TABLE_LENGTH], capture_output=True, text=True, check=True
    )

    assert int(done.stdout.split()[1]) >= 1_000


async def test_the_locks_of_a_store_are_released_before_what_has_lower_descriptors(
    tmp_path: Path,
) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"))
    await store.open()
    try:
        assert min(store.lock_descriptors()) > 900
    finally:
        await store.close()
