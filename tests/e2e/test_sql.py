"""Jobs from SQL: a commit runs them, a rollback does not, and a kill loses and repeats none."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from schedo.core.ids import parse_id
from tests.e2e.server import Server, eventually, serving
from tests.postgres import USER, PostgresServer, running_server
from tests.sources import ROOT

pytestmark = pytest.mark.e2e
psycopg = pytest.importorskip("psycopg", reason="it is one of the clients of docs/sql.md")
Connection = Any  # of psycopg

EXAMPLE = re.compile(r"```(sql|python)\n(.*?)```", re.DOTALL)
CALL = re.compile(r"SELECT schedo\.enqueue\(.*?\)(?=\")")
TABLE = "CREATE TABLE orders (id bigint PRIMARY KEY, customer text, paid_at timestamptz)"
APPEND = {"command": 'echo "$SCHEDO_JOB_ID" >> runs'}


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_server() as server:
        # Otherwise the tables of the clients are in the schema that has the name of the user.
        server.sql(f"ALTER ROLE {USER} SET search_path = public")
        yield server


@pytest.fixture(scope="module")
def server(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that most tests share; they submit different jobs."""
    url = postgres.url(schema="shared")
    with serving(tmp_path_factory.mktemp("shared"), "--store", url, "--allow-shell") as server:
        yield server


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    yield postgres.url()
    postgres.sql("DROP SCHEMA schedo CASCADE")


@pytest.fixture
def connection(postgres: PostgresServer, server: Server) -> Iterator[Connection]:
    """A client of the server that most tests share."""
    with client(postgres.url()) as connection:
        connection.execute("SET search_path = public, shared")
        yield connection


