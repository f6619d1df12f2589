"""A take-over: what a standby brings to it, and how long each of its steps took."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

from schedo.handover.listeners import ListenerPair

log = logging.getLogger("schedo")


@dataclass
class Takeover:
    """A take-over from the lock to the first request that can be accepted.

    listeners: of the server before; none if it was never connected. number: of the take-overs of
    this store, from 1. held_at: time.monotonic() when the store was locked. is_warm: what needs no
    store was done before.
    """

    listeners: ListenerPair
    number: int
    held_at: float
    is_warm: bool = True
    steps_ms: dict[str, float] = field(default_factory=dict)
    took_ms: float = 0.0

    def note(self, step: str) -> None:
        """Note that a step has ended."""
        passed_ms = (time.monotonic() - self.held_at) * 1_000
        self.steps_ms[step] = round(passed_ms - self.took_ms, 3)
        self.took_ms = round(passed_ms, 3)

    def log(self) -> None:
        """Log the durations of all steps."""
        steps = ", ".join(f"{step} {took:.1f} ms" for step, took in self.steps_ms.items())
        log.warning("took over from the server before in %.1f ms (%s)", self.took_ms, steps)
