"""`python -m tests.sim`: run many seeds, or replay one and print what was seen.

The exit status is 1 if an invariant was broken.
"""

from __future__ import annotations

import argparse
import sys
from time import perf_counter

from tests.sim.checkers import check
from tests.sim.simulator import run
from tests.sim.trace import digest

SHOWN_MAX = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="the first of their seeds")
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--trace", action="store_true", help="print all that was seen of it")
    asked = parser.parse_args()
    if asked.seed is not None:
        return _replay(asked.seed, show=asked.trace)
    return _run_many(range(asked.first, asked.first + asked.seeds))


def _replay(seed: int, *, show: bool) -> int:
    trace = run(seed)
    if show:
        for position, event in enumerate(trace):
            print(position, event)
    findings = check(trace)
    print(f"seed {seed}: {len(trace)} events, {trace[-1].at / 1e6:.0f} s, {digest(trace)}")
    print("\n".join(findings) or "every invariant holds")
    return bool(findings)


def _run_many(seeds: range) -> int:
    simulated = events = 0.0
    broken = []
    begun = perf_counter()
    for seed in seeds:
        trace = run(seed)
        findings = check(trace)
        simulated += trace[-1].at / 1e6
        events += len(trace)
        if findings:
            broken.append(seed)
            print(f"seed {seed}; replay it: make sim SEED={seed}")
            print("\n".join(f"    {finding}" for finding in findings[:SHOWN_MAX]), flush=True)
    took = perf_counter() - begun
    print(
        f"{len(seeds)} worlds, {len(broken)} broken, {events:.0f} events; "
        f"{simulated / 3600:.1f} simulated hours in {took:.0f} s: {simulated / took:.0f} times"
    )
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
