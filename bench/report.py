"""Runs the scripts of bench/server several times and writes their results into bench/README.md.

    python -m bench.report [--runs 3] [--only NAME ...] [--quick | --render]

bench/results.json stores the results; a script that does not run keeps its last results. The
results of --quick are printed but not stored, because they are not accurate. Run nothing else on
the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from bench.server.script import positive, render_value

HERE = Path(__file__).parent
PAGE = HERE / "README.md"
RESULTS = HERE / "results.json"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
SCRIPTS = (
    *("lateness", "start", "submits", "throughput", "shell", "workers", "memory", "storm"),
    "drift",
)
# drift makes hundreds of thousands of commits but does not measure the disk, so it may use memory.
EXTRA = {"drift": ["--directory", "/dev/shm"]} if Path("/dev/shm").is_dir() else {}
Found = dict[str, Any]


class Headline(NamedTuple):
    """A headline figure with its target and the values of other schedulers."""

    what: str
    script: str
    figure: str  # the name of the script's figure
    target: str
    peers: str


_ARMED = "embedded, 5,000/s, 1,000,000 armed at 4 h"
_WITH_NOTHING = "APScheduler 3 in memory 0.17 / 0.75 ms"
HEADLINES = (
    Headline(
        "lateness at 5,000/s, 1 M armed, local async handler: p50",
        "lateness",
        f"{_ARMED}: p50",
        "<= 100 us, <= 3 x timerfd",
        f"Celery 1.3 ms (200/s), best durable; {_WITH_NOTHING}, nothing durable",
    ),
    Headline(
        "the same: p99",
        "lateness",
        f"{_ARMED}: p99",
        "< 1 ms",
        "Celery 2.5 ms (200/s), beanstalkd 997 ms",
    ),
    Headline(
        "submit over HTTP to handler start, idle server: p50",
        "start",
        "submit to handler start: p50",
        "< 1 ms",
        "-",
    ),
    Headline(
        "durable throughput, embedded, batches of 100",
        "throughput",
        "embedded, batches of 100",
        ">= 75,000/s, >= 0.25 x bare commits",
        "graphile-worker 32 k/s, beanstalkd 31 k/s (fsync each 50 ms), Celery 0.8 k/s",
    ),
    Headline(
        "durable throughput over HTTP, batches of 100",
        "throughput",
        "over HTTP, batches of 100",
        ">= 35,000/s",
        "graphile-worker 32 k/s, pgqueuer 22 k/s, pg-boss 20 k/s, BullMQ 12 k/s (fsync always)",
    ),
    Headline(
        "single submits over HTTP, 32 connections",
        "submits",
        "submits, 32 connections",
        ">= 8,000/s",
        "beanstalkd 9.0 k/s (fsync on every write), arq 9.4 k/s, Celery 2.2 k/s",
    ),
    Headline(
        "memory, 100,000 jobs scheduled",
        "memory",
        "memory, 100,000 jobs scheduled",
        "< 50 MB",
        "beanstalkd 22 MiB + worker 23, BullMQ 46 + 72, SAQ 62 + 35, Celery 136 + 896",
    ),
    Headline(
        "memory, 10 million jobs scheduled",
        "memory",
        "memory, 10,000,000 jobs scheduled",
        "< 64 MB",
        "-",
    ),
    Headline(
        "ready after start, 10 million jobs in the file",
        "memory",
        "start to ready, 10,000,000 jobs scheduled",
        "< 500 ms",
        "with 100,000 jobs: beanstalkd 170 ms, arq 640 ms, BullMQ 970 ms",
    ),
    Headline(
        "shell commands, 16 at a time",
        "shell",
        "commands, 16 at a time",
        ">= 1 x xargs -P16",
        "xargs 1,720/s, bare posix_spawn 2,500/s",
    ),
    Headline(
        "invoke over HTTP on one of two workers: p50",
        "workers",
        "invoke: p50",
        "< 2 ms",
        "-",
    ),
    Headline(
        "100 workers x 10 slots, 5,000 jobs/s: due to a worker's start, p99",
        "workers",
        "100 workers x 10 slots, 5,000 jobs/s, due to worker's start: p99",
        "< 5 ms when not saturated",
        "-",
    ),
    Headline(
        "1,000 idle workers: memory",
        "workers",
        "1,000 idle workers: memory",
        "< 20 MB",
        "-",
    ),
)


def main() -> None:
    """Run the chosen scripts, then write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=positive, default=3, help="of each script (default 3)")
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=SCRIPTS, metavar="NAME")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--quick", action="store_true", help="short runs, printed and not written")
    way.add_argument("--render", action="store_true", help="measure nothing, write the page")
    arguments = parser.parse_args()
    names = () if arguments.render else arguments.only
    found = ((name, measure(name, arguments.runs, arguments.quick)) for name in names)
    if arguments.quick:
        for name, each in found:
            print(*_render_script(name, each), sep="\n")
    else:
        save_results(found)


