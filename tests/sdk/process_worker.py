"""A worker of an SDK in a process of its own. The test sends it commands, and it sends events."""

from __future__ import annotations

import asyncio
import json
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.worker.contract_worker import TOKEN, Call

DEADLINE_S = 10


class ProcessWorker:
    """The other side of sdk/*/test/contract.*."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._events: dict[str, asyncio.Queue[dict[str, Any]]] = defaultdict(asyncio.Queue)
        self._reading = asyncio.create_task(self._read())
        assert process.stderr is not None
        self._logging = asyncio.create_task(process.stderr.read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            event = json.loads(line)
            self._events[event["event"]].put_nowait(event)

    async def _next(self, name: str) -> dict[str, Any]:
        async with asyncio.timeout(DEADLINE_S):
            return await self._events[name].get()

    def _command(self, what: str, **fields: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **fields}).encode() + b"\n")

    async def called(self) -> Call:
        event = await self._next("called")
        return Call(event["lease"], event["payload"])

    async def has_called(self) -> bool:
        self._command("sync")
        await self._next("synced")  # events arrive in order
        return not self._events["called"].empty()

    async def stopped(self, call: Call) -> str:
        while (event := await self._next("stopped"))["lease"] != call.lease:
            pass
        return str(event["reason"])

    def end(self, call: Call, how: str, value: Any = None) -> None:
        self._command(how, lease=call.lease, value=value)

    def progress(self, call: Call, **update: Any) -> None:
        self._command("progress", lease=call.lease, update=update)

    def stop(self) -> None:
        self._command("stop")

    def stop_now(self) -> None:
        self._command("stop_now")

    async def ended(self) -> str:
        return str((await self._next("ended"))["error"])

    async def close(self) -> None:
        """Kill the process."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading
        await self._logging

    async def log(self) -> list[str]:
        """Kill the process; return the lines of its log."""
        await self.close()
        return (await self._logging).decode().splitlines()


@asynccontextmanager
async def process_worker(command: Sequence[str], url: str) -> AsyncIterator[ProcessWorker]:
    """Run the program as a worker of the server at `url` during the block."""
    environment = os.environ | {"SCHEDO_URL": url, "SCHEDO_TOKEN": TOKEN}
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    worker = ProcessWorker(process)
    try:
        yield worker
    finally:
        await worker.close()
