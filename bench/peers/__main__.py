"""schedo beside its strongest peers, on the same work in the same minutes.

`make bench-peers` installs the peers and runs this. The runners take turns, each in a process and
on a store of its own, so that a noisy minute hits all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from bench.peers import postgres
from bench.peers.work import MODES, Result, Work
from bench.server.process import ROOT

DEADLINE_S = 600
PEERS = Path(sys.prefix) / "peers"  # made by `make bench-peers`
FLOOR = "bare SQLite"

# The command of each runner, and whether it needs PostgreSQL.
RUNNERS: dict[str, tuple[list[str], bool]] = {
    FLOOR: ([sys.executable, "-m", "bench.peers.bare_sqlite"], False),
    "schedo embedded": ([sys.executable, "-m", "bench.peers.schedo_embedded"], False),
    "schedo served": ([sys.executable, "-m", "bench.peers.schedo_served"], False),
    "schedo embedded, PostgreSQL": ([sys.executable, "-m", "bench.peers.schedo_embedded"], True),
    "schedo served, PostgreSQL": ([sys.executable, "-m", "bench.peers.schedo_served"], True),
    "graphile-worker": (["node", str(PEERS / "graphile" / "peer.mjs")], True),
    "pgqueuer": ([str(PEERS / "bin" / "python"), "-m", "bench.peers.pgqueuer_peer"], True),
}
COLUMNS = (
    "runner",
    "stream",
    "drain",
    "submit only",
    "stream / best peer",
    "drain / best peer",
    "stream / floor",
)
DURABLE_PEERS = ("graphile-worker", "pgqueuer")

Cpu = dict[str, dict[str, list[float]]]  # by runner and part: microseconds a job
Rates = dict[tuple[str, str], list[float]]  # by runner and figure: jobs a second


def main() -> None:
    """Run the runners in turn and print their medians and ratios."""
    options = parse_options()
    work = Work(
        count=options.count,
        batch=options.batch,
        payload_bytes=options.payload_bytes,
        tasks=options.tasks,
        keyed=options.keyed,
    )
    rates: Rates = defaultdict(list)
    abouts: dict[str, str] = {}
    cpu: Cpu = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack:
        socket = None
        if any(RUNNERS[name][1] for name in options.runners):
            socket = stack.enter_context(postgres.cluster())
        for _ in range(options.rounds):
            for mode in MODES:
                for name in options.runners:
                    result = run(name, Work(**asdict(work) | {"mode": mode}), socket)
                    rates[name, mode].append(work.count / result.total_s)
                    rates[name, f"submit, {mode}"].append(work.count / result.submit_s)
                    abouts[name] = result.about
                    if mode == "stream":
                        for part, cpu_s in result.cpu_s.items():
                            cpu[name][part].append(cpu_s / work.count * 1e6)
                    print(f"{name}, {mode}: {work.count / result.total_s:,.0f}/s", file=sys.stderr)
    print(render(options.runners, rates, abouts, work))
    print(render_cpu(cpu))


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--count", type=int, default=Work.count, help="jobs a run")
    parser.add_argument("--batch", type=int, default=Work.batch, help="jobs in one submit")
    parser.add_argument("--payload-bytes", type=int, default=Work.payload_bytes)
    parser.add_argument("--tasks", type=int, default=Work.tasks, help="1 to 10 tasks in turn")
    parser.add_argument("--keyed", action="store_true", help="jobs with unique keys and tags")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runners", nargs="*", choices=RUNNERS, default=list(RUNNERS))
    return parser.parse_args()


def run(name: str, work: Work, socket: Path | None) -> Result:
    """Run one runner in a process of its own, on an empty store."""
    command, needs_postgres = RUNNERS[name]
    with _database(socket if needs_postgres else None) as variables:
        before = postgres.read_cpu_s(socket) if needs_postgres and socket else 0.0
        done = subprocess.run(
            [*command, json.dumps(asdict(work))],
            cwd=ROOT,
            env=_environment() | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=DEADLINE_S,
            check=True,
            text=True,
        )
        result = Result(**json.loads(done.stdout.splitlines()[-1]))
        if needs_postgres and socket:
            result.cpu_s["PostgreSQL"] = postgres.read_cpu_s(socket) - before
    return result


@contextmanager
def _database(socket: Path | None) -> Iterator[dict[str, str]]:
    if socket is None:
        yield {}
    else:
        with postgres.database(socket) as address:
            yield {"PEERS_DSN": address}


def _environment() -> dict[str, str]:
    """Return the environment without settings of schedo and of bytecode."""
    hidden = ("SCHEDO_", "PYTHONDONTWRITEBYTECODE")
    return {key: value for key, value in os.environ.items() if not key.startswith(hidden)}


def render(names: list[str], rates: Rates, abouts: dict[str, str], work: Work) -> str:
    """Return a table: medians with the least and the most, and ratios within the rounds."""
    keyed = ", unique keys" if work.keyed else ""
    lines = [
        f"{work.count:,} no-op jobs, submitted by {work.batch:,}, payloads of"
        f" {work.payload_bytes:,} bytes, {work.tasks} tasks{keyed}. Jobs a second.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
    ]
    for name in names:
        figures = [_spread(rates[name, key]) for key in (*MODES, "submit, drain")]
        ratios = [_ratio(rates, name, mode, best_peer(rates, names, mode)) for mode in MODES]
        ratios.append(_ratio(rates, name, "stream", FLOOR if FLOOR in names else None))
        lines.append(f"| {name} | {' | '.join(figures + ratios)} |")
    return "\n".join([*lines, "", *(f"- {name}: {abouts[name]}" for name in names)])


def render_cpu(cpu: Cpu) -> str:
    """Return a list: the processor time of each part of each runner, as medians."""
    lines = ["", "Processor time of a job in `stream`, in microseconds:", ""]
    for name, parts in cpu.items():
        figures = (f"{part} {statistics.median(values):.0f}" for part, values in parts.items())
        lines.append(f"- {name}: {', '.join(figures)}")
    return "\n".join(lines)


def best_peer(rates: Rates, names: list[str], mode: str) -> str | None:
    """Return the durable peer with the highest median, or None if there is none."""
    there = [name for name in DURABLE_PEERS if name in names]
    median: Callable[[str], float] = lambda name: statistics.median(rates[name, mode])  # noqa: E731
    return max(there, key=median, default=None)


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} [{min(values):,.0f} - {max(values):,.0f}]"


def _ratio(rates: Rates, name: str, mode: str, other: str | None) -> str:
    if other is None or other == name:
        return "-"
    pairs = zip(rates[name, mode], rates[other, mode], strict=True)
    return f"{statistics.median(ours / theirs for ours, theirs in pairs):.2f}"


if __name__ == "__main__":
    main()
