"""The whole server stays below 50 MB with 100,000 jobs, and loads nothing heavy."""

import compileall
import http.client
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import schedo
from tests.e2e.server import Server, serving

pytestmark = pytest.mark.e2e

JOBS = 100_000
BATCH = 1_000
RSS_KIB_MAX = 50 * 1024
# Each of these alone would cost megabytes.
HEAVY = {
    *("aiohttp", "alembic", "asyncpg", "cryptography", "fastapi", "grpc", "httpx", "httpx2"),
    *("jinja2", "nats", "opentelemetry", "prometheus_client", "psycopg", "pydantic", "rich"),
    *("sqlalchemy", "websockets", "yaml", "importlib.metadata"),
}


def test_a_hundred_thousand_jobs_fit_in_50_megabytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without compiled bytecode the compiler's own memory would be counted.
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    compileall.compile_dir(str(Path(schedo.__file__).parent), quiet=1)
    with serving(tmp_path, "--allow-shell") as server:
        _submit_all(server)
        rss_kib = [_rss_kib(server)]
        for path in ("/v1/queues", "/v1/jobs?limit=500", "/v1/jobs?state=scheduled", "/metrics"):
            _read(server, path)
            rss_kib.append(_rss_kib(server))
        _, queues = server.ask("GET", "/v1/queues")

    assert queues["items"][0]["waiting"] == {"scheduled": JOBS}
    assert max(rss_kib) < RSS_KIB_MAX, rss_kib


def test_a_default_server_loads_nothing_heavy() -> None:
    listing = subprocess.run(
        [sys.executable, "-c", "import sys, schedo.serve; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert not HEAVY & set(listing.stdout.split())


def _submit_all(server: Server) -> None:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    for start in range(0, JOBS, BATCH):
        jobs = [
            {"task": "shell", "payload": {"command": "true"}, "delay": 3600 + number % 5_000}
            for number in range(start, start + BATCH)
        ]
        headers = {"content-type": "application/json"}
        connection.request("POST", "/v1/jobs:batch", json.dumps(jobs), headers)
        answer = connection.getresponse()
        items = json.loads(answer.read())["items"]
        assert {item["status"] for item in items} == {201}
    connection.close()


def _read(server: Server, path: str) -> None:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    assert (answer.status, bool(answer.read())) == (200, True)
    connection.close()


def _rss_kib(server: Server) -> int:
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024
