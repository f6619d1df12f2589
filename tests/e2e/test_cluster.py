"""Servers that share a database: what happens to the jobs of one when it dies, stops or leaves."""

from __future__ import annotations

import os
import signal
import threading
import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import accumulate, count
from pathlib import Path
from typing import Any

import pytest

from schedo.core.shards import SHARDS, shard_of
from schedo.errors import Exit
from tests.e2e.server import Server, eventually, serving
from tests.postgres import PostgresServer

pytestmark = pytest.mark.e2e

COUNTED = {"task": "shell", "payload": {"command": "echo run >> $SCHEDO_JOB_ID"}}

SLOW_APP = """
import time
from pathlib import Path

from schedo import Schedo

Path("importing").touch()
while not Path("ready").exists():
    time.sleep(0.01)
app = Schedo()
"""


class Cluster:
    """Servers in a directory, and the database that they share."""

    def __init__(self, postgres: PostgresServer, directory: Path, url: str, stack: ExitStack):
        self._postgres = postgres
        self._arguments, self._stack = ("--store", url, "--allow-shell"), stack
        self.servers: list[Server] = []
        self.directory = directory

    def join(self, *application: str) -> Server:
        """Start a server; return it when the shards are shared."""
        words = *self._arguments, *application
        self.servers.append(self._stack.enter_context(serving(self.directory, *words)))
        each = SHARDS // len(self.servers)
        eventually(lambda: min(self.owned()) >= each, "shards for all")
        return self.servers[-1]

    def owned(self) -> list[int]:
        """Return how many shards each server has, by number."""
        query = "SELECT owner, count(*) FROM jobs.shard GROUP BY owner"
        found = dict(line.split("|") for line in self._postgres.sql(query).splitlines())
        return [int(found.get(str(no + 1), 0)) for no in range(len(self.servers))]

    def count_servers(self) -> int:
        """Return how many servers the others know."""
        return int(self._postgres.sql("SELECT count(*) FROM jobs.server"))

    def name_at(self, no: int) -> str:
        """Return a name of a schedule whose home the server owns."""
        query = f"SELECT no FROM jobs.shard WHERE owner = {no}"
        own = {int(line) for line in self._postgres.sql(query).splitlines()}
        return next(name for n in count() if shard_of(name := f"tick{n}") in own)

    def owners_of(self, queue: str) -> set[int]:
        """Return the servers that have jobs of the queue."""
        tables = "jobs.job JOIN jobs.shard ON no = shard"
        query = f"SELECT DISTINCT owner FROM {tables} WHERE queue = '{queue}'"
        return {int(line) for line in self._postgres.sql(query).splitlines()}

    def runs(self, job_id: str) -> int:
        """Return how often a command has run."""
        path = self.directory / job_id
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def cluster(postgres: PostgresServer, tmp_path: Path, url: str) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(postgres, tmp_path, url, stack)


