"""A server that has something to show: the shop after a quarter of an hour of a normal day.

The jobs, failures and workers are real. Only the figures of the past 15 minutes and of the day are
made, from a seed: a picture should not take a day.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

from schedo.core.lateness import BUCKETS
from schedo.core.leases import AttemptResult, Completed, Failed, Lease, Stopped, StopRequest
from schedo.core.limits import MINUTE, SECOND
from schedo.core.model import Failure
from schedo.core.series import Row
from schedo.core.worker_pool import WorkerSpec
from schedo.protocol.times import render_instant
from tests.browser.shop import Shop

SEED = 7
_JOBS = 120
_QUARTER, _DAY = 900, 1_440
# How often a start falls into each bucket of lateness, from 50 µs on: timers, immediate jobs.
_TIMERS = (2, 12, 30, 34, 14, 5, 2, 0.6, 0.03, 0.01, 0.005)
_SUBMITS = (0, 0, 1, 8, 30, 38, 18, 3, 0.04, 0.01, 0.01)

WORKERS = {
    "eu-gpu-1": (8, {"region": "eu", "gpu": "t4"}),
    "eu-std-2": (12, {"region": "eu"}),
    "us-std-1": (6, {"region": "us"}),
}
SCHEDULES: dict[str, dict[str, Any]] = {
    "inventory.sync": {"cron": "*/5 * * * *"},
    "cache.warm": {"cron": "*/30 * * * *"},
    "metrics.rollup": {"cron": "0 * * * *"},
    "prune.sessions": {"cron": "0 * * * *"},
    "search.reindex": {"cron": "0 * * * *"},
    "tokens.rotate": {"cron": "0 */4 * * *"},
    "backup.nightly": {"cron": "30 2 * * *", "tz": "Europe/Berlin"},
    "reports.daily": {"cron": "0 6 * * *", "tz": "America/Sao_Paulo"},
    "fx.rates": {"cron": "0 8,14,20 * * *", "tz": "Europe/London"},
}
SECONDS = {
    "send_email": 0.05,
    "charge_card": 0.2,
    "resize_image": 60.0,
    "reindex": 90.0,
    "sync": 0.3,
}
GATEWAY = "the payment gateway answered 502 after 3 redirects"


class Clerk:
    """A worker whose jobs take their time; each seventh payment fails."""

    def __init__(self, demo: Demo) -> None:
        self._demo = demo

    def start(self, lease: Lease) -> None:
        seconds = SECONDS.get(lease.task, 0.1)
        asyncio.get_running_loop().call_later(seconds, self._end, lease)

    def _end(self, lease: Lease) -> None:
        is_bad = lease.task == "charge_card" and lease.key.job_id % 7 == 0
        good, bad = Completed(b'{"receipt":"R-009781"}'), Failed(Failure("GatewayError", GATEWAY))
        self._demo.engine.report(AttemptResult(lease.key, bad if is_bad else good))

    def stop(self, stop: StopRequest) -> None:
        self._demo.engine.report(AttemptResult(stop.key, Stopped()))


class Demo(Shop):
    """The shop with workers, schedules, jobs and a past."""

    async def fill(self) -> str:
        """Make everything; return the id of a job with a life to look at."""
        tasks = frozenset({*SECONDS, "sync"})
        for name, (slots, labels) in WORKERS.items():
            self.engine.attach(WorkerSpec(name, slots, tasks, labels=labels), Clerk(self))
        await self.engine.change_queue("images", concurrency=2)
        await self.engine.change_queue("mail", concurrency=6)
        for name, rule in SCHEDULES.items():
            await self.put(f"/v1/schedules/{name}", {**rule, "task": "sync"})
        shown = ""
        for number in range(_JOBS):
            job = await self.submit(**_make_job(number))
            shown = job["id"] if job["task"] == "charge_card" else shown
        due = render_instant(self.engine.clock.now() - 8 * MINUTE)
        await self.submit(task="train_model", queue="ml", run_at=due)
        self._make_past()
        return shown

    def _make_past(self) -> None:
        now, draw = self.engine.clock.now(), random.Random(SEED)
        series = self.engine.series
        for ago in range(_DAY, 0, -1):
            series.minutes.add(Row(now // MINUTE - ago, _make_figures(draw, 60)))
        for ago in range(_QUARTER - 1, 1, -1):
            series.seconds.add(Row(now // SECOND - ago, _make_figures(draw, 1)))


def _make_job(number: int) -> dict[str, Any]:
    order = {"order": 9_700 + number, "amount": 17 + number % 5}
    if number % 30 == 9:
        return {"task": "reindex", "queue": "search", "payload": {"shard": number}}
    if number % 40 == 5:
        return {"task": "resize_image", "queue": "images", "payload": {"path": f"{number}.jpg"}}
    if number % 4 == 0:
        return {"task": "charge_card", "queue": "payments", "payload": order}
    delay = "2h" if number % 3 == 0 else "0s"
    return {"task": "send_email", "queue": "mail", "payload": order, "delay": delay}


def _make_figures(draw: random.Random, seconds: int) -> list[int]:
    """Return the figures of a row: counts, lateness of both kinds, gauges."""
    timers, submits = (round(draw.gauss(mean, mean / 5)) for mean in (26, 11))
    started = (max(0, timers) + max(0, submits)) * seconds
    failed = int(draw.random() < 0.02 * seconds)
    counts = [
        started + draw.randint(-3, 3),
        started,
        started - failed,
        failed,
        0,
        0,
        failed,
        9,
        4_000,
    ]
    lateness = [*_spread(draw, timers, _TIMERS), *_spread(draw, submits, _SUBMITS)]
    lateness = [count * seconds for count in lateness]
    gauges = [draw.randint(0, 3), 47 + draw.randint(-3, 3), draw.randint(3, 9), 26, 900, 3_000]
    return [*(max(0, count) for count in counts), *lateness, *gauges]


def _spread(draw: random.Random, starts: int, weights: tuple[float, ...]) -> Iterator[int]:
    found = draw.choices(range(len(weights)), weights, k=max(0, starts))
    return (found.count(bucket) for bucket in range(BUCKETS))
