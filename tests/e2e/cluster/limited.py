"""Clients that submit to queues with a limit, at any server."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence

from tests.e2e.takeover.evidence import ClientLog, Submission
from tests.e2e.takeover.raw_http import Broken, Client

LIMITS = {"limit1": 1, "limit10": 10}
RUN_MS = 20
ELSEWHERE = 0.5  # of the jobs are not where the queue has its home
PACE_S = 0.05  # the mean pause between two submits to one queue


class LimitedClients:
    """A client for each queue; its jobs take RUN_MS."""

    def __init__(self, ports: Sequence[int], log: ClientLog, seed: int) -> None:
        self._ports = ports
        self._log = log
        self._random = random.Random(seed)
        self._numbers = itertools.count()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False

    async def start(self) -> None:
        """Set the limits, and begin to submit."""
        client = Client(self._ports, self._log)
        for queue, limit in LIMITS.items():
            await client.ask_again("PATCH", f"/v1/queues/{queue}", {"concurrency": limit})
        client.close()
        self._tasks = [asyncio.create_task(self._submit(queue)) for queue in LIMITS]

    async def stop(self) -> None:
        """End after the present requests."""
        self._is_stopping = True
        await asyncio.gather(*self._tasks)

    async def _submit(self, queue: str) -> None:
        client = Client(self._ports, self._log)
        while not self._is_stopping:
            token = f"{queue}-{next(self._numbers)}"
            submission = Submission(token, "child")
            self._log.submissions.append(submission)
            payload = {"token": token, "ms": RUN_MS}
            job: dict[str, object] = {"task": "mark", "queue": queue, "payload": payload}
            if self._random.random() < ELSEWHERE:
                job["unique"] = token  # it belongs to the server that has the key
            try:
                reply = await client.ask("POST", "/v1/jobs", job)
                if reply.status in (200, 201, 202):
                    submission.job = reply.body["id"]
                elif 400 <= reply.status < 500 and reply.status != 429:
                    submission.is_rejected = True
                    self._log.wrong.append(f"{submission} was rejected: {reply}")
            except Broken:
                pass
            await asyncio.sleep(self._random.expovariate(1 / PACE_S))
        client.close()
