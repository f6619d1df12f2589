"""`schedo status`: how the active server and its standbys are shown."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from schedo.cli.main import cli
from schedo.handover.messages import Handover, LastTakeover, StandbyStatus, Status
from schedo.handover.steps import Step
from schedo.store.sqlite.lock import FileLock
from tests.cli.conftest import Call
from tests.client.server import FakeServer

SINCE = "2026-11-20T11:04:05Z"
STANDBY = StandbyStatus(pid=43, version="1.1", since=SINCE, is_warm=True, warmed_ms=183.4)


def make_status(**changes: object) -> Status:
    fields: dict[str, object] = {
        "pid": 42,
        "version": "1.0",
        "epoch": 7,
        "since": SINCE,
        "store": "/jobs.db",
        "addresses": ["127.0.0.1:8080", "[::1]:8080"],
        "is_ready": True,
        "reasons": [],
        "takeovers": 0,
        "last_takeover": None,
        "standbys": [],
    }
    return Status(**{**fields, **changes})  # type: ignore[arg-type]


def show(
    monkeypatch: pytest.MonkeyPatch, status: Status, *options: str
) -> tuple[int, dict[str, list[str]]]:
    """Return the exit code, and the values that the command prints, by name."""
    monkeypatch.setattr("schedo.cli.status._read", lambda store: status)
    result = CliRunner().invoke(cli, ["status", "--store", "/jobs.db", *options])
    found: dict[str, list[str]] = {}
    for line in result.stdout.splitlines():
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value.strip())
    return result.exit_code, found


def test_a_server_without_standbys_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    code, found = show(monkeypatch, make_status())

    assert code == 0
    assert found["active"][0].startswith("pid 42, schedo 1.0, since 2026-11-20")
    assert found["address"] == ["127.0.0.1:8080, [::1]:8080"]
    assert (found["epoch"], found["ready"], found["standby"]) == (["7"], ["yes"], ["none"])


def test_a_pause_is_shown_with_its_note(monkeypatch: pytest.MonkeyPatch) -> None:
    paused = "the server is paused: starts (the database is being moved); schedo resume ends that"

    _, found = show(monkeypatch, make_status(notes=[paused]))

    assert (found["ready"], found["note"]) == (["yes"], [paused])


def test_each_standby_has_a_line_with_its_warmth_and_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    cold = StandbyStatus(
        pid=44, version="1.0", since=SINCE, is_warm=False, kill_stuck_s=5.0, notes=["a note"]
    )
    _, found = show(monkeypatch, make_status(standbys=[STANDBY, cold]))

    warm, other = found["standby"]
    assert warm.startswith("pid 43, schedo 1.1, warm (took 183 ms), since")
    assert other.startswith("pid 44, schedo 1.0, not warm yet, kills after 5 s, since")
    assert other.endswith("; a note")


@pytest.mark.parametrize(
    ("was_killed", "ending"),
    [(True, "the server before was killed"), (False, "the server before ended in order")],
)
def test_the_last_take_over_has_its_steps(
    monkeypatch: pytest.MonkeyPatch, was_killed: bool, ending: str
) -> None:
    last = LastTakeover(
        at=SINCE, was_killed=was_killed, took_ms=6.83, steps_ms={"wake": 0.24, "open": 6.59}
    )
    _, found = show(monkeypatch, make_status(takeovers=3, last_takeover=last))

    assert found["take-overs"] == ["3"]
    assert "6.8 ms from the lock to the first request (wake 0.2, open 6.6)" in found["last"][0]
    assert found["last"][0].endswith(ending)


@pytest.mark.parametrize(("pid", "to"), [(43, "process 43"), (None, "a standby")])
def test_a_passing_of_the_store_shows_its_last_step(
    monkeypatch: pytest.MonkeyPatch, pid: int | None, to: str
) -> None:
    _, found = show(monkeypatch, make_status(handover=Handover(step=Step.READY, pid=pid)))

    assert found["handover"] == [f"the store passes to {to}; the last step of this one: ready"]


def test_a_store_without_a_server_has_none_that_is_active(tmp_path: Path) -> None:
    (tmp_path / "jobs.db.lock").write_text("pid 42 on host since now")

    result = CliRunner().invoke(cli, ["status", "--store", str(tmp_path / "jobs.db")])

    assert result.exit_code == 1
    assert "the store has no active server: no server answers at" in result.stderr
    assert "the last holder of the store was pid 42" in result.stderr


def test_a_server_that_is_starting_is_not_taken_for_a_dead_one(tmp_path: Path) -> None:
    lock = FileLock(str(tmp_path / "jobs.db.lock"))
    lock.acquire()  # as it does before it imports its application

    result = CliRunner().invoke(cli, ["status", "--store", str(tmp_path / "jobs.db")])
    lock.release()

    assert result.exit_code == 1
    assert "no active server" not in result.stderr
    assert f"but pid {os.getpid()}, the last one that has locked the store, runs" in result.stderr


def test_the_check_fails_for_a_server_that_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    late = make_status(is_ready=False, reasons=["the timers are late", "a commit hangs"])

    assert show(monkeypatch, late)[0] == 0
    code, found = show(monkeypatch, late, "--check")
    assert (code, found["ready"]) == (1, ["NO: the timers are late; a commit hangs"])
    assert show(monkeypatch, make_status(), "--check")[0] == 0


def test_programs_get_the_status_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedo.cli.status._read", lambda store: make_status(standbys=[STANDBY]))

    found = json.loads(CliRunner().invoke(cli, ["status", "--store", "/jobs.db", "--json"]).stdout)

    assert (found["pid"], found["standbys"][0]["pid"]) == (42, 43)


def test_a_server_of_a_store_in_postgresql_is_asked_by_its_url() -> None:
    result = CliRunner().invoke(cli, ["status", "--store", "postgresql://ann:secret@db/jobs"])

    assert result.exit_code == 2
    assert "postgresql://ann@db/jobs is not a file; leave --store out" in result.stderr


def test_a_url_of_a_file_is_not_taken_for_its_path() -> None:
    result = CliRunner().invoke(cli, ["status", "--store", "sqlite:///jobs.db"])

    assert result.exit_code == 2
    assert "give the path alone: /jobs.db or jobs.db" in result.stderr


def test_a_store_in_memory_has_no_status() -> None:
    result = CliRunner().invoke(cli, ["status", "--store", ":memory:"])

    assert result.exit_code == 2
    assert "a store in memory has no file" in result.stderr


STORE = {
    "bytes": 3 << 20,
    "tables": [
        {
            "name": "job",
            "size_bytes": 2 << 20,
            "live_rows": 90_000,
            "dead_rows": 1_234,
            "vacuumed_at": "2026-11-20T11:00:00.000000Z",
        },
        {"name": "meta", "size_bytes": 8192, "live_rows": 9, "dead_rows": 0, "vacuumed_at": None},
    ],
    "oldest_snapshot": {
        "kind": "session",
        "name": "psql\x1b",
        "pid": 77,
        "age_seconds": 421.5,
        "transactions": 4_000,
    },
    "longest_transaction": None,
}


def arrange(server: FakeServer, *, ready: bool = True, epoch: int = 7) -> None:
    reasons = [] if ready else ["it is away"]
    readiness = {"ready": ready, "code": "ready", "reasons": reasons, "notes": ["it is paused"]}
    server.on("GET", "/readyz", 200 if ready else 503, readiness)
    started_at = "2026-11-20T11:00:00.000000Z"
    summary = {"verdict": {}, "version": "1.0", "epoch": epoch, "started_at": started_at}
    server.on("GET", "/v1/summary", 200, summary)
    server.on("GET", "/v1/store", 200, STORE)


def test_a_server_on_postgresql_is_asked_over_its_api(
    server: FakeServer, schedo: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDO_STORE", "postgresql://ann:pa55@db/jobs")
    arrange(server)

    done = schedo("status")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]

    assert done.exit_code == 0, done.stderr
    assert lines[0].startswith("active schedo 1.0, since 2026-11-20 11:00")
    assert lines[1:3] == ["epoch 7", "store 3.0 MB"]
    assert "ready yes" in lines
    assert "note it is paused" in lines
    oldest = "session psql\\x1b (pid 77), for 7m1s, 4,000 transactions behind"
    assert f"oldest {oldest}" in lines
    assert "longest no transaction" in lines
    assert "table job, 2.0 MB, 1,234 dead beside 90,000 rows, vacuumed" in "".join(lines)
    assert lines[-1] == "table meta, 8.0 kB, 0 dead beside 9 rows, never vacuumed"


def test_a_server_is_asked_over_its_api_where_no_store_is(
    server: FakeServer, schedo: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arrange(server, ready=False)

    assert schedo("status").exit_code == 0
    assert "NO: it is away" in schedo("status").stdout
    assert schedo("status", "--check").exit_code == 1
    found = json.loads(schedo("status", "--json").stdout)
    assert (found["is_ready"], found["reasons"], found["store"]) == (False, ["it is away"], STORE)
    assert found["notes"] == ["it is paused"]


def test_a_server_whose_store_fails_has_no_epoch(
    server: FakeServer, schedo: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arrange(server, ready=False, epoch=0)

    lines = [" ".join(line.split()) for line in schedo("status").stdout.splitlines()]

    assert "epoch none, until the store responds" in lines


def test_a_server_at_a_url_that_does_not_answer_is_stuck(
    schedo: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("schedo.cli.served_status.STUCK_AFTER_S", 0.05)

    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts for it
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = schedo("status", "--check", "--url", url)

    assert done.exit_code == 1
    assert f"the server at {url} does not answer within" in done.stderr
    assert "it is stuck, stopped by SIGSTOP, or cut off" in done.stderr
