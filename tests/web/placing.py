"""The real application on an engine with fake workers, which record their requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast

import orjson

from schedo.core.leases import Lease
from schedo.core.model import PLAIN, Failure, Job, JobSpec, LeaseKey, Options, Trigger
from schedo.core.requirements import Requirements
from schedo.core.states import State
from schedo.core.worker_messages import (
    PollRequest,
    PollResponse,
    ProgressLine,
    Reservation,
    WorkerStatus,
)
from schedo.errors import NoReservation, NotFound
from schedo.web.settings import WebSettings
from tests.web.world import SECOND, T0, World

KEY = LeaseKey(7, 1, 7)
LEASE_TEXT = "0000000000007.1.7"


def make_lease(options: Options = PLAIN, **fields: Any) -> Lease:
    known: dict[str, Any] = {
        "key": KEY,
        "worker": "w1",
        "task": "resize",
        "queue": "default",
        "payload": b'{"n": 1}',
        "options": options,
        "scheduled_for": T0,
        "trigger": Trigger.SUBMIT,
        "missed_count": 0,
    }
    return Lease(**(known | fields))


def make_seen(name: str, **fields: Any) -> WorkerStatus:
    seen = WorkerStatus(
        name=name,
        kind="remote",
        state="active",
        slots=4,
        running=1,
        tasks=None,
        queues=None,
        labels={},
        resources={},
        resources_used={},
        version=None,
        connected_at=T0,
        last_seen_at=T0 + SECOND,
        session_timeout_s=30.0,
        health=None,
    )
    return seen._replace(**fields)


class FakeSessions:
    """Fake workers that the test defines; an open poll waits until the test ends it."""

    def __init__(self) -> None:
        self.epoch = 1
        self.asks: list[PollRequest] = []
        self.given = PollResponse()
        self.seen: dict[str, WorkerStatus] = {}
        self.held: dict[str, list[Lease]] = {}
        self.lines: list[ProgressLine] = []
        self.waiting = asyncio.Event()
        self.let_go = asyncio.Event()
        self.ended: list[str] = []

    def add_worker(self, name: str, **fields: Any) -> None:
        self.seen[name] = make_seen(name, **fields)

    async def work(self, ask: PollRequest, claim: object) -> PollResponse:
        self.asks.append(ask)
        if ask.wait_s:
            await self.hold(ask.worker)
        return self.given

    async def hold(self, name: str) -> None:
        self.waiting.set()
        try:
            await self.let_go.wait()
        finally:
            self.ended.append(name)

    def close(self) -> None:
        """Do nothing: no timer runs here."""

    def held_by(self, name: str) -> list[Lease]:
        return self.held.get(name, [])

    def list(self) -> list[WorkerStatus]:
        return [*self.seen.values()]

    def get(self, name: str) -> WorkerStatus:
        if name not in self.seen:
            raise NotFound(f"there is no worker {name!r}")
        return self.seen[name]

    async def cordon(self, name: str, is_cordoned: bool) -> WorkerStatus:
        return self._change(name, "cordoned" if is_cordoned else "active")

    async def drain(self, name: str) -> WorkerStatus:
        return self._change(name, "draining")

    def _change(self, name: str, state: str) -> WorkerStatus:
        self.seen[name] = self.get(name)._replace(state=state)
        return self.seen[name]

    def progress_of(self, job_id: int) -> Any:
        return [line for line in self.lines if line.progress.key.job_id == job_id]


class Invoked(NamedTuple):
    """One call of invoke, reserve or commit."""

    spec: JobSpec | None
    jobs: int
    wait_s: float
    requirements: Requirements | None = None
    task: str | None = None


class FakePlacing:
    """Accepts or refuses invocations, as the test defines."""

    def __init__(self, sessions: FakeSessions) -> None:
        self.calls: list[Invoked] = []
        self.jobs: list[Job] = []
        self.error: Exception | None = None
        self.is_slow = False
        self._sessions = sessions
        self.reserved = {"r1": "n1"}

    async def invoke(
        self,
        spec: JobSpec,
        *,
        count: int,
        wait_s: float,
        on_started: Callable[[], None] = lambda: None,
    ) -> list[Job]:
        self.calls.append(Invoked(spec, count, wait_s))
        if self.error is not None:
            raise self.error
        on_started()
        if self.is_slow:
            await self._sessions.hold("invoke")
        return self.jobs

    async def reserve(
        self,
        task: str | None,
        queue: str,
        requirements: Requirements | None,
        *,
        count: int,
        ttl_s: float,
    ) -> Reservation:
        self.calls.append(Invoked(None, count, ttl_s, requirements, task))
        if self.error is not None:
            raise self.error
        return Reservation("r1", "n1", ["w1", "w2"], T0 + 10 * SECOND)

    async def commit_reservation(
        self,
        reservation_id: str,
        nonce: str,
        spec: JobSpec,
        wait_s: float,
        on_started: Callable[[], None],
    ) -> list[Job]:
        await self.release_reservation(reservation_id, nonce)
        return await self.invoke(spec, count=1, wait_s=wait_s, on_started=on_started)

    async def release_reservation(self, reservation_id: str, nonce: str) -> None:
        if self.reserved.get(reservation_id) != nonce:
            raise NoReservation("there is no such reservation")
        del self.reserved[reservation_id]


class PlacingWorld(World):
    """The server side with workers that the test makes up."""

    def __init__(self, settings: WebSettings | None = None) -> None:
        super().__init__(settings)
        self.sessions = FakeSessions()
        self.placing = FakePlacing(self.sessions)
        engine = cast(Any, self.engine)
        engine.sessions = self.sessions
        for name in ("invoke", "reserve", "commit_reservation", "release_reservation"):
            setattr(engine, name, getattr(self.placing, name))

    async def work(self, **fields: Any) -> Any:
        """Send a worker's request; return the response."""
        reply = await self.post("/v1/work", {"worker": "w1", **fields})
        assert reply.status == 200, reply
        return reply.json()

    async def hang_up(self, method: str, path: str, value: object) -> None:
        """Send a request, and close the connection as soon as the engine waits for something."""
        body = orjson.dumps(value)
        messages: list[Callable[[], Awaitable[dict[str, Any]]]] = [
            _at_once({"type": "http.request", "body": body, "more_body": False}),
            self._when_waiting({"type": "http.disconnect"}),
        ]

        async def receive() -> dict[str, Any]:
            return await messages.pop(0)()

        async def send(message: Any) -> None:
            raise AssertionError(f"no part of the server reads this: {message}")

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [
                (b"host", b"localhost"),
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
            ],
            "root_path": "",
        }
        async with asyncio.timeout(5):
            await self.app(scope, receive, send)

    def _when_waiting(self, message: dict[str, Any]) -> Callable[[], Awaitable[dict[str, Any]]]:
        async def give() -> dict[str, Any]:
            await self.sessions.waiting.wait()
            return message

        return give


def _at_once(message: dict[str, Any]) -> Callable[[], Awaitable[dict[str, Any]]]:
    async def give() -> dict[str, Any]:
        return message

    return give


def make_job(state: State = State.COMPLETED, **fields: Any) -> Job:
    """Return a job that a worker accepted."""
    job = Job(id=7, task="increment", state=state, created_at=T0, due_at=T0, attempt=1, worker="w1")
    if state is State.COMPLETED:
        job.result = b'{"Num":2}'
    if state is State.FAILED:
        job.failure = Failure("ValueError", "no number")
    for name, value in fields.items():
        setattr(job, name, value)
    return job
