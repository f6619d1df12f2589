"""A server is replaced by a new process: no request fails, and what runs ends where it runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from schedo.handover.client import read_status
from schedo.handover.messages import Handover
from schedo.handover.steps import Step
from schedo.store.sqlite.schema import newest_schema
from tests.e2e.server import Server, eventually
from tests.e2e.takeover.dying import PATH_VARIABLE as DEATH_VARIABLE
from tests.worker.calls import is_running

ROOT = Path(__file__).parents[2]
APP = "tests.e2e.upgrade_app:app"
APPLICATION = "from schedo import Schedo\napp = Schedo()\n"


class Upgraded:
    """A server on jobs.db in a directory, and the processes that have replaced it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.path = server.directory / "jobs.db"

    def upgrade(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "schedo", "upgrade", "--store", str(self.path), *options],
            cwd="/",
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def upgraded(self) -> dict[str, Any]:
        done = self.upgrade("--json")
        assert done.returncode == 0, (done.stderr, self.server.log())
        return dict(json.loads(done.stdout))

    def handover(self) -> Handover | None:
        return asyncio.run(read_status(f"{self.path}.ctl")).handover

    @property
    def active_pid(self) -> int:
        """The holder of the store, or 0."""
        found = re.match(r"pid (\d+)", self.path.with_name("jobs.db.lock").read_text())
        return int(found[1]) if found else 0

    def is_served(self) -> bool:
        try:
            return self.server.ask("GET", "/readyz")[0] == 200
        except OSError:
            return False


@contextlib.contextmanager
def upgradable(directory: Path, *arguments: str, **environment: str) -> Iterator[Upgraded]:
    if not (directory / "schedo.toml").exists():
        (directory / "schedo.toml").write_text("store = 'jobs.db'")
    server = Server(
        directory,
        *arguments,
        environment={"PYTHONPATH": str(ROOT), **environment},
    )
    if DEATH_VARIABLE in environment:
        server.module = "tests.e2e.takeover.dying"
    server.start()
    upgraded = Upgraded(server)
    try:
        yield upgraded
    finally:
        pid = upgraded.active_pid
        server.kill() if server.is_running else server.reap()
        if pid not in (0, server.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Through(NamedTuple):
    """What ran through one upgrade: the ended jobs, the output of the command, and the processes.

    parent: the pid of the process that starts the commands of the old server.
    """

    old: int
    new: int
    parent: str
    jobs: dict[str, dict[str, Any]]
    output: str
    is_served_by_new: bool
    made: list[dict[str, Any]]


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Through]:
    """Upgrade a server while its jobs run, which end when the new one serves."""
    directory = tmp_path_factory.mktemp("through")
    end = directory / "end"
    command = f"until [ -e {end} ]; do sleep 0.05; done; echo $PPID"
    with upgradable(directory, APP, "--allow-shell") as upgraded:
        server = upgraded.server
        jobs = {
            "command": server.submit(task="shell", payload={"command": command}),
            "lingering": server.submit(task="linger", payload={"until": str(end)}),
            "submitting": server.submit(task="submit_all_along", payload={"until": str(end)}),
            "calling": server.submit(task="call_another", payload={"until": str(end)}),
        }
        eventually(lambda: all_run(server, *jobs.values()), "running jobs")
        parent = _parent_of_commands(server.pid)
        new = upgraded.upgraded()["pid"]
        is_served_by_new = new == upgraded.active_pid != server.pid
        made_before = server.ask("GET", "/v1/jobs?limit=100")[1]["items"]
        eventually(lambda: _has_more(server, made_before), "jobs made after the upgrade")
        end.touch()
        ended = {name: server.ended(job["id"]) for name, job in jobs.items()}
        made = [server.ended(job) for job in ended["submitting"]["result"]]
        output = server.output(jobs["command"]["id"])
        eventually(lambda: not server.is_running, "end of the old process")
        yield Through(server.pid, new, parent, ended, output, is_served_by_new, made)


def _has_more(server: Server, before: list[dict[str, Any]]) -> bool:
    now = server.ask("GET", "/v1/jobs?limit=100")[1]["items"]
    return bool({job["id"] for job in now} - {job["id"] for job in before})


def test_what_runs_ends_once_in_the_old_process_with_its_own_output(through: Through) -> None:
    lingered, shell = through.jobs["lingering"], through.jobs["command"]

    assert through.is_served_by_new
    assert (lingered["result"], lingered["attempt"]) == (through.old, 1)
    assert (shell["state"], shell["attempt"]) == ("completed", 1)
    assert through.output.strip() == through.parent


