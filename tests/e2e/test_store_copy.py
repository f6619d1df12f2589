"""`schedo store copy`: a server continues in PostgreSQL what it began on a file, and back again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from schedo.errors import Exit
from schedo.store import without_password
from tests.e2e.remote import Gate, find_port, worker
from tests.e2e.server import Server, eventually, serving
from tests.e2e.test_postgres import schedo
from tests.postgres import PostgresServer
from tests.sources import ROOT

pytestmark = pytest.mark.e2e

LISTS = ("jobs?limit=100", "schedules", "operations", "log", "schedules/tick/decisions")
LIMITS = ("name", "concurrency", "paused", "weight", "note")


def shell(command: str, **fields: object) -> dict[str, Any]:
    return {"task": "shell", "payload": {"command": command}, **fields}


def fill(server: Server) -> None:
    """Make jobs in most states, and what else a store has."""
    assert server.ask("PATCH", "/v1/queues/slow", {"concurrency": 1})[0] == 200
    assert server.ask("POST", "/v1/queues/slow:pause", {"note": "later"})[0] == 200
    assert server.ask("PUT", "/v1/schedules/tick", {"cron": "0 0 1 1 *", **shell("true")})[0] == 201
    triggered = server.ask("POST", "/v1/schedules/tick:trigger")[1]
    done = server.submit(**shell("echo out; echo err >&2", tags=["red"], unique={"key": "k"}))
    failed = server.submit(**shell("exit 3", retry={"max_attempts": 1}))
    retrying = server.submit(
        **shell("exit 4", retry={"max_attempts": 2, "backoff": "fixed", "initial": "1h"})
    )
    for job in (triggered, done, failed):
        server.ended(job.get("id") or job["job"]["id"])
    eventually(
        lambda: server.ask("GET", f"/v1/jobs/{retrying['id']}")[1]["state"] == "retrying",
        "retry",
    )
    server.submit(task="none", payload={"text": "x" * 10_000}, queue="slow")
    later = server.submit(task="none", delay="1d")
    assert server.ask("POST", f"/v1/jobs/{later['id']}:cancel")[0] == 200
    server.submit(task="none", run_at="2090-01-01T00:00:00Z", expires_in="90d")
    cancel = {"action": "cancel", "where": {"tag": "blue"}}
    assert server.ask("POST", "/v1/operations", cancel)[0] in (201, 202)
    eventually(
        lambda: server.ask("GET", "/v1/operations")[1]["items"][0]["state"] == "done",
        "end of the operation",
    )


def read_all(server: Server) -> dict[str, Any]:
    """Return what the API shows of everything but running attempts."""
    found = {name: server.ask("GET", f"/v1/{name}")[1] for name in LISTS}
    queues = server.ask("GET", "/v1/queues")[1]["items"]
    found["queues"] = [[queue.get(name) for name in LIMITS] for queue in queues]
    for job in found["jobs?limit=100"]["items"]:
        for part in ("", "/attempts", "/output"):
            path = f"/v1/jobs/{job['id']}{part}"
            found[path] = server.ask("GET", path)[1]
    return found


def copy(directory: Path, source: str, target: str) -> list[dict[str, Any]]:
    done = schedo(directory, "store", "copy", source, target, "--json")
    assert done.returncode == Exit.DONE, done.stderr
    return list(json.loads(done.stdout))


def test_a_server_continues_on_the_copy_and_remote_workers_keep_their_attempts(
    tmp_path: Path, url: str
) -> None:
    gate, port = Gate(tmp_path), find_port()
    options = ("--port", port, "--allow-shell")
    with serving(tmp_path, "--store", "first.db", *options) as server:
        fill(server)
        with worker(server, "far", "--queues", "far", "--allow-shell") as far:
            remote = str(server.submit(task="shell", payload=gate.payload, queue="far")["id"])
            gate.wait_begun()
            before = read_all(server)
            assert server.terminate() == Exit.DONE

            there = copy(tmp_path, "first.db", url)

            with serving(tmp_path, "--store", url, *options) as second:
                assert read_all(second) == before
                gate.open()
                ended = second.ended(remote)
                assert (ended["state"], ended["attempt"], ended["worker"]) == (
                    *("completed", 1),
                    far.name,
                )
                assert len(gate.pids) == 1
                before = read_all(second)

    again = copy(tmp_path, url, "second.db")

    assert {each["table"] for each in there if each["rows"]} >= {"job", "job_payload", "output"}
    assert all(each["is_equal"] for each in (*there, *again))
    with serving(tmp_path, "--store", "second.db", "--allow-shell") as server:
        assert read_all(server) == before
        assert server.ended(server.submit(**shell("true"))["id"])["state"] == "completed"


def test_the_command_says_why_it_copies_nothing(tmp_path: Path, url: str) -> None:
    with serving(tmp_path, "--store", "first.db"):
        held = schedo(tmp_path, "store", "copy", "first.db", url)
    two_files = schedo(tmp_path, "store", "copy", "first.db", "second.db")
    first = schedo(tmp_path, "store", "copy", "first.db", url)
    second = schedo(tmp_path, "store", "copy", "first.db", url, "--json")

    assert held.returncode == Exit.LOCKED
    assert "another server holds" in held.stderr
    assert two_files.returncode == Exit.MISUSED
    assert "use `schedo backup`" in two_files.stderr
    assert first.returncode == Exit.DONE
    assert "TABLE" in first.stdout
    assert "yes" in first.stdout
    assert (second.returncode, first.stderr.count("\r")) == (Exit.DONE, 0)


def test_a_mistyped_schema_is_no_empty_store_to_copy_from(
    tmp_path: Path, url: str, postgres: PostgresServer
) -> None:
    mistyped = f"{url}_mistyped"

    done = schedo(tmp_path, "store", "copy", mistyped, "second.db")

    assert (done.returncode, [*tmp_path.glob("*.db")]) == (Exit.UNSUITABLE, [])
    assert f"there is no store at {without_password(mistyped)}" in done.stderr
    assert postgres.sql("SELECT to_regnamespace('jobs_mistyped') IS NULL") == "t"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_copy_that_is_ended_leaves_an_empty_target(
    tmp_path: Path, postgres: PostgresServer, url: str, number: signal.Signals
) -> None:
    with serving(tmp_path, "--store", "first.db") as server:
        server.submit(task="none", payload="x" * 10_000)
    assert schedo(tmp_path, "store", "migrate", "--store", url).returncode == Exit.DONE
    # Another session lets the second table be read only, so the copy waits for it.
    blocker = subprocess.Popen(
        [sys.executable, "-c", BLOCK, postgres.url()], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert blocker.stdout is not None
    blocker.stdout.readline()
    words = [sys.executable, "-m", "schedo", "store", "copy", "first.db", url]
    copying = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        table = "relation = 'jobs.job_payload'::regclass"  # other sessions may wait for others
        waits = f"SELECT count(*) FROM pg_locks WHERE NOT granted AND {table}"
        eventually(lambda: postgres.sql(waits) != "0", "the middle of the copy")
        copying.send_signal(number)
        copying.communicate(timeout=20)
    finally:
        blocker.communicate(b"\n", timeout=20)

    assert copying.returncode != Exit.DONE
    eventually(lambda: postgres.sql(waits) == "0", "the end of its session")
    assert postgres.sql("SELECT count(*) FROM jobs.job") == "0"
    assert all(each["is_equal"] for each in copy(tmp_path, "first.db", url))


@pytest.mark.parametrize("words", [["copy", "first.db"], ["migrate", "--store"]])
def test_an_interrupt_does_not_wait_for_the_look_up_of_a_name(
    tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SILENT_RESOLVER)
    with serving(tmp_path, "--store", "first.db"):
        pass
    command = [sys.executable, "-m", "schedo", "store", *words, "postgresql://ann@db.example/jobs"]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE
    ) as waiting:
        try:
            assert waiting.stdout is not None
            assert waiting.stdout.readline() == b"looks up\n"
            waiting.send_signal(signal.SIGINT)
            waiting.wait(20)
        finally:
            waiting.kill()

    assert waiting.returncode == -signal.SIGINT


SILENT_RESOLVER = """
import socket, threading
def look_up(*parts, **options):
    print("looks up", flush=True)
    threading.Event().wait()
socket.getaddrinfo = look_up
"""
BLOCK = """
import asyncio, sys, asyncpg
async def block():
    connection = await asyncpg.connect(sys.argv[1])
    async with connection.transaction():
        await connection.execute("LOCK TABLE jobs.job_payload IN EXCLUSIVE MODE")
        print("locked", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
asyncio.run(block())
"""
