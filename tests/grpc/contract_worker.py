"""The worker of examples/worker_grpc.py, led by a test as tests/sdk/process_worker.py says."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from typing import Any

import grpc

from tests.sources import ROOT

_spec = importlib.util.spec_from_file_location("example", ROOT / "examples" / "worker_grpc.py")
assert _spec is not None
assert _spec.loader is not None
example: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(example)


class Failing(Exception):
    """How the handler of the test fails."""


class Led:
    """A worker whose handler waits until the test ends it."""

    def __init__(self) -> None:
        self._ends: dict[str, asyncio.Future[Any]] = {}
        self._jobs: dict[str, Any] = {}
        self.worker = example.Worker(
            os.environ["SCHEDO_URL"],
            {"work": self._work},
            name="w1",
            slots=2,
            token=os.environ.get("SCHEDO_TOKEN"),
        )

    async def _work(self, payload: Any, job: Any) -> Any:
        lease = job.lease.lease
        self._jobs[lease] = job
        end = self._ends[lease] = asyncio.get_running_loop().create_future()
        tell(event="called", lease=lease, payload=payload)
        try:
            return await end
        except asyncio.CancelledError:
            tell(event="stopped", lease=lease, reason=job.stop_reason)
            raise

    def obey(self, do: str, lease: str = "", value: Any = None, update: Any = None) -> None:
        if do == "sync":
            tell(event="synced")
        elif do == "complete":
            self._ends[lease].set_result(value)
        elif do == "fail":
            self._ends[lease].set_exception(Failing(value))
        elif do == "progress":
            line = update.pop("log", None)
            self._jobs[lease].progress(**update) if line is None else self._jobs[lease].log(line)
        elif do == "stop":
            self.worker.drain()
        else:
            self.worker.stop_now()


def tell(**event: Any) -> None:
    print(json.dumps(event), flush=True)


async def main() -> None:
    led = Led()
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    running = asyncio.create_task(led.worker.run())
    reading = asyncio.create_task(_read(led, commands))
    await asyncio.wait((running, reading), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        error = running.exception()
        tell(event="ended", error=error.details() if isinstance(error, grpc.RpcError) else "")


async def _read(led: Led, commands: asyncio.StreamReader) -> None:
    while line := await commands.readline():
        led.obey(**json.loads(line))


if __name__ == "__main__":
    asyncio.run(main())
