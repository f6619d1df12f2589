"""SIGHUP to a real server and a real worker: it reloads settings, and never ends the process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.remote import worker
from tests.e2e.server import Server, eventually, serving

pytestmark = pytest.mark.e2e

FIRST = "first-0123456789abcdef"
SECOND = "second-0123456789abcdef"


def write(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def hang_up(server: Server, reports: int = 1) -> str:
    """Send SIGHUP; return the log once it has this many reports of a reload."""
    os.kill(server.pid, signal.SIGHUP)
    eventually(lambda: server.log().count("reload: ") >= reports, "report of the reload")
    assert server.is_running
    return server.log()


def test_a_server_survives_a_hangup_and_drains_afterwards(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        log = hang_up(server)

        assert "reload: nothing has changed" in log
        assert server.ask("GET", "/healthz")[0] == 200
        assert server.terminate() == 0


def test_a_hangup_replaces_the_token(tmp_path: Path) -> None:
    file = write(tmp_path / "token", FIRST)
    with serving(tmp_path, "--token-file", file) as server:
        server.token = FIRST
        assert server.ask("GET", "/v1/jobs")[0] == 200
        write(tmp_path / "token", SECOND)

        log = hang_up(server)

        assert "reload: changed token\n" in log
        assert FIRST not in log
        assert SECOND not in log
        assert server.ask("GET", "/v1/jobs")[0] == 401
        server.token = SECOND
        assert server.ask("GET", "/v1/jobs")[0] == 200


def test_a_bad_file_changes_nothing(tmp_path: Path) -> None:
    file = write(tmp_path / "token", FIRST)
    with serving(tmp_path, "--token-file", file) as server:
        server.token = FIRST
        write(tmp_path / "token", "short")

        log = hang_up(server)

        assert "the settings stay as they are" in log
        assert server.ask("GET", "/v1/jobs")[0] == 200


def test_a_hangup_reads_the_configuration_file_again(tmp_path: Path) -> None:
    file = tmp_path / "schedo.toml"
    file.write_text('log_level = "info"\nconcurrency = 4\n')
    with serving(tmp_path) as server:
        file.write_text('log_level = "warning"\nconcurrency = 8\n[retention]\nfailed = "30d"\n')

        log = hang_up(server)

        assert "reload: a restart is needed to change concurrency" in log
        file.write_text('log_level = "info"\nconcurrency = 4\n')
        log = hang_up(server, reports=2)
        assert "reload: changed log_level, retention.failed" in log


def test_a_worker_survives_a_hangup_and_reads_its_token_again(tmp_path: Path) -> None:
    file = write(tmp_path / "token", FIRST)
    with serving(tmp_path, "--token-file", file) as server:
        server.token = FIRST
        with worker(server, "w1", "--token-file", file, "--allow-shell") as remote:
            remote.wait_seen()
            write(tmp_path / "token", SECOND)

            remote.signal(signal.SIGHUP)

            eventually(lambda: "reload: changed the token" in remote.log(), "report of the worker")
            hang_up(server)
            server.token = SECOND
            job = server.submit(task="shell", payload={"command": "true"})
            assert server.ended(job["id"])["state"] == "completed"
            assert SECOND not in remote.log()


def test_a_hangup_changes_the_roles_of_tokens_and_a_bad_line_changes_none(tmp_path: Path) -> None:
    file = write(tmp_path / "tokens", f"{FIRST} role=operator name=ann\n")
    with serving(tmp_path, "--tokens", file) as server:
        server.token = FIRST
        assert server.ask("POST", "/v1/jobs", {"task": "x"})[0] == 201
        write(tmp_path / "tokens", f"{FIRST} role=viewer name=ann\n{SECOND} role=owner name=bob\n")
        log = hang_up(server)
        assert "line 2: write role=viewer" in log
        assert server.ask("POST", "/v1/jobs", {"task": "x"})[0] == 201

        write(tmp_path / "tokens", f"{FIRST} role=viewer name=ann\n")
        log = hang_up(server, reports=2)

        assert "reload: changed tokens" in log
        assert server.ask("POST", "/v1/jobs", {"task": "x"})[0] == 403
        assert server.ask("GET", "/v1/jobs")[0] == 200
        assert FIRST not in log
        assert SECOND not in log