def test_the_tasks_of_the_old_process_use_the_new_server(through: Through) -> None:
    made, called = through.jobs["submitting"], through.jobs["calling"]

    assert made["state"] == "completed", made
    assert len(made["result"]) == len(set(made["result"])) > 10
    assert {job["result"] for job in through.made} == {through.old, through.new}
    assert called["attempt"] == 1
    assert called["result"] in (through.old, through.new)  # when it began


def all_run(server: Server, *jobs: dict[str, Any], attempt: int = 1) -> bool:
    found = [server.ask("GET", f"/v1/jobs/{job['id']}")[1] for job in jobs]
    return all((job["state"], job["attempt"]) == ("running", attempt) for job in found)


def _parent_of_commands(pid: int) -> str:
    """Return the pid of the process that starts the commands of the server."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(each for each in children if "spawner" in _command_line(each))


def _command_line(pid: str) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_a_signal_starts_an_upgrade_and_another_one_reloads_the_settings(tmp_path: Path) -> None:
    with upgradable(tmp_path) as upgraded:
        server = upgraded.server
        os.kill(server.pid, signal.SIGHUP)
        eventually(lambda: "reload: nothing has changed" in server.log(), "reload")
        assert upgraded.active_pid == server.pid

        os.kill(server.pid, signal.SIGUSR2)
        eventually(lambda: not server.is_running, "end of the old process")

        assert upgraded.is_served()
        assert upgraded.active_pid != server.pid


BROKEN = {
    "a bad setting": ("schedo.toml", "concurrency = 0", "concurrency"),
    "an unknown setting": ("schedo.toml", "nonsense = 1", "nonsense"),
    "another store": ("schedo.toml", "store = 'other.db'", "name another store"),
    "a file of another program": ("schedo.toml", "store = 'foreign.db'", "name another store"),
    "an import that fails": ("new_app.py", "import no_such_module", "no_such_module"),
    "an import that hangs": ("new_app.py", "import time; time.sleep(60)", "not ready within 1 s"),
    "a crash": ("sitecustomize.py", "import os; os.kill(os.getpid(), 9)", "SIGKILL"),
    "a bug": (
        "sitecustomize.py",
        "import sys; sys.modules['schedo.serve'] = None",
        "ModuleNotFoundError",
    ),
}


class Asking(threading.Thread):
    """A client that submits jobs without a pause, each over a new connection."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._is_stopping = False
        self.accepted = 0
        self.failures: list[object] = []

    def run(self) -> None:
        while not self._is_stopping:
            try:
                status, body = self._server.ask("POST", "/v1/jobs", {"task": "far", "delay": "1h"})
            except OSError as error:
                status, body = 0, error
            self.accepted += status == 201
            self.failures += [] if status == 201 else [(status, body)]

    def stop(self) -> None:
        self._is_stopping = True
        self.join()


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgraded]:
    """A server that outlives all broken new versions."""
    directory = tmp_path_factory.mktemp("patient")
    (directory / "new_app.py").write_text(APPLICATION)
    (directory / "foreign.db").write_text("This is no store.")
    path = f"{directory}:{ROOT}"
    with upgradable(
        directory, "new_app:app", PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1"
    ) as upgraded:
        yield upgraded


@pytest.fixture
def asking(patient: Upgraded) -> Iterator[None]:
    """A client during the test, of which no request may fail."""
    client = Asking(patient.server)
    client.start()
    eventually(lambda: client.accepted, "job")
    try:
        yield
    finally:
        client.stop()
    assert client.failures == []


@pytest.mark.usefixtures("asking")
@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_new_version_changes_nothing(patient: Upgraded, what: str) -> None:
    name, text, reason = BROKEN[what]
    path = patient.server.directory / name
    before = path.read_text() if path.exists() else None
    path.write_text(text)

    refused = patient.upgrade("--timeout", "1s" if "hangs" in what else "15s")
    path.unlink() if before is None else path.write_text(before)

    assert (refused.returncode, reason in refused.stderr) == (1, True), refused
    assert refused.stderr.endswith("nothing has changed, and the process before was not replaced\n")
    assert "\\n" not in refused.stderr  # a traceback has its lines
    assert patient.active_pid == patient.server.pid
    assert patient.is_served()


