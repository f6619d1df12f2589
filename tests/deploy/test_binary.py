"""The binary of `make binary` does what the installed command does, on a machine without Python.

tests/deploy/binary.py says when it is tested.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.binary import BINARY, skip_unless_built
from tests.e2e.remote import Gate
from tests.e2e.server import DEADLINE_S, Server, eventually

pytestmark = pytest.mark.e2e

APPLICATION = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import colours
from schedo import Schedo

app = Schedo()


@app.task
def absolute(number: int) -> int:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(abs, number).result()


@app.task
async def colour() -> str:
    return colours.BEST
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory below which the binary unpacks itself, once for this module."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def binary(capsys: pytest.CaptureFixture[str], cache: Path) -> dict[str, str]:
    """The environment for the binary: nothing but the directory for its files."""
    skip_unless_built(capsys)
    return {"XDG_CACHE_HOME": str(cache)}


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BINARY), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@contextmanager
def serving(directory: Path, environment: dict[str, str], *arguments: str) -> Iterator[Server]:
    """Run `schedo serve` of the binary on jobs.db in the directory."""

    class BinaryServer(Server):
        python = str(BINARY)

        def launch(self) -> None:
            with pytest.MonkeyPatch.context() as patch:
                for name in os.environ:
                    patch.delenv(name)
                super().launch()

    server = BinaryServer(directory, "--store", "jobs.db", *arguments, environment=environment)
    server.start()
    try:
        yield server
    finally:
        if server.is_running:
            server.kill()


def mapped_files(pid: int) -> set[str]:
    """Return the files that the process has in its memory."""
    text = Path(f"/proc/{pid}/maps").read_text()
    return set(re.findall(r" (/\S+)$", text, re.MULTILINE))


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def active_pid(directory: Path) -> int:
    found = re.match(r"pid (\d+)", (directory / "jobs.db.lock").read_text())
    return int(found[1]) if found else 0


def test_commands_and_python_tasks_run_without_a_python_of_the_machine(
    tmp_path: Path, cache: Path, binary: dict[str, str]
) -> None:
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    (libraries / "colours.py").write_text("BEST = 'blue'")
    (tmp_path / "myapp.py").write_text(APPLICATION)

    binary["PYTHONPATH"] = str(libraries)
    with serving(tmp_path, binary, "myapp:app", "--processes", "1", "--allow-shell") as server:
        command = {"command": "echo hello; env; ls -l /proc/self/fd"}
        job = server.ended(server.submit(task="shell", payload=command)["id"])
        pool = server.submit(task="absolute", payload={"number": -3})
        module = server.submit(task="colour", payload={})

        assert server.ended(pool["id"])["result"] == 3
        assert server.ended(module["id"])["result"] == "blue"
        assert job["state"] == "completed", job
        output = server.output(job["id"])
        assert output.startswith("hello\n")
        assert not re.search(r"^LD_LIBRARY_PATH|^_PYI|" + str(cache / "schedo"), output, re.M)
        processes = [server.pid, *children(server.pid)]
        assert len(processes) >= 3  # also the child process and the spawner
        mapped = set[str]().union(*map(mapped_files, processes))
        elsewhere = [path for path in mapped if not path.startswith((str(cache), str(tmp_path)))]
        assert [path for path in elsewhere if "python" in path] == []
        assert server.terminate() == 0


def test_a_worker_of_the_binary_runs_the_tasks_of_its_app(
    tmp_path: Path, binary: dict[str, str]
) -> None:
    (tmp_path / "farapp.py").write_text(
        "from schedo import Schedo\napp = Schedo()\n@app.task\ndef double(n: int) -> int:\n"
        "    return 2 * n\n"
    )
    with serving(tmp_path, binary) as server:
        command = (str(BINARY), "worker", "farapp:app", "--server", server.url, "--name", "far")
        with subprocess.Popen(command, cwd=tmp_path, env=binary) as worker:
            job = server.ended(server.submit(task="double", payload={"n": 21})["id"])
            worker.terminate()

        assert job["result"] == 42
        assert worker.returncode == 0


def test_an_upgrade_replaces_the_binary_while_a_command_runs(
    tmp_path: Path, binary: dict[str, str]
) -> None:
    gate = Gate(tmp_path)
    with serving(tmp_path, binary | {"PATH": os.environ["PATH"]}, "--allow-shell") as server:
        job = server.submit(task="shell", payload=gate.payload)
        gate.wait_begun()
        upgraded = run(binary, "upgrade", "--store", str(tmp_path / "jobs.db"), "--json")
        gate.open()

        assert upgraded.returncode == 0, (upgraded.stderr, server.log())
        new = json.loads(upgraded.stdout)["pid"]
        assert new == active_pid(tmp_path) != server.pid
        assert server.ended(job["id"])["state"] == "completed"
        assert Path(f"/proc/{new}/cmdline").read_bytes().startswith(bytes(BINARY) + b"\0")
        assert server.reap() == 0
        os.kill(new, signal.SIGKILL)


def test_a_standby_of_the_binary_takes_the_place_of_a_killed_server(
    tmp_path: Path, binary: dict[str, str]
) -> None:
    with serving(tmp_path, binary, "--allow-shell") as server:
        job = server.submit(task="shell", payload={"command": "true"}, delay="1h")
        command = (str(BINARY), "serve", "--standby", "--store", "jobs.db", "--port", "0")
        log = tmp_path / "standby.log"
        with (
            log.open("w") as file,
            subprocess.Popen(
                command, cwd=tmp_path, env=binary, stdout=file, stderr=file
            ) as standby,
        ):
            eventually(lambda: '"is_warm":true' in status(binary, tmp_path), "a warm standby")
            server.kill()

            eventually(lambda: active_pid(tmp_path) == standby.pid, "a take-over")
            assert server.ask("GET", f"/v1/jobs/{job['id']}")[1]["state"] == "scheduled"
            standby.terminate()


def status(environment: dict[str, str], directory: Path) -> str:
    shown = run(environment, "status", "--json", "--store", str(directory / "jobs.db"))
    return shown.stdout.replace(" ", "")


def test_a_new_version_removes_the_unpacked_ones_that_no_process_uses(
    tmp_path: Path, binary: dict[str, str]
) -> None:
    unused, used = tmp_path / "schedo" / "unused", tmp_path / "schedo" / "used"
    unused.mkdir(parents=True)
    used.mkdir()
    descriptor = os.open(used, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)

    ran = run(binary | {"XDG_CACHE_HOME": str(tmp_path)}, "--version")
    os.close(descriptor)

    assert ran.returncode == 0, ran.stderr
    assert not unused.exists()
    assert used.exists()
    assert len(list((tmp_path / "schedo").iterdir())) == 2


def test_it_runs_nothing_from_a_directory_that_others_can_write(
    tmp_path: Path, binary: dict[str, str]
) -> None:
    (tmp_path / "schedo").mkdir(mode=0o700)
    (tmp_path / "schedo").chmod(0o777)
    (tmp_path / f"schedo-{os.geteuid()}").symlink_to("schedo")

    ran = run({"XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}, "--version")

    assert ran.returncode == 78
    assert ran.stderr.count("must be a directory that only this user can write") == 2
    assert "set XDG_CACHE_HOME" in ran.stderr
    assert list((tmp_path / "schedo").iterdir()) == []


def test_the_exit_codes_are_those_of_the_command(tmp_path: Path, binary: dict[str, str]) -> None:
    unknown = run(binary, "serve", "--prot", "1")
    refused = run(binary, "jobs", "ls", "--url", "http://127.0.0.1:9")

    assert (unknown.returncode, refused.returncode) == (2, 1)
    assert "No such option" in unknown.stderr
