"""The memory of the page while it stays open: the heap of each screen, minute by minute.

A real Chromium shows several screens of one server, each in a tab of its own that counts as
visible, while schedules fire each second and a client submits jobs, some of which fail. Each
minute the garbage is collected and the rest is read: of each tab, and of the worker that they
share. The slope is that of the median line through all pairs of readings (Theil and Sen) after the
first fifteen minutes, in which the charts fill. The lists are full from the start: a schedule shows
its last twenty runs, and one that fires each five minutes would need a hundred minutes for them.
Two snapshots say how much of the growth is code: V8 compiles for an hour what runs often, and so
the heap grows although the page keeps no more than before.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from playwright.async_api import Browser, CDPSession

from bench.server.chromium import VIEWPORT, WorkerHeap, open_browser, open_session, read_heap
from bench.server.connection import connect, request, run
from bench.server.evidence import NotDone
from bench.server.heap_snapshot import HeapParts, read_parts
from bench.server.page_load import SCHEDULES, name_of, put_schedules, submitting
from bench.server.process import NOOP_APP, Server
from bench.server.script import Option, Results, positive, run_script

SCREENS = ("/", "/jobs", "/schedules", "/queues", "/workers", "/failures", "/log")
FILLING = 15  # readings, until the charts are full
RUNS_SHOWN = 20  # of each schedule
WORKER = "the shared worker"
COUNTED = ("Nodes", "JSEventListeners")

Heaps = dict[str, list[dict[str, float]]]  # the readings of each screen and of the worker


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Keep the screens open, and read their heaps."""
    with Server(directory, app=NOOP_APP) as server:
        run(_watch(server, arguments, results))


async def _watch(server: Server, arguments: argparse.Namespace, results: Results) -> None:
    await put_schedules(server)
    await _fill_lists(server)
    async with submitting(server, arguments.rate), open_browser() as browser:
        heaps, parts = await _read_for(browser, server, arguments)
    skipped = _count_filling(arguments)
    for name, readings in heaps.items():
        used = [each["JSHeapUsedSize"] for each in readings]
        results.add(f"heap of {name} after {arguments.minutes} min", used[-1], "bytes")
        results.add(f"heap of {name}: the most", max(used), "bytes", used[0], "the first")
        growth = _find_slope(used[skipped:]) * 3600 / arguments.interval
        results.note(f"{name} grows by {growth / 1e6:+.2f} MB an hour")
        for counter in COUNTED:
            if counter in readings[0]:
                first, last = readings[skipped][counter], readings[-1][counter]
                results.note(f"{name}: {counter} {first:,.0f} -> {last:,.0f}")
    for name, (before, after) in parts.items():
        code, kept = after.code - before.code, after.kept - before.kept
        results.note(f"{name}: {code / 1e6:+.3f} MB of code, {kept / 1e6:+.3f} MB of all else")


def _count_filling(arguments: argparse.Namespace) -> int:
    return int(min(FILLING, arguments.minutes // 2))


async def _fill_lists(server: Server) -> None:
    """Run each schedule as often as the page shows."""
    connection = await connect(server)
    body = b'{"overlap": "allow"}'
    for number in range(SCHEDULES):
        for _ in range(RUNS_SHOWN):
            path = f"/v1/schedules/{name_of(number)}:trigger"
            reply = await connection.ask(request("POST", path, body))
            if reply.status != 201:
                raise NotDone(f"a trigger was answered with {reply.status}: {reply.body!r}")
    connection.close()


async def _read_for(
    browser: Browser, server: Server, arguments: argparse.Namespace
) -> tuple[Heaps, dict[str, list[HeapParts]]]:
    """Return the readings, and the parts of the heap of each screen when full and at the end."""
    context = await browser.new_context(viewport=VIEWPORT)
    sessions: dict[str, CDPSession] = {}
    for path in SCREENS:
        page = await context.new_page()
        await page.goto(server.url + path)
        await page.locator(".connection", has_text="live").wait_for()
        sessions[path] = await open_session(page)
    worker = await WorkerHeap.attach(browser)
    heaps: Heaps = {name: [] for name in (*sessions, WORKER)}
    parts: dict[str, list[HeapParts]] = {name: [] for name in sessions}
    for number in range(arguments.minutes + 1):
        began = time.monotonic()
        for path, session in sessions.items():
            heaps[path].append(await read_heap(session))
        heaps[WORKER].append({"JSHeapUsedSize": await worker.read_bytes()})
        line = ", ".join(
            f"{name} {readings[-1]['JSHeapUsedSize'] / 1e6:.2f}" for name, readings in heaps.items()
        )
        print(f"    {time.strftime('%H:%M:%S')} MB: {line}", flush=True)
        if number in (_count_filling(arguments), arguments.minutes):
            for path, session in sessions.items():
                parts[path].append(await read_parts(session))
        await asyncio.sleep(max(0.0, arguments.interval - (time.monotonic() - began)))
    return heaps, parts


def _find_slope(values: Sequence[float]) -> float:
    """Return the median growth from one value to the next over all pairs; 0 for one value."""
    pairs = itertools.combinations(enumerate(values), 2)
    return statistics.median(
        [(last - first) / (end - start) for (start, first), (end, last) in pairs] or [0.0]
    )


OPTIONS = (
    Option("minutes", 60, 2, "how often the heaps are read", positive),
    Option("interval", 60, 2, "seconds between two readings", positive),
    Option("rate", 20, 20, "jobs submitted a second", positive),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