@pytest.mark.usefixtures("asking")
@pytest.mark.parametrize(
    ("mark", "reason"),
    [
        ("reads_from={old} time=grows", "this takes about 1 s"),
        ("reads_from={new} time=constant", "the version that serves the file now"),
    ],
)
def test_a_new_version_with_a_migration_that_is_slow_or_has_no_way_back_changes_nothing(
    patient: Upgraded, mark: str, reason: str
) -> None:
    old = newest_schema()
    package = patient.server.directory / "schedo"
    shutil.copytree(ROOT / "schedo", package)
    name = f"{old + 1:04}_next"
    (package / f"store/sqlite/migrations/{name}.sql").write_text(
        f"-- schedo: {mark.format(old=old, new=old + 1)}\nCREATE TABLE next (id INTEGER);\n"
    )

    refused = patient.upgrade("--timeout", "15s")
    shutil.rmtree(package)

    assert refused.returncode == 1
    assert f"must be migrated ({name}), and {reason}" in refused.stderr
    assert patient.active_pid == patient.server.pid
    with contextlib.closing(sqlite3.connect(f"file:{patient.path}?mode=ro", uri=True)) as store:
        assert store.execute("PRAGMA user_version").fetchone() == (old,)


def test_the_status_shows_an_upgrade_while_it_is_under_way(patient: Upgraded) -> None:
    application = patient.server.directory / "new_app.py"
    application.write_text("import time; time.sleep(60)")
    upgrading = threading.Thread(target=patient.upgrade, args=("--timeout", "3s"))
    upgrading.start()

    eventually(lambda: patient.handover() is not None, "upgrade in the status")
    seen = patient.handover()
    upgrading.join()
    application.write_text(APPLICATION)

    assert seen is not None
    assert (seen.step, seen.pid is None) == (Step.STARTED, False)
    assert patient.handover() is None


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgraded]:
    """A server of which one process after the other dies."""
    directory = tmp_path_factory.mktemp("mortal")
    with upgradable(directory, **{DEATH_VARIABLE: str(directory / "death")}) as upgraded:
        upgraded.server.submit(task="nothing", delay="1h")
        yield upgraded


@pytest.mark.parametrize("step", ["ready", "held", "opened"])
def test_the_old_process_serves_on_if_the_new_one_dies(mortal: Upgraded, step: str) -> None:
    old = mortal.active_pid
    (mortal.server.directory / "death").write_text(f"new {step}")

    refused = mortal.upgrade("--timeout", "20s")

    assert (refused.returncode, mortal.active_pid) == (1, old)
    assert "the new process has" in refused.stderr  # failed or ended, as it was noticed first
    check_served(mortal)


@pytest.mark.parametrize("step", ["ready", "sent", "held", "frozen", "replaced"])
def test_the_new_process_serves_on_if_the_old_one_dies(mortal: Upgraded, step: str) -> None:
    old = mortal.active_pid
    (mortal.server.directory / "death").write_text(f"old {step}")

    mortal.upgrade("--timeout", "20s")

    eventually(lambda: mortal.active_pid not in (0, old), "new holder")
    check_served(mortal)


def test_what_an_old_process_runs_begins_again_at_once_if_that_process_dies(
    tmp_path: Path,
) -> None:
    """A remote worker that is silent would be lost after 30 s."""
    end = tmp_path / "end"
    with upgradable(tmp_path, APP, "--allow-shell") as upgraded:
        server = upgraded.server
        command = f"echo $$ >> {tmp_path / 'pids'}; until [ -e {end} ]; do sleep 0.05; done"
        jobs = [
            server.submit(task="linger", payload={"until": str(end)}, retry=3),
            server.submit(task="shell", payload={"command": command}, retry=3),
        ]
        eventually(lambda: all_run(server, *jobs), "running jobs")
        eventually((tmp_path / "pids").exists, "command")
        new = upgraded.upgraded()["pid"]

        server.kill()

        eventually(lambda: all_run(server, *jobs, attempt=2), "second attempts")
        pids = tmp_path / "pids"
        eventually(lambda: len(pids.read_text().split()) == 2, "the second command")
        first, second = pids.read_text().split()
        assert [is_running(int(pid)) for pid in (first, second)] == [False, True]
        end.touch()
        lingered, _ = [server.ended(job["id"]) for job in jobs]
        assert (lingered["result"], lingered["attempt"]) == (new, 2)


def check_served(upgraded: Upgraded) -> None:
    eventually(upgraded.is_served, "server")
    kept = upgraded.server.ask("GET", "/v1/jobs?state=scheduled")[1]["items"]
    upgraded.server.submit(task="nothing", delay="1h")
    again = upgraded.server.ask("GET", "/v1/jobs?state=scheduled")[1]["items"]

    assert kept
    assert len(again) == len(kept) + 1
