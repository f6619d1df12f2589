"""The primary of PostgreSQL is lost and its standby takes over: no acknowledged job is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.server import Server, eventually, serving
from tests.postgres import USER, PostgresServer, running_server

pytestmark = pytest.mark.e2e

RUNS = 'echo "$SCHEDO_JOB_ID" >> runs'


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    """A standby for which each commit of the primary waits."""
    with running_server(primary) as server:
        primary.set(synchronous_standby_names="'*'")
        yield server


def submit_until(server: Server, acknowledged: list[str], is_over: threading.Event) -> None:
    """Submit one job after the other, and note those that the server has acknowledged."""
    job = {"task": "shell", "payload": {"command": RUNS}}
    while not is_over.is_set():
        status, found = server.ask("POST", "/v1/jobs", job)
        if status == 201:
            acknowledged.append(found["id"])


def test_a_server_goes_on_with_the_standby_of_its_primary(
    tmp_path: Path, primary: PostgresServer, standby: PostgresServer
) -> None:
    hosts = f"{primary.directory},{standby.directory}"
    url = f"postgresql://{USER}@/postgres?host={hosts}"
    acknowledged: list[str] = []
    is_over = threading.Event()
    with serving(tmp_path, "--store", url, "--allow-shell") as server:
        client = threading.Thread(target=submit_until, args=(server, acknowledged, is_over))
        client.start()
        try:
            eventually(lambda: len(acknowledged) >= 20, "jobs before the loss")
            primary.stop("immediate")
            before = len(acknowledged)
            standby.promote()
            eventually(lambda: len(acknowledged) >= before + 20, "jobs after the loss")
        finally:
            is_over.set()
            client.join()
        ended = {job: server.ended(job) for job in acknowledged}

    assert {job["state"] for job in ended.values()} == {"completed"}
    assert {*(tmp_path / "runs").read_text().split()} >= {*acknowledged}
    assert "asynchronous" not in server.log()
