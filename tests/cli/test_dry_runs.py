"""`schedo invoke --dry-run`."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import Call
from tests.client.server import FakeServer


def found(**fields: Any) -> dict[str, Any]:
    worker = {"worker": "a", "ok": False, "permanent": False, "text": "all 2 slots are taken"}
    record = {
        "would_start": False,
        "text": "0 of 1 workers\x1b could take it now",
        "workers": [worker],
        "has_more_workers": False,
    }
    return {**record, **fields}


def test_a_dry_run_lists_what_each_worker_says(server: FakeServer, schedo: Call) -> None:
    server.on("POST", "/v1/invoke", 200, found())

    result = schedo("invoke", "train", "--dry-run")

    first, _, headers, row = result.stdout.splitlines()
    assert first == "0 of 1 workers\\x1b could take it now"
    assert headers.split() == ["WORKER", "TAKES", "IT", "DETAIL"]
    assert row.split() == ["a", "not", "now", "all", "2", "slots", "are", "taken"]
    assert result.exit_code == 1
    assert json.loads(server.requests[-1].body)["dry_run"] is True


def test_a_dry_run_of_a_job_that_would_start_succeeds(server: FakeServer, schedo: Call) -> None:
    server.on("POST", "/v1/invoke", 200, found(would_start=True))

    result = schedo("invoke", "train", "--dry-run", "--json")

    assert (result.exit_code, json.loads(result.stdout)["would_start"]) == (0, True)
