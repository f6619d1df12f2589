"""The example workers in examples/ run real jobs of a real server."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.e2e.remote import find_port
from tests.e2e.server import DEADLINE_S, Server, eventually, serving
from tests.sdk.contract_server import between, listening, problem
from tests.sources import ROOT

pytestmark = pytest.mark.e2e

EXAMPLES = ROOT / "examples"
# `make sdk` installs a Go toolchain here; otherwise the machine's own is used.
PATH = f"{os.environ['PATH']}:{Path(sys.prefix) / 'go' / 'go' / 'bin'}"
# The programs that each example needs, and its command. Go compiles first, which takes seconds.
COMMANDS = {
    "worker.sh": ("bash curl jq", ["bash", str(EXAMPLES / "worker.sh")]),
    "worker.py": ("python3", ["python3", str(EXAMPLES / "worker.py")]),
    "worker.mjs": ("node", ["node", str(EXAMPLES / "worker.mjs")]),
    "worker.go": ("go", ["./worker"]),
}


def find_missing(programs: str) -> list[str]:
    return [program for program in programs.split() if shutil.which(program, path=PATH) is None]


@contextmanager
def working(
    example: str, server: Server, capsys: pytest.CaptureFixture[str], url: str = ""
) -> Iterator[None]:
    """Run the example as worker "guest"; skip the test with a warning if a program is missing."""
    programs, command = COMMANDS[example]
    if missing := find_missing(programs):
        with capsys.disabled():
            print(
                f"\nNOT TESTED: examples/{example}, because there is no {' and no '.join(missing)}"
            )
        pytest.skip(f"there is no {missing}")
    if example == "worker.go":
        go = str(shutil.which("go", path=PATH))
        build = [go, "build", "-o", str(server.directory / "worker"), str(EXAMPLES / example)]
        subprocess.run(build, check=True, timeout=50)
    with (server.directory / "worker.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "guest"],
            cwd=server.directory,
            env=os.environ | {"SCHEDO_URL": url or server.url},
            stderr=log,
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(DEADLINE_S)


@pytest.mark.parametrize("example", COMMANDS)
def test_an_example_worker_runs_jobs_and_reports_them(
    example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path) as server, working(example, server, capsys):
        jobs = [server.submit(task="increment", payload={"Num": number}) for number in range(3)]

        ended = [server.ended(job["id"]) for job in jobs]

    assert [job["result"] for job in ended] == [{"Num": 1}, {"Num": 2}, {"Num": 3}]
    assert {(job["state"], job["worker"]) for job in ended} == {("completed", "guest")}


@pytest.mark.parametrize("example", COMMANDS)
def test_an_example_worker_runs_an_invocation(
    example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path) as server, working(example, server, capsys):
        eventually(lambda: server.ask("GET", "/v1/workers/guest")[0] == 200, "worker")

        answers = [
            server.ask("POST", "/v1/invoke", {"task": "increment", "payload": {"Num": number}})
            for number in (1, 41)
        ]

    assert [(status, job["result"]["Num"]) for status, job in answers] == [(200, 2), (200, 42)]


@pytest.mark.parametrize("example", COMMANDS)
def test_an_example_worker_reports_failures(
    example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path) as server, working(example, server, capsys):
        # In JavaScript, "x" + 1 is "x1", which is not an error.
        payload = None if example == "worker.mjs" else {"Num": "x"}
        job = server.submit(task="increment", payload=payload, retry=1)

        ended = server.ended(job["id"])

    assert (ended["state"], ended["worker"]) == ("failed", "guest")


@pytest.mark.parametrize("example", COMMANDS)
def test_an_example_worker_survives_a_restart_of_its_server(
    example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path, "--port", find_port()) as server, working(example, server, capsys):
        first = server.submit(task="increment", payload={"Num": 1})
        server.ended(first["id"])
        server.kill()
        server.start()

        job = server.submit(task="increment", payload={"Num": 7})

        assert server.ended(job["id"])["result"] == {"Num": 8}


def test_the_example_in_javascript_says_why_the_server_is_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path) as server:
        server.kill()
        with working("worker.mjs", server, capsys):
            log = eventually((server.directory / "worker.log").read_text, "line of the log")

    assert "ECONNREFUSED" in log


async def test_the_example_in_javascript_gives_up_a_request_that_is_never_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shorter = (
        "const of = AbortSignal.timeout;"
        " AbortSignal.timeout = (ms) => of.call(AbortSignal, ms / 600)"
    )
    monkeypatch.setenv("NODE_OPTIONS", f"--import=data:text/javascript,{quote(shorter)}")
    connected = asyncio.Semaphore(0)

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.release()
        await reader.read()

    with serving(tmp_path) as server:
        async with listening(hold) as url:
            with working("worker.mjs", server, capsys, url):
                async with asyncio.timeout(DEADLINE_S):
                    await connected.acquire()
                    await connected.acquire()  # it has tried again

    assert "timeout" in (tmp_path / "worker.log").read_text()


CUT_OFF = b'HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{"leases"'
BUSY = problem(503, "unavailable", "some jobs move to another server")


@pytest.mark.parametrize("example", COMMANDS)
async def test_an_example_worker_goes_on_after_a_response_that_is_cut_off_and_says_why_it_waits(
    example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = [CUT_OFF, BUSY]
    with serving(tmp_path) as server:
        async with between(server, lambda _: left.pop(0) if left else None) as url:
            with working(example, server, capsys, url):
                job = server.submit(task="increment", payload={"Num": 7})

                ended = await asyncio.to_thread(server.ended, job["id"])

    log = (tmp_path / "worker.log").read_text()
    assert (ended["result"], left) == ({"Num": 8}, [])
    assert "some jobs move to another server" in log
    assert "<nil>" not in log


def test_the_bash_example_reports_more_than_fits_on_a_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    example = (EXAMPLES / "worker.sh").read_text()
    echoing = tmp_path / "echoing.sh"
    echoing.write_text(example.replace("jq -c '{Num: (.Num + 1)}'", "cat"))
    programs, _ = COMMANDS["worker.sh"]
    monkeypatch.setitem(COMMANDS, "worker.sh", (programs, ["bash", str(echoing)]))
    payload = {"Text": "x" * 300_000}

    with serving(tmp_path) as server, working("worker.sh", server, capsys):
        job = server.submit(task="increment", payload=payload)

        assert server.ended(job["id"])["result"] == payload


def test_the_clients_of_the_python_paper_submit_and_get_results(tmp_path: Path) -> None:
    readme, paper = (ROOT / "README.md").read_text(), (ROOT / "docs" / "python.md").read_text()
    application = next(block for block in read_python(readme) if "# myapp.py" in block)
    (tmp_path / "myapp.py").write_text(application)
    programs = read_python(paper.partition("\n## Clients\n")[2].partition("\n## ")[0])

    with serving(tmp_path, "myapp:app", "--processes", "1") as server:
        printed = [
            subprocess.run(
                [sys.executable, "-c", program.replace("http://127.0.0.1:8080", server.url)],
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=True,
            ).stdout.splitlines()
            for program in programs
        ]

    (job, stats), (other,) = printed
    assert job == other == "sent 'hi' to ada@example.org"
    assert stats.startswith("{'completed': ")


def read_python(paper: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", paper, re.DOTALL | re.MULTILINE)


def test_the_example_for_grpc_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "grpc.py").write_text("raise ModuleNotFoundError('there is no grpcio')")
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / "worker_grpc.py")],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert ran.returncode == 1
    assert ran.stderr == (
        "there is no grpcio; in a clone of schedo: pip install '.[grpc]' grpcio\n"
    )