def save_results(found: Iterable[tuple[str, Found]]) -> None:
    """Store the results of each script as soon as it has ended, then write the page."""
    results: dict[str, Found] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, each in found:
        results[name] = each
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    page = PAGE.read_text()
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    body = "\n".join(render(results))
    PAGE.write_text(f"{before}{BEGIN}\n\n{body}\n{END}{after}")


def measure(name: str, runs: int, is_quick: bool) -> Found:
    """Run a script several times; return the median, minimum and maximum of each figure."""
    words = ["-m", f"bench.server.{name}", *EXTRA.get(name, []), *(["--quick"] if is_quick else [])]
    answers = []
    for number in range(runs):
        print(f"{name}: run {number + 1} of {runs}", file=sys.stderr, flush=True)
        done = subprocess.run(
            [sys.executable, *words, "--json"], cwd=HERE.parent, stdout=subprocess.PIPE, text=True
        )
        if done.returncode:
            sys.exit(f"{name} failed; nothing of it was written down")
        answers.append(json.loads(done.stdout))
    return {
        "command": " ".join(["python", *words]),
        "runs": runs,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": describe_machine(),
        "checks": answers[-1]["checks"],
        "figures": [_merge(same) for same in zip(*(a["figures"] for a in answers), strict=True)],
    }


def _merge(same: tuple[Found, ...]) -> Found:
    values = [each["value"] for each in same]
    merged = {
        **{key: same[0][key] for key in ("what", "unit", "floor_what")},
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
    }
    if all(each["floor"] for each in same):
        merged["floor"] = statistics.median(each["floor"] for each in same)
        merged["ratio"] = statistics.median(each["value"] / each["floor"] for each in same)
    return merged


def describe_machine() -> str:
    """Return the processor, cores, memory, system and Python version in one line."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    parts = [
        cpu[1].strip() if cpu else platform.machine(),
        f"{os.cpu_count()} cores",
        f"{int(memory[1]) / 1_048_576:.0f} GiB" if memory else "",
        f"{platform.system()} {platform.release()}",
        f"Python {platform.python_version()}",
    ]
    return ", ".join(part for part in parts if part)


def render(results: dict[str, Found]) -> Iterator[str]:
    """Yield the lines of the page's results: the headlines, then every figure."""
    yield "| figure | target | measured | floor | ratio | peers |"
    yield "|---|---|---|---|---|---|"
    for line in HEADLINES:
        figures = results.get(line.script, {}).get("figures", ())
        found = next((each for each in figures if each["what"] == line.figure), None)
        measured = _measured(found) if found else "not measured yet | - | -"
        yield f"| {line.what} | {line.target} | {measured} | {line.peers} |"
    for name in SCRIPTS:
        if name in results:
            yield from _render_script(name, results[name])


def _render_script(name: str, found: Found) -> Iterator[str]:
    yield f"\n### {name}\n"
    runs = f"{found['runs']} run{'s' if found['runs'] > 1 else ''}"
    yield f"`{found['command']}`, {runs}, {found['date']}, {found['machine']}.\n"
    yield "| figure | median [min - max] | floor | ratio |"
    yield "|---|---|---|---|"
    for figure in found["figures"]:
        yield f"| {figure['what']} | {_measured(figure)} |"
    yield ""
    for check in found["checks"]:
        yield f"- checked: {check}"


def _measured(figure: Found) -> str:
    unit = figure["unit"]
    median, least, most = (render_value(figure[key], unit) for key in ("median", "min", "max"))
    shown = f"**{median}** [{least} - {most}]"
    if "ratio" not in figure:
        return f"{shown} | - | -"
    floor = f"{render_value(figure['floor'], unit)} ({figure['floor_what']})"
    return f"{shown} | {floor} | {figure['ratio']:.2f}"


if __name__ == "__main__":
    main()
