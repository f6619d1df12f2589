"""Work that runs right now, through the clients and the command line, on a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedo.client import AsyncClient, Client, JobFailed, operations
from schedo.errors import NoCapacity, NoReservation, Unsatisfiable
from tests.e2e.server import Server, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    arguments = ("tests.e2e.small_app:app", "--allow-shell", "--processes", "1")
    with serving(tmp_path_factory.mktemp("now"), *arguments, "--concurrency", "4") as server:
        yield server


def schedo(server: Server, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "schedo", "invoke", *args, "--url", server.url]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_an_invocation_returns_the_result_of_its_job(server: Server) -> None:
    with Client(server.url) as client:
        job = client.invoke("shell", {"command": "exit 0"}, wait=20)

        assert job.result()["exit_code"] == 0


def test_the_error_of_an_invoked_job_is_that_of_the_job(server: Server) -> None:
    with Client(server.url) as client:
        job = client.invoke("shell", {"command": "exit 3"}, wait=20)

        with pytest.raises(JobFailed, match="exit code 3"):
            job.result()
        assert [each["outcome"] for each in job.attempts()] == ["failed"]


def test_an_invocation_of_an_unknown_task_says_what_is_missing(server: Server) -> None:
    with Client(server.url) as client, pytest.raises((NoCapacity, Unsatisfiable)) as refused:
        client.invoke("nope")

    assert "no worker offers task nope on queue default" in str(refused.value)


def test_reserved_slots_run_one_job_each_and_are_used_once(server: Server) -> None:
    with Client(server.url) as client:
        with client.reserve(2, task="shell") as slots:
            jobs = slots.commit("shell", {"command": "exit 0"}, wait=20)
        with pytest.raises(NoReservation):
            slots.release()

        assert [job.result()["exit_code"] for job in jobs] == [0, 0]
        assert len(slots.workers) == 2


async def test_unused_slots_are_released_at_the_end_of_the_block(server: Server) -> None:
    async with AsyncClient(server.url) as client:
        workers = await client.list_workers()
        slots = max(worker["slots"] for worker in workers if "shell" in worker.get("tasks", []))
        for _ in range(2):
            async with await client.reserve(slots, task="shell"):
                pass


async def test_a_reservation_that_has_ended_does_not_hide_the_error_of_the_block(
    server: Server,
) -> None:
    async def fail(client: AsyncClient) -> None:
        async with await client.reserve(1, task="shell") as slots:
            await client.send(operations.release_reservation(slots.record))
            raise ZeroDivisionError

    async with AsyncClient(server.url) as client:
        with pytest.raises(ZeroDivisionError):
            await fail(client)


def test_the_command_line_prints_what_the_command_wrote(server: Server) -> None:
    ended = schedo(server, "shell", "command=echo hello; exit 3")

    assert (ended.returncode, ended.stdout) == (3, "hello\n")


def test_the_command_line_can_return_when_a_worker_has_accepted_the_job(
    server: Server, tmp_path: Path
) -> None:
    fifo = tmp_path / "go"
    started = schedo(server, "shell", f"command=mkfifo {fifo} && read x < {fifo}", "--wait", "0")
    job_id, _, state = started.stdout.strip().partition("  ")
    server.ask("POST", f"/v1/jobs/{job_id}:cancel", {})

    assert state == "running"
    assert server.ended(job_id)["state"] == "cancelled"


def test_the_command_line_shows_why_no_worker_takes_the_job(server: Server) -> None:
    refused = schedo(server, "nope", "--json")

    assert refused.returncode == 1
    assert "no worker offers task nope" in json.loads(refused.stderr)["detail"]
