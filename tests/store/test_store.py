"""A store is named by a path or a URL."""

from __future__ import annotations

import os

import pytest

from schedo.config import load_config
from schedo.config_checks import check_config
from schedo.errors import Invalid
from schedo.store import open_store
from schedo.store.sqlite.store import SqliteStore


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("/var/lib/schedo.db", "/var/lib/schedo.db"),
        ("./data/schedo.db", f"{os.getcwd()}/data/schedo.db"),
        ("schedo.db", f"{os.getcwd()}/schedo.db"),
    ],
)
def test_a_path_names_a_file(url: str, path: str) -> None:
    store = open_store(url)

    assert isinstance(store, SqliteStore)
    assert store.path == path


def test_the_url_memory_names_a_store_without_a_file() -> None:
    assert open_store(":memory:").path is None


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://db/jobs", "mysql:// is not supported"),
        ("postgresql://db/jobs?schema=Jobs", "schema='Jobs'"),
        ("postgresql://db/jobs?schema=pg_jobs", "schema='pg_jobs'"),
        ("postgresql://db/jobs?schema", "the URL cannot be read"),
        ("postgresql://db/jobs#1", "is written as %23"),
        ("", "does not name a file"),
        ("sqlite://", "does not name a file"),
        ("sqlite:///", "does not name a file"),
        ("sqlite:///jobs.db", "give the path alone: /jobs.db or jobs.db"),
        ("sqlite+aiosqlite:////var/jobs.db", "give the path alone: /var/jobs.db or var/jobs.db"),
        ("file://data/jobs.db", "give the path alone: /data/jobs.db or data/jobs.db"),
        ("./data/", "does not name a file"),
        ("jobs\0.db", "does not name a file"),
        ("postgresql:/ann@db/jobs", "a URL with two slashes: postgresql://"),
        ("postgres:ann@db/jobs", "a URL with two slashes"),
        ("sqlite:/jobs.db", "give the path of a SQLite file"),
    ],
)
def test_a_url_without_a_store_is_refused(url: str, message: str) -> None:
    with pytest.raises(Invalid, match=message) as caught:
        open_store(url)

    assert caught.value.problems[0].pointer == "/store"


@pytest.mark.parametrize("store", ["sqlite:///jobs.db", "mysql://db/jobs", "postgresql:/db"])
def test_a_setting_without_a_store_is_refused_by_its_name(store: str) -> None:
    with pytest.raises(Invalid, match=r"store \(flag --store\): .*give the path"):
        check_config(load_config({"store": store}, {}, []))
