"""`python -m tests.sim`: runs many seeds, or replays one seed and prints its trace.

Many seeds can be run in parts: at the end, at a time limit and after an interrupt, it prints the
seed to continue from. The exit status is 1 if an invariant is broken.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count
from time import perf_counter

from tests.sim.checkers import check
from tests.sim.plan import STORES, plan_of
from tests.sim.simulator import run
from tests.sim.trace import digest

SHOWN_MAX = 20
AHEAD = 2  # worlds that are queued for each process


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one world: the number of events, and the broken invariants."""

    seed: int
    store: str
    events: int
    simulated_s: float
    findings: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="the first of their seeds")
    parser.add_argument("--seconds", type=float, help="begin no other world after so long")
    parser.add_argument("--jobs", type=int, default=1, help="in how many processes")
    parser.add_argument("--store", choices=STORES, help="the store of all; else each seed has one")
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--trace", action="store_true", help="print all that was seen of it")
    asked = parser.parse_args()
    logging.disable(logging.ERROR)  # the trace has all errors
    if asked.seed is not None:
        return _replay(asked.seed, asked.store, show=asked.trace)
    return _run_many(asked)


def _replay(seed: int, store: str | None, *, show: bool) -> int:
    trace = run(seed, store=store)
    if show:
        for position, event in enumerate(trace):
            print(position, event)
    findings = check(trace)
    print(f"seed {seed}: {len(trace)} events, {trace[-1].at / 1e6:.0f} s, {digest(trace)}")
    print("\n".join(findings) or "every invariant holds")
    return bool(findings)


def live(seed: int, store: str | None) -> Found:
    """Run one world and check its trace."""
    logging.disable(logging.ERROR)
    trace = run(seed, store=store)
    return Found(seed, store or plan_of(seed).store, len(trace), trace[-1].at / 1e6, check(trace))


def _run_many(asked: argparse.Namespace) -> int:
    begun = perf_counter()
    until = begun + asked.seconds if asked.seconds is not None else None
    worlds: Counter[str] = Counter()
    simulated_s = events = broken = 0.0
    following = asked.first
    try:
        for found in _live_through(asked, until):
            following = found.seed + 1
            worlds[found.store] += 1
            simulated_s += found.simulated_s
            events += found.events
            if found.findings:
                broken += 1
                _send_result(found, asked.store)
    except KeyboardInterrupt:
        print("interrupted")
    took = perf_counter() - begun
    stores = ", ".join(f"{number} on {name}" for name, number in sorted(worlds.items()))
    print(
        f"{worlds.total()} worlds ({stores or 'none'}), {broken:.0f} broken, {events:.0f} events; "
        f"{simulated_s / 3600:.1f} simulated hours in {took:.0f} s"
    )
    left = asked.first + asked.seeds - following
    if left > 0:
        print(f"go on: make sim FIRST={following} SEEDS={left}", flush=True)
    return bool(broken)


def _send_result(found: Found, store: str | None) -> None:
    again = f" ARGS='--store {store}'" if store else ""
    print(f"seed {found.seed} on {found.store}; replay it: make sim SEED={found.seed}{again}")
    print("\n".join(f"    {finding}" for finding in found.findings[:SHOWN_MAX]), flush=True)


def _live_through(asked: argparse.Namespace, until: float | None) -> Iterator[Found]:
    """Yield the worlds in the order of their seeds, until the last one or the time limit."""
    seeds = range(asked.first, asked.first + asked.seeds)
    if asked.jobs == 1:
        for seed in seeds:
            if until is not None and perf_counter() > until:
                return
            yield live(seed, asked.store)
        return
    executor: Executor = ProcessPoolExecutor(asked.jobs)
    waiting: deque[Future[Found]] = deque()
    numbers = count()
    try:
        while True:
            is_time = until is None or perf_counter() <= until
            while is_time and len(waiting) < AHEAD * asked.jobs:
                number = next(numbers)
                if number >= len(seeds):
                    break
                waiting.append(executor.submit(live, seeds[number], asked.store))
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        executor.shutdown(cancel_futures=True)


if __name__ == "__main__":
    sys.exit(main())
