"""The roles of deploy/postgresql/roles.sql: each may do its part, and no more."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedo.errors import Exit
from schedo.store.postgres.schema import list_migrations
from tests.e2e.server import serving
from tests.postgres import USER, PostgresServer, running_server

pytestmark = pytest.mark.e2e

SCRIPT = Path(__file__).parents[2] / "deploy/postgresql/roles.sql"
ROLES = ("schedo_owner", "schedo_server", "schedo_enqueue", "schedo_read")


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """Yield a hardened server: not everyone may execute its functions."""
    with running_server() as server:
        server.script(SCRIPT, schema="jobs")
        harden = "REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC"
        server.sql(f"ALTER DEFAULT PRIVILEGES FOR ROLE schedo_owner {harden}")
        for role in ROLES:
            server.sql(f"ALTER ROLE {role} LOGIN")
        done = schedo("store", "migrate", "--store", url_of(server, "schedo_owner"), "--json")
        newest = list_migrations()[-1].number
        assert json.loads(done.stdout)["schema"] == newest, done
        server.script(SCRIPT, schema="jobs")
        yield server


def url_of(server: PostgresServer, role: str) -> str:
    return server.url(schema="jobs").replace(f"//{USER}@", f"//{role}@")


def schedo(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "schedo", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


def attempt(server: PostgresServer, role: str, statement: str) -> None:
    """Run the statement with the rights of the role; nothing of it stays."""
    where = f"BEGIN; SET LOCAL ROLE {role}; SET LOCAL search_path = jobs"
    server.sql(f"{where}; {statement}; ROLLBACK")


def test_a_server_works_with_the_role_that_owns_nothing(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    url = url_of(postgres, "schedo_server")
    with serving(tmp_path, "--store", url, "--allow-shell") as server:
        job = server.submit(task="shell", payload={"command": "true"}, tags=["a"])
        assert server.ended(job["id"])["state"] == "completed"
        assert server.ask("PUT", "/v1/schedules/tick", {"every": "1h", "task": "any"})[0] == 201
        assert server.ask("DELETE", "/v1/schedules/tick")[0] == 204
        assert server.terminate() == Exit.DONE


@pytest.mark.parametrize(
    ("role", "allowed", "denied"),
    [
        (
            "schedo_server",
            ["DELETE FROM job", "SELECT nextval('epoch')", "SELECT * FROM secret"],
            ["DROP TABLE job", "ALTER TABLE job ADD x int", "CREATE TABLE x ()", "TRUNCATE job"],
        ),
        (
            "schedo_read",
            ["SELECT * FROM job", "SELECT * FROM schedule", "SELECT * FROM run_history"],
            ["SELECT * FROM secret", "DELETE FROM job", "SELECT nextval('epoch')"],
        ),
        (
            "schedo_enqueue",
            ["SELECT enqueue('mail', '{}')"],
            ["SELECT * FROM job", "SELECT * FROM secret", "DELETE FROM job"],
        ),
    ],
)
def test_a_role_may_do_its_part_only(
    postgres: PostgresServer, role: str, allowed: list[str], denied: list[str]
) -> None:
    for statement in allowed:
        attempt(postgres, role, statement)
    for statement in denied:
        with pytest.raises(AssertionError, match=r"permission denied|must be owner"):
            attempt(postgres, role, statement)


def test_a_server_without_the_right_to_migrate_says_who_has_it(postgres: PostgresServer) -> None:
    postgres.sql("UPDATE jobs.meta SET value = value - 1 WHERE name = 'schema'")

    ended = schedo("serve", "--port", "0", "--store", url_of(postgres, "schedo_server"))

    postgres.sql("UPDATE jobs.meta SET value = value + 1 WHERE name = 'schema'")
    assert ended.returncode == Exit.UNSUITABLE, ended.stderr
    assert "let their owner run: schedo store migrate" in ended.stderr
