"""Backups of a real server: taken under load, and opened elsewhere after a SIGKILL."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.e2e.server import Server, eventually, serving

pytestmark = pytest.mark.e2e


def schedo(directory: Path, *arguments: str, url: str = "") -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SCHEDO_")}
    if url:
        environment["SCHEDO_URL"] = url
    return subprocess.run(
        [sys.executable, "-m", "schedo", *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@contextmanager
def loading(server: Server, threads: int = 4) -> Iterator[list[str]]:
    """Submit jobs all the time; yield the ids of those that are acknowledged so far."""
    acknowledged: list[str] = []
    ended = threading.Event()

    def submit() -> None:
        body = [{"task": "http", "payload": {"url": "http://127.0.0.1:1/"}, "delay": "1h"}] * 20
        while not ended.is_set():
            _, answer = server.ask("POST", "/v1/jobs:batch", body)
            acknowledged.extend(item["job"]["id"] for item in answer["items"])

    workers = [threading.Thread(target=submit) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield acknowledged
    finally:
        ended.set()
        for worker in workers:
            worker.join()


def test_a_backup_under_load_has_every_job_acknowledged_before_it(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        with loading(server) as acknowledged:
            eventually(lambda: len(acknowledged) > 400, "load")
            before = list(acknowledged)
            copied = schedo(tmp_path, "backup", "copy.db", url=server.url)
        server.kill()

    assert copied.returncode == 0, copied.stderr
    assert "the store as it was at 20" in copied.stdout
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (tmp_path / "copy.db").rename(elsewhere / "copy.db")
    with serving(elsewhere, "--store", "copy.db") as server:
        missing = [i for i in before if server.ask("GET", f"/v1/jobs/{i}")[0] != 200]
        assert missing == []


def test_a_backup_replaces_a_file_only_by_force_and_never_a_store(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        (tmp_path / "copy.db").write_text("mine")

        refused = schedo(tmp_path, "backup", "copy.db", url=server.url)
        onto_store = schedo(tmp_path, "backup", "data/schedo.db", "--force", url=server.url)

        assert (refused.returncode, onto_store.returncode) == (1, 1)
        assert "copy.db exists; --force replaces it" in refused.stderr
        assert "is the store of a server" in onto_store.stderr
        assert (tmp_path / "copy.db").read_text() == "mine"
        assert schedo(tmp_path, "backup", "copy.db", "--force", url=server.url).returncode == 0
        assert (tmp_path / "copy.db").read_bytes().startswith(b"SQLite format 3")
        assert not [each for each in tmp_path.iterdir() if each.name.startswith(".copy")]


def test_the_store_of_a_stopped_server_is_copied_without_one(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        job = server.submit(task="http", payload={"url": "http://127.0.0.1:1/"}, delay="1h")
        held = schedo(tmp_path, "backup", "copy.db", "--store", "data/schedo.db")
        server.kill()

    copied = schedo(tmp_path, "backup", "copy.db", "--store", "data/schedo.db")

    assert (held.returncode, copied.returncode) == (73, 0)
    assert "another server holds" in held.stderr
    with serving(tmp_path, "--store", str(tmp_path / "copy.db")) as server:
        assert server.ask("GET", f"/v1/jobs/{job['id']}")[0] == 200


def test_a_backup_that_cannot_be_made_leaves_no_file(tmp_path: Path) -> None:
    unreachable = schedo(tmp_path, "backup", "copy.db", url="http://127.0.0.1:9")
    nowhere = schedo(tmp_path, "backup", "none/copy.db", "--store", "none.db")

    assert (unreachable.returncode, nowhere.returncode) == (1, 78)
    assert "is `schedo serve` running?" in unreachable.stderr
    assert list(tmp_path.iterdir()) == []


SHELL = {"task": "shell", "payload": {"command": "echo ran >> ../ran"}}


def test_a_restored_server_runs_nothing_beside_its_original_until_it_is_resumed(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, "--allow-shell") as original:
        original.ask("POST", "/v1/server:pause", {"scopes": ["starts"]})
        job = original.submit(**SHELL)
        body = {"every": "1s", **SHELL}
        assert original.ask("PUT", "/v1/schedules/beat", body)[0] == 201
        original.ask("POST", "/v1/server:pause", {"scopes": ["schedules"]})
        assert schedo(tmp_path, "backup", "copy.db", url=original.url).returncode == 0
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir(mode=0o700)
        held = schedo(tmp_path, "restore", "copy.db", "--force")
        restored = schedo(tmp_path, "restore", "copy.db", "--store", "elsewhere/data/schedo.db")
        assert (held.returncode, restored.returncode) == (73, 0)
        assert "its server starts paused" in restored.stdout

        with serving(elsewhere, "--allow-shell") as copy:
            _, ready = copy.ask("GET", "/readyz")
            assert ready["ready"]
            assert "the server is paused: starts, schedules (restored" in ready["notes"][0]
            assert "`schedo resume` ends that" in copy.log()
            _, why = copy.ask("GET", f"/v1/jobs/{job['id']}/why")
            assert "the server is paused (restored from the backup of" in str(why)
            accepted = copy.submit(**SHELL)
            assert copy.ask("GET", f"/v1/jobs/{accepted['id']}")[1]["state"] == "queued"
            assert not (tmp_path / "ran").exists()

            assert schedo(tmp_path, "resume", url=copy.url).returncode == 0

            assert copy.ended(job["id"])["state"] == "completed"
        assert original.ask("GET", f"/v1/jobs/{job['id']}")[1]["state"] == "queued"


def test_a_plain_copy_of_a_running_server_is_refused_with_the_way_to_copy_it(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as server:
        server.submit(task="http", payload={"url": "http://127.0.0.1:1/"}, delay="1h")
        (tmp_path / "copied").mkdir(mode=0o700)
        (tmp_path / "copied" / "schedo.db").write_bytes((tmp_path / "data/schedo.db").read_bytes())

    started = schedo(tmp_path, "serve", "--port", "0", "--store", "copied/schedo.db")

    assert started.returncode == 65
    assert "`schedo backup` makes a complete copy" in started.stderr


def test_a_check_reads_a_store_that_a_server_uses(tmp_path: Path) -> None:
    with serving(tmp_path) as server, loading(server, threads=1) as acknowledged:
        eventually(lambda: len(acknowledged) > 100, "load")

        checked = schedo(tmp_path, "check", "--full")

        assert checked.returncode == 0, checked.stdout
        assert "schedo.db, which a server uses" in checked.stdout
        assert "WRONG" not in checked.stdout
        assert server.is_running


def test_a_check_of_a_damaged_store_ends_with_65(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.kill()
    (tmp_path / "data/schedo.db").write_bytes(b"")

    checked = schedo(tmp_path, "check", "--json")
    missing = schedo(tmp_path, "check", "none.db", "--json")

    assert checked.returncode == 65
    assert "schedo.db is empty" in checked.stdout
    assert missing.returncode == 78
    assert "there is no store at" in json.loads(missing.stderr)["detail"]