@contextmanager
def client(url: str) -> Iterator[Connection]:
    """A client that commits each statement by itself, apart from those in `transaction()`."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = public, schedo")
        yield connection


def enqueue(connection: Connection, arguments: str, *values: object) -> str:
    row = connection.execute(f"SELECT enqueue({arguments})", values).fetchone()
    return str(row[0])


def get(server: Server, job_id: str) -> dict[str, Any]:
    status, job = server.ask("GET", f"/v1/jobs/{job_id}")
    assert status == 200, job
    return dict(job)


def test_a_committed_job_runs_and_a_rolled_back_one_never_was(
    server: Server, connection: Connection
) -> None:
    with connection.transaction():
        kept = enqueue(connection, "'shell', %s::jsonb", json.dumps(APPEND))
        assert server.ask("GET", f"/v1/jobs/{kept}")[0] == 404
    with connection.transaction(force_rollback=True):
        undone = enqueue(connection, "'shell', %s::jsonb", json.dumps(APPEND))

    assert server.ended(kept)["state"] == "completed"
    assert server.ask("GET", f"/v1/jobs/{undone}")[0] == 404
    assert (server.directory / "runs").read_text().split() == [kept]


def test_the_api_knows_a_job_as_soon_as_its_transaction_is_committed(
    server: Server, connection: Connection
) -> None:
    for number in range(20):
        waiting = get(server, enqueue(connection, "'none', priority => 2"))
        assert (waiting["state"], waiting["priority"]) == ("queued", 2)
        later = enqueue(connection, "'none', delay => '1 h'")
        assert get(server, later)["state"] == "scheduled"
        unwanted = enqueue(connection, f"'none', '{number}'")
        status, cancelled = server.ask("POST", f"/v1/jobs/{unwanted}:cancel")
        assert (status, cancelled["state"]) == (200, "cancelled")

    _, listed = server.ask("GET", "/v1/jobs?task=none&limit=100")
    assert len(listed["items"]) == 60


def test_what_the_server_does_not_accept_is_a_job_that_says_why(
    server: Server, connection: Connection
) -> None:
    timeout = get(server, enqueue(connection, """'work', options => '{"timeout": "soon"}'"""))
    large = get(server, enqueue(connection, "'work', to_jsonb(repeat('x', 1048577))"))
    shell = get(server, enqueue(connection, "'shell', '{}'"))
    connection.execute("""INSERT INTO shared.inbox VALUES (126, 0, 0, '{"task": "a b"}')""")
    unknown = get(server, "000000000003Y")

    assert {each["state"] for each in (timeout, large, shell, unknown)} == {"failed"}
    assert timeout["error"]["type"] == "refused"
    assert timeout["error"]["message"].startswith("/timeout: 'soon' is not a duration")
    assert "a payload has at most 1048576" in large["error"]["message"]
    assert shell["error"]["message"].startswith("/payload/command: ")
    assert unknown["error"]["message"].startswith("/task: ")
    assert unknown["task"] == "unreadable"


def test_a_job_whose_unique_key_is_held_is_cancelled_and_names_the_holder(
    server: Server, connection: Connection
) -> None:
    first = enqueue(connection, "'work', unique_key => 'k'")
    second = get(server, enqueue(connection, "'work', unique_key => 'k'"))

    assert (second["state"], second["error"]["type"]) == ("cancelled", "duplicate")
    assert second["error"]["message"] == f"job {first} is queued and holds the key 'k'"
    assert get(server, first)["state"] == "queued"


def test_rows_that_wait_while_a_server_is_killed_run_once_each(tmp_path: Path, url: str) -> None:
    ids: list[str] = []
    arguments = "'shell', %s::jsonb, delay => '3 s', options => '{\"delivery\": \"at_most_once\"}'"

    def submit(connection: Connection, count: int) -> None:
        with connection.transaction():
            ids.extend(enqueue(connection, arguments, json.dumps(APPEND)) for _ in range(count))

    with serving(tmp_path, "--store", url, "--allow-shell") as server, client(url) as connection:
        for _ in range(5):
            submit(connection, 10)
        server.kill()
        submit(connection, 10)
        (left,) = connection.execute("SELECT count(*) FROM schedo.inbox").fetchone()
        assert left >= 10
    with serving(tmp_path, "--store", url, "--allow-shell") as server:
        states = {server.ended(each)["state"] for each in ids}
        _, listed = server.ask("GET", "/v1/jobs?limit=100")

    assert states == {"completed"}
    assert sorted(each["id"] for each in listed["items"]) == sorted(ids)
    assert sorted((tmp_path / "runs").read_text().split()) == sorted(ids)


def test_a_row_that_can_be_no_job_holds_up_no_other_one_and_ends_no_server(
    tmp_path: Path, url: str
) -> None:
    again = 'INSERT INTO schedo.inbox (id, shard, spec) VALUES (%s, 0, \'{"task": "none"}\')'
    with serving(tmp_path, "--store", url) as server, client(url) as connection:
        job_id = enqueue(connection, "'none'")
        assert get(server, job_id)["state"] == "queued"
        with connection.transaction():
            connection.execute(again, [parse_id(job_id)])
            later = enqueue(connection, "'none'")

        eventually(lambda: server.ask("GET", f"/v1/jobs/{later}")[0] == 200, "the other job")
        stays = f"job {job_id}, which SQL has submitted, stays in the inbox"
        eventually(lambda: stays in server.log(), "the line in the log, which a thread writes")
        assert get(server, job_id)["state"] == "queued"
        assert get(server, enqueue(connection, "'none'"))["state"] == "queued"


def test_the_inbox_is_read_again_after_postgresql_has_restarted(
    tmp_path: Path, postgres: PostgresServer, url: str
) -> None:
    with serving(tmp_path, "--store", url, "--allow-shell") as server:
        with client(url) as connection:
            server.ended(enqueue(connection, "'shell', '{\"command\": \"true\"}'"))
        postgres.stop("fast")
        postgres.start()
        with client(url) as connection:
            job_id = enqueue(connection, "'shell', '{\"command\": \"true\"}'")

        eventually(lambda: server.ask("GET", f"/v1/jobs/{job_id}")[0] == 200, "recovery")
        assert server.ended(job_id)["state"] == "completed"


def test_each_server_of_a_cluster_knows_a_job_and_one_of_them_takes_it(
    tmp_path: Path, postgres: PostgresServer, url: str
) -> None:
    store = ("--store", postgres.url(schema="schedo"), "--allow-shell")
    with serving(tmp_path, *store) as first, serving(tmp_path, *store) as second:
        owners = "SELECT count(DISTINCT owner) FROM schedo.shard"
        eventually(lambda: postgres.sql(owners) == "2", "shards for both")
        with client(url) as connection:
            ids = []
            for number in range(20):
                job_id = enqueue(connection, "'shell', %s::jsonb", json.dumps(APPEND))
                get((first, second)[number % 2], job_id)
                ids.append(job_id)
                later = enqueue(connection, "'none', delay => '1 h'")
                status, job = (first, second)[number % 2].ask("POST", f"/v1/jobs/{later}:cancel")
                assert (status, job["state"]) == (200, "cancelled")
                key = "'none', unique_key => %s"
                kept, duplicate = (enqueue(connection, key, f"k{number}") for _ in range(2))
                assert get(first, kept)["state"] == "queued"
                assert get(second, duplicate)["state"] == "cancelled"

        assert {second.ended(each)["state"] for each in ids} == {"completed"}
        assert sorted((tmp_path / "runs").read_text().split()) == sorted(ids)
        assert postgres.sql("SELECT count(DISTINCT shard) FROM schedo.job") != "1"
        assert "internal error" not in first.log()


# The examples of docs/sql.md.


def examples(language: str) -> list[str]:
    text = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
    return [code for found, code in EXAMPLE.findall(text) if found == language]


def test_the_examples_of_the_documentation_submit_jobs(
    tmp_path: Path, postgres: PostgresServer, url: str
) -> None:
    postgres.sql("CREATE ROLE shop LOGIN")
    postgres.sql("CREATE ROLE clerk LOGIN")
    postgres.sql(TABLE)
    try:
        with serving(tmp_path, "--store", url) as server, client(url) as connection:
            for example in examples("sql"):
                connection.execute(example)
            with client(url.replace(f"//{USER}@", "//clerk@")) as clerk:
                clerk.execute("SELECT remind('ann@example.org')")
            found = [run_python(example, url, connection) for example in examples("python")]

            assert [get(server, each)["payload"] for each in found] == [
                {"order": number} for number in (19, 20, 21, 22)
            ]
            _, listed = server.ask("GET", "/v1/jobs?limit=100")
            tasks = [each["task"] for each in listed["items"]]
            assert {*tasks} == {
                *("mail.confirm", "report.build", "mail.reminder", "mail.remind", "order.index")
            }
    finally:
        postgres.sql("DROP TABLE IF EXISTS orders CASCADE")
        postgres.sql("DROP FUNCTION IF EXISTS remind; DROP FUNCTION IF EXISTS order_changed")
        postgres.sql("DROP OWNED BY shop, clerk; DROP ROLE shop, clerk")


def run_python(example: str, url: str, connection: Connection) -> str:
    """Run an example; return the id of its job."""
    runners: dict[str, Callable[[str, str, Connection], str]] = {
        "import psycopg": run_psycopg,
        "import asyncpg": run_asyncpg,
        "from sqlalchemy": run_statement,
        "from django": run_statement,
    }
    (runner,) = (run for mark, run in runners.items() if mark in example)
    return runner(example, url, connection)


def run_psycopg(example: str, url: str, connection: Connection) -> str:
    names: dict[str, Any] = {"URL": url}
    exec(example, names)
    return str(names["job_id"])


def run_asyncpg(example: str, url: str, connection: Connection) -> str:
    lines = example.replace("await asyncpg.connect", "await connect").splitlines()
    body = "\n".join(f"    {line}" for line in lines)
    names: dict[str, Any] = {"URL": url, "connect": asyncpg.connect}
    exec(f"async def run():\n{body}\n    await connection.close()\n    return job_id", names)
    return str(asyncio.run(names["run"]()))


def run_statement(example: str, url: str, connection: Connection) -> str:
    """Run the statement of a library that is not installed here, with its parameters."""
    (order,) = re.findall(r"id=(\d+), customer", example)
    statement = CALL.findall(example)[0]
    values = {"payload": json.dumps({"order": int(order)}), "queue": "mail"}
    if ":payload" in statement:
        statement = re.sub(r":(payload|queue)", r"%(\1)s", statement)
        row = connection.execute(statement, values).fetchone()
    else:
        row = connection.execute(statement, [values["payload"]]).fetchone()
    return str(row[0])
