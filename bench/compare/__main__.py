"""Compares the speed of two commits through the public API; exits with 1 if one became slower.

Both run at the same time on this machine, in the environment and with the bench/ of this checkout,
each from a copy of its own package. Each round also runs the old commit beside itself: what these
two differ by is noise. A row is slower if the interval of new / old lies above 1.02 and its median
above the interval of the noise.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.compare.judge import (
    ROUNDS_MIN,
    Finding,
    Interval,
    Pair,
    Sample,
    Samples,
    alternate,
    compare,
)
from bench.compare.work import ROWS
from bench.server.process import ROOT
from bench.server.script import positive

ROUNDS, QUICK_ROUNDS = 25, 9
QUICK_SHARE = 0.3
DEADLINE_S = 600


def main() -> None:
    """Compare the commits and print a table."""
    options = parse_options()
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    share = QUICK_SHARE if options.quick else 1.0
    with tempfile.TemporaryDirectory(prefix="schedo-compare-") as name:
        old, new = (
            extract(commit, Path(name, which))
            for which, commit in (("old", options.old), ("new", options.new))
        )
        trees = {"old": old, "new": new, "old again": old}
        samples = alternate(options.rows, rounds, run_in(trees, share))
    sys.exit(report(list(compare(samples))))


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="make bench-compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("old", help="a commit")
    parser.add_argument("new", help="a commit")
    rounds = f"at least {ROUNDS_MIN} (default {ROUNDS}; quick {QUICK_ROUNDS})"
    parser.add_argument("--rounds", type=enough_rounds, help=rounds)
    parser.add_argument("--quick", action="store_true", help="fewer rounds with fewer jobs")
    rows = "; ".join(ROWS)
    parser.add_argument(
        "--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help=rows
    )
    return parser.parse_args()


def enough_rounds(text: str) -> int:
    """Parse a number of rounds from which something follows."""
    rounds = positive(text)
    if rounds < ROUNDS_MIN:
        raise argparse.ArgumentTypeError(f"{text} is less than {ROUNDS_MIN}")
    return rounds


def extract(commit: str, tree: Path) -> Path:
    """Copy the package of a commit into the tree, with its bytecode; return the tree."""
    archive = subprocess.run(
        ["git", "archive", commit, "schedo"], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(tree, filter="data")
    subprocess.run([sys.executable, "-m", "compileall", "-q", tree], env=_environment(), check=True)
    return tree


def run_in(trees: dict[str, Path], share: float) -> Callable[[Pair, str], Samples]:
    """Return the function that runs a row with the packages of two trees at the same time."""

    def run_tree(tree: str, row: str) -> Sample:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "bench.compare.work", row, str(share)],
            cwd=trees[tree],
            env=_environment() | {"PYTHONPATH": f"{trees[tree]}:{ROOT}", "PYTHONHASHSEED": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=DEADLINE_S,
            check=True,
            text=True,
        )
        sample = Sample(*json.loads(done.stdout.splitlines()[-1]))
        print(f"{row}, {tree}: {_render(sample)}", file=sys.stderr, flush=True)
        return sample

    def run(pair: Pair, row: str) -> Samples:
        with ThreadPoolExecutor(2) as pool:
            first, second = (pool.submit(run_tree, tree, row) for tree in pair)
            return first.result(), second.result()

    return run


def _environment() -> dict[str, str]:
    """Return the environment without settings of schedo and of bytecode."""
    hidden = ("SCHEDO_", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    return {key: value for key, value in os.environ.items() if not key.startswith(hidden)}


def _render(sample: Sample) -> str:
    return f"{sample.cpu:,.1f} us of CPU, {sample.wall:,.1f} us"


def report(findings: Iterable[Finding]) -> int:
    """Print the findings; return the exit code: 1 if a row is slower."""
    print("| row | us a job | old | new | new / old | old / old | |")
    print("|---|---|---|---|---|---|---|")
    slower = 0
    for each in findings:
        ratios = f"{_span(each.ratio)} | {_span(each.noise)}"
        print(
            f"| {each.row} | {each.measure} | {each.old:,.1f} | {each.new:,.1f} | {ratios}"
            f" | {each.change} |"
        )
        slower += each.change == "slower"
    print(f"\n{slower} slower" if slower else "\nnone slower")
    return 1 if slower else 0


def _span(interval: Interval) -> str:
    return f"{interval.median:.3f} [{interval.low:.3f} - {interval.high:.3f}]"


if __name__ == "__main__":
    main()
