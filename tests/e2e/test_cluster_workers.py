"""Remote workers of several servers: their attempts go on whichever server dies or leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schedo.errors import Exit
from tests.e2e.server import Server, eventually
from tests.e2e.serving_cluster import SERVERS, serving_cluster

pytestmark = pytest.mark.e2e

SLOTS = 12
Message = dict[str, Any]


class Worker:
    """A worker that polls by hand."""

    def __init__(self) -> None:
        self.running: list[str] = []

    def poll(self, server: Server, **fields: Any) -> Message:
        """Poll a server until it takes the request, and return the response; keep its leases.

        While shards move, a server may answer 503, which a worker repeats.
        """
        description = {"worker": "hand", "session": "1", "slots": SLOTS, "tasks": ["remote"]}
        body = {**description, "running": self.running, "wait": 0, **fields}
        answer: Message = {}

        def is_taken() -> bool:
            nonlocal answer
            status, answer = server.ask("POST", "/v1/work", body)
            assert status in (200, 503), answer
            return status == 200

        eventually(is_taken, "the server to take the request")
        self.running += [each["lease"] for each in answer["leases"]]
        return answer

    def finish(self, server: Server) -> Message:
        """Report all attempts as completed."""
        results = [{"lease": lease, "outcome": "completed"} for lease in self.running]
        self.running = []
        return self.poll(server, results=results, max_leases=0)


@pytest.fixture
def servers(tmp_path: Path, url: str) -> Iterator[list[Server]]:
    with serving_cluster(tmp_path, url) as found:
        yield found


def take_jobs(worker: Worker, server: Server, count: int) -> list[str]:
    """Submit jobs to a server, and let the worker take them there."""
    worker.poll(server)
    jobs = [server.submit(task="remote")["id"] for _ in range(count)]

    def has_all() -> bool:
        worker.poll(server, wait=1)
        return len(worker.running) == count

    eventually(has_all, "the leases")
    return jobs


def shows_completed(server: Server, jobs: list[str]) -> bool:
    found = [server.ask("GET", f"/v1/jobs/{job}")[1] for job in jobs]
    return all((job["state"], job["attempt"]) == ("completed", 1) for job in found)


def test_a_job_waits_for_the_slots_of_a_worker_of_another_server(servers: list[Server]) -> None:
    first, second, _ = servers
    take_jobs(Worker(), second, SLOTS)
    job = first.submit(task="remote")["id"]

    for asked in servers:
        status, found = asked.ask("GET", f"/v1/jobs/{job}/why")

        assert (status, found["why"]) == (200, f"all {SLOTS} slots for task remote are taken")
        (said,) = [each for each in found["workers"] if each["worker"] == "hand"]
        _, known = asked.ask("GET", "/v1/workers/hand")
        assert (said["server"], said["obstacle"]) == (known["server"], "slots")


def test_attempts_outlive_the_server_that_has_started_them(servers: list[Server]) -> None:
    first, second, _ = servers
    worker = Worker()
    jobs = take_jobs(worker, first, SLOTS)

    first.kill()
    listed = worker.poll(second)
    answer = worker.finish(second)

    assert (listed["revoked"], answer["refused"]) == ([], [])
    eventually(lambda: shows_completed(second, jobs), "all to be completed at their first attempt")


def test_attempts_outlive_the_server_that_their_worker_polls(servers: list[Server]) -> None:
    first, second, third = servers
    worker = Worker()
    jobs = take_jobs(worker, first, SLOTS)
    assert worker.poll(second)["revoked"] == []

    second.kill()
    answer = worker.finish(third)

    assert answer["refused"] == []
    eventually(lambda: shows_completed(first, jobs), "all to be completed at their first attempt")


def test_attempts_outlive_a_restart_of_all_servers_one_after_the_other(
    servers: list[Server],
) -> None:
    worker = Worker()
    jobs = take_jobs(worker, servers[0], SLOTS)

    revoked = []
    for place, server in enumerate(servers):
        assert server.terminate() == Exit.DONE
        revoked += worker.poll(servers[(place + 1) % SERVERS])["revoked"]
        server.start()
    answer = worker.finish(servers[0])

    assert (revoked, answer["refused"]) == ([], [])
    eventually(
        lambda: shows_completed(servers[1], jobs), "all to be completed at their first attempt"
    )


def test_the_jobs_of_all_servers_run_on_a_worker_that_polls_one(servers: list[Server]) -> None:
    worker = Worker()
    jobs = [server.submit(task="remote")["id"] for server in servers for _ in range(3)]

    def has_all() -> bool:
        worker.poll(servers[0], wait=1)
        return len(worker.running) == len(jobs)

    eventually(has_all, "the leases")
    worker.finish(servers[0])

    eventually(lambda: shows_completed(servers[1], jobs), "all to be completed")


def test_a_cordoned_worker_gets_no_job_of_a_server_that_it_polls_for_the_first_time(
    servers: list[Server],
) -> None:
    worker = Worker()
    worker.poll(servers[0])
    assert servers[0].ask("POST", "/v1/workers/hand:cordon")[0] == 200

    def is_cordoned_at(server: Server) -> bool:
        items = server.ask("GET", "/v1/workers")[1].get("items", ())  # none while it starts
        return [each["state"] for each in items if each["name"] == "hand"] == ["cordoned"]

    for server in servers:
        server.submit(task="remote")
    servers[0].terminate()
    servers[0].start()
    eventually(lambda: all(map(is_cordoned_at, servers)), "cordon at all servers")
    for server in servers:
        worker.poll(server, wait=1)
    assert worker.running == []
    servers[1].ask("POST", "/v1/workers/hand:uncordon")

    def has_all() -> bool:
        worker.poll(servers[2], wait=1)
        return len(worker.running) == SERVERS

    eventually(has_all, "the leases")
