"""The file that a copy makes has nothing of an earlier store beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from schedo.errors import StoreUnsuitable
from schedo.store.copying import copy_store
from schedo.store.sqlite.copying import sqlite_source, sqlite_target
from schedo.store.sqlite.last_commit import SUFFIX
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.files import Crashed
from tests.store.steps import put


def suffixes_at(path: Path) -> set[str]:
    """Return what follows the path in the names of the files there."""
    return {each.name.removeprefix(path.name) for each in path.parent.glob(f"{path.name}*")}


@pytest.mark.parametrize("left", ["-wal", SUFFIX])
async def test_what_an_earlier_store_has_left_is_not_taken_for_a_part_of_the_copy(
    store: SqliteStore, path: Path, left: str
) -> None:
    await put(store, make_job(id=1))
    target = Crashed(path).path
    for suffix in {"", "-wal", SUFFIX} - {left}:
        os.remove(f"{target}{suffix}")
    await store.close()

    with pytest.raises(StoreUnsuitable, match=rf"already \({target}{left}\);"):
        await copy_store(sqlite_source(str(path)), sqlite_target(str(target)), lambda *_: None)

    assert suffixes_at(target) == {left, ".lock"}
