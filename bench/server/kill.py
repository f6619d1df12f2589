"""Kills the server in the middle of the work, and checks that no acknowledged job is missing.

`python -m bench.server.kill STORE WORK` is the program with an embedded server that is killed; it
prints the number of acknowledged jobs after each batch.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from bench.peers.schedo_embedded import Program
from bench.peers.schedo_served import submit_batch
from bench.peers.served_app import APP
from bench.peers.work import Work
from bench.server.connection import DEADLINE_S, run, until_idle
from bench.server.evidence import LIVE, check_acknowledged, query_store
from bench.server.process import TREE, Server, make_environment
from schedo.client import AsyncClient


def check_embedded(directory: Path, work: Work) -> str:
    """Kill a program while its embedded server runs jobs; return a sentence, or raise NotDone."""
    store = directory / "embedded.db"
    acknowledged = 0
    with subprocess.Popen(
        [sys.executable, "-m", "bench.server.kill", str(store), json.dumps(asdict(work))],
        cwd=TREE,
        env=make_environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        for line in program.stdout:  # also what it printed before it was killed
            acknowledged = int(line)
            if acknowledged >= work.count // 2:
                program.kill()
    run(_run_rest(store, work))
    return f"embedded: {check_acknowledged(store, acknowledged)} after kill -9"


async def _run_rest(store: Path, work: Work) -> None:
    """Run another program on the file until no job waits; it leaves when all ends are durable."""
    async with asyncio.timeout(DEADLINE_S), Program(store, work, is_open=True).app:
        while query_store(store, f"SELECT 1 FROM job WHERE state IN ({LIVE}) LIMIT 1"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def check_served(directory: Path, work: Work) -> str:
    """Kill `schedo serve` while it runs jobs; return a sentence, or raise NotDone."""
    server = Server(directory, app=APP)
    with server:
        acknowledged = run(_submit_until_killed(server, work))
        server.start_ready()
        run(until_idle(server))
    return f"served: {check_acknowledged(server.store, acknowledged)} after kill -9"


async def _submit_until_killed(server: Server, work: Work) -> int:
    acknowledged = 0
    async with AsyncClient(server.url) as client:
        for batch in work.batches():
            submit = asyncio.create_task(submit_batch(client, work, batch))
            if acknowledged < work.count // 2:
                await submit
                acknowledged = batch.stop
                continue
            await asyncio.sleep(0.002)  # the request is on its way
            await asyncio.to_thread(server.kill)
            submit.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await submit
                acknowledged = batch.stop
            break
    return acknowledged


async def _submit(path: Path, work: Work) -> None:
    program = Program(path, work, is_open=True)
    async with program.app:
        for batch in work.batches():
            await program.submit_batch(batch)
            print(batch.stop, flush=True)


if __name__ == "__main__":
    run(_submit(Path(sys.argv[1]), Work(**json.loads(sys.argv[2]))))
