"""The memory of the server stays small, with 100,000 jobs and with hostile clients."""

import compileall
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

import schedo
from tests.e2e.server import Server, serving

pytestmark = pytest.mark.e2e

JOBS = 100_000
BATCH = 1_000
BODY_BYTES = 8_000_000
RSS_KIB_MAX = 50 * 1024
# Each of these modules would take megabytes, or a part of one that few servers need.
HEAVY = {
    *("aiohttp", "alembic", "asyncpg", "cryptography", "fastapi", "grpc", "httpx", "httpx2"),
    *("jinja2", "nats", "opentelemetry", "prometheus_client", "psycopg", "pydantic", "rich"),
    *("sqlalchemy", "websockets", "yaml", "importlib.metadata", "multiprocessing"),
    *("tempfile", "shutil", "bz2", "lzma", "http.client"),
    *("schedo.client.sync", "schedo.worker.process.pool"),
}


def test_a_hundred_thousand_jobs_fit_in_50_megabytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without compiled bytecode, the memory of the compiler would count as well.
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


def test_a_default_server_imports_no_large_module() -> None:
    listing = subprocess.run(
        [sys.executable, "-c", "import sys, schedo.serve; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert not HEAVY & set(listing.stdout.split())


def test_hostile_clients_occupy_at_most_64_mib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    payload = "x" * (BODY_BYTES // BATCH - 60)
    batch = json.dumps([{"task": "none", "payload": payload, "delay": 3600}] * BATCH).encode()
    with serving(tmp_path) as server, ThreadPoolExecutor(8) as pool:
        job = server.submit(task="none", payload="x" * 1_000_000, delay=3600)
        idle_kib = _rss_kib(server)
        peak_kib = [idle_kib]
        statuses = [pool.submit(_post, server, "/v1/jobs:batch", batch) for _ in range(8)]
        deaf = [
            *(_deaf(server, _head("GET", "/v1/info") * 2_000) for _ in range(50)),
            *(_deaf(server, _head("GET", f"/v1/jobs/{job['id']}") * 20) for _ in range(50)),
            *(_deaf(server, _head("POST", "/v1/jobs:batch", batch) + batch[:-1]) for _ in range(5)),
        ]
        unanswered = set(statuses)
        while unanswered:
            peak_kib.append(_rss_kib(server))
            unanswered = wait(unanswered, timeout=0.01).not_done
        assert {status.result() for status in statuses} <= {200, 429}
        assert server.ask("POST", "/v1/jobs", {"task": "none", "delay": 60})[0] == 201
        peak_kib.append(_rss_kib(server))
        for sock in deaf:
            sock.close()

    assert max(peak_kib) - idle_kib < 64 * 1024, peak_kib


def _head(method: str, path: str, body: bytes = b"") -> bytes:
    length = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    line = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n".encode()
    return line + (length if body else b"") + b"\r\n"


def _deaf(server: Server, data: bytes) -> socket.socket:
    """Send as many bytes as the server accepts at once, and read nothing."""
    host, port = server.url.removeprefix("http://").split(":")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.connect((host, int(port)))
    sock.settimeout(0.05)
    with contextlib.suppress(TimeoutError, ConnectionError):
        sock.sendall(data)
    return sock


def _post(server: Server, path: str, body: bytes) -> int:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    connection.request("POST", path, body, {"content-type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


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
