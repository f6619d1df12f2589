"""The clients: they submit in every way, cancel and wait, and log what the server promised them."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.e2e.takeover.checker import SILENCE_S
from tests.e2e.takeover.event_stream import EventStream
from tests.e2e.takeover.evidence import ClientLog, Submission, command
from tests.e2e.takeover.raw_http import Broken, Client, Reply

PLACES = ("child", "shell", "remote", "remote-shell")
FAR = {"queue": "far", "requires": {"labels": {"place": "far"}}}
STREAMS = 2
TIMERS_S = 0.5  # the time that the timers of one batch cover
TIMERS_AHEAD_S = 0.5  # from their submit to the first of them
TIMERS_LEAST_AHEAD_S = 0.1  # the same if a kill has delayed the submit
# Beside thousands of new connections a second, a new one waits for a second or two. A timer must
# not be due before its submit is accepted.
TIMERS_FAR_AHEAD_S = 4.0
SCHEDULES = {f"each-second-{place}": place for place in PLACES}


@dataclass(frozen=True)
class Load:
    """How much the clients do.

    pace_s: the mean pause of each client between two requests. firings: timers that are due in each
    second. submits: single submits a second, besides. is_idle: there are only timers, schedules and
    event streams. is_long: there are attempts of some seconds, too, each of which must end with its
    own output.
    """

    pace_s: float = 0.05
    firings: int = 100
    submits: int = 0
    is_idle: bool = False
    is_long: bool = False


class Clients:
    """All clients of one run; they use each of the servers in turn."""

    def __init__(self, ports: Sequence[int], runs: Path, seed: int, load: Load) -> None:
        self.log = ClientLog()
        self._ports = ports
        self._runs = runs
        self._random = random.Random(seed)
        self._load = load
        self._numbers = itertools.count()
        self._timers_until = 0.0  # Unix time up to which there are timers
        self._tasks: list[asyncio.Task[None]] = []
        self._streams = [EventStream(ports, self.log) for _ in range(STREAMS)]
        self._following: list[asyncio.Task[None]] = []
        self._is_stopping = False

    async def start(self) -> None:
        """Put the schedules, and begin with everything else."""
        client = Client(self._ports, self.log)
        for name, place in SCHEDULES.items():
            job = self._job(name, place, 0)
            body = {**job, "cron": "* * * * * *", "overlap": "allow"}
            await client.ask_again("PUT", f"/v1/schedules/{name}", body)
            self.log.schedules[name] = time.time()
        client.close()
        for work in self._works():
            self._tasks.append(asyncio.create_task(self._repeat(work)))
        if self._load.submits:
            self._tasks.append(asyncio.create_task(self._submit_steadily()))
        for stream in self._streams:
            self._following.append(asyncio.create_task(stream.follow()))

    def _works(self) -> list[Callable[[Client], Awaitable[None]]]:
        if self._load.is_idle:
            return [self._timers]
        works = [self._one, self._batch, self._keyed, self._unique, self._cancel, self._wait]
        return [*works, self._timers, self._connect, *[self._long] * (6 * self._load.is_long)]

    async def stop(self) -> None:
        """End all clients after their present request, and the streams after another event."""
        self._is_stopping = True
        await asyncio.gather(*self._tasks)
        with suppress(TimeoutError):  # the checker sees the silence then
            async with asyncio.timeout(SILENCE_S + 1):
                await asyncio.gather(*(stream.see_next() for stream in self._streams))
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)

    async def _submit_steadily(self) -> None:
        client = Client(self._ports, self.log)
        began, done = time.monotonic(), 0
        while not self._is_stopping:
            await self._one(client)
            done += 1
            due = began + done / self._load.submits
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        client.close()

    async def _repeat(self, work: Callable[[Client], Awaitable[None]]) -> None:
        client = Client(self._ports, self.log)
        while not self._is_stopping:
            await work(client)
            await asyncio.sleep(self._random.expovariate(1 / self._load.pace_s))
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
    ) -> bool:
        """Submit them; return whether the server has answered for each of them."""
        try:
            reply = await client.ask("POST", "/v1/jobs:batch", [job for _, job in made])
        except Broken:
            return False
        if reply.status != 200:
            return False
        for (submission, _), item in zip(made, reply.body["items"], strict=True):
            self._note(submission, Reply(item["status"], item.get("job") or item["problem"]))
        return True

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
        """Run for some seconds; the job ends with its own output or result.

        The checker sees whether it ran once. Its attempt may be the second one, because an attempt
        whose lease does not reach its worker counts as well.
        """
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
        if found != [submission.token]:
            self.log.wrong.append(f"{submission} ended with {found}: {reply}")

    async def _timers(self, client: Client) -> None:
        """Submit jobs that are due one after the other, from the last of those before on.

        If a kill breaks the submit, others are submitted for the same instants. Without them, no
        job would be due in half a second, and a kill in it would wait for a fire until its end.
        """
        ahead_s, least_s = TIMERS_AHEAD_S, TIMERS_LEAST_AHEAD_S
        if self._load.is_long:
            ahead_s = least_s = TIMERS_FAR_AHEAD_S
        begin = self._timers_until
        if begin < time.time() + least_s:
            begin = time.time() + ahead_s
        self._timers_until = begin + TIMERS_S
        while not await self._submit_batch(client, self._make_timers(begin)):
            if time.time() >= begin:
                break
        await asyncio.sleep(max(0.0, begin + TIMERS_AHEAD_S - ahead_s - time.time()))

    def _make_timers(self, begin: float) -> list[tuple[Submission, dict[str, object]]]:
        """Return jobs that are due from this Unix time on, for TIMERS_S."""
        count = max(1, round(self._load.firings * TIMERS_S))
        made = []
        for number in range(count):
            token = f"timer-{next(self._numbers)}"
            submission = Submission(token, "child")
            self.log.submissions.append(submission)
            due = datetime.fromtimestamp(begin + number * TIMERS_S / count, UTC)
            made.append((submission, self._job(token, "child", 0) | {"run_at": due.isoformat()}))
        return made

    async def _connect(self, _: Client) -> None:
        """Open a new connection for one request."""
        client = Client(self._ports, self.log)
        try:
            await client.ask("GET", "/healthz")
        except Broken:
            return
        finally:
            client.close()
