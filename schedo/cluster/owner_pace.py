"""When the owners of the attempts that a worker runs for other servers are asked again.

Each owner has a pace of its own, over all requests of the worker. One that has heard of its
attempts, or has just given them, is asked once a second whether they are to stop. One that has not
yet taken the jobs over is asked soon and often at first: it starts them again unless it hears
within HOLD_BACK_US (core/adoption.py) that they still run.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Set

LOOK_S = 1.0  # between two requests to an owner that has heard of its attempts
# The first pause, and the further ones, while it has not. An owner that is ready within OFTEN_FOR_S
# holds the jobs back for longer than OFTEN_S. Later each pause is twice as long as the one before.
SOON_S = 0.02
OFTEN_S = 0.04
OFTEN_FOR_S = 0.3
SPARE = 64  # leases that have ended are remembered up to this number
UNKNOWN = 0  # stands for the epoch of the owner of jobs that have none, or of whom it is not known


class Pace:
    """When one owner is asked again about the attempts of one worker."""

    def __init__(self) -> None:
        self.due_s = 0.0  # by the event loop
        self._leases: set[str] = set()  # that the owner has given, or was asked about
        self._restart()

    def _restart(self) -> None:
        self._is_unheard = False
        self._soon_s, self._unheard_s = SOON_S, 0.0

    def find_due(self, leases: Collection[str]) -> float:
        """Return when the owner is to be asked about these leases."""
        return self.due_s if self._leases.issuperset(leases) else 0.0

    def note_given(self, leases: Collection[str]) -> None:
        """Note that the owner has just given these leases."""
        if not self._leases:
            self.due_s = asyncio.get_running_loop().time() + LOOK_S
        self._leases.update(leases)

    def note_asked(self, leases: Collection[str], *, is_heard: bool) -> None:
        """Note whether the owner has heard of these leases."""
        self._leases.update(leases)
        if is_heard:
            self._restart()
        pause_s = LOOK_S if is_heard else self._lengthen()
        self.due_s = asyncio.get_running_loop().time() + pause_s

    def forget(self, leases: Collection[str]) -> None:
        """Ask about these leases at once: another server had them, or the worker lacks them."""
        self._leases.difference_update(leases)

    def keep_only(self, leases: Set[str]) -> None:
        """Forget other leases if there are many, because this takes a look at each."""
        if len(self._leases) > 2 * len(leases) + SPARE:
            self._leases &= leases

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
    """The paces of all owners, by their epochs, for one worker."""

    def __init__(self) -> None:
        self._by_epoch: defaultdict[int, Pace] = defaultdict(Pace)

    def __getitem__(self, epoch: int) -> Pace:
        return self._by_epoch[epoch]

    def note_given(self, epoch: int, leases: Collection[str]) -> None:
        """Note that the owner has just given these leases; most end before it need be asked."""
        for each in (epoch, UNKNOWN):
            self._by_epoch[each].note_given(leases)

    def note_asked(self, epoch: int, leases: Collection[str], *, is_heard: bool) -> None:
        """Note whether an owner has heard of these leases, which no other one has then."""
        for other, pace in self._by_epoch.items():
            if UNKNOWN not in (epoch, other):
                pace.forget(leases)
        self._by_epoch[epoch].note_asked(leases, is_heard=is_heard)

    def note_request(self, news: Collection[str]) -> None:
        """Ask at once the owners that have not heard of their attempts, and those of the news.

        news: the leases that make the worker's request urgent (see WorkerCall.list_news).
        """
        for pace in self._by_epoch.values():
            pace.begin_anew()
            pace.forget(news)

    def note_change(self) -> None:
        """Ask after a change of owners, and look where the jobs are of which that is not known."""
        for pace in self._by_epoch.values():
            pace.begin_anew()
        self._by_epoch.pop(UNKNOWN, None)

    def keep_only(self, epochs: Set[int], leases: Set[str]) -> None:
        """Forget the owners of which the worker runs nothing any more, and what has ended.

        leases: all that the worker runs for other servers.
        """
        for epoch, pace in [*self._by_epoch.items()]:
            if not leases or (epoch not in epochs and epoch != UNKNOWN):
                del self._by_epoch[epoch]
            else:
                pace.keep_only(leases)
