"""When the owners of the attempts that a worker runs for other servers are asked again.

Each owner has a pace of its own. One that has heard of its attempts is asked once a second whether
they are to stop. One that has not yet taken the jobs over is asked soon and often at first: it
starts them again unless it hears within HOLD_BACK_US (core/adoption.py) that they still run.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection

LOOK_S = 1.0  # between two requests to an owner that has heard of its attempts
# The first pause, and the further ones, while it has not. An owner that is ready within OFTEN_FOR_S
# holds the jobs back for longer than OFTEN_S. Later each pause is twice as long as the one before.
SOON_S = 0.02
OFTEN_S = 0.04
OFTEN_FOR_S = 0.3
UNKNOWN = 0  # stands for the epoch of the owner of jobs that have none, or of whom it is not known


class Pace:
    """When one owner is asked again about the attempts of one worker."""

    def __init__(self) -> None:
        self.due_s = 0.0  # by the event loop
        self._leases: Collection[str] = ()  # that the last request has named
        self._restart()

    def _restart(self) -> None:
        self._is_unheard = False
        self._soon_s, self._unheard_s = SOON_S, 0.0

    def find_due(self, leases: Collection[str]) -> float:
        """Return when the owner is to be asked about these leases."""
        return self.due_s if {*leases} <= {*self._leases} else 0.0

    def note(self, leases: Collection[str], *, is_heard: bool) -> None:
        """Note whether the owner has heard of these leases."""
        self._leases = leases
        if is_heard:
            self._restart()
        pause_s = LOOK_S if is_heard else self._lengthen()
        self.due_s = asyncio.get_running_loop().time() + pause_s

    def _lengthen(self) -> float:
        """Return the next pause."""
        self._is_unheard = True
        pause_s = self._soon_s
        self._unheard_s += pause_s
        longest_s = OFTEN_S if self._unheard_s < OFTEN_FOR_S else LOOK_S
        self._soon_s = min(2 * pause_s, longest_s)
        return pause_s

    def begin_anew(self) -> None:
        """Ask an owner that has not heard of its attempts at once: it may be ready now."""
        if self._is_unheard:
            self.due_s = 0.0
            self._restart()


class Paces:
    """The paces of all owners, by their epochs, for one request of a worker."""

    def __init__(self) -> None:
        self._by_epoch: defaultdict[int, Pace] = defaultdict(Pace)

    def __getitem__(self, epoch: int) -> Pace:
        return self._by_epoch[epoch]

    def begin_anew(self) -> None:
        """Ask after a change of owners."""
        for pace in self._by_epoch.values():
            pace.begin_anew()
