"""The limits of queues that several servers share, each with jobs of its own.

A queue has a home in a cluster: the server that owns the shard of its name. That server divides the
limit among those that have jobs of the queue, itself included. Each starts jobs only as far as its
share allows; so all together never run more than the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from schedo.core.model import Queue
from schedo.core.queue_states import QueueState, QueueStates


class LimitUse(NamedTuple):
    """How far one server uses the limit of a queue."""

    limit: int
    share: int  # of the limit: as many of its jobs may run
    running: int
    waiting: int  # jobs that could start now, as far as memory has them

    @property
    def wanted(self) -> int:
        """The share that the server needs."""
        return self.running + self.waiting


class LimitShares:
    """The shares of this server; without `begin`, each limit is its own."""

    def __init__(self, states: QueueStates, reopen: Callable[[QueueState], None]) -> None:
        """reopen: called when jobs of the queue may start again."""
        self._states, self._reopen = states, reopen
        self._limited: dict[str, QueueState] = {}

    @property
    def are_shared(self) -> bool:
        """Whether other servers run jobs of the same queues."""
        return self._states.share is not None

    def begin(self) -> None:
        """Start no job of a queue with a limit from now on, until `give` says how many may run."""
        self._states.share = 0
        for state in self._states.values():
            state.share = 0

    def follow(self, state: QueueState, queue: Queue) -> None:
        """Set the limits of the queue."""
        if queue.concurrency is None:
            self._limited.pop(queue.name, None)
            state.share = self._states.share
        else:
            self._limited[queue.name] = state
        state.queue = queue

    def uses(self) -> dict[str, LimitUse]:
        """Return how far this server uses each limit that it shares."""
        if not self.are_shared:
            return {}
        return {name: _read_use(state) for name, state in self._limited.items()}

    def give(self, shares: Mapping[str, int]) -> None:
        """Let as many jobs of each queue run here, if the queue still has a limit."""
        for name, share in shares.items():
            state = self._limited.get(name)
            if state is not None and state.share is not None:
                state.share = share
                self._reopen(state)


def _read_use(state: QueueState) -> LimitUse:
    limit = state.queue.concurrency
    assert limit is not None, "the queue has a limit"
    waiting = 0 if state.queue.paused else sum(map(len, state.indexes.values()))
    share = limit if state.share is None else state.share
    return LimitUse(limit, share, state.running, min(waiting, limit))


def divide(limit: int, wishes: Mapping[int, int], turn: int) -> dict[int, int]:
    """Return how much of the limit each server gets: what it wishes, or else as much as the others.

    turn: which servers get one more when the rest cannot be divided; it should change.
    """
    shares = dict.fromkeys(wishes, 0)
    left, servers = limit, [each for each, wish in sorted(wishes.items()) if wish > 0]
    while left > 0 and servers:
        each = left // len(servers)
        if not each:
            for place in range(left):
                shares[servers[(turn + place) % len(servers)]] += 1
            break
        for server in servers:
            more = min(each, wishes[server] - shares[server])
            shares[server] += more
            left -= more
        servers = [server for server in servers if shares[server] < wishes[server]]
    return shares
