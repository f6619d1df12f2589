"""An example of the body of each operation that needs one, for the OpenAPI document and /docs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_JOB = {"task": "send_email", "payload": {"to": "ada@example.org"}}
_SCHEDULE = {"cron": "30 2 * * *", "tz": "Europe/Berlin", "task": "nightly_report"}

# By the name of the operation.
EXAMPLES: Mapping[str, Any] = {
    "create_job": {**_JOB, "delay": "10m", "retry": 5, "timeout": "30s", "tags": ["welcome"]},
    "create_jobs": [_JOB, {"task": "send_email", "payload": {"to": "bob@example.org"}}],
    "update_job": {"run_at": "2030-01-31T18:30:00+01:00", "priority": 5},
    "create_operation": {
        "action": "retry",
        "where": {"state": "failed", "task": "send_email", "ended_after": "2030-01-31T00:00:00Z"},
        "dry_run": True,
    },
    "work": {
        "worker": "mailer-1",
        "session": "3f2504e0",
        "tasks": ["send_email"],
        "slots": 4,
        "max_leases": 4,
        "wait": "20s",
    },
    "invoke": {**_JOB, "wait": "10s"},
    "reserve": {"task": "render", "requires": {"labels": {"gpu": "a100"}}, "ttl": "10s"},
    "commit_reservation": {"task": "render", "payload": {"scene": 7}, "wait": "1m"},
    "put_schedule": {**_SCHEDULE, "retry": 3, "expect": {"within": "1h"}},
    "declare": {"owner": "file:jobs.toml", "schedules": [{"name": "nightly", **_SCHEDULE}]},
    "pause_schedule": {"note": "the database is being moved"},
    "resume_schedule": {"resume_from": "2030-01-31T02:00:00Z"},
    "trigger_schedule": {"overlap": "allow"},
    "explain_cron": {"cron": "30 2 * * *", "tz": "Europe/Berlin", "count": 5},
    "update_queue": {"concurrency": 10, "keep": {"completed": "1h", "failed": "30d"}},
    "pause_queue": {"note": "the mail server is down", "duration": "2h"},
    "short_schedule": {"command": "echo hello", "delay_seconds": 5},
    "put_expectation": {"every": "1d", "within": "2h", "on_miss": "alert_ops"},
    "create_session": {"token": "the token of the server"},
    "pause_server": {"scopes": ["starts"], "note": "the database is being moved"},
    "resume_server": {"scopes": ["starts"]},
    "advance_clock": {"by": "1h"},
}
