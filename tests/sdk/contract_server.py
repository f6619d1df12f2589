"""What a worker and a client of an SDK do with a real server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

from tests.e2e.remote import find_port
from tests.e2e.server import DEADLINE_S, Server, eventually, serving
from tests.passes import one_pass
from tests.sdk.process_worker import process_worker

Command = Sequence[str]


class WorkerServerClaims:
    """A test module gives the fixture `worker_command`."""

    def choose_options(self) -> list[str]:
        """Return the options of the server."""
        return ["--port", find_port()]

    def find_url(self, server: Server) -> str:
        """Return the address by which the worker reaches the server."""
        return server.url

    async def test_a_worker_runs_the_jobs_of_a_real_server(
        self, worker_command: Command, tmp_path: Path
    ) -> None:
        with serving(tmp_path, *self.choose_options()) as server:
            async with process_worker(worker_command, self.find_url(server)) as worker:
                done, failed = (
                    server.submit(task="work", payload={"n": n}, retry=1) for n in (1, 2)
                )
                calls = sorted([await worker.called() for _ in range(2)])
                assert [call.payload for call in calls] == [{"n": 1}, {"n": 2}]
                worker.end(calls[0], "complete", {"n": 2})
                worker.end(calls[1], "fail", "no disk")

                ended = [server.ended(job["id"]) for job in (done, failed)]

        assert (ended[0]["result"], ended[0]["worker"]) == ({"n": 2}, "w1")
        assert (ended[1]["state"], ended[1]["error"]["message"]) == ("failed", "no disk")

    async def test_a_cancelled_job_stops_on_its_worker(
        self, worker_command: Command, tmp_path: Path
    ) -> None:
        with serving(tmp_path, *self.choose_options()) as server:
            async with process_worker(worker_command, self.find_url(server)) as worker:
                job = server.submit(task="work")
                call = await worker.called()
                server.ask("POST", f"/v1/jobs/{job['id']}:cancel")

                assert await worker.stopped(call) == "cancel"
                assert server.ended(job["id"])["state"] == "cancelled"

    async def test_an_attempt_survives_the_death_of_its_server(
        self, worker_command: Command, tmp_path: Path
    ) -> None:
        with serving(tmp_path, *self.choose_options()) as server:
            async with process_worker(worker_command, self.find_url(server)) as worker:
                job = server.submit(task="work")
                call = await worker.called()
                server.kill()
                worker.end(call, "complete", "done")
                server.start()

                ended = server.ended(job["id"])
                assert (ended["result"], ended["attempt"]) == ("done", 1)
                assert not await worker.has_called()

    async def test_progress_and_output_reach_the_server(
        self, worker_command: Command, tmp_path: Path
    ) -> None:
        with serving(tmp_path, *self.choose_options()) as server:
            async with process_worker(worker_command, self.find_url(server)) as worker:
                job = server.submit(task="work")
                call = await worker.called()
                worker.progress(call, percent=40, message="half of it")
                worker.progress(call, log="a line")
                path = f"/v1/jobs/{job['id']}/progress"
                told = eventually(lambda: server.ask("GET", path)[1]["items"], "progress")
                worker.end(call, "complete")
                server.ended(job["id"])

                assert (told[-1]["percent"], told[-1]["message"]) == (40, "half of it")
                assert server.output(job["id"]) == "a line\n"

    async def test_each_line_of_a_log_is_in_the_progress_once(
        self, worker_command: Command, tmp_path: Path
    ) -> None:
        with serving(tmp_path, *self.choose_options()) as server:
            async with process_worker(worker_command, self.find_url(server)) as worker:
                job = server.submit(task="work")
                call = await worker.called()
                worker.progress(call, log="one")
                worker.progress(call, log="two")
                path = f"/v1/jobs/{job['id']}/progress"

                def read_log() -> str:
                    items = server.ask("GET", path)[1]["items"]
                    return "\n".join(each["log"] for each in items)

                eventually(lambda: read_log().endswith("two"), "second line")
                assert read_log() == "one\ntwo"

    async def test_an_invocation_runs_and_a_drained_worker_gives_its_job_back(
        self, worker_command: Command, tmp_path: Path
    ) -> None:
        with serving(tmp_path, *self.choose_options()) as server:
            async with process_worker(worker_command, self.find_url(server)) as worker:
                eventually(lambda: server.ask("GET", "/v1/workers/w1")[0] == 200, "worker")
                body = {"task": "work", "payload": {"n": 1}, "wait": 0}
                status, invoked = server.ask("POST", "/v1/invoke", body)
                assert status == 201, invoked
                worker.end(await worker.called(), "complete", 42)
                assert server.ended(invoked["id"])["result"] == 42

                job = server.submit(task="work")
                await worker.called()
                worker.stop()
                worker.stop_now()
                assert await worker.ended() == ""

                _, waiting = server.ask("GET", f"/v1/jobs/{job['id']}")
                assert (waiting["state"], waiting["failures"], waiting["losses"]) == (
                    "queued",
                    0,
                    0,
                )


class ServerClaims(WorkerServerClaims):
    """A test module gives the fixtures `worker_command` and `client_command`."""

    async def test_a_long_output_of_any_characters_is_kept(
        self, worker_command: Command, tmp_path: Path
    ) -> None:
        with serving(tmp_path, *self.choose_options()) as server:
            async with process_worker(worker_command, self.find_url(server)) as worker:
                job = server.submit(task="work")
                call = await worker.called()
                worker.progress(call, log="\x1b" * 400_000)
                await worker.has_called()  # the process has read all of it
                worker.end(call, "complete", "done")

                assert server.ended(job["id"])["state"] == "completed"
                assert server.output(job["id"])[:3] == "\x1b\x1b\x1b"

    async def test_a_client_submits_reads_and_changes_jobs(
        self, client_command: Command, tmp_path: Path
    ) -> None:
        with serving(tmp_path, "--allow-shell") as server:
            told = await asyncio.to_thread(run_client, client_command, server.url)

        assert told == {
            "completed": {"exit_code": 0},
            "output": "hello\n",
            "failed": "failed exit-code",
            "not found": [404, "not-found"],
            "batch": ["scheduled", "invalid"],
            "same key": True,
            "cancelled": "cancelled",
            "listed": 2,
            "retried": "queued",
            "invoked": "completed",
            "no capacity": "unsatisfiable",
            "schedule": "0 3 * * *",
            "stats": ["queue", "default", 1, True],
        }

    async def test_a_client_repeats_a_request_that_finds_no_owner_of_the_job_or_no_server(
        self, client_command: Command, tmp_path: Path
    ) -> None:
        owner = problem(503, "peer-unreachable", "server 2 cannot be reached")
        balancer = response(503, "text/html", b"<html>no server is available</html>")
        left = [owner, balancer]
        with serving(tmp_path, "--allow-shell") as server:
            async with between(server, lambda _: left.pop(0) if left else None) as url:
                told = await asyncio.to_thread(run_client, client_command, url)

        assert (told["completed"], left) == ({"exit_code": 0}, [])

    async def test_a_client_does_not_wait_in_a_loop_at_a_server_that_ends_each_wait_at_once(
        self, client_command: Command, tmp_path: Path
    ) -> None:
        running = json.dumps({"id": "0CR5KPDD15T00", "state": "running"}).encode()
        waits: list[float] = []

        def end_early(path: str) -> bytes | None:
            if "/wait" not in path or len(waits) > 2:
                return None
            waits.append(asyncio.get_running_loop().time())
            return response(202, "application/json", running)

        with serving(tmp_path, "--allow-shell") as server:
            async with between(server, end_early) as url:
                told = await asyncio.to_thread(run_client, client_command, url)

        assert told["completed"] == {"exit_code": 0}
        assert min(waits[1] - waits[0], waits[2] - waits[1]) > 0.2


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(talk: Talk) -> AsyncIterator[str]:
    """Let this function speak with each client, and yield the address."""
    serving: set[asyncio.Task[Any]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        with suppress(asyncio.CancelledError, asyncio.IncompleteReadError):
            await talk(reader, writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        serving.discard(task)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        listener.close()
        for _ in range(3):  # a connection that has just been accepted begins, and is ended then
            await one_pass()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


@asynccontextmanager
async def between(server: Server, answer: Callable[[str], bytes | None]) -> AsyncIterator[str]:
    """Listen before the server, and yield the address.

    `answer` gets the target of each request, and returns the response if it is not the server's.
    """

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(length[1])) if length else b""
        writer.write(answer(head.split(" ")[1]) or await ask(server, head, body))

    async with listening(pass_on) as url:
        yield url


async def ask(server: Server, head: str, body: bytes) -> bytes:
    """Send a request on a connection of its own; return the response."""
    lines = [line for line in head.splitlines() if line[:11].lower() != "connection:"]
    request = "\r\n".join([*lines[:-1], "connection: close", "", ""]).encode() + body
    port = int(server.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with closing(writer):
        writer.write(request)
        return await reader.read()


def problem(status: int, code: str, detail: str) -> bytes:
    """Return a response of a server that refuses a request."""
    body = json.dumps({"status": status, "code": code, "detail": detail}).encode()
    return response(status, "application/problem+json", body)


def response(status: int, media_type: str, body: bytes) -> bytes:
    """Return a response after which the connection ends."""
    lines = [f"HTTP/1.1 {status} Whatever", f"content-type: {media_type}", "connection: close"]
    lines += [f"content-length: {len(body)}", "retry-after: 0", "", ""]
    return "\r\n".join(lines).encode() + body


def run_client(command: Command, url: str) -> dict[str, Any]:
    """Run the program that uses the client; return what it tells."""
    ran = subprocess.run(
        command,
        env=os.environ | {"SCHEDO_URL": url},
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    return dict(json.loads(ran.stdout))
