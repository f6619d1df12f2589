"""The timeouts of a child process."""

from __future__ import annotations

from typing import NamedTuple

from schedo.tasks.python import GRACE_S


class ChildTimeouts(NamedTuple):
    """In seconds."""

    import_s: float = 60.0
    pulse_s: float = 0.25  # between two liveness checks
    stalled_s: float = 2.0  # without a response to a ping
    grace_s: float = GRACE_S  # for a handler after its stop

    @property
    def start_s(self) -> float:
        """How old a lease may be when the child starts it.

        Less than stalled_s, so that a lease released for a stalled child does not run twice.
        """
        return self.stalled_s / 2

    @property
    def kill_s(self) -> float:
        """How long after a stop the child is killed; the child's own grace time ends before."""
        return self.grace_s + 1.0
