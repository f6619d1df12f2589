"""A server on a Unix socket: its clients, and the next server on the same socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedo import health
from schedo.client import AsyncClient, Client
from schedo.errors import Invalid
from tests.e2e.server import eventually
from tests.sources import ROOT

pytestmark = pytest.mark.e2e


def schedo(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = start(directory, *arguments)
    out, err = done.communicate(timeout=30)
    return subprocess.CompletedProcess(arguments, done.returncode, out, err)


def start(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SCHEDO_")}
    return subprocess.Popen(
        [sys.executable, "-m", "schedo", *arguments],
        cwd=directory,
        env=environment | {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Local:
    """A server on api.sock in a directory, with the store jobs.db."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = f"unix:{directory}/api.sock"
        self.client = Client(self.url)
        (directory / "schedo.toml").write_text(
            f"host = '{self.url}'\nstore = 'jobs.db'\nallow_shell = true\nsocket_mode = '0660'\n"
        )
        self.processes: list[subprocess.Popen[str]] = []

    def serve(self, *options: str) -> subprocess.Popen[str]:
        process = start(self.directory, "serve", *options)
        self.processes.append(process)
        return process

    def said(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline()

    def status(self) -> str:
        return schedo(self.directory, "status").stdout

    def end(self) -> None:
        self.client.close()
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.communicate()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    made = Local(tmp_path)
    yield made
    made.end()


async def count(url: str) -> int:
    async with AsyncClient(url) as client:
        return len([job async for job in client.list_jobs()])


def test_all_clients_reach_a_server_on_a_unix_socket(local: Local) -> None:
    assert f"listens on {local.url};" in local.said(local.serve())
    worker = start(local.directory, "worker", "--server", local.url, "--name", "w1")
    local.processes.append(worker)
    eventually(
        lambda: "w1" in schedo(local.directory, "workers", "ls", "--url", local.url).stdout,
        "worker",
    )

    job = local.client.submit("shell", {"command": "echo local"})

    assert job.wait(20).state == "completed"
    assert asyncio.run(count(local.url)) == 1
    assert schedo(local.directory, "jobs", "ls", "--url", local.url).returncode == 0
    assert health.main(environ={"SCHEDO_HOST": local.url}) == 0
    assert "address     unix:" in local.status()


def test_a_request_for_another_host_is_refused_as_on_a_port(local: Local) -> None:
    local.said(local.serve())
    command = ["curl", "-s", "--unix-socket", f"{local.directory}/api.sock"]

    def get(host: str) -> str:
        done = subprocess.run(
            [*command, f"http://{host}/v1/jobs"], capture_output=True, text=True, check=True
        )
        return done.stdout

    assert '"items":[]' in get("localhost")
    assert "misdirected" in get("evil.example")


def test_a_server_starts_after_one_that_was_killed(local: Local) -> None:
    first = local.serve()
    local.said(first)
    job = local.client.submit("a", delay="1h")
    first.kill()
    first.wait()

    local.said(local.serve())

    assert [each.id for each in local.client.list_jobs()] == [job.id]


def test_a_standby_continues_on_the_same_socket(local: Local) -> None:
    active = local.serve()
    local.said(active)
    job = local.client.submit("a", delay="1h")
    standby = local.serve("--standby")
    eventually(lambda: "warm" in local.status(), "warm standby")
    active.kill()
    active.wait()

    assert f"listens on {local.url};" in local.said(standby)
    assert [each.id for each in local.client.list_jobs()] == [job.id]


def test_an_upgrade_continues_on_the_same_socket(local: Local) -> None:
    old = local.serve()
    local.said(old)
    job = local.client.submit("a", delay="1h")
    local.client.close()  # else the old process waits for it

    upgraded = schedo(local.directory, "upgrade", "--json")

    assert upgraded.returncode == 0, upgraded.stderr
    assert old.wait(30) == 0
    assert [each.id for each in local.client.list_jobs()] == [job.id]
    assert schedo(local.directory, "status", "--check").returncode == 0
    new = int(local.status().partition("pid ")[2].partition(",")[0])
    os.kill(new, 9)


def test_an_upgrade_makes_a_socket_again_that_was_removed(local: Local) -> None:
    local.said(local.serve())
    os.unlink(local.directory / "api.sock")

    upgraded = schedo(local.directory, "upgrade")

    assert upgraded.returncode == 0, upgraded.stderr
    assert [*local.client.list_jobs()] == []
    new = int(local.status().partition("pid ")[2].partition(",")[0])
    os.kill(new, 9)


def test_a_second_server_leaves_the_socket_of_the_first_one_alone(local: Local) -> None:
    local.said(local.serve())

    second = schedo(local.directory, "serve", "--store", "other.db")

    assert second.returncode != 0
    assert f"another server listens at {local.url}" in second.stderr
    assert [*local.client.list_jobs()] == []


@pytest.mark.parametrize("url", ["unix:", "unix:api.sock"])
def test_a_url_without_an_absolute_path_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match=r"write it as unix:/run/schedo/api.sock"):
        Client(url)
