"""Every screen of the page on a full store, and timers while a client searches in vain.

A real Chromium has the page open, and goes from screen to screen; the figure is the time from the
click to the first frame in which no part of the screen waits for its data.
Then each request that the screens made is repeated by itself, while another connection looks up one
job after the other: no read may keep those waiting. At the end timed jobs become due, alternately
by themselves, while a client searches for what is not there without a pause, and beside a process
that only computes: what the machine itself costs them.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from enum import Enum
from pathlib import Path
from urllib.parse import quote

from bench.server.chromium import VIEWPORT, click, open_browser, visit
from bench.server.connection import Connection, connect, run
from bench.server.full_filling import RARE, Full, fill_full
from bench.server.full_load import count_waiting, fire_timed, time_read
from bench.server.process import NOOP_APP, Server
from bench.server.script import Option, Results, positive, run_script

SCHEDULE = "schedule-0000007"
AWAY = "/log"  # the screen between two others
SCREENS = (
    "/",
    "/lateness",
    "/lateness?window=24h",
    "/jobs",
    "/jobs?state=failed",
    "/jobs?state=expired&queue=queue-1",
    f"/jobs?queue={RARE}&task={RARE}",
    "/jobs?q=nowhere",
    "/jobs?payload.order=9781",
    "/schedules",
    "/schedules?q=0000007",
    "/schedules/-new",
    f"/schedules/{SCHEDULE}",
    f"/schedules/{SCHEDULE}/edit",
    "/queues",
    "/queues/queue-1",
    "/workers",
    "/invoke",
    "/failures",
    "/expectations",
)
UNNAMED = ("cursor", "fields")  # parameters that a row of the results does not name
# Searches that find no job.
IN_VAIN = ("q=nowhere", "payload.order=9781", "worker=missing")

NICENESS = 10  # of the thread that searches; see schedo/store/sqlite/connection.py
# What any program costs the timers that computes beside the server with the niceness of a search.
NICE_LOOP = f"import os; os.nice({NICENESS})\nwhile True: pass"


class Beside(Enum):
    """What goes on while timed jobs become due."""

    NOTHING = "nothing"
    SEARCH = "a search in vain"
    LOOP = "a process that computes, as nice as a search"


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure the screens, the reads of each, and timers beside a search."""
    full = Full(arguments.ended, arguments.queued, arguments.scheduled, arguments.schedules)
    began = time.perf_counter()
    fill_full(directory / "bench.db", full)
    results.note(f"the full store was made in {time.perf_counter() - began:.0f} s")
    with Server(directory, app=NOOP_APP) as server:
        run(count_waiting(server))
        calls = run(_open_screens(server, arguments.repeats, results))
        for name, paths in itertools.groupby(calls, _name_call):
            reads = [run(time_read(server, path, arguments.repeats)) for path in paths]
            longest = max(statistics.median(took) for took, _ in reads)
            results.add(f"GET {name}", longest, "us")
            longest = max(max(beside) for _, beside in reads)
            results.add(f"GET {name}: the longest look-up beside it", longest, "us")
        _add_timers(server, arguments, results)


async def _open_screens(server: Server, repeats: int, results: Results) -> list[str]:
    """Add the time of each screen; return the requests that the screens made."""
    calls: dict[str, None] = {}
    async with open_browser() as browser:
        context = await browser.new_context(viewport=VIEWPORT)
        page = await context.new_page()
        await visit(page, server.url + AWAY)
        for path in [*SCREENS, *await _find_records(server)]:
            ready_ms = []
            for _ in range(repeats + 1):
                opened = await click(page, server.url + path)
                ready_ms.append(opened.ready_ms)
                calls.update(dict.fromkeys(opened.calls))
                await click(page, server.url + AWAY)
            # The first time, the browser compiles the modules of the screen.
            ready = statistics.median(ready_ms[1:])
            results.add(f"screen {path}", ready * 1000, "us")
    # Not those of this moment, and not those that are sent by POST.
    calls_to_read = (call for call in calls if "from=" not in call and ":" not in call)
    return sorted(calls_to_read, key=_name_call)


