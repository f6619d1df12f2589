"""The clients: they submit in every way, cancel and wait, and log what the server promised them."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.e2e.takeover.evidence import ClientLog, Submission, command
from tests.e2e.takeover.raw_http import Broken, Client, Reply

PLACES = ("child", "shell", "remote", "remote-shell")
FAR = {"queue": "far", "requires": {"labels": {"place": "far"}}}
SCHEDULES = {f"each-second-{place}": place for place in PLACES}


class Clients:
    """All clients of one run. `pace` is the pause of each client between two requests, in s."""

    def __init__(self, port: int, runs: Path, seed: int, pace: float) -> None:
        self.log = ClientLog()
        self._port = port
        self._runs = runs
        self._random = random.Random(seed)
        self._pace = pace
        self._numbers = itertools.count()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False

    async def start(self, *, long: bool = False) -> None:
        """Put the schedules, and begin with everything else.

        long: there are attempts of some seconds, too, each of which must end with its own output.
        """
        client = Client(self._port, self.log)
        for name, place in SCHEDULES.items():
            job = self._job(name, place, 0)
            await self._put(client, name, {**job, "cron": "* * * * * *", "overlap": "allow"})
            self.log.schedules[name] = time.time()
        client.close()
        works = (self._one, self._batch, self._keyed, self._unique, self._cancel, self._wait)
        for work in (*works, self._timers, self._connect, *[self._long] * (6 * long)):
            self._tasks.append(asyncio.create_task(self._repeat(work)))

    async def _put(self, client: Client, name: str, body: object) -> None:
        reply = await client.ask("PUT", f"/v1/schedules/{name}", body)
        if reply.status >= 400:
            raise RuntimeError(f"{reply}")

    async def stop(self) -> None:
        """End all clients after their present request."""
        self._is_stopping = True
        await asyncio.gather(*self._tasks)

    async def _repeat(self, work: Callable[[Client], Awaitable[None]]) -> None:
        client = Client(self._port, self.log)
        while not self._is_stopping:
            await work(client)
            await asyncio.sleep(self._random.expovariate(1 / self._pace))
        client.close()

    def _submission(self, kind: str, ms: int = -1) -> tuple[Submission, dict[str, object]]:
        """Return a new submission with the body of its request."""
        token = f"{kind}-{next(self._numbers)}"
        place = self._random.choice(PLACES)
        delivery = self._random.choice(["at_least_once"] * 4 + ["at_most_once"])
        if ms < 0:
            ms = self._random.choice([0, 0, 0, 20, 100, 400])
        job = self._job(token, place, ms)
        if delivery == "at_most_once":
            job["delivery"] = delivery
        submission = Submission(token, place, delivery)
        self.log.submissions.append(submission)
        return submission, job

    def _job(self, token: str, place: str, ms: int) -> dict[str, object]:
        where = dict(FAR) if place.startswith("remote") else {}
        if place.endswith("shell"):
            text = command(token, self._runs, place, ms)
            return {**where, "task": "shell", "payload": {"command": text}, "tags": [token]}
        return {**where, "task": "mark", "payload": {"token": token, "ms": ms}}

    def _note(self, submission: Submission, reply: Reply) -> None:
        """Note the response to a submit of one job."""
        if reply.status in (200, 201, 202):
            job = reply.body["id"]
            if submission.job not in (None, job):
                self.log.wrong.append(f"{submission} was acknowledged as {job}, too")
            submission.job = job
        elif 400 <= reply.status < 500 and reply.status != 429:
            submission.is_rejected = True
            self.log.wrong.append(f"{submission} was rejected: {reply}")

    async def _one(self, client: Client) -> None:
        submission, job = self._submission("one")
        try:
            self._note(submission, await client.ask("POST", "/v1/jobs", job))
        except Broken:
            return

    async def _batch(self, client: Client) -> None:
        made = [self._submission("batch") for _ in range(self._random.randint(2, 12))]
        await self._submit_batch(client, made)

    async def _submit_batch(
        self, client: Client, made: list[tuple[Submission, dict[str, object]]]
    ) -> None:
        try:
            reply = await client.ask("POST", "/v1/jobs:batch", [job for _, job in made])
        except Broken:
            return
        if reply.status == 200:
            for (submission, _), item in zip(made, reply.body["items"], strict=True):
                self._note(submission, Reply(item["status"], item.get("job") or item["problem"]))

    async def _keyed(self, client: Client) -> None:
        submission, job = self._submission("keyed")
        await self._send_until_accepted(client, submission, job, submission.token)

    async def _unique(self, client: Client) -> None:
        submission, job = self._submission("unique")
        job["unique"] = {"key": submission.token, "for": "1h"}
        await self._send_until_accepted(client, submission, job, "")

    async def _send_until_accepted(
        self, client: Client, submission: Submission, job: object, key: str
    ) -> None:
        """Submit until there is a response, and once more: the second one names the same job."""
        answers = 0
        while answers < 2:
            try:
                reply = await client.ask("POST", "/v1/jobs", job, key)
            except Broken:
                continue
            if reply.status in (409, 429) or reply.status >= 500:
                await asyncio.sleep(0.02)
                continue
            self._note(submission, reply)
            answers += 1

    async def _cancel(self, client: Client) -> None:
        submission, job = self._submission("cancel")
        try:
            self._note(submission, await client.ask("POST", "/v1/jobs", {**job, "delay": "300ms"}))
            if submission.job is None:
                return
            await asyncio.sleep(self._random.uniform(0, 0.35))
            submission.may_be_cancelled = True
            reply = await client.ask("POST", f"/v1/jobs/{submission.job}:cancel")
        except Broken:
            return
        if reply.status == 200 and reply.body["state"] == "cancelled":
            submission.cancelled_at = time.monotonic()

    async def _wait(self, client: Client) -> None:
        submission, job = self._submission("wait")
        try:
            self._note(submission, await client.ask("POST", "/v1/jobs", job))
        except Broken:
            return
        while submission.job is not None:
            try:
                path = f"/v1/jobs/{submission.job}/wait?timeout=20s"
                reply = await client.ask("GET", path)
            except Broken:
                continue
            if reply.status == 404:
                self.log.wrong.append(f"{submission} is not found: {reply}")
            if reply.status < 500:
                return

    async def _long(self, client: Client) -> None:
        """Run for some seconds; the first attempt ends with its own output or result."""
        submission, job = self._submission("long", ms=self._random.randint(500, 4_000))
        try:
            reply = await client.ask("POST", "/v1/jobs?wait=25s", job)
            self._note(submission, reply)
            while reply.status == 202:  # a server that ends answers what waits
                reply = await client.ask("GET", f"/v1/jobs/{submission.job}/wait?timeout=25s")
            output = await client.ask("GET", f"/v1/jobs/{submission.job}/output")
        except Broken:
            return
        texts = [item["text"].strip() for item in output.body.get("items", [])]
        found = texts if submission.place.endswith("shell") else [reply.body.get("result")]
        if reply.body.get("attempt") != 1 or found != [submission.token]:
            self.log.wrong.append(f"{submission} ended with {found}: {reply}")

    async def _timers(self, client: Client) -> None:
        """Submit jobs that are due each 10 ms during the next second but one."""
        made = []
        for number in range(50):
            token = f"timer-{next(self._numbers)}"
            submission = Submission(token, "child")
            self.log.submissions.append(submission)
            job = self._job(token, "child", 0)
            made.append((submission, job | {"delay": f"{500 + number * 10}ms"}))
        began = time.monotonic()
        await self._submit_batch(client, made)
        await asyncio.sleep(max(0.0, began + 0.5 - time.monotonic()))

    async def _connect(self, _: Client) -> None:
        """Open a new connection for one request."""
        client = Client(self._port, self.log)
        try:
            await client.ask("GET", "/healthz")
        except Broken:
            return
        finally:
            client.close()