def test_a_server_joins_when_it_has_imported_its_application(cluster: Cluster) -> None:
    cluster.join()
    (cluster.directory / "slow.py").write_text(SLOW_APP)
    importing = cluster.directory / "importing"

    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(cluster.join, "slow:app")
        try:
            eventually(importing.exists, "import")
            known = cluster.count_servers()
        finally:
            importing.with_name("ready").touch()
        joining.result()

    assert known == 1
    # On a busy machine a heartbeat can be late, and then the shards are away for a moment.
    eventually(lambda: cluster.owned() == [SHARDS // 2, SHARDS // 2], "half of the shards each")


def test_the_jobs_of_a_killed_server_run_at_the_other_one(cluster: Cluster) -> None:
    first, second = cluster.join(), cluster.join()
    name = cluster.name_at(1)
    assert first.ask("PUT", f"/v1/schedules/{name}", {"every": "1s", **COUNTED})[0] == 201
    long = first.submit(task="shell", payload={"command": "test -e second || sleep 60"})
    eventually(lambda: first.ask("GET", f"/v1/jobs/{long['id']}")[1]["state"] == "running", "start")
    jobs = submit_later(first, COUNTED, 20)

    first.kill()
    (cluster.directory / "second").touch()

    ended = [second.ended(job_id) for job_id in (*jobs, long["id"])]
    assert {job["state"] for job in ended} == {"completed"}
    assert [cluster.runs(job_id) for job_id in jobs] == [1] * len(jobs)
    fired = count_fired(second, name)
    eventually(lambda: count_fired(second, name) > fired, "run")
    decisions = second.ask("GET", f"/v1/schedules/{name}/decisions")[1]["items"]
    instants = [each["scheduled_for"] for each in decisions]
    assert len({*instants}) == len(instants)


def test_a_server_that_was_stopped_starts_nothing_of_what_another_one_has_taken(
    cluster: Cluster,
) -> None:
    first, second = cluster.join(), cluster.join()
    jobs = submit_later(first, COUNTED, 20)

    os.kill(first.pid, signal.SIGSTOP)
    eventually(lambda: cluster.owned()[1] == SHARDS, "take-over")
    ended = [second.ended(job_id) for job_id in jobs]
    os.kill(first.pid, signal.SIGCONT)

    assert {job["state"] for job in ended} == {"completed"}
    eventually(lambda: min(cluster.owned()) == SHARDS // 2, "shards for the first one")
    eventually(lambda: first.ask("GET", "/readyz")[0] == 200, "recovery")
    again = first.submit(**COUNTED)
    assert first.ended(again["id"])["state"] == "completed"
    assert [cluster.runs(job_id) for job_id in jobs] == [1] * len(jobs)


def test_requests_for_a_stopped_server_are_answered_by_the_one_that_takes_over(
    cluster: Cluster,
) -> None:
    first, second = cluster.join(), cluster.join()
    name = cluster.name_at(1)
    assert first.ask("PUT", f"/v1/schedules/{name}", {"every": "1h", **COUNTED})[0] == 201

    os.kill(first.pid, signal.SIGSTOP)
    submitted, problem = second.ask("POST", "/v1/jobs", {**COUNTED, "unique": name})
    read, schedule = second.ask("GET", f"/v1/schedules/{name}")
    os.kill(first.pid, signal.SIGCONT)

    # It depends on the instant whether the server was known to be silent.
    assert submitted == 201 or problem["code"] == "outcome-unknown"
    assert (read, schedule["name"]) == (200, name)


def test_a_command_that_another_server_runs_again_is_stopped_where_it_ran(
    cluster: Cluster,
) -> None:
    first, second = cluster.join(), cluster.join()
    command = """
        trap 'echo $SCHEDO_ATTEMPT >> stopped; exit 1' TERM
        echo $SCHEDO_ATTEMPT >> begun
        while ! test -e go; do sleep 0.05; done"""
    job = first.submit(task="shell", payload={"command": command})
    begun, stopped = (cluster.directory / name for name in ("begun", "stopped"))
    eventually(begun.exists, "first attempt")

    os.kill(first.pid, signal.SIGSTOP)
    eventually(lambda: begun.read_text() == "1\n2\n", "second attempt")
    os.kill(first.pid, signal.SIGCONT)

    eventually(stopped.exists, "end of the first attempt")
    assert stopped.read_text() == "1\n"
    (cluster.directory / "go").touch()
    ended = second.ended(job["id"])
    assert (ended["state"], ended["attempt"]) == ("completed", 2)


def test_a_first_limit_holds_for_jobs_that_wait_at_all_servers_and_for_runs_of_schedules(
    cluster: Cluster,
) -> None:
    first, second = cluster.join(), cluster.join()
    marked = {"command": "echo + >> marks; sleep 0.02; echo - >> marks"}
    queue = cluster.name_at(1)
    job = {"task": "shell", "payload": marked, "queue": queue}
    waiting = [job_id for each in (first, second) for job_id in submit_later(each, job, 10)]

    limited, _ = second.ask("PATCH", f"/v1/queues/{queue}", {"concurrency": 1})
    schedules = [cluster.name_at(no) for no in (1, 2)]
    for name in schedules:
        assert first.ask("PUT", f"/v1/schedules/{name}", {"every": "1s", **job})[0] == 201
    ended = [second.ended(job_id) for job_id in waiting]
    eventually(lambda: all(count_fired(second, name) for name in schedules), "runs")

    assert limited == 200
    assert {each["state"] for each in ended} == {"completed"}
    marks = (cluster.directory / "marks").read_text().split()
    running = [*accumulate(1 if mark == "+" else -1 for mark in marks)]
    assert max(running) == 1
    assert cluster.owners_of(queue) == {1, 2}  # no job has moved


def test_a_server_that_is_told_to_end_answers_until_the_others_have_its_jobs(
    cluster: Cluster,
) -> None:
    first, second = cluster.join(), cluster.join()
    answers: list[tuple[int, str]] = []

    def submit_until_it_is_closed() -> None:
        try:
            while True:
                status, job = first.ask("POST", "/v1/jobs", COUNTED)
                answers.append((status, job.get("id", str(job))))
        except (urllib.error.URLError, ConnectionError):
            pass

    clients = [threading.Thread(target=submit_until_it_is_closed) for _ in range(2)]
    for client in clients:
        client.start()
    eventually(lambda: len(answers) > 20, "load")
    code = first.terminate()
    for client in clients:
        client.join()

    assert code == Exit.DONE
    assert {status for status, _ in answers} == {201}
    ended = [second.ended(job_id) for _, job_id in answers]
    assert {job["state"] for job in ended} == {"completed"}
    assert {cluster.runs(job_id) for _, job_id in answers} == {1}


def submit_later(server: Server, job: dict[str, Any], count: int) -> list[str]:
    """Submit jobs that are due after what the test does next, with one request for all of them."""
    status, answer = server.ask("POST", "/v1/jobs:batch", [{**job, "delay": "2s"}] * count)
    assert status == 200, answer
    return [each["job"]["id"] for each in answer["items"]]


def count_fired(server: Server, name: str) -> int:
    """Return how many instants of the schedule have made a job."""
    return int(server.ask("GET", f"/v1/schedules/{name}")[1]["counters"]["fired"])
