"""A request for a job with an example of every field, and what the server makes of it."""

from __future__ import annotations

import json
from typing import Any

from schedo.core.model import JobSpec
from schedo.protocol.decode import decode_checked
from schedo.protocol.jobs import JobRequest
from schedo.protocol.options import JobFields

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
EXAMPLES: dict[str, Any] = {
    "queue": "gpu",
    "priority": 3,
    "retry": {"max_attempts": 4, "initial": "1s"},
    "timeout": "30s",
    "expires_in": "1h",
    "unique": {"key": "k", "for": "10m"},
    "delivery": "at_most_once",
    "tags": ["red", "blue"],
    "meta": {"owner": "ada"},
    "requires": {"labels": {"gpu": "a100"}, "resources": {"cpu": 3}, "worker": "w1"},
    "prefer": [{"zone": "lhr"}, {}],
    "on_failure": {"task": "alert", "payload": {"channel": "ops"}, "queue": "alerts"},
    "keep": {"completed": "0s", "failed": "30d"},
    "delay": "5m",
    "run_at": "2999-01-01T00:00:00Z",
    "expires_at": "2999-01-02T00:00:00Z",
    "traceparent": TRACE,
    "tracestate": "a=b",
    "broadcast": True,
}
FIELDS = set(JobRequest.__struct_fields__) - {"task", "payload"}
SCHEDULE_FIELDS = set(JobFields.__struct_fields__) - {"task", "payload"}
# A request has one of each pair, and a broadcast has no unique key and is answered otherwise.
ALTERNATIVES = {"run_at": "delay", "expires_at": "expires_in"}
FIRST = {name: EXAMPLES[name] for name in EXAMPLES if name not in {*ALTERNATIVES, "broadcast"}}
SECOND = {name: EXAMPLES[name] for name in ALTERNATIVES}


def meaning(fields: dict[str, Any]) -> JobSpec:
    """Return the job's spec that the server makes from a request with these fields."""
    request = {"task": "t", "payload": {}, **fields}
    return decode_checked(json.dumps(request).encode(), JobRequest).to_spec()
