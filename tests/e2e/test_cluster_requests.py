"""Two servers on one database: each request is sent to the one that does not own its job."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from schedo.core.shards import SHARDS, shard_of
from tests.e2e.server import Server, eventually, serving
from tests.postgres import PostgresServer

pytestmark = pytest.mark.e2e

COMMAND = {"task": "shell", "payload": {"command": "echo hello"}}


class Pair:
    """Two servers, and the names that each of them owns."""

    def __init__(self, directory: Path, url: str, stack: ExitStack, *more: str) -> None:
        # On a busy machine neither server is taken for dead.
        options = ("--store", url, "--allow-shell", "--failover-timeout", "5s", *more)
        self.first = stack.enter_context(serving(directory, *options))
        self.second = stack.enter_context(serving(directory, *options))
        eventually(self.shares, "shards for both, and their URLs")

    def members(self, server: Server) -> list[dict[str, Any]]:
        return list(server.ask("GET", "/v1/cluster")[1]["members"])

    def shares(self) -> bool:
        found = [self.members(server) for server in (self.first, self.second)]
        return all(
            len(members) == 2
            and all(len(each["shards"]) == SHARDS // 2 and each["url"] for each in members)
            for members in found
        )

    def text_of_first(self, prefix: str) -> str:
        """Return a text whose shard the first server owns."""
        own = next(each for each in self.members(self.second) if each["url"] == self.first.url)
        texts = (f"{prefix}{number}" for number in count())
        return next(text for text in texts if shard_of(text) in own["shards"])


@pytest.fixture(scope="module")
def pair(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(tmp_path_factory.mktemp("pair"), postgres.url(schema="pair"), stack)


def test_a_job_is_seen_changed_and_awaited_through_the_other_server(pair: Pair) -> None:
    first, second = pair.first, pair.second
    job = first.submit(**COMMAND, delay="1h")
    path = f"/v1/jobs/{job['id']}"

    assert second.ask("GET", path)[1]["state"] == "scheduled"
    assert second.ask("GET", f"{path}/why")[0] == 200
    assert second.ask("PATCH", path, {"priority": 3})[1]["priority"] == 3
    assert second.ask("POST", f"{path}:run")[0] == 200
    assert second.ended(job["id"])["state"] == "completed"
    assert second.output(job["id"]) == "hello\n"
    assert second.ask("GET", f"{path}/history")[0] == 200


def test_a_key_is_exact_over_both_servers_at_once(pair: Pair) -> None:
    made: list[str] = []

    def submit(server: Server) -> None:
        for number in range(20):
            unique = {"key": f"exact {number}"}
            status, job = server.ask("POST", "/v1/jobs", {**COMMAND, "unique": unique, "delay": 60})
            assert status in (200, 201), job
            made.append(job["id"])

    clients = [threading.Thread(target=submit, args=(each,)) for each in (pair.first, pair.second)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()

    assert len(made) == 40
    assert len({*made}) == 20


def test_a_schedule_is_made_changed_and_triggered_through_the_other_server(pair: Pair) -> None:
    name = pair.text_of_first("nightly")
    path = f"/v1/schedules/{name}"

    assert pair.second.ask("PUT", path, {"every": "1h", **COMMAND})[0] == 201
    assert pair.first.ask("POST", f"{path}:pause", {"note": "x"})[1]["paused"]
    assert pair.second.ask("GET", path)[1]["paused"]
    run = pair.second.ask("POST", f"{path}:trigger", {})[1]["job"]
    assert pair.second.ended(run["id"])["state"] == "completed"
    assert [each["name"] for each in pair.second.ask("GET", "/v1/schedules")[1]["items"]] == [name]
    assert pair.second.ask("DELETE", path)[0] == 204
    assert pair.first.ask("GET", path)[0] == 404


def test_a_queue_is_limited_and_paused_in_both_servers(pair: Pair) -> None:
    queue = pair.text_of_first("queue")

    assert pair.second.ask("PATCH", f"/v1/queues/{queue}", {"concurrency": 1})[0] == 200
    paused = pair.second.ask("POST", f"/v1/queues/{queue}:pause")
    assert paused[1].get("paused"), paused
    job = pair.second.submit(**COMMAND, queue=queue)
    for server in (pair.first, pair.second):
        (found,) = [q for q in server.ask("GET", "/v1/queues")[1]["items"] if q["name"] == queue]
        assert (found["concurrency"], found["paused"], found["waiting"]) == (1, True, {"queued": 1})
    assert pair.second.ask("GET", f"/v1/jobs/{job['id']}")[1]["state"] == "queued"
    assert pair.first.ask("POST", f"/v1/queues/{queue}:resume")[0] == 200
    assert pair.second.ended(job["id"])["state"] == "completed"


def test_a_batch_is_divided(pair: Pair) -> None:
    items = [{**COMMAND, "delay": "1h", "unique": f"batch {number}"} for number in range(12)]

    status, found = pair.second.ask("POST", "/v1/jobs:batch", items)

    ids = [each["job"]["id"] for each in found["items"]]
    assert status == 200
    assert len({*ids}) == 12
    keys = [pair.first.ask("GET", f"/v1/jobs/{ident}")[1]["unique_key"] for ident in ids]
    assert keys == [item["unique"] for item in items]


def test_an_operation_changes_the_jobs_of_both_servers_and_its_undo_puts_them_back(
    pair: Pair,
) -> None:
    jobs = [
        server.submit(**COMMAND, delay="1h", tags=["bulk"])
        for server in (pair.first, pair.second)
        for _ in range(5)
    ]
    where = {"action": "cancel", "where": {"tag": "bulk"}}

    operation = pair.second.ask("POST", "/v1/operations", where)[1]

    path = f"/v1/operations/{operation['id']}"
    assert ended(pair.first, path) == (10, 0, 0)
    assert states(pair.first, jobs) == {"cancelled"}
    assert operations_of(pair.first, jobs) == operations_of(pair.second, jobs) == {operation["id"]}

    status, undo = pair.first.ask("POST", f"{path}:undo")

    assert status == 201, undo
    assert ended(pair.first, f"/v1/operations/{undo['id']}") == (10, 0, 0)
    assert states(pair.second, jobs) == {"scheduled"}


def operations_of(server: Server, jobs: list[dict[str, Any]]) -> set[str | None]:
    """Return the operations that the histories of the jobs name; None: one names none."""
    histories = [server.ask("GET", f"/v1/jobs/{job['id']}/history")[1]["items"] for job in jobs]
    return {
        next((each["operation"] for each in items if "operation" in each), None)
        for items in histories
    }


def states(server: Server, jobs: list[dict[str, Any]]) -> set[str]:
    return {server.ask("GET", f"/v1/jobs/{job['id']}")[1]["state"] for job in jobs}


def ended(server: Server, path: str) -> tuple[int, int, int]:
    """Return how many jobs an operation has changed, left out and failed to change at its end."""
    found = eventually(
        lambda: (found := server.ask("GET", path)[1])["state"] == "done" and found, "its end"
    )
    return found["done"], found["skipped"], found["failed"]


def test_a_declaration_is_put_by_both_servers(pair: Pair) -> None:
    names = [f"declared{number}" for number in range(6)]
    schedules = [{"name": name, "every": "1h", **COMMAND} for name in names]
    body = {"owner": "file:x", "schedules": schedules, "prune": True}

    made = pair.second.ask("POST", "/v1/declarations", body)
    again = pair.first.ask("POST", "/v1/declarations", body)
    removed = pair.first.ask("POST", "/v1/declarations", {**body, "schedules": []})

    effects = [{e["name"]: e["effect"] for e in each[1]["schedules"]} for each in (made, again)]
    assert effects == [dict.fromkeys(names, "created"), dict.fromkeys(names, "unchanged")]
    assert {each["effect"] for each in removed[1]["schedules"]} == {"removed"}
    assert pair.second.ask("GET", "/v1/schedules?q=declared")[1]["items"] == []


def test_workers_and_the_summary_are_those_of_both_servers(pair: Pair) -> None:
    workers = pair.second.ask("GET", "/v1/workers")[1]["items"]
    summary = pair.second.ask("GET", "/v1/summary")[1]

    assert len({each["server"] for each in workers}) == 2
    assert summary["slots"] == sum(each["slots"] for each in workers)
    assert pair.first.ask("GET", "/readyz")[0] == 200
    assert pair.second.ask("GET", "/v1/timeseries")[0] == 200
    assert pair.second.ask("GET", "/v1/names")[0] == 200


def test_requests_about_the_jobs_of_a_killed_server_wait_for_the_next_owner(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        pair = Pair(tmp_path, postgres.url(schema="killed"), stack)
        key = pair.text_of_first("key")
        jobs = [pair.first.submit(**COMMAND, delay="1h") for _ in range(5)]
        pair.first.kill()

        found = [pair.second.ask("POST", f"/v1/jobs/{job['id']}:cancel") for job in jobs]
        keyed = pair.second.ask("POST", "/v1/jobs", {**COMMAND, "unique": key})

        assert [(status, job["state"]) for status, job in found] == [(200, "cancelled")] * 5
        assert keyed[0] == 201
        assert pair.second.ended(keyed[1]["id"])["state"] == "completed"
        workers = pair.second.ask("GET", "/v1/workers")[1]["items"]
        assert not any("server" in each for each in workers)  # no other server has some
        assert pair.second.ask("POST", "/v1/server:pause", {})[0] == 200


def test_a_stream_has_the_jobs_of_both_servers(pair: Pair) -> None:
    with urllib.request.urlopen(f"{pair.second.url}/v1/events?topics=jobs", timeout=20) as stream:
        assert stream.readline() == b"retry: 2000\n"
        own = pair.second.submit(**COMMAND, delay="1h")
        theirs = pair.first.submit(**COMMAND, delay="1h")
        missing = {own["id"], theirs["id"]}
        for line in stream:
            missing = {ident for ident in missing if ident not in line.decode()}
            if not missing:
                break

    assert not missing


def has_schedules(server: Server, names: list[str]) -> bool:
    return [each["name"] for each in server.ask("GET", "/v1/schedules")[1]["items"]] == names


APP = """
from schedo import Schedo

