"""gRPC beside HTTP: what the same work costs the server over each of them.

Both ports belong to one server, and the two take turns. HTTP is driven over raw sockets, gRPC by
the official client, whose own processor time is not counted. The figures are the processor time of
the server for each job. A worker completes jobs that wait: over HTTP each poll brings the results
of the one before, on the stream one message has the results of one push.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc.aio

from bench.server.connection import batch_request, connect, job_request, request, run, send_all
from bench.server.evidence import NotDone, check_completed
from bench.server.process import NOOP_APP, Server
from bench.server.script import Option, Results, run_script
from schedo.grpc import schedo_pb2 as pb

AT_ONCE = 32  # calls, and slots of the worker
BATCH = 100
PREFIX = "/schedo.v1.Schedo/"
LATER: dict[str, object] = {"task": "later", "payload": {"n": 1}, "delay": "1h"}
Run = Callable[[int], Awaitable[None]]


class Http:
    """Does the work over HTTP."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def submit(self, count: int) -> None:
        await self._send([job_request(LATER)] * count)

    async def batch(self, count: int) -> None:
        await self._send([batch_request([LATER] * BATCH)] * (count // BATCH))

    async def invoke(self, count: int) -> None:
        body = json.dumps({"task": "noop", "payload": {"n": 1}}).encode()
        await self._send([request("POST", "/v1/invoke", body)] * count)

    async def _send(self, requests: Sequence[bytes]) -> None:
        load = await send_all(self._server, requests, AT_ONCE)
        if refused := [reply for reply in load.replies if reply.status not in (200, 201)]:
            raise NotDone(f"{len(refused)} requests were refused: {refused[0].body!r}")

    async def work(self, count: int) -> None:
        """Complete this number of jobs that wait."""
        connection = await connect(self._server)
        me = {"worker": "http", "session": "s", "tasks": ["remote"], "slots": AT_ONCE, "wait": 10}
        results: list[dict[str, str]] = []
        while count or results:
            fields = me | {"running": [], "results": results, "wait": 10 if count else 0}
            fields |= {} if count else {"draining": True}
            reply = await connection.ask(request("POST", "/v1/work", json.dumps(fields).encode()))
            leases = reply.json()["leases"]
            results = [{"lease": each["lease"], "outcome": "completed"} for each in leases]
            count -= len(leases)
        connection.close()


class Grpc:
    """Does the same over gRPC."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._later = pb.SubmitRequest(task="later", payload='{"n":1}', delay="1h")

    def _call(self, name: str, request: type[Any], response: type[Any]) -> Any:
        return self._channel.unary_unary(
            PREFIX + name, request.SerializeToString, response.FromString
        )

    async def submit(self, count: int) -> None:
        await self._repeat(self._call("Submit", pb.SubmitRequest, pb.Job), self._later, count)

    async def batch(self, count: int) -> None:
        call = self._call("SubmitBatch", pb.SubmitBatchRequest, pb.SubmitBatchResponse)
        jobs = pb.SubmitBatchRequest(jobs=[self._later] * BATCH)
        await self._repeat(call, jobs, count // BATCH)

    async def invoke(self, count: int) -> None:
        call = self._call("Invoke", pb.InvokeRequest, pb.InvokeResponse)
        await self._repeat(call, pb.InvokeRequest(task="noop", payload='{"n":1}'), count)

    async def _repeat(self, call: Any, message: Any, count: int) -> None:
        left = iter(range(count))

        async def repeat() -> None:
            for _ in left:
                await call(message)

        await asyncio.gather(*(repeat() for _ in range(AT_ONCE)))

    async def work(self, count: int) -> None:
        """Complete this number of jobs that wait."""
        stream = self._channel.stream_stream(
            PREFIX + "Work", pb.WorkRequest.SerializeToString, pb.WorkResponse.FromString
        )()
        await stream.write(
            pb.WorkRequest(seq=1, worker="grpc", session="s", tasks=["remote"], slots=AT_ONCE)
        )
        async for response in stream:
            if response.leases:
                ended = [
                    pb.Result(lease=each.lease, outcome="completed") for each in response.leases
                ]
                count -= len(ended)
                await stream.write(pb.WorkRequest(seq=2, results=ended, draining=count <= 0))


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    port = _find_port()
    server = Server(directory, "--grpc-port", str(port), app=NOOP_APP)
    with server:
        run(_measure(server, f"127.0.0.1:{port}", arguments, results))
        server.restart()
    done = 2 * arguments.rounds * arguments.count
    results.check(check_completed(server.store, "remote", done))


async def _measure(
    server: Server, address: str, arguments: argparse.Namespace, results: Results
) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        http, rpc = Http(server), Grpc(channel)
        for what, by_http, by_grpc in (
            (f"submit, {AT_ONCE} at a time", http.submit, rpc.submit),
            (f"submit in batches of {BATCH}", http.batch, rpc.batch),
            (f"invoke, {AT_ONCE} at a time", http.invoke, rpc.invoke),
            (f"lease to result, a worker of {AT_ONCE} slots", http.work, rpc.work),
        ):
            found: dict[str, list[float]] = {"http": [], "grpc": []}
            for _ in range(arguments.rounds):
                for name, do in (("http", by_http), ("grpc", by_grpc)):
                    if what.startswith("lease"):
                        await _queue(server, arguments.count)
                    found[name].append(await _cost_us(server, do, arguments.count))
            least = statistics.median(found["http"])
            results.add(f"{what}: processor", statistics.median(found["grpc"]), "us", least, "HTTP")


async def _queue(server: Server, count: int) -> None:
    """Submit jobs that wait for the worker."""
    jobs = [{"task": "remote", "payload": {"n": 1}, "queue": "remote"}] * BATCH
    await send_all(server, [batch_request(jobs)] * (count // BATCH), 1)


async def _cost_us(server: Server, do: Run, count: int) -> float:
    """Return the processor time of the server and its children for each job."""
    began = server.cpu_s
    await do(count)
    return (server.cpu_s - began) / count * 1e6


def _find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    run_script(
        __doc__,
        measure,
        [
            Option("count", 5_000, 500, "jobs of each row and round, in hundreds"),
            Option("rounds", 3, 1, "of both ways"),
        ],
    )
