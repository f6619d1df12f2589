"""A store is named by a path or a URL."""

from __future__ import annotations

import os

import pytest

from schedo.errors import Invalid
from schedo.store import open_store
from schedo.store.sqlite.store import SqliteStore


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("/var/lib/schedo.db", "/var/lib/schedo.db"),
        ("sqlite:///var/lib/schedo.db", "/var/lib/schedo.db"),
        ("./data/schedo.db", f"{os.getcwd()}/data/schedo.db"),
        ("schedo.db", f"{os.getcwd()}/schedo.db"),
        ("sqlite://data/schedo.db", f"{os.getcwd()}/data/schedo.db"),
    ],
)
def test_a_url_with_a_path_names_a_file(url: str, path: str) -> None:
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
        ("./data/", "does not name a file"),
        ("jobs\0.db", "does not name a file"),
        ("postgresql:/ann@db/jobs", "two slashes after the colon: postgresql://"),
        ("postgres:ann@db/jobs", "two slashes after the colon"),
        ("sqlite:/jobs.db", "two slashes after the colon"),
    ],
)
def test_a_url_without_a_store_is_refused(url: str, message: str) -> None:
    with pytest.raises(Invalid, match=message) as caught:
        open_store(url)

    assert caught.value.problems[0].pointer == "/store"
