"""The child process itself: the errors of its start, and its death with the server."""

from __future__ import annotations

import json
import marshal
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedo.child_process import write_unnamed_file
from schedo.core.ids import parse_id
from schedo.core.leases import Lease
from schedo.core.model import PLAIN, LeaseKey, Trigger
from schedo.protocol import frames
from schedo.store.base import OutputPiece
from schedo.worker.process.child_memory import ChildMemory, make_memory
from schedo.worker.process.supervisor import CannotServe
from tests.sources import ROOT
from tests.worker.calls import wait_gone
from tests.worker.site import LONG_S, TARGET, serving


@pytest.mark.parametrize(
    ("code", "target", "reason"),
    [
        (
            "",
            "nowhere:app",
            "cannot import 'nowhere:app': ModuleNotFoundError: No module named 'nowhere'",
        ),
        ("1 / 0", "broken:app", 'broken.py", line 1, in <module>\n    1 / 0\n'),
        ("raise SystemExit(4)", "broken:app", "SystemExit: 4"),
        ("x = 1", "broken:app", "module broken has no 'app'"),
        ("shop = 1", "broken:shp", "module broken has no 'shp'; did you mean shop?"),
        ("app = 1", "broken", "broken is a int, not a Schedo application"),
        ("x = 1", ":app", "write module:attribute"),
        ("import os; os._exit(9)", "broken:app", "the process exited with code 9"),
    ],
    ids=["no module", "raises", "exits", "no name", "misspelt", "no app", "no target", "dies"],
)
async def test_an_application_that_cannot_be_imported_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, target: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text(code)

    with pytest.raises(CannotServe) as caught:
        async with serving(tmp_path, target):
            pass

    assert reason in str(caught.value)
    assert "importlib" not in str(caught.value)


async def test_what_a_handler_prints_and_logs_is_kept_with_its_job(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with serving(tmp_path) as site:
        job = await site.run("talk", text="hello")
        job_id = parse_id(job["id"])
        pieces = [OutputPiece(1, stream, "head", 0, 1_000) for stream in ("stdout", "stderr")]
        printed = capfd.readouterr().err
        stdout, stderr = [await site.engine.store.read_output(job_id, each) for each in pieces]

    assert "hello\n" in printed
    assert stdout == b"hello\n"
    assert stderr.endswith(f"shop: job {job['id']} of task talk: hello in the log\n".encode())


async def test_a_child_runs_the_hooks_of_its_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    async with serving(tmp_path, "tests.worker.hooked_app:app") as site:
        used = await site.run("use_pool")
        failed = await site.run("fail")
        await site.children.stop(LONG_S)

    assert (used["result"], failed["error"]["type"]) == ("pool", "ValueError")
    assert (tmp_path / "story.txt").read_text().splitlines() == [
        *("start", "before use_pool", "after"),
        *("before fail", "fail: ValueError('no')", "stop"),
    ]


async def test_a_startup_that_fails_is_reported_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        *("from schedo import Schedo", "async def live(app):", "    1 / 0", "    yield"),
        "app = Schedo(lifespan=live)",
    ]
    (tmp_path / "cold.py").write_text("\n".join(lines))

    with pytest.raises(CannotServe) as caught:
        async with serving(tmp_path, "cold:app"):
            pass

    text = str(caught.value)
    assert text.startswith("the startup of 'cold:app' failed: Traceback")
    assert 'cold.py", line 3, in live' in text
    assert "contextlib" not in text


def test_a_child_does_not_outlive_a_killed_server(tmp_path: Path, pipe: Path) -> None:
    code = f"""
import asyncio, pathlib
from tests.worker.site import serving
async def main():
    async with serving(pathlib.Path({str(tmp_path)!r})) as site:
        print((await site.run("where"))["result"], flush=True)
        await site.run("block", pipe={str(pipe)!r})
asyncio.run(main())
"""
    server = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        child = int(server.stdout.readline())
        with pipe.open("w"):  # the handler blocks its loop, for it has opened the other end
            server.kill()
            server.wait(LONG_S)

            assert wait_gone(child, LONG_S)
    finally:
        server.kill()
        server.communicate()


def start_child(memory: int, *more: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a child of this process; return it and the server's end of its socket.

    memory: the descriptor of its memory.
    """
    ours, theirs = socket.socketpair()
    options = [f"--fd={theirs.fileno()}", f"--memory={memory}", "--slots=4", "--grace=1"]
    environment = write_unnamed_file(marshal.dumps({}))
    options += [f"--environment={environment}", *more]
    options += [f"--parent={os.getpid()}", "--log-format=text", "--log-level=info"]
    child = subprocess.Popen(
        [sys.executable, "-m", "schedo.worker.process.child", *options, TARGET],
        pass_fds=(theirs.fileno(), memory, environment),
    )
    theirs.close()
    os.close(environment)
    return child, ours


@pytest.fixture
def memory() -> Iterator[int]:
    descriptor = make_memory()
    yield descriptor
    os.close(descriptor)


def make_lease(number: int, task: str, payload: bytes) -> Lease:
    key = LeaseKey(number, 1, 1)
    return Lease(key, "w", task, "default", payload, PLAIN, 0, Trigger.SUBMIT, 0)


@pytest.mark.parametrize(("options", "starts"), [([], 2), (["--cluster=1"], 1)])
def test_a_child_of_a_cluster_starts_nothing_after_its_server(
    pipe: Path, memory: int, options: list[str], starts: int
) -> None:
    """Another server may have started the jobs by then."""
    leases = [
        make_lease(1, "block", json.dumps({"pipe": str(pipe)}).encode()),
        make_lease(2, "where", b"{}"),
    ]
    child, ours = start_child(memory, *options)
    try:
        with ours:
            ours.settimeout(LONG_S)
            assert ours.recv(65_536), "it has attached"
            ours.sendall(frames.encode_frame(frames.Leases(leases, time.monotonic() + LONG_S)))
            writer = pipe.open("w")  # the first handler blocks the loop
        writer.close()  # and ends when the server is gone
        child.wait(LONG_S)
    finally:
        child.kill()
        child.wait()

    assert ChildMemory.map(memory).starts.count == starts


def test_a_child_that_ends_sends_its_last_results_first(memory: int) -> None:
    payload = json.dumps({"text": "x" * 100_000}).encode()
    leases = [make_lease(n, "echo", payload) for n in range(50)]
    child, ours = start_child(memory)
    said: list[frames.FromChild] = []
    reader = frames.child_frames()
    try:
        with ours:
            ours.settimeout(LONG_S)
            for lease in leases:
                start_by = time.monotonic() + LONG_S
                ours.sendall(frames.encode_frame(frames.Leases([lease], start_by)))
            ours.sendall(frames.encode_frame(frames.Drain()))
            while data := ours.recv(65_536):
                said += reader.feed(data)
        code = child.wait(LONG_S)
    finally:
        child.kill()
        child.wait()

    ended = [
        result.key.job_id
        for frame in said
        if isinstance(frame, frames.Results)
        for result in frame.results
    ]
    assert (code, sorted(ended)) == (0, list(range(50)))
