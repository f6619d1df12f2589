"""A server that has something to show: the shop after a quarter of an hour of a normal day.

The jobs, failures and workers are real. Only the figures of the past 15 minutes and of the day are
made, from a seed: a picture should not take a day.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

from schedo.core.changes import Changes
from schedo.core.ids import first_id, parse_id
from schedo.core.lateness import BUCKETS
from schedo.core.leases import (
    AttemptResult,
    CapturedOutput,
    Completed,
    Failed,
    Lease,
    Stopped,
    StopRequest,
)
from schedo.core.limits import DAY, MINUTE, SECOND
from schedo.core.model import Decision, DecisionRecord, Failure
from schedo.core.series import Row
from schedo.core.triggers import latest_through
from schedo.core.worker_pool import WorkerSpec
from schedo.protocol.times import render_instant
from tests.browser.shop import Shop

SEED = 7
_JOBS = 120
_QUARTER, _DAY = 900, 1_440
# How often a start falls into each bucket of lateness, from 50 µs on: timers, immediate jobs.
_TIMERS = (2, 12, 30, 34, 14, 5, 2, 0.6, 0.03, 0.01, 0.005)
_SUBMITS = (0, 0, 1, 8, 30, 38, 18, 3, 0.04, 0.01, 0.01)

SHOWN = "stock.export"  # has a fortnight of decisions, and RUNS runs
RUNS = 16
_FORTNIGHT = 14 * DAY
# What did not go as usual, by how many fires ago it was.
_UNUSUAL = {
    9: Decision.SKIPPED_OVERLAP,
    **dict.fromkeys(range(31, 35), Decision.PAUSED),
    70: Decision.CAUGHT_UP,
    **dict.fromkeys(range(71, 74), Decision.MISSED),
    105: Decision.SKIPPED_OVERLAP,
}
_LATE_AGO, _LATE_US = 70, 4 * SECOND
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
    SHOWN: {"cron": "15 */2 * * *", "tz": "Europe/Berlin", "expect": {"within": "30m"}},
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


PAID = b"POST https://gateway.example/charges\n\x1b[32m201 Created\x1b[0m receipt R-009781\n"
REFUSED = b"POST https://gateway.example/charges\n\x1b[31m502 Bad Gateway\x1b[0m\n"


class Clerk:
    """A worker whose jobs take their time; each fifth payment fails twice, each seventh always."""

    def __init__(self, demo: Demo) -> None:
        self._demo = demo

    def start(self, lease: Lease) -> None:
        seconds = SECONDS.get(lease.task, 0.1) * self._demo.draw.uniform(0.8, 1.4)
        asyncio.get_running_loop().call_later(seconds, self._end, lease)

    def _end(self, lease: Lease) -> None:
        number, is_payment = lease.key.job_id, lease.task == "charge_card"
        is_bad = is_payment and (number % 7 == 0 or (is_slow(number) and lease.key.attempt < 3))
        good, bad = Completed(b'{"receipt":"R-009781"}'), Failed(Failure("GatewayError", GATEWAY))
        text = (REFUSED if is_bad else PAID) if is_payment else b""
        output = (CapturedOutput("stdout", text, b"", len(text)),) if text else ()
        self._demo.engine.report(AttemptResult(lease.key, bad if is_bad else good, output))

    def stop(self, stop: StopRequest) -> None:
        self._demo.engine.report(AttemptResult(stop.key, Stopped()))


def is_slow(number: int) -> bool:
    """Return whether the payment of a job succeeds, but not at once."""
    return number % 5 == 0 and number % 7 != 0


class Demo(Shop):
    """The shop with workers, schedules, jobs and a past."""

    draw = random.Random(SEED)

    async def fill(self) -> str:
        """Make everything; return the id of a job with a life to look at, and wait for its end."""
        tasks = frozenset({*SECONDS, "sync"})
        for name, (slots, labels) in WORKERS.items():
            self.engine.attach(WorkerSpec(name, slots, tasks, labels=labels), Clerk(self))
        await self.engine.change_queue("images", concurrency=2)
        await self.engine.change_queue("mail", concurrency=6)
        for name, rule in SCHEDULES.items():
            reply = await self.put(f"/v1/schedules/{name}", {**rule, "task": "sync"})
            assert reply.status == 201, reply
        shown = ""
        for number in range(_JOBS):
            job = await self.submit(**_make_job(number))
            if job["task"] == "charge_card" and is_slow(parse_id(job["id"])):
                shown = job["id"]
        due = render_instant(self.engine.clock.now() - 8 * MINUTE)
        await self.submit(task="train_model", queue="ml", run_at=due)
        await self._make_decisions()
        await self._run_by_hand()
        self._make_past()
        await self.get(f"/v1/jobs/{shown}/wait?timeout=30s")
        return shown

    async def _run_by_hand(self) -> None:
        """Let one schedule have runs to look at."""
        for _ in range(RUNS):
            reply = await self.post(f"/v1/schedules/{SHOWN}:trigger", {"overlap": "allow"})
            run = reply.json()["job"]
            await self.get(f"/v1/jobs/{run}/wait?timeout=5s")

    async def _make_decisions(self) -> None:
        """Give one schedule a ledger: it fired on time, but for some instants."""
        await self.engine.flush()
        schedule = await self.store.get_schedule(SHOWN)
        assert schedule is not None
        now = self.engine.clock.now()
        instants, _ = latest_through(schedule.rule, now - _FORTNIGHT, now, 1_000)
        records = [
            DecisionRecord(
                schedule.id,
                instant,
                instant + (_LATE_US if ago == _LATE_AGO else self.draw.randint(90, 2_400)),
                _UNUSUAL.get(ago, Decision.FIRED),
                first_id(instant) if ago not in _UNUSUAL else None,
            )
            for ago, instant in enumerate(instants)
        ]
        await self.store.commit(Changes(decisions=records[::-1]))

    def _make_past(self) -> None:
        now, draw = self.engine.clock.now(), self.draw
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
        retry = {"max_attempts": 5, "initial": "800ms"}
        return {"task": "charge_card", "queue": "payments", "payload": order, "retry": retry}
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
