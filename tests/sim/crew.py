"""The workers of the simulation: transports that work, dawdle, fail, lie and die.

A Line is one connection of a worker to one server. What it was given it holds until it has
reported; a line that was cut, or whose server died, may still report, as a process does that nobody
could reach to kill.
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
from tests.sim.trace import Attached, Detached, Reported, Started, StopAsked

if TYPE_CHECKING:
    from tests.sim.world import Server, World

BOOM = Failure("boom", "it broke")
MOODS = {
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
class Bench:
    """One worker's place: what it offers whenever it connects."""

    name: str
    slots: int
    tasks: frozenset[str] | None
    queues: frozenset[str] | None

    def offer(self, slots: int | None = None) -> WorkerSpec:
        return WorkerSpec(self.name, slots or self.slots, self.tasks, self.queues)


def make_benches(random: Random) -> list[Bench]:
    """Return four workers; one of them serves everything, so that every job has a chance."""
    return [
        Bench("process-all", random.randint(1, 6), None, None),
        Bench("process-a", random.randint(1, 4), frozenset({"a"}), None),
        Bench("process-fast", random.randint(1, 4), None, frozenset({"fast", "default"})),
        Bench(
            "process-bc",
            random.randint(1, 3),
            frozenset({"b", "c"}),
            frozenset({"slow", "default"}),
        ),
    ]


class Line:
    """One connection of a worker to one server."""

    def __init__(self, world: World, server: Server, bench: Bench, number: int) -> None:
        self.world = world
        self.server = server
        self.bench = bench
        self.number = number
        self.is_open = True
        self.holds: dict[LeaseKey, Lease] = {}
        self._deaf: set[LeaseKey] = set()

    @property
    def is_live(self) -> bool:
        return self.is_open and not self.server.is_dead

    def attach(self, slots: int | None = None) -> None:
        """Connect, or offer another number of slots."""
        self.world.see(Attached, self.number, self.bench.name)
        self.server.tell(Engine.attach, self.bench.offer(slots), self)

    def detach(self) -> None:
        """Be cut off; some of the cut ones report all the same."""
        self.is_open = False
        self.world.see(Detached, self.number)
        self.server.tell(Engine.detach, self.bench.name, "it hung up")
        self.orphan()

    def orphan(self) -> None:
        """Let some attempts report although nobody waits for them."""
        for key in list(self.holds):
            if self.world.random.random() < 0.3:
                self._later(self.world.random.uniform(0, 60), self.report, key, Completed())

    # What a server asks (engine.Transport).

    def start(self, lease: Lease) -> None:
        """Take the attempt on."""
        if not self.is_live:
            return
        self.world.see(Started, self.number, lease)
        self.holds[lease.key] = lease
        if self.world.is_calm:
            self._later(self.world.random.uniform(0, 0.5), self.report, lease.key, Completed())
        else:
            self._act(lease.key)

    def stop(self, stop: StopRequest) -> None:
        """End the attempt, sooner or later."""
        if not self.is_live:
            return
        self.world.see(StopAsked, self.number, stop)
        random = self.world.random
        if stop.key in self._deaf:
            outcome = random.choice((Stopped(), Completed(), Failed(BOOM)))
            self._later(random.uniform(1, 60), self.report, stop.key, outcome)
        else:
            self._later(random.uniform(0, 0.2), self.report, stop.key, Stopped())

    # What it does of its own.

    def finish_all(self) -> None:
        """End everything it holds."""
        for key in list(self.holds):
            self.report(key, Completed())

    def hand_back_all(self) -> None:
        """Return everything it holds."""
        for key in list(self.holds):
            self.report(key, Released())

    def report(self, key: LeaseKey, outcome: Outcome) -> None:
        """Tell the server that works now how the attempt ended."""
        if self.holds.pop(key, None) is not None:
            self._tell(key, outcome, self.is_live)

    def lie(self, key: LeaseKey, outcome: Outcome) -> None:
        """Report what it does not hold, or does not hold any more."""
        self._tell(key, outcome, False)

    def _tell(self, key: LeaseKey, outcome: Outcome, is_live: bool) -> None:
        server = self.world.server
        if server is None or server.is_dead or not server.is_open:
            return  # nobody listens, and this worker does not try again
        self.world.see(Reported, key, outcome, is_live)
        server.tell(lambda engine: engine.report(AttemptResult(key, outcome)))

    def _act(self, key: LeaseKey) -> None:
        random = self.world.random
        mood = random.choices(self.world.moods, self.world.mood_weights)[0]
        takes = random.expovariate(1 / 4) if random.random() < 0.8 else random.uniform(0, 120)
        outcome = self._outcome(mood)
        if mood == "deaf":
            self._deaf.add(key)
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
            self._later(takes / 2, self.lie, old, Completed())
        self._later(takes, self.report, key, outcome)
        if mood == "twice":
            self._later(takes + random.uniform(0, 5), self.lie, key, Failed(BOOM))

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
        if self.is_live and self.server.is_open and not self.world.is_calm:
            self.detach()
            self._later(self.world.random.choice((0.0, 0.0, 3.0, 60.0)), self._come_back)

    def _come_back(self) -> None:
        if not self.server.is_dead and self.server.is_open:
            self.server.connect(self.bench)

    def _later(self, seconds: float, call: Callable[..., None], *args: object) -> None:
        self.world.loop.call_later(seconds, call, *args)
