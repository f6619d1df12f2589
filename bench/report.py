"""Runs the scripts of bench/server and writes their results into bench/README.md and README.md.

    python -m bench.report [--runs N] [--only NAME ...] [--quick | --render]

All scripts together take about three quarters of an hour and 5 GB of disk. bench/results.json
stores the results; a script that does not run, or fails, keeps its last results. The results of
--quick are printed but not stored, because they are not accurate. Run nothing else on the machine
meanwhile.

The exit code is 1 if a script failed, or did not measure a figure that a page quotes.
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
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from bench.headlines import HEADLINES, Headline
from bench.server.script import positive, render_value

HERE = Path(__file__).parent
PAGE = HERE / "README.md"
README = HERE.parent / "README.md"
RESULTS = HERE / "results.json"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
Found = dict[str, Any]


class Plan(NamedTuple):
    """How often a script runs, and its options."""

    runs: int = 3
    options: str = ""


# drift makes hundreds of thousands of commits, and stages shows what is not the disk: both may use
# memory.
_IN_MEMORY = " --directory /dev/shm" if Path("/dev/shm").is_dir() else ""
SCRIPTS = {
    "public": Plan(),
    "timed": Plan(options="--seconds 5"),
    "submits": Plan(options="--count 10000 --connections 1,32,256"),
    "start": Plan(),
    "stages": Plan(options=_IN_MEMORY),
    "backlog": Plan(runs=1),
    "throughput": Plan(options="--count 20000 --batches 1,100,1000"),
    "lateness": Plan(runs=1, options="--rates 200,5000 --armed 0,1000000 --hours 4"),
    "shell": Plan(),
    "workers": Plan(runs=1),
    "memory": Plan(runs=1, options="--jobs 0,100000,10000000 --starts 3"),
    "full_store": Plan(runs=1),
    "page": Plan(runs=1),
    "screens": Plan(runs=1),
    "streams": Plan(runs=1),
    "storm": Plan(runs=1, options="--schedules 50000"),
    "drift": Plan(runs=1, options="--hours 2" + _IN_MEMORY),
}


def main() -> None:
    """Run the chosen scripts, then write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ", ".join(SCRIPTS)
    parser.add_argument("--runs", type=positive, help="of each script (default 3, of some 1)")
    parser.add_argument(
        "--only", nargs="+", choices=SCRIPTS, default=[*SCRIPTS], metavar="NAME", help=names
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--quick", action="store_true", help="short runs, printed and not written")
    way.add_argument("--render", action="store_true", help="measure nothing, write the page")
    arguments = parser.parse_args()
    chosen = () if arguments.render else arguments.only
    found = (
        (name, measure(name, arguments.runs or SCRIPTS[name].runs, arguments.quick))
        for name in chosen
    )
    if arguments.quick:
        for name, each in found:
            if each is None:
                sys.exit(f"{name} failed")
            print(*_render_script(name, each), sep="\n")
    elif missing := save_results(found):
        sys.exit("\n".join(missing))


def save_results(found: Iterable[tuple[str, Found | None]]) -> list[str]:
    """Store the results of each script when it has ended, and write the pages.

    Return a sentence for each script that failed, and for each headline that it did not measure.
    """
    results: dict[str, Found] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    missing = []
    for name, each in found:
        if each is None:
            missing.append(f"{name} failed, and keeps its last results")
            continue
        results[name] = each
        missing += [
            f"{name} did not measure {line.figure!r}, which the page quotes"
            for line in HEADLINES
            if line.script == name and find_figure(results, line) is None
        ]
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    write_page(PAGE, render(results))
    write_page(README, render_readme(results))
    return missing


def write_page(page: Path, lines: Iterable[str]) -> None:
    """Replace the results between the two marks of a page."""
    text = page.read_text()
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    page.write_text("\n".join([f"{before}{BEGIN}\n", *lines, f"{END}{after}"]))


def measure(name: str, runs: int, is_quick: bool) -> Found | None:
    """Run a script several times; return the median, minimum and maximum of each figure.

    Return None if a run fails.
    """
    options = "--quick" if is_quick else SCRIPTS[name].options
    words = ["-m", f"bench.server.{name}", *options.split()]
    answers = []
    began = time.perf_counter()
    for number in range(runs):
        print(f"{name}: run {number + 1} of {runs}", file=sys.stderr, flush=True)
        done = subprocess.run(
            [sys.executable, *words, "--json"], cwd=HERE.parent, stdout=subprocess.PIPE, text=True
        )
        if done.returncode:
            return None
        answers.append(json.loads(done.stdout))
    took_s = time.perf_counter() - began
    print(f"{name}: {took_s:.0f} s", file=sys.stderr, flush=True)
    return {
        "command": " ".join(["python", *words]),
        "runs": runs,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": describe_machine(),
        "checks": answers[-1]["checks"],
        "notes": answers[-1]["notes"],
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
    yield "| figure | target | measured | floor | ratio | peers | script, date |"
    yield "|---|---|---|---|---|---|---|"
    for line in HEADLINES:
        found = find_figure(results, line)
        measured = _measured(found) if found else "not measured yet | - | -"
        source = _source(results, line)
        yield f"| {line.what} | {line.target} | {measured} | {line.peers} | {source} |"
    for name in SCRIPTS:
        if name in results:
            yield from _render_script(name, results[name])


def render_readme(results: dict[str, Found]) -> Iterator[str]:
    """Yield the lines of the table in README.md: the measured ones of its headlines."""
    yield "| | schedo | floor | ratio | the best durable peer | script, date |"
    yield "|---|---|---|---|---|---|"
    for line in HEADLINES:
        found = find_figure(results, line)
        if found and line.is_quoted:
            yield f"| {line.what} | {_measured(found)} | {line.peers} | {_source(results, line)} |"


def find_figure(results: dict[str, Found], line: Headline) -> Found | None:
    """Return the figure of a headline, or None if it has not been measured."""
    figures = results.get(line.script, {}).get("figures", ())
    return next(
        (
            each
            for each in figures
            if each["what"] == line.figure and each["floor_what"].startswith(line.floor)
        ),
        None,
    )


def _source(results: dict[str, Found], line: Headline) -> str:
    """Return the script that measures a headline, and when it did."""
    found = results.get(line.script)
    return f"`{line.script}`" + (f", {found['date']}" if found else "")


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
    for note in found.get("notes", ()):
        yield f"- {note}"


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
