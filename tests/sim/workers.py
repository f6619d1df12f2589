"""The workers of the simulation: transports that complete, delay, fail, report stale results, die.

A Connection is one connection of a worker to one server. It holds its leases until it has reported
their results. A connection that was cut, or whose server died, may still report, like a process
that the server could not reach to kill.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from schedo.core.leases import (
    AttemptResult,
    Completed,
    Failed,
    Lease,
    Outcome,
    Released,
    Snoozed,
    Stopped,
    StopRequest,
)
from schedo.core.limits import SECOND
from schedo.core.model import Failure, LeaseKey
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.engine import Engine
from tests.sim.trace import Attached, Detached, Reported, Started, StopSent

if TYPE_CHECKING:
    from tests.sim.world import Server, World

BOOM = Failure("boom", "it broke")
BEHAVIOURS = {
    "finish": 50,
    "fail": 14,
    "give up": 2,
    "fail with a delay": 3,
    "snooze": 4,
    "hang": 6,
    "deaf": 4,
    "hand back": 3,
    "twice": 4,
    "stale": 3,
    "die": 2,
}


@dataclass(frozen=True, slots=True)
class WorkerProfile:
    """The spec of a worker, which is the same for all of its connections."""

    name: str
    slots: int
    tasks: frozenset[str] | None
    queues: frozenset[str] | None

    def offer(self, slots: int | None = None) -> WorkerSpec:
        return WorkerSpec(self.name, slots or self.slots, self.tasks, self.queues)


def make_profiles(random: Random) -> list[WorkerProfile]:
    """Return four workers; one of them runs all tasks of all queues, so that every job can run."""
    return [
        WorkerProfile("process-all", random.randint(1, 6), None, None),
        WorkerProfile("process-a", random.randint(1, 4), frozenset({"a"}), None),
        WorkerProfile("process-fast", random.randint(1, 4), None, frozenset({"fast", "default"})),
        WorkerProfile(
            "process-bc",
            random.randint(1, 3),
            frozenset({"b", "c"}),
            frozenset({"slow", "default"}),
        ),
    ]


class Connection:
    """One connection of a worker to one server."""

    def __init__(self, world: World, server: Server, profile: WorkerProfile, number: int) -> None:
        self.world = world
        self.server = server
        self.profile = profile
        self.number = number
        self.is_open = True
        self.held: dict[LeaseKey, Lease] = {}
        self._ignored_stops: set[LeaseKey] = set()

    @property
    def is_live(self) -> bool:
        return self.is_open and not self.server.is_dead

    def attach(self, slots: int | None = None) -> None:
        """Connect, or change the number of slots."""
        self.world.record(Attached, self.number, self.profile.name, self.server.number)
        self.server.call_engine(Engine.attach, self.profile.offer(slots), self)

    def detach(self) -> None:
        """Disconnect; some attempts report their results nevertheless."""
        self.is_open = False
        self.world.record(Detached, self.number)
        self.server.call_engine(Engine.detach, self.profile.name, "it hung up")
        self.orphan()

    def orphan(self) -> None:
        """Let some attempts report although their server is gone."""
        for key in list(self.held):
            if self.world.random.random() < 0.3:
                self._later(self.world.random.uniform(0, 60), self.report, key, Completed())

    # The methods of engine.Transport.

    def start(self, lease: Lease) -> None:
        """Begin the attempt."""
        if not self.is_live:
            return
        self.world.record(Started, self.number, lease)
        self.held[lease.key] = lease
        if self.world.is_calm:
            self._later(self.world.random.uniform(0, 0.5), self.report, lease.key, Completed())
        else:
            self._act(lease.key)

    def stop(self, stop: StopRequest) -> None:
        """End the attempt, at once or after a delay."""
        if not self.is_live:
            return
        self.world.record(StopSent, self.number, stop)
        random = self.world.random
        if stop.key in self._ignored_stops:
            outcome = random.choice((Stopped(), Completed(), Failed(BOOM)))
            self._later(random.uniform(1, 60), self.report, stop.key, outcome)
        else:
            self._later(random.uniform(0, 0.2), self.report, stop.key, Stopped())

    # The worker's own actions.

    def finish_all(self) -> None:
        """Complete all attempts that this connection holds."""
        for key in list(self.held):
            self.report(key, Completed())

    def release_all(self) -> None:
        """Release all attempts that this connection holds."""
        for key in list(self.held):
            self.report(key, Released())

    def report(self, key: LeaseKey, outcome: Outcome) -> None:
        """Report the outcome of an attempt to the current server."""
        if self.held.pop(key, None) is not None:
            self._send_result(key, outcome, self.is_live)

    def report_stale(self, key: LeaseKey, outcome: Outcome) -> None:
        """Report an attempt that this connection does not hold, or no longer holds."""
        self._send_result(key, outcome, False)

    def _send_result(self, key: LeaseKey, outcome: Outcome, is_live: bool) -> None:
        if self.server.drain is not None:
            self.server.drain.take(key, outcome, is_live=is_live)
            return
        server = self.world.server
        if server is None or server.is_dead or not server.is_open:
            return  # no server is there, and this worker does not send the result again
        self.world.record(Reported, key, outcome, is_live)
        server.call_engine(lambda engine: engine.report(AttemptResult(key, outcome)))

    def _act(self, key: LeaseKey) -> None:
        random = self.world.random
        mood = random.choices(self.world.moods, self.world.mood_weights)[0]
        takes = random.expovariate(1 / 4) if random.random() < 0.8 else random.uniform(0, 120)
        outcome = self._outcome(mood)
        if mood == "deaf":
            self._ignored_stops.add(key)
            takes = random.uniform(10, 200)
        elif mood == "hang":
            return
        elif mood == "hand back":
            takes = 0.0
        elif mood == "die":
            self._later(takes, self._die)
            return
        elif mood == "stale":
            old = random.choice((key._replace(attempt=key.attempt - 1), key._replace(epoch=0)))
            self._later(takes / 2, self.report_stale, old, Completed())
        self._later(takes, self.report, key, outcome)
        if mood == "twice":
            self._later(takes + random.uniform(0, 5), self.report_stale, key, Failed(BOOM))

    def _outcome(self, mood: str) -> Outcome:
        random = self.world.random
        match mood:
            case "fail":
                return Failed(BOOM)
            case "give up":
                return Failed(BOOM, retryable=False)
            case "fail with a delay":
                return Failed(BOOM, retry_in_us=random.randrange(60 * SECOND))
            case "snooze":
                return Snoozed(random.randrange(60 * SECOND))
            case "hand back":
                return Released()
        return Completed(b'"done"')

    def _die(self) -> None:
        if self.server.drain is not None:
            self.finish_all()
        if self.is_live and self.server.is_open and not self.world.is_calm:
            self.detach()
            self._later(self.world.random.choice((0.0, 0.0, 3.0, 60.0)), self._come_back)

    def _come_back(self) -> None:
        if not self.server.is_dead and self.server.is_open:
            self.server.connect(self.profile)

    def _later(self, seconds: float, call: Callable[..., None], *args: object) -> None:
        self.world.loop.call_later(seconds, call, *args)
