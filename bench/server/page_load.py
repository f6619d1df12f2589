"""The steady load of a server whose page is measured: schedules, and jobs of several queues."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.server.connection import Connection, connect, job_request, request
from bench.server.evidence import NotDone
from bench.server.process import Server

SCHEDULES, EACH_SECOND = 20, 4  # how many fire each second; the others fire each 5 minutes
QUEUES = ("mail", "images", "billing")
FAILING = 10  # each tenth job is of a task that fails


def name_of(number: int) -> str:
    """Return the name of a schedule."""
    return f"job.{number}"


async def put_schedules(server: Server) -> None:
    """Put schedules on the server."""
    connection = await connect(server)
    for number in range(SCHEDULES):
        cron = "* * * * * *" if number < EACH_SECOND else "*/5 * * * *"
        body = json.dumps({"cron": cron, "task": "noop"}).encode()
        await _send(connection, request("PUT", f"/v1/schedules/{name_of(number)}", body))
    connection.close()


@asynccontextmanager
async def submitting(server: Server, rate: int) -> AsyncIterator[None]:
    """Submit jobs at a steady rate meanwhile; some of them fail."""
    task = asyncio.create_task(_submit(server, rate))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()  # why the load has ended before


async def _submit(server: Server, rate: int) -> None:
    connection = await connect(server)
    for number in itertools.count():
        task = "stumble" if number % FAILING == 0 else "noop"
        job = {"task": task, "queue": QUEUES[number % len(QUEUES)], "retry": {"max_attempts": 1}}
        await _send(connection, job_request(job))
        await asyncio.sleep(1 / rate)


async def _send(connection: Connection, asked: bytes) -> None:
    reply = await connection.ask(asked)
    if reply.status != 201:
        raise NotDone(f"the load was answered with {reply.status}: {reply.body!r}")
