"""Many requests in every way that HTTP allows; each one must be answered.

`python -m tests.e2e.takeover.traffic PORT` runs until SIGTERM, and then prints its counts as JSON.
It has kept connections, pipelined requests, long polls of workers, and waits for jobs; connects.py
has the new connections. A request fails if its connect is refused, if its connection ends before
the whole response, if it gets a status of 500 or more, or no response within 30 s.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable

import uvloop

from tests.e2e.takeover.evidence import TRAFFIC as TOKEN
from tests.sources import ROOT

RESPONSE_S = 30.0
KEPT = 8
PIPELINED = 8
HEAD = re.compile(rb"HTTP/1\.1 (\d+) .*?\r\n\r\n", re.DOTALL)
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
CLOSE = re.compile(rb"\r\nconnection: close\r\n", re.IGNORECASE)


class TrafficProcesses:
    """Runs this module and connects.py, each as a process of its own."""

    def __init__(self, port: int, rate: int) -> None:
        """rate: of new connections, in a second."""
        words = ([__name__, str(port)], [__name__.replace("traffic", "connects"), port, str(rate)])
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", *map(str, each)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
            )
            for each in words
        ]

    def stop(self) -> dict[str, int]:
        """End them, and return the counts: `answered KIND` and `failed KIND REASON`."""
        counts: Counter[str] = Counter()
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            output, _ = process.communicate()
            counts.update(json.loads(output))
        return counts


class Failed(Exception):
    """A request was not answered as it must be; the text is the reason."""


class Connection:
    """One connection; requests may follow each other without waiting."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.is_closing = False  # the last response said so

    @classmethod
    async def open(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, *requests: bytes) -> None:
        if self._writer.is_closing():
            raise ConnectionResetError
        self._writer.write(b"".join(requests))

    async def receive(self) -> bytes:
        """Return the body of the next response; raise Failed if it is none or an error."""
        async with asyncio.timeout(RESPONSE_S):
            return await self._receive()

    async def _receive(self) -> bytes:
        head = await self._reader.readuntil(b"\r\n\r\n")
        found, length = HEAD.match(head), LENGTH.search(head)
        if found is None or length is None:
            raise Failed(f"bad head {head[:40]!r}")
        body = await self._reader.readexactly(int(length[1]))
        self.is_closing = CLOSE.search(head) is not None
        if int(found[1]) >= 400:
            problem = json.loads(body)
            raise Failed(f"status {int(found[1])} {problem.get('code')}: {problem.get('detail')}")
        return body

    def close(self) -> None:
        self._writer.transport.abort()


def request(method: str, path: str, body: object = None) -> bytes:
    text = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(text)}\r\n"
    return (head + "content-type: application/json\r\n\r\n" * bool(text)).encode() + (
        text or b"\r\n"
    )


class Traffic:
    """All clients of the process."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._is_stopping = False
        self.counts: Counter[str] = Counter()

    async def run(self) -> None:
        """Send until SIGTERM; wait for what is open."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop)
        kinds = [self._kept] * KEPT + [self._pipelined] * 2 + [self._polling] * 4 + [self._submit]
        async with asyncio.TaskGroup() as group:
            for kind in [*kinds, *[self._working] * 2, self._slow]:
                group.create_task(self._repeat(kind))

    def _stop(self) -> None:
        self._is_stopping = True

    async def _repeat(self, kind: Callable[[], Awaitable[int]]) -> None:
        while not self._is_stopping:
            await self._note(kind.__name__.strip("_"), kind)

    async def _note(self, name: str, kind: Callable[[], Awaitable[int]]) -> None:
        """Run one exchange, which returns the number of responses; count how it ended."""
        try:
            answered = await kind()
            self.counts[f"answered {name}"] += answered
        except Failed as error:
            self.counts[f"failed {name}: {error}"] += 1
        except ConnectionRefusedError:
            self.counts[f"failed {name}: refused"] += 1
            await asyncio.sleep(0.01)
        except TimeoutError:
            self.counts[f"failed {name}: no response"] += 1
        except (OSError, asyncio.IncompleteReadError) as error:
            self.counts[f"failed {name}: {type(error).__name__}"] += 1

    async def _kept(self) -> int:
        """Send one request after the other, until the server announces the end."""
        connection = await Connection.open(self._port)
        answered = 0
        try:
            while not connection.is_closing and answered < 2_000:
                connection.send(request("GET", "/v1/queues"))
                await connection.receive()
                answered += 1
                self.counts["answered kept"] += 1
                await asyncio.sleep(0.005)
                if self._is_stopping:
                    break
        finally:
            connection.close()
        return 0

    async def _pipelined(self) -> int:
        """Send some requests at once; all of them are answered, in their order."""
        connection = await Connection.open(self._port)
        try:
            while not connection.is_closing and not self._is_stopping:
                connection.send(*[request("GET", "/healthz")] * PIPELINED)
                for left in range(PIPELINED, 0, -1):
                    if connection.is_closing:
                        raise Failed(f"{left} of {PIPELINED} after the announced end")
                    await connection.receive()
                self.counts["answered pipelined"] += PIPELINED
                await asyncio.sleep(0.005)
        finally:
            connection.close()
        return 0

    async def _polling(self) -> int:
        """Wait for a job that ends after 300 ms; the response is its end."""
        connection = await Connection.open(self._port)
        try:
            payload = {"command": "sleep 0.3; echo through"}
            connection.send(
                request("POST", "/v1/jobs?wait=20s", {"task": "shell", "payload": payload})
            )
            job = json.loads(await connection.receive())
            while job["state"] in ("queued", "running"):  # a server that ends answers what waits
                if connection.is_closing:
                    connection.close()
                    connection = await Connection.open(self._port)
                connection.send(request("GET", f"/v1/jobs/{job['id']}/wait"))
                job = json.loads(await connection.receive())
            if job["state"] != "completed":
                raise Failed(f"the job was {job['state']}")
        finally:
            connection.close()
        return 1

    async def _working(self) -> int:
        """Poll as a worker for which there is no job."""
        connection = await Connection.open(self._port)
        name = f"idle-{id(connection)}"
        poll = {"worker": name, "session": name, "tasks": ["none"], "slots": 1, "running": []}
        answered = 0
        try:
            while not connection.is_closing and not self._is_stopping:
                connection.send(request("POST", "/v1/work", {**poll, "wait": "2s"}))
                await connection.receive()
                answered += 1
        finally:
            connection.close()
        return answered

    async def _slow(self) -> int:
        """Send a body slowly, so that the store may pass in the middle of it."""
        connection = await Connection.open(self._port)
        payload = {"command": ": " + "x" * 3_000}
        data = request("POST", "/v1/jobs", {"task": "shell", "payload": payload})
        try:
            for at in range(0, len(data), 300):
                connection.send(data[at : at + 300])
                await asyncio.sleep(0.03)
            await connection.receive()
        finally:
            connection.close()
        return 1

    async def _submit(self) -> int:
        connection = await Connection.open(self._port)
        answered = 0
        try:
            while not connection.is_closing and not self._is_stopping and answered < 500:
                job = {"task": "mark", "payload": {"token": TOKEN}}
                connection.send(request("POST", "/v1/jobs", job))
                await connection.receive()
                answered += 1
                await asyncio.sleep(0.02)
        finally:
            connection.close()
        return answered


async def _main(port: int) -> None:
    traffic = Traffic(port)
    await traffic.run()
    print(json.dumps(traffic.counts), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(int(sys.argv[1])))