app = Schedo()


def work():
    pass


for number in range(8):
    app.every("1h", name=f"of-code{number}")(app.task(name=f"task{number}")(work))
"""


def test_the_schedules_of_an_application_are_put_when_its_servers_start_together(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    options = ("--store", postgres.url(schema="app"), "shop:app")
    servers = [Server(tmp_path, *options) for _ in range(2)]
    try:
        for server in servers:
            server.launch()
        for server in servers:
            server.wait_for_address()

        names = [f"of-code{number}" for number in range(8)]
        for server in servers:
            eventually(partial(has_schedules, server, names), "all schedules")
            for name in names:
                assert server.ask("GET", f"/v1/schedules/{name}")[0] == 200
    finally:
        for server in servers:
            if server.is_running:
                server.kill()


SUBMITTING_APP = """
from schedo import Schedo

app = Schedo()


@app.task
async def later():
    pass


@app.task(retries=0)
async def submit(keys):
    jobs = [await later.options(unique=key, delay="1h").enqueue() for key in keys]
    return [[job.id, job.is_conflict] for job in jobs]


@app.task(retries=0)
async def cancel(key):
    job = await later.options(unique=key, delay="1h").enqueue()
    return (await job.cancel())["state"]
"""


def run(server: Server, task: str, **payload: object) -> Any:
    """Return the result of a job."""
    ended = server.ended(server.submit(task=task, payload=payload)["id"])
    assert ended["state"] == "completed", ended.get("error")
    return ended["result"]


def test_the_unique_keys_of_tasks_are_exact_over_both_servers(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SUBMITTING_APP)
    keys = [f"key{number}" for number in range(12)]
    with ExitStack() as stack:
        pair = Pair(tmp_path, postgres.url(schema="tasks"), stack, "shop:app")
        servers = (pair.first, pair.second)
        submitted = [run(server, "submit", keys=keys) for server in servers]
        cancelled = {run(server, "cancel", key=key) for server in servers for key in keys}

    assert submitted[0] == [[ident, False] for ident, _ in submitted[0]]
    assert submitted[1] == [[ident, True] for ident, _ in submitted[0]]
    assert cancelled == {"cancelled"}


def test_a_missed_expectation_is_shown_by_the_server_that_does_not_own_the_schedule(
    pair: Pair,
) -> None:
    name = pair.text_of_first("late")
    body = {"every": "1s", "paused": True, "expect": {"within": "0.1s"}, **COMMAND}
    assert pair.first.ask("PUT", f"/v1/schedules/{name}", body)[0] == 201
    for server in (pair.first, pair.second):
        eventually(partial(is_overdue, server, name), "an overdue schedule")

        page = server.ask("GET", "/v1/schedules?health=overdue")[1]
        assert [each["name"] for each in page["items"]] == [name]
        assert page["items"][0]["expectation"]["state"] == "missed"
        assert page["counts"]["overdue"] == 1
    assert pair.second.ask("DELETE", f"/v1/schedules/{name}")[0] == 204


def is_overdue(server: Server, name: str) -> bool:
    found = server.ask("GET", "/v1/schedules")[1]["items"]
    return any(each["name"] == name and each["health"] == "overdue" for each in found)
