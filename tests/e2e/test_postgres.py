"""A server whose jobs are in PostgreSQL: what it does, and what it says when it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from schedo.errors import Exit
from tests.e2e.server import Server, eventually, serving
from tests.postgres import USER, PostgresServer

pytestmark = pytest.mark.e2e

RUNS = "/v1/jobs?schedule=tick"
COUNTED = {"task": "shell", "payload": {"command": "echo run >> runs"}}


def schedo(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself."""
    return subprocess.run(
        [sys.executable, "-m", "schedo", *words],
        cwd=directory,
        env={name: text for name, text in os.environ.items() if not name.startswith("SCHEDO_")},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def items(server: Server, path: str) -> list[dict[str, Any]]:
    status, found = server.ask("GET", path)
    assert status == 200, found
    return list(found["items"])


def is_ready(server: Server) -> bool:
    return server.ask("GET", "/readyz")[0] == 200


def test_a_server_does_on_postgresql_what_it_does_on_a_file(tmp_path: Path, url: str) -> None:
    with serving(tmp_path, "--store", url, "--allow-shell") as server:
        job = server.submit(**COUNTED, tags=["red"], unique={"key": "k"})
        assert server.ended(job["id"])["state"] == "completed"
        failed = server.submit(
            task="shell", payload={"command": "exit 3"}, retry={"max_attempts": 1}
        )
        assert server.ended(failed["id"])["error"]["exit_code"] == 3
        later = server.submit(task="shell", payload={"command": "true"}, delay="1h")
        assert server.ask("PUT", "/v1/schedules/tick", {"every": "1s", **COUNTED})[0] == 201
        eventually(lambda: items(server, RUNS), "run of the schedule")

        assert [each["id"] for each in items(server, "/v1/jobs?tag=red")] == [job["id"]]
        assert [each["id"] for each in items(server, "/v1/jobs?state=failed")] == [failed["id"]]
        assert [each["id"] for each in items(server, "/v1/jobs?q=exit%203")] == [failed["id"]]
        assert items(server, f"/v1/jobs/{failed['id']}/attempts")[0]["outcome"] == "failed"
        status, operation = server.ask(
            "POST", "/v1/operations", {"action": "cancel", "where": {"state": "scheduled"}}
        )
        assert status in (201, 202), operation
        eventually(
            lambda: server.ask("GET", f"/v1/jobs/{later['id']}")[1]["state"] == "cancelled",
            "end of the operation",
        )
        assert items(server, "/v1/log")
        assert server.ask("GET", "/v1/summary")[0] == 200
        assert server.terminate() == Exit.DONE

    with serving(tmp_path, "--store", url) as server:
        assert server.ask("GET", f"/v1/jobs/{job['id']}")[1]["state"] == "completed"
        assert [each["name"] for each in items(server, "/v1/schedules")] == ["tick"]


def test_a_killed_server_leaves_its_jobs_to_the_next_one(tmp_path: Path, url: str) -> None:
    with serving(tmp_path, "--store", url, "--allow-shell") as server:
        jobs = [server.submit(**COUNTED, delay="300ms") for _ in range(20)]
        running = server.submit(task="shell", payload={"command": "test -e second || sleep 60"})
        eventually(
            lambda: server.ask("GET", f"/v1/jobs/{running['id']}")[1]["state"] == "running",
            "start of the job",
        )
        server.kill()
    (tmp_path / "second").touch()

    with serving(tmp_path, "--store", url, "--allow-shell") as server:
        ended = [server.ended(job["id"]) for job in (*jobs, running)]

    assert {job["state"] for job in ended} == {"completed"}


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_goes_on_when_postgresql_has_restarted(
    tmp_path: Path, postgres: PostgresServer, url: str, mode: Any
) -> None:
    with serving(tmp_path, "--store", url, "--allow-shell") as server:
        assert server.ask("PUT", "/v1/schedules/tick", {"every": "1s", **COUNTED})[0] == 201
        long = server.submit(task="shell", payload={"command": "while ! test -e go; do :; done"})
        eventually(
            lambda: server.ask("GET", f"/v1/jobs/{long['id']}")[1]["state"] == "running",
            "start of the job",
        )
        postgres.stop(mode)
        try:
            eventually(lambda: not is_ready(server), "the readiness shows the end of the sessions")
            refused, problem = server.ask("POST", "/v1/jobs", COUNTED)
            assert refused == 503
            assert problem["code"] in ("outcome-unknown", "unavailable")
            (tmp_path / "go").touch()  # it ends while no store can take its result
        finally:
            postgres.start()
        eventually(lambda: is_ready(server), "recovery")

        ended = server.ended(long["id"])
        assert (ended["state"], ended["attempt"]) == ("completed", 1)
        fired = len(items(server, RUNS))
        eventually(
            lambda: len(items(server, RUNS)) > fired,
            "next run of the schedule",
        )


@pytest.mark.parametrize(
    ("place", "code", "hint"),
    [
        ("@127.0.0.1:1/postgres", Exit.BROKEN, "does PostgreSQL run, and does it listen there?"),
        ("@/nowhere?host={host}", Exit.UNSUITABLE, "create the database first: createdb"),
        ("@/postgres?host={host}&schema=A", Exit.MISUSED, "the name of a schema"),
    ],
)
def test_a_store_that_cannot_be_opened_ends_the_server_with_a_hint(
    tmp_path: Path, postgres: PostgresServer, place: str, code: Exit, hint: str
) -> None:
    url = f"postgresql://{USER}:secret{place.format(host=postgres.directory)}"

    ended = schedo(tmp_path, "serve", "--port", "0", "--store", url)

    assert ended.returncode == code, ended.stderr
    assert hint in ended.stderr
    assert "secret" not in ended.stderr


@pytest.mark.parametrize(
    "command", ["check", "restore x.backup --store", "backup x.backup --store", "status --store"]
)
def test_a_command_for_files_says_what_to_use_for_postgresql(tmp_path: Path, command: str) -> None:
    ended = schedo(tmp_path, *command.split(), "postgresql://ann:pa55@db/jobs")

    assert ended.returncode == Exit.MISUSED, ended.stderr
    assert "postgresql://ann@db/jobs is not a file" in ended.stderr


def test_a_standby_needs_a_file(tmp_path: Path) -> None:
    ended = schedo(tmp_path, "serve", "--standby", "--store", "postgresql://db/jobs")

    assert ended.returncode == Exit.MISUSED
    assert "a standby waits for the lock of a file" in ended.stderr


def test_the_configuration_is_shown_without_the_password(tmp_path: Path) -> None:
    shown = schedo(tmp_path, "config", "show", "--store", "postgresql://ann:pa55@db/jobs")

    assert "postgresql://ann@db/jobs" in shown.stdout
    assert "pa55" not in shown.stdout + shown.stderr
