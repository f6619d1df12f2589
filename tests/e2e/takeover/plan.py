"""What a run does, and what it showed."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from tests.e2e.takeover.checker import Findings
from tests.e2e.takeover.clients import Load
from tests.e2e.takeover.evidence import ClientLog


@dataclass(frozen=True)
class Plan:
    """Kills, or upgrades, or deaths at the steps of upgrades, or stopped servers.

    kills, upgrades, stops: how many. only_active: kills never hit the standby, else every second
    one. steps: how often each of the two processes dies at each step. is_killed_stuck: the standby
    kills a server that is stopped. is_at_rest: the machine is, so the limits count that a busy
    machine cannot keep. waiting: jobs in the file that are due tomorrow. pause_s: the longest pause
    between two events. quiet_s: the time without them at the end. limit_s: after which there are no
    more of them, however many are left. rate: of new connections in a second, beside upgrades.
    """

    kills: int = 0
    only_active: bool = False
    upgrades: int = 0
    steps: int = 0
    stops: int = 0
    is_killed_stuck: bool = False
    seed: int = 0
    standby: bool = False
    failpoints: bool = False
    is_at_rest: bool = False
    waiting: int = 0
    pause_s: float = 1.0
    quiet_s: float = 0.0
    limit_s: float = 3_600.0
    rate: int = 500
    load: Load = field(default_factory=Load)

    def describe(self) -> str:
        """Return what differs from the defaults."""
        given = [(each.name, getattr(self, each.name), each.default) for each in fields(self)]
        return ", ".join(f"{name}={value}" for name, value, usual in given if value != usual)

    @property
    def may_kill(self) -> bool:
        """Whether processes are killed, so that requests and runs may break off."""
        return bool(self.kills or self.steps or (self.stops and self.is_killed_stuck))


@dataclass
class Outcome:
    """What a run showed. times_s: further measured durations in seconds, by name."""

    plan: Plan
    findings: Findings
    log: ClientLog
    traffic: dict[str, int]
    upgrades: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # of incidents
    times_s: dict[str, list[float]] = field(default_factory=dict)
    rss_mb: dict[str, float] = field(default_factory=dict)
    loaded_s: float = 0.0  # from the start of the clients to the end of the quiet time
    elapsed_s: float = 0.0
