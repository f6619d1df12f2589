"""The calls of the HTTP API that show how a server is doing, as Operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schedo.client.messages import Operation, Record
from schedo.client.options import render_value
from schedo.client.rest import (
    Page,
    get,
    list_with,
    page_with,
    post,
    read_nothing,
    record_with,
    render_query,
)

_QUIET_S = 30.0  # a stream brings a comment every 15 s at least


def get_summary() -> Operation[Record]:
    """Return the verdict on the server and its main figures."""
    return get("/v1/summary", record_with("verdict"))


def get_cluster() -> Operation[Record]:
    """Return the servers that share the store, with the shards that they own."""
    return get("/v1/cluster", record_with("members"))


def get_store() -> Operation[Record]:
    """Return the size of the store and, in PostgreSQL, its tables and old transactions."""
    return get("/v1/store", record_with("bytes"))


def get_me() -> Operation[Record]:
    """Return who the client is, and the names of the operations that it may call."""
    return get("/v1/me", record_with("access"))


def create_session_link() -> Operation[Record]:
    """Make a code that logs a browser in, once and within a minute."""
    return post("/v1/session:link", None, record_with("link"))


def list_log(filters: Mapping[str, object]) -> Operation[Page]:
    """Return a page of who changed what by hand, newest first."""
    return get(f"/v1/log{render_query(filters)}", page_with("at"))


def list_failures() -> Operation[Record]:
    """Return the groups of failed attempts since the server started."""
    return get("/v1/failures", list_with("count"))


def list_names() -> Operation[Record]:
    """Return the names of queues, tasks, schedules, workers and tags."""
    return get("/v1/names", record_with("queues"))


def get_timeseries(
    window: str, names: Sequence[str] | None, queue: str | None, points: int | None
) -> Operation[Record]:
    """Return figures over the last "15m" or "24h"."""
    query = {
        "window": window,
        "names": None if names is None else ",".join(names),
        "queue": queue,
        "points": points,
    }
    return get(f"/v1/timeseries{render_query(query)}", record_with("figures"))


def get_stats(options: Mapping[str, object]) -> Operation[Record]:
    """Return what ended by task, queue or schedule."""
    query = {name: render_value(value) for name, value in options.items()}
    return get(f"/v1/stats{render_query(query)}", list_with("name"))


def get_events(
    topics: Sequence[str] | None, job: str | None, schedule: str | None, last_id: str | None
) -> Operation[None]:
    """Begin a stream of events, after the one with this id if the server still has the next."""
    query = {
        "topics": None if topics is None else ",".join(topics),
        "job": job,
        "schedule": schedule,
    }
    headers = {"Accept": "text/event-stream"}
    if last_id is not None:
        headers["Last-Event-ID"] = last_id
    target = f"/v1/events{render_query(query)}"
    return Operation(
        *("GET", target, read_nothing),
        headers=headers,
        is_repeatable=True,
        held_s=_QUIET_S,
        content_type="text/event-stream",
    )
