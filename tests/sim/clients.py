"""The clients of the simulation, which send random requests to the server.

Each submitted job has a unique text in its payload, which identifies the job even if the submit got
no reply.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from schedo.core.bulk import BulkAction
from schedo.core.bulk_commands import BeginBulk
from schedo.core.job_filter import JobFilter
from schedo.core.keep import KeepTimes
from schedo.core.limits import HOUR, MINUTE, PAYLOAD_INLINE_BYTES_MAX, SECOND
from schedo.core.model import (
    PLAIN,
    Catchup,
    Expect,
    JobSpec,
    OnFailure,
    Options,
    Overlap,
    Queue,
    Retry,
    Rule,
    ScheduleSpec,
    Unique,
)
from schedo.engine.call_results import Accepted
from schedo.engine.engine import Engine
from schedo.errors import SchedoError
from tests.sim.world import World

QUEUES = ("default", "fast", "slow")
TASKS = ("a", "b", "c")
ALERT = OnFailure("a", b'{"of":"failures"}')
BREAK, RETURN = OnFailure("b", b'{"of":"breaks"}'), OnFailure("c", b'{"of":"returns"}')
EXPECTED = {
    "s0": Expect(10 * SECOND, None, BREAK, RETURN),
    "s1": Expect(2 * MINUTE, 5 * SECOND, BREAK, RETURN),
    "s3": Expect(None, 20 * SECOND, BREAK, RETURN),
}
CRONS = (
    "* * * * *",
    "*/5 * * * *",
    "0 * * * *",
    "*/20 * * * * *",
    "30 2 * * *",
    "15,45 1-3 * * *",
    "10 2-4 * * *",
    "0 */2 * * *",
    "30 0-23 * * *",
)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
KEEPS = (None, None, KeepTimes(0, 0, 0), KeepTimes(completed_us=0), KeepTimes(MINUTE, 5 * MINUTE))
RETRIES = (
    None,
    Retry(max_attempts=1),
    Retry(max_attempts=3, backoff="fixed", initial_us=5 * SECOND, jitter=0.0),
    Retry(max_attempts=4, initial_us=SECOND, factor=2.0, max_us=MINUTE),
    Retry(max_attempts=6, backoff="ladder", ladder_us=(0, SECOND, 20 * SECOND)),
)
ACTIONS = {
    "submit": 50,
    "cancel": 6,
    "retry": 4,
    "run_now": 3,
    "reschedule": 4,
    "begin_operation": 2,
    "get": 4,
    "wait": 3,
    "put_schedule": 6,
    "pause_schedule": 2,
    "resume_schedule": 3,
    "trigger_schedule": 3,
    "delete_schedule": 1,
    "set_queue": 2,
    "pause_queue": 1,
    "resume_queue": 2,
    "reattach": 2,
    "detach": 1,
}
ALWAYS = {"submit", "put_schedule", "begin_operation"}


class Clients:
    """All clients of the servers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._jobs: list[int] = []
        self._tokens = 0
        self._names = [f"s{number}" for number in range(world.plan.schedules)]
        self._weights = [
            weight * (name != "begin_operation" or world.plan.has_operations)
            if name in ALWAYS
            else weight * self._random.choice((0, 1, 1, 2))
            for name, weight in ACTIONS.items()
        ]

    def act(self) -> None:
        """Send one random request."""
        name = self._random.choices(list(ACTIONS), self._weights)[0]
        getattr(self, f"_{name}")()

    # Jobs.

    def _submit(self) -> None:
        count = 1 if self._random.random() < 0.8 else self._random.randint(2, 12)
        specs = tuple(self._spec() for _ in range(count))

        async def ask(engine: Engine) -> tuple[Any, ...]:
            answers: list[Any] = await engine.submit(specs)
            return tuple(map(self._learn, answers))

        self._world.call("submit", specs, ask)

    def _learn(self, answer: Accepted[Any] | SchedoError) -> tuple[str, Any]:
        if isinstance(answer, SchedoError):
            return ("refused", answer.code)
        self._jobs.append(answer.job.id)
        del self._jobs[:-60]
        return ("conflict" if answer.conflict else "new", answer.job)

    def _spec(self) -> JobSpec:
        random = self._random
        now = self._world.wall.now()
        self._tokens += 1
        size = PAYLOAD_INLINE_BYTES_MAX + 10 if random.random() < 0.04 else 0
        delay = random.choice((0, 0, 0, 1, random.randrange(60), random.randrange(600)))
        run_at = None
        if random.random() < 0.15:
            run_at = now + random.randint(-MINUTE, 10 * MINUTE)
        return JobSpec(
            task=random.choice(TASKS),
            payload=b'"t%d%s"' % (self._tokens, b" " * size),
            queue=random.choice(QUEUES),
            priority=random.choice((0, 0, 0, -9, 5, 9)),
            run_at=run_at,
            delay_us=0 if run_at is not None else delay * SECOND,
            expires_in_us=random.randrange(300) * SECOND if random.random() < 0.1 else None,
            options=self._options(),
        )

    def _options(self) -> Options:
        random = self._random
        if random.random() < 0.3:
            return PLAIN
        unique = None
        if random.random() < 0.25:
            unique = Unique(
                key=f"k{random.randrange(6)}",
                for_us=random.choice((None, None, MINUTE)),
                on_conflict=random.choice(("return", "reject", "replace")),
            )
            if random.random() < 0.2:
                unique = msgspec.structs.replace(unique, states=("scheduled", "queued"))
        return Options(
            retry=random.choice(RETRIES),
            timeout_us=random.choice((None, None, SECOND, 10 * SECOND, MINUTE)),
            on_failure=ALERT if self._tokens % 2 else None,
            at_most_once=random.random() < 0.25,
            unique=unique,
            keep=self._keep(),
        )

    def _keep(self) -> KeepTimes | None:
        return self._random.choice(KEEPS) if self._world.plan.keeps else None

    def _job(self, name: str, ask: Callable[[Engine, int], Any], *more: Any) -> None:
        if self._jobs:
            job_id = self._random.choice(self._jobs)
            self._world.call(name, (job_id, *more), lambda engine: ask(engine, job_id))

    def _cancel(self) -> None:
        self._job("cancel", Engine.cancel)

    def _retry(self) -> None:
        self._job("retry", Engine.retry)

    def _run_now(self) -> None:
        self._job("run_now", Engine.run_now)

    def _get(self) -> None:
        self._job("get", Engine.get)

    def _wait(self) -> None:
        timeout_s = self._random.uniform(0, 60)
        self._job("wait", lambda engine, job_id: engine.wait(job_id, timeout_s))

    def _reschedule(self) -> None:
        random = self._random
        due_at = priority = None
        if random.random() < 0.7:
            due_at = self._world.wall.now() + random.randint(-MINUTE, 5 * MINUTE)
        if due_at is None or random.random() < 0.5:
            priority = random.randint(-9, 9)
        self._job(
            "reschedule",
            lambda engine, job_id: engine.reschedule(job_id, due_at=due_at, priority=priority),
            due_at,
        )

    def _begin_operation(self) -> None:
        random = self._random
        queue, task = random.choice(QUEUES), random.choice(TASKS)
        action = random.choice(list(BulkAction))
        which = JobFilter(queue=queue, task=task)
        if action in (BulkAction.CANCEL, BulkAction.DELETE):
            which = random.choice((which, JobFilter(queue=queue), JobFilter(task=task)))
        command = BeginBulk(action, which)
        self._world.call("begin_operation", command, lambda engine: engine.bulk.begin(command))

    # Schedules.

    def _put_schedule(self) -> None:
        if self._names:
            spec = self._schedule_spec()
            self._world.call("put_schedule", spec, lambda engine: engine.put_schedule(spec))

    def _schedule_spec(self) -> ScheduleSpec:
        random = self._random
        return ScheduleSpec(
            name=(name := random.choice(self._names)),
            rule=self._rule(),
            job=JobSpec(
                task=random.choice(TASKS),
                payload=b'"%s"' % name.encode(),
                queue=random.choice(QUEUES),
                options=Options(
                    timeout_us=random.choice((None, 30 * SECOND)),
                    on_failure=ALERT if name in EXPECTED else None,
                    at_most_once=random.random() < 0.2,
                    keep=self._keep(),
                ),
            ),
            overlap=random.choice(list(Overlap)),
            catchup=random.choice(list(Catchup)),
            catchup_window_us=random.choice((10 * MINUTE, 24 * HOUR)),
            catchup_max=random.choice((1, 3, 10)),
            paused=random.random() < 0.1,
            expect=EXPECTED.get(name),
        )

    def _rule(self) -> Rule:
        random = self._random
        now = self._world.wall.now()
        kind = random.random()
        if kind < 0.05:
            return Rule(at=now + random.randrange(10 * MINUTE))
        start_at = now + random.randint(-HOUR, MINUTE) if random.random() < 0.2 else None
        end_at = now + random.randint(2 * MINUTE, HOUR) if random.random() < 0.1 else None
        if kind < 0.5:
            every_us = random.choice((5, 7, 30, 60, 300)) * SECOND
            jitter_us = random.choice((0, 0, 3 * SECOND))
            return Rule(every_us=every_us, start_at=start_at, end_at=end_at, jitter_us=jitter_us)
        return Rule(
            cron=random.choice(CRONS),
            tz=random.choice(ZONES),
            gap=random.choice(("after", "after", "skip")),
            fold=random.choice(("first", "last", "both")),
            start_at=start_at,
            end_at=end_at,
        )

    def _schedule(self, name: str, ask: Callable[[Engine, str], Any], *more: Any) -> None:
        if self._names:
            which = self._random.choice(self._names)
            self._world.call(name, (which, *more), lambda engine: ask(engine, which))

    def _pause_schedule(self) -> None:
        self._schedule("pause_schedule", Engine.pause_schedule)

    def _resume_schedule(self) -> None:
        since = None
        if self._random.random() < 0.5:
            since = self._world.wall.now() - self._random.randrange(HOUR)
        self._schedule(
            "resume_schedule", lambda engine, name: engine.resume_schedule(name, since), since
        )

    def _trigger_schedule(self) -> None:
        overlap = self._random.choice((None, None, *Overlap))
        self._schedule(
            "trigger_schedule", lambda engine, name: engine.trigger_schedule(name, overlap), overlap
        )

    def _delete_schedule(self) -> None:
        self._schedule("delete_schedule", Engine.delete_schedule)

    # Queues and workers.

    def _set_queue(self) -> None:
        queue = Queue(
            self._random.choice(QUEUES),
            concurrency=self._random.choice((None, 1, 2, 5)),
            weight=self._random.randint(1, 5),
        )
        self._world.call("set_queue", queue, lambda engine: set_queue(engine, queue))

    def _pause_queue(self) -> None:
        name = self._random.choice(QUEUES)
        self._world.call("pause_queue", name, lambda engine: engine.pause_queue(name))

    def _resume_queue(self) -> None:
        name = self._random.choice(QUEUES)
        self._world.call("resume_queue", name, lambda engine: engine.resume_queue(name))

    def _reattach(self) -> None:
        server = self._world.server
        if server is not None and server.is_open:
            profile = self._random.choice(self._world.profiles)
            connection = server.connections[profile.name]
            if connection.is_live:
                connection.attach(self._random.randint(1, 8))
            else:
                server.connect(profile)

    def _detach(self) -> None:
        server = self._world.server
        if server is not None and server.is_open:
            connection = self._random.choice(list(server.connections.values()))
            if connection.is_live:
                connection.detach()
                if self._random.random() < 0.7:
                    server.connect(connection.profile)

    # After the last fault.

    async def repair(self) -> None:
        """Open all queues, so that every job can run."""
        for queue in map(Queue, QUEUES):
            await self.retry_until_known("set_queue", queue, partial(set_queue, queue=queue))

    async def end_schedules(self) -> None:
        """Delete all schedules, so that no new jobs are made."""
        for name in self._names:
            await self.retry_until_known(
                "delete_schedule", (name,), partial(Engine.delete_schedule, name=name)
            )

    async def retry_until_known(
        self, name: str, subject: Any, ask: Callable[[Engine], Any]
    ) -> None:
        """Repeat a request until its outcome is known."""
        while True:
            task = self._world.call(name, subject, ask)
            if task is not None:
                await asyncio.wait([task])
                if not task.cancelled() and task.result():
                    return
            await self._world.loop.pass_time(1.0)


def set_queue(engine: Engine, queue: Queue) -> Coroutine[Any, Any, Queue]:
    """Set all limits of a queue."""
    fields = dataclasses.asdict(queue)
    return engine.change_queue(fields.pop("name"), **fields)
