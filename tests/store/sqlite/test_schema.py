"""Migrations run once, in order, and each as a whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedo.store.sqlite.schema import check_file, list_migrations, migrate


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection
    connection.close()


def version(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def tables(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM sqlite_schema ORDER BY name")]


def test_an_empty_file_gets_the_newest_schema(connection: sqlite3.Connection) -> None:
    check_file(connection, "jobs.db")
    migrate(connection)

    check_file(connection, "jobs.db")
    assert version(connection) == len(list_migrations()) > 0
    assert "job" in tables(connection)


def test_a_second_migration_changes_nothing(connection: sqlite3.Connection) -> None:
    migrate(connection)
    connection.execute("UPDATE meta SET value = 7")
    migrate(connection)

    assert connection.execute("SELECT value FROM meta").fetchone() == (7,)


def test_only_missing_migrations_run(connection: sqlite3.Connection, tmp_path: Path) -> None:
    (tmp_path / "0001_first.sql").write_text("CREATE TABLE a (x);")
    migrate(connection, tmp_path)
    (tmp_path / "0002_second.sql").write_text("CREATE TABLE b (x); CREATE TABLE c (x);")
    migrate(connection, tmp_path)

    assert (version(connection), tables(connection)) == (2, ["a", "b", "c"])


def test_a_migration_that_fails_leaves_the_version_before_it(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    (tmp_path / "0001_good.sql").write_text("CREATE TABLE a (x);")
    (tmp_path / "0002_bad.sql").write_text("CREATE TABLE b (x); CREATE TABLE a (x);")

    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        migrate(connection, tmp_path)

    assert (version(connection), tables(connection)) == (1, ["a"])
    assert not connection.in_transaction


def test_the_numbers_of_the_migrations_have_no_gap(tmp_path: Path) -> None:
    (tmp_path / "0001_first.sql").write_text("")
    (tmp_path / "0003_third.sql").write_text("")

    with pytest.raises(AssertionError, match=r"\[1, 3\]"):
        list_migrations(tmp_path)


def test_a_process_knows_the_migrations_of_its_own_version_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A standby may wait while the disk gets the files of a newer version."""
    known = list_migrations()
    monkeypatch.setattr(Path, "glob", lambda self, pattern: [])

    assert list_migrations() == known
