"""The parameters of queries and headers, as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Any

from schedo.core import limits
from schedo.core.job_filter import Order
from schedo.core.leases import STREAMS
from schedo.core.schedule_filter import Health
from schedo.core.states import State
from schedo.core.tallies import Dimension, Period
from schedo.protocol.declarations import OWNER_CHARACTERS_MAX, OWNER_PATTERN
from schedo.protocol.fields import INSTANT_SCHEMA, NAME_PATTERN
from schedo.protocol.fires import HOURS_DEFAULT, HOURS_MAX
from schedo.protocol.job_filters import ORDERS, PAYLOAD_PARAMETER, TEXT_CHARACTERS_MAX
from schedo.protocol.query import (
    ATTEMPT_MAX,
    CURSOR_CHARACTERS_MAX,
    CURSOR_CHARACTERS_MIN,
    LIMIT_DEFAULT,
    LIMIT_MAX,
)
from schedo.protocol.tallies import TEXT_CHARACTERS_MAX as NAME_TEXT_CHARACTERS_MAX
from schedo.protocol.times import DURATION_CHARACTERS_MAX, DURATION_PATTERN
from schedo.protocol.timeseries import POINTS_MAX, WINDOWS

ID_PATTERN = "^[0-9A-Za-z]{13}$"
_STATES = "|".join(state.value for state in State)
_WAIT = {
    "type": "string",
    "pattern": DURATION_PATTERN,
    "maxLength": DURATION_CHARACTERS_MAX,
}


def _query(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "description": description,
        "schema": schema or {"type": "string"},
    }


def _by_name(*parameters: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {parameter["name"]: parameter for parameter in parameters}


PARAMETERS = _by_name(
    _query(
        "state",
        "Only jobs in this state, or in one of these, with commas between them.",
        type="string",
        pattern=f"^({_STATES})(,({_STATES}))*$",
    ),
    _query("queue", "Only jobs, or figures, of this queue.", type="string", pattern=NAME_PATTERN),
    _query("task", "Only jobs of this task.", type="string", pattern=NAME_PATTERN),
    _query("schedule", "Only jobs of this schedule.", type="string", pattern=NAME_PATTERN),
    _query(
        "owner",
        "What declares the schedule, such as file:jobs.toml; without it, this changes it by hand.",
        type="string",
        pattern=f"^{OWNER_PATTERN}$",
        maxLength=OWNER_CHARACTERS_MAX,
    ),
    _query("tag", "Only jobs with this tag.", type="string", pattern=NAME_PATTERN),
    _query(
        "unique_key",
        "Only jobs with this unique key.",
        type="string",
        minLength=1,
        maxLength=limits.UNIQUE_KEY_CHARACTERS_MAX,
    ),
    _query(
        "created_after",
        "Only jobs created at this instant or later.",
        type="string",
        **INSTANT_SCHEMA,
    ),
    _query(
        "created_before",
        "Only jobs created before this instant.",
        type="string",
        **INSTANT_SCHEMA,
    ),
    _query("failing", "`true`: only schedules whose last run has failed.", enum=["true", "false"]),
    _query("paused", "Only schedules that are paused, or that are not.", enum=["true", "false"]),
    _query(
        "health",
        "Only schedules in this health. Each has the first one that applies: `overdue` (what is "
        "expected of its runs is missed), `failing`, `paused`, `ended` (it fires no more), `ok`.",
        enum=[each.value for each in Health],
    ),
    _query(
        "ended_after",
        "Only jobs that ended at this instant or later.",
        type="string",
        **INSTANT_SCHEMA,
    ),
    _query(
        "ended_before", "Only jobs that ended before this instant.", type="string", **INSTANT_SCHEMA
    ),
    _query(
        "error",
        "Only jobs whose error has this text in its type or message.",
        type="string",
        minLength=1,
        maxLength=TEXT_CHARACTERS_MAX,
    ),
    _query(
        "q",
        "Only jobs with this text in the task, the payload, the error or a tag, in upper or lower "
        "case, or whose id begins with it. Only schedules with each of these words in the name, "
        "the task or the queue.",
        type="string",
        minLength=1,
        maxLength=TEXT_CHARACTERS_MAX,
    ),
    _query(
        PAYLOAD_PARAMETER,
        "Only jobs whose payload has this value at the path, as in payload.order.items.0=9781. "
        "A number, true, false and null also mean themselves.",
        type="string",
        maxLength=TEXT_CHARACTERS_MAX,
    ),
    _query("worker", "Only jobs of this worker.", type="string", pattern=NAME_PATTERN),
    _query("late_over", "Only jobs that started later than this, or are due for longer.", **_WAIT),
    _query(
        "order",
        "By creation, the newest or the oldest job first; or `due`: only jobs that wait for their "
        "due instant (scheduled and retrying), the soonest first.",
        enum=list(ORDERS),
        default=Order.NEWEST.value,
    ),
    _query("fields", "The fields of each item, with commas between them; default all."),
    _query(
        "limit",
        "How many items a page has at most.",
        type="integer",
        minimum=1,
        maximum=LIMIT_MAX,
        default=LIMIT_DEFAULT,
    ),
    _query(
        "cursor",
        "The next_cursor of the page before; the filter must be the same.",
        type="string",
        minLength=CURSOR_CHARACTERS_MIN,
        maxLength=CURSOR_CHARACTERS_MAX,
        pattern="^[A-Za-z0-9_-]+$",
    ),
    _query("window", "How far the figures go back; default 15m.", enum=list(WINDOWS)),
    _query("by", "What the items are; default task.", enum=[*Dimension]),
    _query(
        "since",
        "Only what ended in the hour or day of this instant, or later; default 7 days ago.",
        type="string",
        **INSTANT_SCHEMA,
    ),
    _query("until", "Only hours that began before; default now.", type="string", **INSTANT_SCHEMA),
    _query("per", "Also give each item in points of this length.", enum=[*Period]),
    _query(
        "name",
        "Only names with this text, in upper or lower case.",
        type="string",
        minLength=1,
        maxLength=NAME_TEXT_CHARACTERS_MAX,
    ),
    _query(
        "exact_name",
        "Only the task, queue or schedule of this name.",
        type="string",
        minLength=1,
        maxLength=NAME_TEXT_CHARACTERS_MAX,
    ),
    _query(
        "points",
        "Into how many intervals the window is cut at most.",
        type="integer",
        minimum=1,
        maximum=POINTS_MAX,
        default=POINTS_MAX,
    ),
    _query("from", "The first instant; default now.", type="string", **INSTANT_SCHEMA),
    _query("to", "The last instant; default a day later.", type="string", **INSTANT_SCHEMA),
    _query(
        "hours",
        "How long the range is.",
        type="integer",
        minimum=1,
        maximum=HOURS_MAX,
        default=HOURS_DEFAULT,
    ),
    _query("bucket", "The length of a bucket; default 5m.", **_WAIT),
    _query("topics", "The topics, with commas between them; default all."),
    _query("job", "Only changes of these jobs, at most 16, with commas between them."),
    _query("who", "Only changes by the token of this name.", pattern=NAME_PATTERN),
    _query("action", "Only changes by this operation, by its name here."),
    _query("target", "Only changes of this: an address below /v1/, such as schedules/nightly."),
    _query("before", "Only changes before this instant.", type="string", **INSTANT_SCHEMA),
    _query("names", "The names of the figures, with commas between them; default all."),
    _query("wait", "Wait this long for the job's end, at most 5m.", **_WAIT),
    _query("timeout", "How long to wait, at most 5m; default 30s.", **_WAIT),
    _query(
        "stream",
        "Only this stream, as bare text, of the latest attempt.",
        enum=list(STREAMS),
    ),
    _query("attempt", "Only this attempt.", type="integer", minimum=1, maximum=ATTEMPT_MAX),
    _query("task_id", "The id that /schedule answered with.", type="string", pattern=ID_PATTERN)
    | {"required": True},
    {
        "name": "Idempotency-Key",
        "in": "header",
        "description": (
            "The same key and body again within 24 hours get the same response, "
            "and have no second effect."
        ),
        "schema": {"type": "string", "pattern": "^[ -~]{1,255}$"},
    },
    {
        "name": "Prefer",
        "in": "header",
        "description": (
            "`return=minimal`: the response has only the id, the state, the task and the queue of "
            "each job."
        ),
        "schema": {"type": "string"},
    },
    {
        "name": "Schedo-Lease-Nonce",
        "in": "header",
        "required": True,
        "description": "The nonce of the reservation.",
        "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
    },
)