def _name_call(call: str) -> str:
    """Name a request without what differs from run to run: ids, instants, cursors, and columns."""
    path, _, query = call.partition("?")
    path = re.sub(r"^/v1/(jobs|workers)/[^/]+", r"/v1/\1/:id", path)
    parameters = (each.partition("=") for each in query.split("&") if each)
    kept = [
        name if name == "since" else f"{name}={value}"
        for name, _, value in parameters
        if name not in UNNAMED
    ]
    return f"{path}?{'&'.join(kept)}" if kept else path


async def _find_records(server: Server) -> list[str]:
    """Return the addresses of a waiting job, an ended one, and a worker."""
    connection = await connect(server)
    jobs = [await _find_job(connection, state) for state in ("queued", "completed")]
    (worker, *_) = (await connection.get("/v1/workers"))["items"]
    connection.close()
    return [*(f"/jobs/{job}" for job in jobs), f"/workers/{quote(worker['name'], safe='')}"]


async def _find_job(connection: Connection, state: str) -> str:
    """Return the id of the newest job in a state; a page may end before it."""
    path = f"/v1/jobs?limit=1&state={state}"
    page = await connection.get(path)
    while not page["items"]:
        page = await connection.get(f"{path}&cursor={page['next_cursor']}")
    return str(page["items"][0]["id"])


def _add_timers(server: Server, arguments: argparse.Namespace, results: Results) -> None:
    found: dict[Beside, list[dict[str, int]]] = {each: [] for each in Beside}
    looked = 0
    for number in range(arguments.pairs * len(Beside)):
        beside = list(Beside)[number % len(Beside)]
        with _computing() if beside is Beside.LOOP else nullcontext():
            late, jobs = run(_fire(server, arguments, number, beside is Beside.SEARCH))
        found[beside].append(late)
        looked += jobs
    results.note(f"the searches looked at {looked:,} jobs")
    for share in ("p50", "p99"):
        took = {each: statistics.median(late[share] for late in found[each]) for each in Beside}
        for each in (Beside.SEARCH, Beside.LOOP):
            what = f"start of a timed job beside {each.value}: {share}"
            results.add(what, took[each], "us", took[Beside.NOTHING], "by itself")


async def _fire(
    server: Server, arguments: argparse.Namespace, number: int, is_searching: bool
) -> tuple[dict[str, int], int]:
    """Return how late timed jobs start, and how many jobs a search has looked at meanwhile."""
    connection = await connect(server)
    looked: list[int] = []
    search = asyncio.create_task(_search(connection, looked)) if is_searching else None
    late = await fire_timed(server, arguments.rate, arguments.seconds, number)
    if search is not None:
        search.cancel()
        await asyncio.gather(search, return_exceptions=True)
    connection.close()
    return late, sum(looked)


@contextmanager
def _computing() -> Iterator[None]:
    """Let another process compute."""
    process = subprocess.Popen([sys.executable, "-c", NICE_LOOP])
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def _search(connection: Connection, looked: list[int]) -> None:
    """Search for what is not there, from the newest job to the oldest, again and again."""
    for query in itertools.cycle(IN_VAIN):
        path: str | None = f"/v1/jobs?limit=50&{query}"
        while path is not None:
            page = await connection.get(path)
            looked.append(page.get("looked_at", 0))
            cursor = page.get("next_cursor")
            path = cursor and f"/v1/jobs?limit=50&{query}&cursor={cursor}"


OPTIONS = (
    Option("ended", 10_000_000, 20_000, "ended jobs in the full store", positive),
    Option("queued", 200_000, 2_000, "queued jobs in it", positive),
    Option("scheduled", 200_000, 2_000, "scheduled jobs in it", positive),
    Option("schedules", 100_000, 1_000, "schedules in it", positive),
    Option("repeats", 5, 1, "how often each screen is opened and each read is made", positive),
    Option("pairs", 7, 1, "measurements of timers, with and without a search", positive),
    Option("rate", 100, 50, "timed jobs a second", positive),
    Option("seconds", 5, 1, "how long they become due", positive),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
