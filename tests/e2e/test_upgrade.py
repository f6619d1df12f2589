"""A server is replaced by a new process: no request fails, and what runs ends where it runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.server import Server, eventually
from tests.e2e.upgrade_clients import Clients

ROOT = Path(__file__).parents[2]
APP = "tests.e2e.upgrade_app:app"


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
    if "DIES" in environment:
        server.module = "tests.e2e.dying"
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


def test_what_runs_ends_once_in_the_old_process_with_its_own_output(tmp_path: Path) -> None:
    with upgradable(tmp_path, APP, "--allow-shell") as upgraded:
        server = upgraded.server
        command = server.submit(task="shell", payload={"command": "sleep 4; echo $PPID"})
        task = server.submit(task="linger", payload={"seconds": 4})
        eventually(lambda: _all_run(server, command, task), "running jobs")
        parent = _parent_of_commands(server.pid)

        activated = upgraded.upgraded()
        lingered, shell = server.ended(task["id"]), server.ended(command["id"])

        assert activated["pid"] == upgraded.active_pid != server.pid
        assert (lingered["result"], lingered["attempt"]) == (server.pid, 1)
        assert (shell["state"], shell["attempt"]) == ("completed", 1)
        assert server.output(command["id"]).strip() == parent
        eventually(lambda: not server.is_running, "end of the old process")


def test_the_tasks_of_the_old_process_use_the_new_server(tmp_path: Path) -> None:
    with upgradable(tmp_path, APP) as upgraded:
        server = upgraded.server
        submitting = server.submit(task="submit_all_along", payload={"seconds": 4})
        calling = server.submit(task="call_another", payload={"seconds": 4})
        eventually(lambda: _all_run(server, submitting, calling), "running jobs")

        activated = upgraded.upgraded()

        made = server.ended(submitting["id"])
        assert made["state"] == "completed", made
        assert len(made["result"]) == len(set(made["result"])) > 10
        pids = {server.ended(job)["result"] for job in made["result"]}
        assert pids <= {server.pid, activated["pid"]}
        called = server.ended(calling["id"])
        assert called["attempt"] == 1
        assert called["result"] in (server.pid, activated["pid"])  # when it began


def _all_run(server: Server, *jobs: dict[str, Any]) -> bool:
    found = [server.ask("GET", f"/v1/jobs/{job['id']}")[1] for job in jobs]
    return all(job["state"] == "running" for job in found)


def _parent_of_commands(pid: int) -> str:
    """Return the pid of the process that starts the commands of the server."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(each for each in children if "spawner" in _command_line(each))


def _command_line(pid: str) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


async def test_no_request_fails_while_one_process_replaces_another(tmp_path: Path) -> None:
    with upgradable(tmp_path) as upgraded:
        port = urlsplit(upgraded.server.url).port
        assert port is not None
        clients = Clients(port)
        async with clients.running():
            for _ in range(3):
                await asyncio.sleep(0.5)
                await asyncio.to_thread(upgraded.upgraded)
            await asyncio.sleep(0.5)

        assert clients.failed == []
        assert set(clients.answered) == {
            *("new connection", "keep-alive", "pipelined", "wait", "poll", "slow body")
        }


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
    "an import that fails": ("new_app.py", "import no_such_module", "no_such_module"),
    "an import that hangs": ("new_app.py", "import time; time.sleep(60)", "not ready within 3 s"),
    "a crash": ("sitecustomize.py", "import os; os.kill(os.getpid(), 9)", "SIGKILL"),
    "a bug": (
        "sitecustomize.py",
        "import sys; sys.modules['schedo.serve'] = None",
        "ModuleNotFoundError",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_new_version_changes_nothing(tmp_path: Path, what: str) -> None:
    name, text, reason = BROKEN[what]
    (tmp_path / "new_app.py").write_text("from schedo import Schedo\napp = Schedo()\n")
    (tmp_path / "schedo.toml").write_text("store = 'jobs.db'")
    path = f"{tmp_path}:{ROOT}"
    with upgradable(
        tmp_path, "new_app:app", PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1"
    ) as upgraded:
        (tmp_path / name).write_text(text)

        refused = upgraded.upgrade("--timeout", "3s" if "hangs" in what else "15s")

        assert (refused.returncode, reason in refused.stderr) == (1, True), refused
        assert upgraded.active_pid == upgraded.server.pid
        assert upgraded.is_served()


@pytest.mark.parametrize(
    ("process", "step", "survivor"),
    [
        ("new", "ready", "old"),
        ("new", "opened", "old"),
        ("new", "active", "none"),
        ("old", "started", "new on another port"),  # it has not got the listener yet
        ("old", "ready", "new"),
        ("old", "sent", "new"),
        ("old", "held", "new"),
        ("old", "frozen", "new"),
        ("old", "replaced", "new"),
    ],
)
def test_one_process_serves_on_when_the_other_dies(
    tmp_path: Path, process: str, step: str, survivor: str
) -> None:
    with upgradable(tmp_path, DIES=f"{process} {step}") as upgraded:
        server = upgraded.server
        kept = server.submit(task="nothing", delay="1h")["id"]

        done = upgraded.upgrade("--timeout", "20s")

        if survivor == "none":
            return
        if process == "new":
            assert (done.returncode, upgraded.active_pid) == (1, server.pid)
            assert "SIGKILL" in done.stderr
        else:
            eventually(lambda: upgraded.active_pid not in (0, server.pid), "new holder")
        if survivor == "new on another port":
            return
        eventually(upgraded.is_served, "server")
        assert server.ask("GET", f"/v1/jobs/{kept}")[0] == 200
        assert server.submit(task="nothing", delay="1h")
