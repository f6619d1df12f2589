"""`schedo serve --standby`: real processes that take the place of each other."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import Server, eventually, serving
from tests.sources import ROOT


def status(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SCHEDO_")}
    return subprocess.run(
        [sys.executable, "-m", "schedo", "status", *options],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def read_status(directory: Path) -> dict[str, Any] | None:
    """Return the status as `schedo status --json` has it; None without an active server."""
    found = status(directory, "--json")
    return None if found.returncode else dict(json.loads(found.stdout))


def warm_pids(directory: Path) -> set[int]:
    found = read_status(directory) or {"standbys": []}
    return {each["pid"] for each in found["standbys"] if each["is_warm"]}


@contextlib.contextmanager
def standing_by(active: Server, *arguments: str, **environment: str) -> Iterator[Server]:
    """Run a standby of the server during the block, from when it is warm."""
    port = active.url.rpartition(":")[2]
    options = (*arguments, "--standby", "--port", port)
    environment["PYTHONPATH"] = str(ROOT)
    standby = Server(active.directory, *options, environment=environment)
    standby.launch()
    try:
        eventually(lambda: standby.pid in warm_pids(active.directory), "a warm standby")
        yield standby
    finally:
        if standby.is_running:
            standby.kill()


class Submitter(threading.Thread):
    """Submits jobs all the time, and remembers those that were acknowledged."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._is_stopped = threading.Event()
        self.acknowledged: list[str] = []
        self.refused = 0  # connections

    def run(self) -> None:
        while not self._is_stopped.is_set():
            try:
                job = self._server.submit(task="shell", payload={"command": "true"})
                self.acknowledged.append(job["id"])
            except ConnectionRefusedError:
                self.refused += 1
            except OSError as error:  # a request that was in flight is reset
                if "refused" in str(error):
                    self.refused += 1

    def stop(self) -> None:
        self._is_stopped.set()
        self.join()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An active server that no test ends."""
    with serving(tmp_path_factory.mktemp("lasting")) as active:
        yield active


def test_a_standby_continues_at_the_address_of_a_server_that_was_killed(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--allow-shell") as active,
        standing_by(active, "--allow-shell") as next_,
    ):
        submitter = Submitter(active)
        submitter.start()
        eventually(lambda: len(submitter.acknowledged) > 20, "load")
        active.kill()
        before = len(submitter.acknowledged)
        eventually(lambda: len(submitter.acknowledged) > before + 20, "jobs after the kill")
        submitter.stop()
        states = {active.ended(job_id)["state"] for job_id in submitter.acknowledged}
        found = read_status(tmp_path)
        _, ready = active.ask("GET", "/readyz")
        metrics = active_metrics(active)

        assert states == {"completed"}
        assert submitter.refused == 0
        assert found is not None
        assert (found["pid"], found["takeovers"]) == (next_.pid, 1)
        assert found["last_takeover"]["was_killed"]
        assert (ready["role"], ready["epoch"]) == ("active", 2)
        assert "schedo_takeovers_total 1" in metrics
        assert 'schedo_role{role="active"} 1' in metrics


def active_metrics(server: Server) -> str:
    with urllib.request.urlopen(server.url + "/metrics", timeout=10) as response:
        return str(response.read().decode())


def test_of_two_standbys_one_wins_and_the_other_waits_on(tmp_path: Path) -> None:
    with (
        serving(tmp_path) as active,
        standing_by(active) as first,
        standing_by(active) as second,
    ):
        active.kill()
        found = eventually(lambda: read_status(tmp_path), "a new active server")
        winner, loser = (first, second) if found["pid"] == first.pid else (second, first)
        assert found["pid"] == winner.pid
        eventually(lambda: loser.pid in warm_pids(tmp_path), "the other at the new one")

        winner.kill()
        last = eventually(lambda: read_status(tmp_path), "the last active server")

        assert (last["pid"], last["takeovers"]) == (loser.pid, 2)
        assert active.ask("GET", "/readyz")[0] == 200


def test_a_standby_that_finds_no_server_becomes_active(tmp_path: Path) -> None:
    with serving(tmp_path, "--standby") as server:
        found = read_status(tmp_path)

        assert found is not None
        assert (found["pid"], found["takeovers"], found["last_takeover"]) == (server.pid, 0, None)


def test_a_standby_takes_over_from_a_server_that_is_stopped(tmp_path: Path) -> None:
    with serving(tmp_path) as active, standing_by(active) as standby:
        active.submit(task="later", delay=3600)
        assert active.terminate() == 0
        found = eventually(lambda: read_status(tmp_path), "the next active server")

        assert found["pid"] == standby.pid
        assert not found["last_takeover"]["was_killed"]
        assert standby.terminate() == 0


def test_a_stopped_server_ends_what_runs_while_the_standby_serves(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--allow-shell") as active,
        standing_by(active, "--allow-shell") as standby,
    ):
        script = "until test -e go; do sleep 0.05; done; echo $PPID"
        running = active.submit(task="shell", payload={"command": script, "cwd": str(tmp_path)})
        eventually(lambda: state_of(active, running) == "running", "a running job")

        os.kill(active.pid, signal.SIGTERM)
        later = eventually(lambda: served_by(active, standby), "a job at the standby")
        assert active.is_running
        (tmp_path / "go").touch()

        ended = active.ended(running["id"])
        assert (ended["state"], ended["attempt"]) == ("completed", 1)
        assert active.output(running["id"]) != active.output(later["id"])  # other parents
        assert active.reap() == 0
        found = read_status(tmp_path)
        assert found is not None
        assert (found["pid"], found["last_takeover"]["was_killed"]) == (standby.pid, False)


def state_of(server: Server, job: dict[str, Any]) -> str:
    return str(server.ask("GET", f"/v1/jobs/{job['id']}")[1]["state"])


def served_by(server: Server, standby: Server) -> dict[str, Any] | None:
    """Return a job that has ended at the standby, once that is active."""
    if (read_status(server.directory) or {}).get("pid") != standby.pid:
        return None
    job = server.submit(task="shell", payload={"command": "echo $PPID"})
    return server.ended(job["id"])


def test_a_warm_standby_has_imported_all_that_a_take_over_needs(tmp_path: Path) -> None:
    said = "took over from the server before"
    with (
        serving(tmp_path, "--allow-shell") as active,
        standing_by(active, "--allow-shell", PYTHONPROFILEIMPORTTIME="1") as standby,
    ):
        active.submit(task="shell", payload={"command": "true"}, delay="1s")
        before = len(standby.log())
        active.kill()
        log = eventually(lambda: said in standby.log() and standby.log(), "a take-over")

    assert "import time:" in log[:before]
    taking_over, _, _ = log[before:].partition(said)
    assert "import time:" not in taking_over


def test_a_standby_ends_at_once_on_sigterm(lasting: Server) -> None:
    with standing_by(lasting) as standby:
        assert standby.terminate() == 0

        eventually(lambda: not warm_pids(lasting.directory), "a server without standbys")
        assert lasting.ask("GET", "/readyz")[0] == 200


def test_a_stuck_server_is_reported_and_nothing_takes_its_place(lasting: Server) -> None:
    with standing_by(lasting) as standby:
        os.kill(lasting.pid, signal.SIGSTOP)
        stuck = status(lasting.directory, "--check")
        eventually(lambda: "is stuck" in standby.log(), "a line in the log")
        os.kill(lasting.pid, signal.SIGCONT)
        eventually(lambda: "answers again" in standby.log(), "the end of it in the log")

        assert stuck.returncode == 1
        assert f"(pid {lasting.pid}) is stuck" in stuck.stderr
        eventually(lambda: status(lasting.directory, "--check").returncode == 0, "punctual timers")
        assert (read_status(lasting.directory) or {})["pid"] == lasting.pid


def test_a_stuck_server_is_killed_if_the_standby_may(tmp_path: Path) -> None:
    with serving(tmp_path) as active, standing_by(active, "--kill-stuck", "1s") as standby:
        os.kill(active.pid, signal.SIGSTOP)
        found = eventually(lambda: read_status(tmp_path), "the next active server")

        assert found["pid"] == standby.pid
        assert active.signal(signal.SIGKILL) == -signal.SIGKILL
        assert f"killed the active server (pid {active.pid})" in standby.log()


def test_a_standby_never_opens_the_database_for_writing(lasting: Server) -> None:
    with standing_by(lasting) as standby:
        assert writable(standby.pid, "schedo.db") == set()
        assert writable(lasting.pid, "schedo.db") != set()


def test_the_children_of_a_standby_are_warm_and_run_the_next_job(tmp_path: Path) -> None:
    app = ("tests.e2e.small_app:app", "--processes", "1")
    with (
        serving(tmp_path, *app, PYTHONPATH=str(ROOT)) as active,
        standing_by(active, *app) as next_,
    ):
        children = children_of(next_.pid)
        active.kill()
        job = eventually(lambda: submitted(active), "a job at the next server")
        ran_in = int(active.ended(job["id"])["result"])

        assert ran_in in children
        kept = {Path(each).name for child in children for each in links(child)}
        assert not {each for each in kept if each.startswith("schedo.db")}
        assert not sockets_of(next_.pid) & {each for child in children for each in links(child)}


def test_a_standby_that_is_not_warm_yet_takes_over_when_it_can_run_jobs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "slow_app.py").write_text(
        "from schedo import Schedo\napp = Schedo()\nopen('fifo').close()\n"
        "@app.task\ndef pid() -> int:\n    return 7\n"
    )
    with serving(tmp_path) as active:
        port = active.url.rpartition(":")[2]
        options = ("slow_app:app", "--processes", "1", "--standby", "--port", port)
        standby = Server(tmp_path, *options, environment={"PYTHONPATH": str(tmp_path)})
        standby.launch()
        try:
            eventually(lambda: (read_status(tmp_path) or {}).get("standbys"), "a cold standby")
            active.kill()
            with feeding(tmp_path / "fifo"):
                job = eventually(lambda: submitted(active), "a job at the next server")

            assert int(active.ended(job["id"])["result"]) == 7
        finally:
            standby.kill()


@contextlib.contextmanager
def feeding(fifo: Path) -> Iterator[None]:
    """Let each child read that imports the application: the take-over may have killed one."""
    ended = threading.Event()

    def feed() -> None:
        while not ended.wait(0.02):
            with contextlib.suppress(OSError):  # no child reads
                os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        yield
    finally:
        ended.set()
        feeder.join()


def test_a_take_over_uses_the_settings_as_they_are_then(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    with serving(tmp_path) as active:
        write_token(tokens, "first-token-of-20-characters")
        with standing_by(active, "--tokens", str(tokens)):
            write_token(tokens, "other-token-of-20-characters")
            active.kill()
            active.token = "other-token-of-20-characters"
            eventually(lambda: accepts(active), "the new token")
            active.token = "first-token-of-20-characters"
            assert active.ask("GET", "/v1/jobs")[0] == 401


def write_token(path: Path, token: str) -> None:
    path.touch(0o600)
    path.write_text(f"{token} role=admin name=test\n")


def accepts(server: Server) -> bool:
    with contextlib.suppress(OSError):
        return server.ask("GET", "/v1/jobs")[0] == 200
    return False


def submitted(server: Server) -> dict[str, Any] | None:
    try:
        return server.submit(task="pid")
    except OSError:
        return None


def children_of(pid: int) -> set[int]:
    listing = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return {int(each) for each in listing.split()}


def links(pid: int) -> set[str]:
    """Return what the descriptors of a process are open on."""
    found = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(each))
    return found


def sockets_of(pid: int) -> set[str]:
    """Return the sockets of a server: those on which it listens, and its connections."""
    return {each for each in links(pid) if each.startswith("socket:")}


def writable(pid: int, name: str) -> set[str]:
    """Return the descriptors by which a process may write to the file with this name."""
    found = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            flags = Path(f"/proc/{pid}/fdinfo/{each.name}").read_text().split("flags:")[1].split()
            if Path(os.readlink(each)).name == name and int(flags[0], 8) & os.O_ACCMODE:
                found.add(each.name)
    return found


@pytest.mark.parametrize("options", [["--store", ":memory:"], ["--kill-stuck", "10ms"]])
def test_settings_that_cannot_work_are_refused(tmp_path: Path, options: list[str]) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "schedo", "serve", "--standby", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert found.returncode == 2
    assert "standby (flag --standby)" in found.stderr or "kill_stuck" in found.stderr


def test_another_address_of_the_settings_is_reported(lasting: Server) -> None:
    with standing_by(lasting, "--host", "127.0.0.2") as standby:
        said = f"the active server listens on {lasting.url.removeprefix('http://')}"
        eventually(lambda: said in standby.log(), "a line in the log")


def test_without_a_server_the_status_says_so(tmp_path: Path) -> None:
    found = status(tmp_path, "--store", "schedo.db")

    assert found.returncode == 1
    assert "no server answers at" in found.stderr
    assert "`schedo summary` asks a server by its URL" in found.stderr
