"""The request for a spec gives the same spec again."""

from __future__ import annotations

import msgspec
import pytest

from schedo.core.model import JobSpec
from schedo.protocol.job_specs import spec_fields
from schedo.protocol.jobs import JobRequest

REQUESTS = [
    {"task": "plain"},
    {"task": "full", "queue": "q", "priority": 5, "payload": {"a": [1, 2.5, None, "é"]}},
    {"task": "t", "run_at": "2027-01-15T08:00:00Z", "expires_at": "2027-01-16T08:00:00Z"},
    {"task": "t", "delay": "5s", "expires_in": "1h", "timeout": "30s", "tags": ["a", "b"]},
    {"task": "t", "retry": "webhook", "delivery": "at_least_once", "meta": {"k": "v"}},
    {"task": "t", "retry": {"max_attempts": 4}, "delivery": "at_most_once"},
    {"task": "t", "unique": "key"},
    {"task": "t", "unique": {"key": "k", "while": ["queued"], "on_conflict": "reject"}},
    {"task": "t", "unique": {"key": "k", "for": "1h"}},
    {"task": "t", "keep": {"completed": "0s", "failed": "5h"}},
    {"task": "t", "requires": {"labels": {"zone": "a"}}, "prefer": [{"labels": {"zone": "b"}}]},
    {"task": "t", "on_failure": {"task": "http", "payload": {"url": "http://u:secret@h/"}}},
    {"task": "t", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
]


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_spec_survives_its_request(request_: dict[str, object]) -> None:
    spec = read(request_)

    assert read(spec_fields(spec)) == spec


def read(fields: dict[str, object]) -> JobSpec:
    return msgspec.json.decode(msgspec.json.encode(fields), type=JobRequest).to_spec()
