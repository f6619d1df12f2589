"""The figures that bench/README.md and README.md quote first."""

from __future__ import annotations

from typing import NamedTuple


class Headline(NamedTuple):
    """A figure with its target and the values of other schedulers.

    An inner bench drives the engine itself or sets more than the defaults; its rows say so.
    """

    what: str
    script: str
    figure: str  # the name of the script's figure
    floor: str = ""  # the beginning of the floor's name, if the figure has several
    target: str = "-"
    peers: str = "-"
    is_quoted: bool = True  # in README.md


_STREAM = "graphile-worker 23,400/s, pgqueuer 13,900/s"
_DRAIN = "graphile-worker 29,000/s"
_ARMED = "embedded, 5,000/s, 1,000,000 other jobs due in 4 h"

HEADLINES = (
    Headline(
        "no-op jobs, embedded, stream",
        "public",
        "embedded stream, no-op jobs",
        target=">= 2 x the best peer, >= 0.25 x bare commits",
        peers=_STREAM,
    ),
    Headline(
        "the same, drain",
        "public",
        "embedded drain, no-op jobs",
        target=">= 1.5 x the best peer, >= 0.8 x stream",
        peers=_DRAIN,
    ),
    Headline(
        "no-op jobs, `schedo serve` with an application, stream",
        "public",
        "served stream, no-op jobs",
        target=">= 1 x the best peer",
        peers=_STREAM,
    ),
    Headline(
        "the same, drain",
        "public",
        "served drain, no-op jobs",
        target=">= 1 x the best peer",
        peers=_DRAIN,
    ),
    Headline("payloads of 1 KB, embedded, stream", "public", "embedded stream, payloads of 1 KB"),
    Headline(
        "10 tasks and 3 queues, embedded, stream", "public", "embedded stream, 10 tasks, 3 queues"
    ),
    Headline(
        "unique keys and tags, embedded, stream", "public", "embedded stream, unique keys and tags"
    ),
    Headline(
        "3,000 queues, embedded, drain",
        "public",
        "embedded drain, 3,000 queues",
        is_quoted=False,
    ),
    Headline(
        "a backlog of 1 million, embedded, drain", "backlog", "embedded, 1,000,000 jobs: drain"
    ),
    Headline("a backlog of 1 million, served, drain", "backlog", "served, 1,000,000 jobs: drain"),
    Headline(
        "one HTTP submit at a time",
        "submits",
        "submits, 1 connection",
        floor="bare commits",
        target=">= 0.5 x bare commits",
    ),
    Headline(
        "the same, jobs that run at once",
        "submits",
        "submits, 1 connection, jobs run at once",
        floor="bare commits",
    ),
    Headline(
        "one submit at a time, embedded, jobs that run at once",
        "public",
        "embedded, one submit at a time, jobs run at once",
    ),
    Headline(
        "HTTP submits, 32 connections",
        "submits",
        "submits, 32 connections",
        floor="empty endpoint",
        target=">= 8,000/s",
        peers="beanstalkd 9,000/s (fsync on every write), arq 9,400/s, Celery 2,200/s",
    ),
    Headline(
        "HTTP submit to handler start, idle server, p50",
        "start",
        "submit to handler start: p50",
        target="< 1 ms, <= 3 x the floor",
    ),
    Headline(
        "200 timed jobs/s, embedded: lateness p50",
        "timed",
        "embedded, 200/s: p50",
        target="<= 2 x timerfd",
        peers="Celery 1.6 ms; APScheduler 3 in memory 0.45 ms, nothing durable",
    ),
    Headline(
        "the same, p99",
        "timed",
        "embedded, 200/s: p99",
        peers="Celery 3.5 ms; APScheduler 3 in memory 1.3 ms, nothing durable",
    ),
    Headline(
        "the same, CPU of a core",
        "timed",
        "embedded, 200/s: CPU of a core",
        target="<= 6 %",
        peers="Celery 16 %; APScheduler 3 in memory 5 %, nothing durable",
    ),
    Headline(
        "200 timed jobs/s, served: lateness p50", "timed", "served, 200/s: p50", is_quoted=False
    ),
    Headline("the same, CPU of a core", "timed", "served, 200/s: CPU of a core", is_quoted=False),
    Headline(
        "memory with an application: the server",
        "public",
        "memory with an application: server",
    ),
    Headline(
        "the same: its child processes",
        "public",
        "memory with an application: its child processes",
    ),
    Headline(
        "memory, 100,000 jobs scheduled, no application",
        "memory",
        "memory, 100,000 jobs scheduled",
        target="< 50 MB",
        peers="beanstalkd 22 MiB + worker 23, BullMQ 46 + 72, SAQ 62 + 35, Celery 136 + 896",
        is_quoted=False,
    ),
    Headline(
        "memory, 10 million jobs scheduled, no application",
        "memory",
        "memory, 10,000,000 jobs scheduled",
        target="< 64 MB",
    ),
    Headline(
        "start to ready, 10 million jobs in the file",
        "memory",
        "start to ready, 10,000,000 jobs scheduled",
        target="< 500 ms",
        peers="with 100,000 jobs: beanstalkd 170 ms, arq 640 ms, BullMQ 970 ms",
    ),
    Headline(
        "one HTTP submit, 10 million jobs in the file, p50",
        "full_store",
        "submit: p50",
        target="<= 1.10 x the empty store",
    ),
    Headline(
        "the same, p99",
        "full_store",
        "submit: p99",
        target="<= 1.25 x the empty store",
        is_quoted=False,
    ),
    Headline(
        "the same while expired jobs are pruned, p50",
        "full_store",
        "submit beside pruning: p50",
        target="<= 1.10 x without pruning",
    ),
    Headline(
        "the same, p99",
        "full_store",
        "submit beside pruning: p99",
        target="<= 1.25 x without pruning",
        is_quoted=False,
    ),
    Headline(
        "a timed job starts, 10 million jobs in the file: lateness p50",
        "full_store",
        "start of a timed job: p50",
        target="<= 1.10 x the empty store",
    ),
    Headline(
        "the same, p99",
        "full_store",
        "start of a timed job: p99",
        target="<= 1.25 x the empty store",
        is_quoted=False,
    ),
    Headline(
        "the page: first contentful paint of a first visit",
        "page",
        "first visit: first contentful paint",
        target="<= 200 ms",
        is_quoted=False,
    ),
    Headline(
        "the same, all data shown",
        "page",
        "first visit: first data",
        target="<= 400 ms",
        is_quoted=False,
    ),
    Headline(
        "each second of the page: script, layout and style",
        "page",
        "a tick: script, layout and style",
        target="<= 8 ms",
        is_quoted=False,
    ),
    Headline(
        "the overview, 10 million jobs in the file, click to data",
        "screens",
        "screen /",
        target="<= 300 ms",
        is_quoted=False,
    ),
    Headline(
        "a timed job starts while a client searches these in vain: lateness p99",
        "screens",
        "start of a timed job beside a search in vain: p99",
        target="<= 1.25 x without the search",
        is_quoted=False,
    ),
    Headline(
        "100 pages open: processor",
        "streams",
        "100 streams of the overview: more of a core",
        target="<= 2 %",
        is_quoted=False,
    ),
    Headline(
        "the same: memory",
        "streams",
        "100 streams of the overview: more memory",
        target="<= 3 MB",
        is_quoted=False,
    ),
    Headline(
        "5,000 timed jobs/s beside 100 event streams: lateness p50",
        "streams",
        "5,000 timed jobs/s, 100 streams: p50",
        target="<= 1.10 x without",
        is_quoted=False,
    ),
    Headline(
        "the same, p99",
        "streams",
        "5,000 timed jobs/s, 100 streams: p99",
        target="<= 1.25 x without",
        is_quoted=False,
    ),
    Headline(
        "shell commands, 16 at a time",
        "shell",
        "commands, 16 at a time",
        target=">= 1 x xargs -P16",
    ),
    Headline(
        "invoke over HTTP on one of two workers, p50", "workers", "invoke: p50", target="< 2 ms"
    ),
    Headline(
        "100 workers x 10 slots, 5,000 jobs/s: due to a worker's start, p99",
        "workers",
        "100 workers x 10 slots, 5,000 jobs/s, due to worker's start: p99",
        target="< 5 ms when not saturated",
        is_quoted=False,
    ),
    Headline(
        "1,000 idle workers: memory",
        "workers",
        "1,000 idle workers: memory",
        target="< 20 MB",
        is_quoted=False,
    ),
    Headline(
        "inner bench: lateness at 5,000/s with a million other jobs, engine alone, p50",
        "lateness",
        f"{_ARMED}: p50",
        target="<= 100 us, <= 3 x timerfd",
    ),
    Headline("inner bench: the same, p99", "lateness", f"{_ARMED}: p99", target="< 1 ms"),
    Headline(
        "inner bench: engine alone, batches of 100, 16 at a time",
        "throughput",
        "embedded, batches of 100",
        target=">= 75,000/s, >= 0.25 x bare commits",
    ),
    Headline(
        "inner bench: `schedo serve --concurrency 1000`, batches of 100, 16 at a time",
        "throughput",
        "over HTTP, batches of 100",
        target=">= 35,000/s",
    ),
)
