"""The random settings of one simulated world; each seed has other faults."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from random import Random

from schedo.core.limits import HOUR, MINUTE, SECOND
from schedo.store.base import Retention
from tests.sim.disk import NO_FAULTS, Faults

# Instants shortly before a daylight saving change in some zone, and an ordinary one.
STARTS = (
    1_800_000_000 * SECOND,  # 2027-01-15T08:00Z
    1_774_744_200 * SECOND,  # 2026-03-29T00:30Z: Berlin goes to summer time at 01:00Z
    1_792_888_200 * SECOND,  # 2026-10-25T00:30Z: Berlin goes back at 01:00Z
    1_772_951_400 * SECOND,  # 2026-03-08T06:30Z: New York goes to summer time at 07:00Z
    1_791_039_600 * SECOND,  # 2026-10-03T15:00Z: Lord Howe goes half an hour forward at 15:30Z
)
LENGTHS = ((5, 0.5), (10, 1.0), (20, 2.0), (20, 5.0), (40, 5.0))  # minutes, seconds between actions
STORES = ("memory", "sqlite")
KEPT = Retention(1_000 * HOUR, 1_000 * HOUR, 1_000 * HOUR, 1_000 * HOUR)
KEPT_SHORTLY = Retention(5 * MINUTE, 5 * MINUTE, 10 * MINUTE, 5 * MINUTE)


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of one world."""

    start: int
    minutes: int = 20  # with faults; calm minutes follow
    window: int = 2048
    retention: Retention = KEPT
    faults: Faults = NO_FAULTS
    crash_every_s: float = 0.0  # 0: never
    stop_every_s: float = 0.0
    step_every_s: float = 0.0
    steps_noticed: bool = True
    action_every_s: float = 4.0
    schedules: int = 6
    store: str = "memory"  # or "sqlite"
    keeps: bool = True  # some jobs say how long they are kept
    handover_every_s: float = 0.0  # the server passes its store to a new one
    remote_workers: int = 0
    has_standby: bool = False  # the next server starts within milliseconds after a death
    has_operations: bool = True  # on many jobs, which loosen the claims about each of these

    @classmethod
    def draw(cls, random: Random, store: str | None = None) -> Plan:
        """Return a random plan; about half of the plans have each kind of fault, and each store."""

        def maybe(*values: float) -> float:
            return random.choice(values) if random.random() < 0.5 else 0.0

        faults = Faults(
            commit_fails=maybe(0.002, 0.02, 0.1),
            load_fails=maybe(0.001, 0.01),
            breaks=maybe(0.002, 0.01),
            dies=maybe(0.0005, 0.005),
            stalls=maybe(0.002, 0.02),
            delay_s=random.choice((0.0001, 0.002, 0.05)),
            power_fails=maybe(0.002, 0.02),
        )
        drawn = random.choice(STORES)
        minutes, action_every_s = random.choice(LENGTHS)
        return cls(
            start=random.choice(STARTS) + random.randrange(SECOND),
            minutes=minutes,
            window=random.choice((2, 4, 16, 2048)),
            retention=random.choice((KEPT, KEPT, KEPT, KEPT_SHORTLY)),
            faults=faults,
            crash_every_s=maybe(60.0, 300.0),
            stop_every_s=maybe(300.0) if random.random() < 0.5 else 0.0,
            step_every_s=maybe(60.0, 300.0),
            steps_noticed=random.random() < 0.7,
            action_every_s=action_every_s,
            schedules=random.choice((0, 3, 6, 10)),
            store=store or drawn,
        )

    def with_operations(self, has_operations: bool) -> Plan:
        """Return the plan with operations on many jobs, or without."""
        return dataclasses.replace(self, has_operations=has_operations)

    def with_succession(self, seed: int) -> Plan:
        """Return the plan with handovers, a standby and remote workers, each for some seeds.

        The seed decides, and not the draws, which would change all that they decide after it.
        """
        return dataclasses.replace(
            self,
            handover_every_s=(0.0, 60.0, 0.0, 300.0)[seed % 4],
            has_standby=seed % 3 == 1,
            remote_workers=(0, 2, 0)[seed % 3],
        )


def plan_of(seed: int) -> Plan:
    """Return the plan of the seed's world."""
    return Plan.draw(Random(seed))
